# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

"""What every policy is: a name and one pure method."""

from __future__ import annotations

from typing import ClassVar, Protocol

from laas_service.domain.allocation import Allocation, NoFit, Request
from laas_service.domain.fabric import FabricView


class Policy(Protocol):
    """Looks at the fabric and answers; takes nothing, changes nothing.

    The answer depends on the fabric's state and the request alone, so the
    planner, the simulator and the service always agree.
    """

    name: ClassVar[str]
    isolating: ClassVar[bool]
    """Whether allocations own their links (and so have the full-bandwidth promise)."""

    monotone: ClassVar[bool]
    """Whether a refusal of N hosts implies a refusal of every larger number."""

    def propose(self, fabric: FabricView, request: Request) -> Allocation | NoFit: ...

# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

"""The policies, by name."""

from laas_service.domain.policies.base import Policy
from laas_service.domain.policies.baseline import Baseline
from laas_service.domain.policies.jigsaw import Jigsaw
from laas_service.domain.policies.laas import Laas
from laas_service.domain.policies.lc import Lc
from laas_service.domain.policies.lc_s import LcS
from laas_service.domain.policies.simple import Simple
from laas_service.domain.policies.ta import Ta

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy for policy in (Baseline, Ta, Simple, Laas, Jigsaw, Lc)
}
"""What the service may offer."""

PLANNING: dict[str, type[Policy]] = {**POLICIES, LcS.name: LcS}
"""What planner and simulator know; ``lc-s`` needs a ``SharedFabric``."""

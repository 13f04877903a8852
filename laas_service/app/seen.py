# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

"""What switches run, for processes that are not where that can be seen."""

from __future__ import annotations

from laas_service.app.ports import Store
from laas_service.messages import Applied


class Noted:
    """``ports.Switches``: what the worker that converges a fabric saw there last."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def applied(self, fabric: str) -> Applied:
        """Raises: NotFound."""
        holding = self._store.holding(fabric)
        if holding.seen_at is None:
            return Applied(None, "no worker has looked yet")
        return Applied(holding.applied, holding.problem)

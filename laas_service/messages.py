# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

"""Documents that travel between processes; plain values, versioned, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass

from laas_service.domain.allocation import Allocation
from laas_service.domain.inventory import Inventory
from laas_service.domain.topology import Link, Topology


@dataclass(frozen=True, slots=True)
class TenantRoute:
    """One allocation whose traffic the subnet manager has to keep on its own links.

    ``pkey`` is the tenant's partition key, 0x0001..0x7FFE, unique in the fabric.
    """

    allocation: Allocation
    pkey: int


@dataclass(frozen=True, slots=True)
class FabricState:
    """All that a subnet manager's files are made from, at one generation.

    ``tenants`` ascend by allocation id, ``failed_links`` by link id. Equal states
    render to equal bytes.
    """

    fabric: str
    generation: int
    topology: Topology
    inventory: Inventory
    tenants: tuple[TenantRoute, ...]
    failed_links: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True)
class Applied:
    """What the subnet manager is seen to run: a generation, or why none is confirmed."""

    generation: int | None
    problem: str | None = None

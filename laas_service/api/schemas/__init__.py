# SPDX-License-Identifier: Apache-2.0

"""All JSON schemas: they validate requests, build answers and make the OpenAPI document.

Requests are strict: an unknown field, or a string where a number belongs, is an
error that names the field. Answers are built by the ``of`` constructors.
"""

from laas_service.api.schemas.agents import AgentList as AgentList
from laas_service.api.schemas.agents import AgentOrders as AgentOrders
from laas_service.api.schemas.agents import AgentReport as AgentReport
from laas_service.api.schemas.agents import FileSet as FileSet
from laas_service.api.schemas.agents import Octets as Octets
from laas_service.api.schemas.agents import RangeHeader as RangeHeader
from laas_service.api.schemas.allocations import Allocation as Allocation
from laas_service.api.schemas.allocations import AllocationList as AllocationList
from laas_service.api.schemas.allocations import AllocationSummary as AllocationSummary
from laas_service.api.schemas.allocations import Degraded as Degraded
from laas_service.api.schemas.allocations import DryRun as DryRun
from laas_service.api.schemas.allocations import Event as Event
from laas_service.api.schemas.allocations import History as History
from laas_service.api.schemas.base import AT_ONCE as AT_ONCE
from laas_service.api.schemas.base import guid as guid
from laas_service.api.schemas.fabrics import Fabric as Fabric
from laas_service.api.schemas.fabrics import FabricList as FabricList
from laas_service.api.schemas.fabrics import FabricSummary as FabricSummary
from laas_service.api.schemas.fabrics import Fit as Fit
from laas_service.api.schemas.fabrics import Host as Host
from laas_service.api.schemas.fabrics import HostList as HostList
from laas_service.api.schemas.fabrics import Idle as Idle
from laas_service.api.schemas.fabrics import Link as Link
from laas_service.api.schemas.fabrics import LinkList as LinkList
from laas_service.api.schemas.fabrics import Room as Room
from laas_service.api.schemas.fabrics import Routing as Routing
from laas_service.api.schemas.fabrics import SharedPlane as SharedPlane
from laas_service.api.schemas.fabrics import Switch as Switch
from laas_service.api.schemas.fabrics import SwitchList as SwitchList
from laas_service.api.schemas.fabrics import Utilization as Utilization
from laas_service.api.schemas.requests import AllocationChange as AllocationChange
from laas_service.api.schemas.requests import AllocationQuery as AllocationQuery
from laas_service.api.schemas.requests import Constraints as Constraints
from laas_service.api.schemas.requests import FitQuery as FitQuery
from laas_service.api.schemas.requests import HostChange as HostChange
from laas_service.api.schemas.requests import HostQuery as HostQuery
from laas_service.api.schemas.requests import Idempotency as Idempotency
from laas_service.api.schemas.requests import LinkChange as LinkChange
from laas_service.api.schemas.requests import LinkQuery as LinkQuery
from laas_service.api.schemas.requests import NewAllocation as NewAllocation
from laas_service.api.schemas.requests import NewPlane as NewPlane
from laas_service.api.schemas.requests import Paging as Paging
from laas_service.api.schemas.requests import Precondition as Precondition
from laas_service.api.schemas.requests import QuotaQuery as QuotaQuery
from laas_service.api.schemas.requests import ReleaseQuery as ReleaseQuery
from laas_service.api.schemas.requests import SwitchQuery as SwitchQuery
from laas_service.api.schemas.requests import WaitQuery as WaitQuery
from laas_service.api.schemas.system import Document as Document
from laas_service.api.schemas.system import FieldError as FieldError
from laas_service.api.schemas.system import Health as Health
from laas_service.api.schemas.system import Problem as Problem
from laas_service.api.schemas.system import Quota as Quota
from laas_service.api.schemas.system import Text as Text
from laas_service.api.schemas.system import Version as Version
from laas_service.api.schemas.system import Versions as Versions
from laas_service.api.schemas.system import media as media

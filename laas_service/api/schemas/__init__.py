# SPDX-License-Identifier: Apache-2.0

"""All JSON schemas: they validate requests, build answers and make the OpenAPI document.

Requests are strict: an unknown field, or a string where a number belongs, is an
error that names the field. Answers are built by the ``of`` constructors.
"""

from laas_service.api.schemas.agents import (
    AgentAnswer,
    AgentList,
    AgentOrders,
    AgentReport,
    FileHeaders,
    FileSetAnswer,
    FormHeader,
    Octets,
)
from laas_service.api.schemas.allocations import (
    FOREIGN,
    AllocationAnswer,
    AllocationList,
    AllocationSummary,
    Certificate,
    Changed,
    DegradedAnswer,
    DryRun,
    EventAnswer,
    HistoryAnswer,
)
from laas_service.api.schemas.base import (
    AT_ONCE,
    guid,
)
from laas_service.api.schemas.fabrics import (
    ByMovingAnswer,
    Crossed,
    Fabric,
    FabricList,
    FabricSummary,
    FitAnswer,
    Host,
    HostList,
    IdleAnswer,
    Link,
    LinkList,
    RoomAnswer,
    RoutingAnswer,
    SharedPlaneAnswer,
    SwitchAnswer,
    SwitchList,
    UtilizationAnswer,
    reason_of,
)
from laas_service.api.schemas.maps import FabricMap
from laas_service.api.schemas.observation import ObservationAnswer, ObservationChange
from laas_service.api.schemas.plans import (
    EvacuationAnswer,
    QueueRoomShown,
    RoomPlanAnswer,
    SleepPlanAnswer,
)
from laas_service.api.schemas.requests import (
    AllocationChange,
    AllocationQuery,
    CertificateQuery,
    Class,
    Constraints,
    FitQuery,
    HostChange,
    HostQuery,
    Idempotency,
    IfNoneMatch,
    LinkChange,
    LinkQuery,
    MapQuery,
    NewAllocation,
    NewEvacuation,
    NewHosts,
    NewPlane,
    NewRoom,
    NewSleep,
    Paging,
    Precondition,
    QuotaQuery,
    ReleaseQuery,
    SlotsQuery,
    SwitchQuery,
    ViewQuery,
    WaitQuery,
)
from laas_service.api.schemas.system import (
    Document,
    FieldError,
    Health,
    Html,
    NewSession,
    OneVersion,
    Problem,
    QuotaAnswer,
    Script,
    SessionAnswer,
    SessionEnded,
    Text,
    Unchanged,
    Version,
    Versions,
    media,
)

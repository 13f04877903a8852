# SPDX-License-Identifier: Apache-2.0

"""Documents of readings, and of what the service remembers of them between two rounds."""

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, PlainSerializer, model_validator

from laas_service.adapters.forms import Form, Guid, LinkName, LinkNames, Names
from laas_service.app.records import Acknowledgement, News
from laas_service.domain.compute_hosts import MISSING, UNKNOWN, HostMemory, Quarantine, Trouble
from laas_service.domain.faults.counters import (
    CounterMemory,
    Data,
    Findings,
    Foreign,
    PortErrors,
    Rate,
    SwitchCounters,
)
from laas_service.domain.faults.memory import (
    Alarm,
    FaultMemory,
    LinkMemory,
    SwitchMemory,
    WithheldHost,
)
from laas_service.domain.faults.reading import (
    EndReading,
    FabricReading,
    PortState,
    UnhealthyPort,
    UnknownCable,
    UnknownSwitch,
)
from laas_service.domain.inventory import PortRef
from laas_service.messages import Running

# -- readings ---------------------------------------------------------------------

_End = Annotated[
    tuple[int, int, PortState] | tuple[int, int, PortState, int, int],
    AfterValidator(lambda row: EndReading(_port(row), row[2], _port(row[3:]))),
    PlainSerializer(lambda read: [*read.end, read.state.value, *(read.other or ())]),
]
_Cable = Annotated[
    tuple[int, int, int, int],
    AfterValidator(lambda row: UnknownCable(_port(row), _port(row[2:]))),
    PlainSerializer(lambda cable: [*cable.first, *cable.second]),
]
_Unhealthy = Annotated[
    tuple[int, int, str],
    AfterValidator(lambda row: UnhealthyPort(_port(row), row[2])),
    PlainSerializer(lambda port: [*port.port, port.condition]),
]


def _port(row: tuple[Any, ...]) -> PortRef | None:
    """The port with which a row begins; None if it is empty."""
    return PortRef(*row[:2]) if row else None


class _Reading(BaseModel):
    at: float
    ends: tuple[_End, ...]
    observer: PortRef | None
    nodes_read: int
    switches_read: int
    unknown_switches: tuple[UnknownSwitch, ...]
    unknown_cables: tuple[_Cable, ...]
    ends_left_out: int
    unhealthy: tuple[_Unhealthy, ...] = ()


READING = Form(FabricReading, "reading", _Reading)
"""Ports are GUID and port number."""

COUNTERS = Form(SwitchCounters, "counters")

RUNNING = Form(Running, "running")

NEWS = Form(tuple[News, ...], "news")

ACKNOWLEDGEMENT = Form(Acknowledgement, "acknowledgement")


# -- memories ---------------------------------------------------------------------


class _FaultMemory(BaseModel):
    at: float | None
    links: dict[LinkName, LinkMemory]
    switches: dict[Guid, SwitchMemory]
    hosts: dict[str, float]
    withheld: LinkNames
    withheld_hosts: dict[int, WithheldHost] = {}
    closed: LinkNames = frozenset()
    opened: float | None
    alarm: Alarm | None
    blind_since: float | None
    blindness_accepted: bool
    told: tuple[str, ...]


FAULT_MEMORY = Form(FaultMemory, "memory", _FaultMemory)

COUNTER_MEMORY = Form(CounterMemory, "counters")


class _HostMemory(BaseModel):
    troubles: dict[str, Trouble]
    quarantine: dict[str, Quarantine]
    servers: dict[str, Names]
    not_up: Names
    alarm: str | None
    strange: Names | None
    names: dict[str, str] = {}

    @model_validator(mode="before")
    @classmethod
    def _of_older_release(cls, document: Any) -> Any:
        """Such a document tells of no strange hosts: those that it calls unknown count."""
        troubles = document["troubles"].items()
        unknown = [name for name, trouble in troubles if trouble[0] in (UNKNOWN, MISSING)]
        return {"strange": unknown, **document}


HOST_MEMORY = Form(HostMemory, "hosts", _HostMemory)


# -- findings ---------------------------------------------------------------------


_PortErrors = Annotated[
    tuple[int, str, float, str, str],
    PlainSerializer(lambda found: [found.end.port, *found[1:]]),
]


class _Findings(BaseModel):
    guid: int
    at: float
    leaf: bool
    errors: tuple[_PortErrors, ...]
    foreign: tuple[Foreign, ...]
    data: dict[str, Data]
    rates: dict[int, Rate] = {}


def _findings(guid: int, errors: Iterable[Any], **others: Any) -> Findings:
    found = (PortErrors(PortRef(guid, port), *row) for port, *row in errors)
    return Findings(guid, errors=tuple(found), **others)


FINDINGS = Form(_findings, "counters", _Findings)
"""Errors have the number of the port alone."""

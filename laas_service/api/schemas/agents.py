# SPDX-License-Identifier: Apache-2.0

"""Schemas of agents: reports, orders and file sets."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AwareDatetime, ConfigDict, Field, RootModel, WithJsonSchema, model_validator

from laas_service import messages
from laas_service.api.schemas.base import LONGEST_HEADER, Body, Guid, Schema, Shown
from laas_service.app.ports import agents as ports
from laas_service.domain.faults import counters, reading
from laas_service.domain.faults.counters import NAMES
from laas_service.domain.inventory import PortRef
from laas_service.messages import Condition

LONGEST = 4000
"""Characters of a detail."""

Generation = Annotated[int, Field(ge=1, le=2**31 - 1)]
Stamp = Annotated[str, Field(max_length=16, pattern="^(?:[0-9a-f]{16})?$")]
Detail = Annotated[
    str, Field(max_length=LONGEST, pattern=r"^[^\x00]*$", description="In a sentence.")
]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
_GUID, _PORT = "0x[0-9a-f]{16}", "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
Port = Annotated[str, Field(max_length=22, pattern=f"^{_GUID} {_PORT}$")]
Cable = Annotated[str, Field(max_length=45, pattern=f"^{_GUID} {_PORT} {_GUID} {_PORT}$")]
Ends = Annotated[
    str,
    Field(
        pattern=f"^{_GUID} (?:down|silent|unread)(?: {_PORT})+$",
        max_length=1100,
        examples=["0x0002c90201000000 down 4 17"],
    ),
]
Switches = Annotated[list[Guid], Field(max_length=100_000)]
Role = Literal["active", "standby"]


class UnknownSwitch(Body):
    guid: Guid
    name: Annotated[str, Field(max_length=64, pattern=r"^[^\x00-\x1f\x7f]*$")]


class FabricReading(Body):
    """One look at the ports, compared with the recorded cables. Ports are `GUID port`."""

    age: Annotated[float, Field(ge=0, le=1e9)]
    """Seconds since it was known to hold."""
    ends: Annotated[list[Ends], Field(max_length=2000)]
    """The recorded ends that are not up: a GUID, their state, their ports."""
    moved: Annotated[list[Cable], Field(max_length=2000)] = []
    """Recorded ends that are linked to another port, and that port."""
    ends_left_out: Count = 0
    """How many more ends are not up."""
    observer: Port | None = None
    """The port through which the ports were read."""
    nodes_read: Count
    switches_read: Count
    unknown_switches: Annotated[list[UnknownSwitch], Field(max_length=100)] = []
    unknown_cables: Annotated[list[Cable], Field(max_length=100)] = []

    def value(self, now: float) -> reading.FabricReading:
        """The reading as a value; ``now`` is seconds since the epoch."""
        ends = [end for group in self.ends for end in _ends(group)]
        ends += [
            reading.EndReading(end, reading.PortState.OTHER, other)
            for end, other in map(_cable, self.moved)
        ]
        return reading.FabricReading(
            now - self.age,
            tuple(ends),
            _cable(self.observer)[0] if self.observer is not None else None,
            self.nodes_read,
            self.switches_read,
            tuple(reading.UnknownSwitch(int(s.guid, 16), s.name) for s in self.unknown_switches),
            tuple(reading.UnknownCable(*_cable(cable)) for cable in self.unknown_cables),
            self.ends_left_out,
        )


def _ends(text: str) -> list[reading.EndReading]:
    guid, state, *ports = text.split()
    return [
        reading.EndReading(PortRef(int(guid, 16), int(port)), reading.PortState(state))
        for port in ports
    ]


def _cable(text: str) -> list[PortRef]:
    words = text.split()
    pairs = zip(words[::2], words[1::2], strict=True)
    return [PortRef(int(guid, 16), int(port)) for guid, port in pairs]


class SwitchCounters(Body):
    """The counters of a switch's ports. Each row is a port number and, in the order of `names`,
    the counters; `-` is one that the port lacks."""

    guid: Guid
    age: Annotated[float, Field(ge=0, le=1e9)]
    """Seconds since they were read."""
    names: Annotated[
        list[Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z][A-Za-z0-9]{0,63}$")]],
        Field(max_length=len(NAMES)),
    ]
    """As perfquery prints them."""
    ports: Annotated[
        list[Annotated[str, Field(pattern=r"^[0-9]{1,3}(?: (?:[0-9]{1,20}|-))*$", max_length=500)]],
        Field(max_length=256, examples=[["1 0 4711", "2 - 0"]]),
    ]
    bit_error_rates: Annotated[
        dict[
            Annotated[str, Field(max_length=3, pattern="^[0-9]{1,3}$")],
            Annotated[float, Field(ge=0, le=1)],
        ],
        Field(max_length=256),
    ] = {}
    """After error correction, by port."""

    @model_validator(mode="after")
    def _rows_are_complete(self) -> Self:
        for row in self.ports:
            if row.count(" ") != len(self.names):
                raise ValueError(f"port {row.split()[0]}: give a value or - for each of names")
        return self

    def value(self, now: float) -> counters.SwitchCounters:
        """The reading as a value; ``now`` is seconds since the epoch. Unknown names are ignored."""
        rates = {int(port): rate for port, rate in self.bit_error_rates.items()}
        ports = {}
        for row in self.ports:
            number, *texts = row.split()
            values = {
                name: int(text)
                for name, text in zip(self.names, texts, strict=True)
                if text != "-" and name in NAMES
            }
            ports[int(number)] = counters.PortReading(values, rates.get(int(number)))
        return counters.SwitchCounters(int(self.guid, 16), now - self.age, ports)


class Master(Body):
    """The master of the subnet, as it describes itself."""

    model_config = ConfigDict(from_attributes=True)

    guid: Guid
    """Of its port."""
    lid: Annotated[int, Field(ge=1, le=0xFFFF)]
    priority: Annotated[int, Field(ge=0, le=15)]

    def value(self) -> messages.Master:
        return messages.Master(int(self.guid, 16), self.lid, self.priority)


ENGINE = Field(description="The routing engine that OpenSM used last, by its log.")
MASTER = Field(description="The master of the subnet; null: it is not known.")
Engine = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


class AgentReport(Body):
    condition: Annotated[Condition, Field(strict=False)]
    """The state it reports."""
    detail: Detail | None = None
    generation: Generation | None = None
    """In the switches; with `applied` and `other_generation`, and only so."""
    published: Generation | None = None
    """Of the set that is current on its disk."""

    stamp: Stamp = ""
    """Of `generation`."""
    published_stamp: Stamp = ""
    """Of `published`."""
    engine: Annotated[Engine | None, ENGINE] = None
    master: Annotated[Master | None, MASTER] = None
    spent: Annotated[
        dict[Annotated[str, Field(max_length=32)], Annotated[float, Field(ge=0, le=1e9)]],
        Field(max_length=16),
    ] = {}
    """Seconds that it spent on `published`, by span, once that is confirmed."""
    without: Switches = []
    """Dead switches, which the generation is confirmed without."""
    unconfirmed: Switches = []
    """Switches that do not answer, and may still forward by other tables."""
    reading: FabricReading | None = None
    counters: Annotated[list[SwitchCounters], Field(max_length=256)] = []
    """Port counters that were not reported before."""

    def seen(self, now: float) -> messages.AgentReport:
        """The report as a value; ``now`` is seconds since the epoch."""
        return messages.AgentReport(
            self.condition,
            self.detail,
            self.generation,
            self.published,
            tuple(int(guid, 16) for guid in self.without),
            tuple(int(guid, 16) for guid in self.unconfirmed),
            self.reading.value(now) if self.reading is not None else None,
            tuple(switch.value(now) for switch in self.counters),
            self.stamp,
            self.published_stamp,
            messages.Running(self.engine, self.master.value() if self.master else None),
            messages.seconds_by_span(self.spent),
        )


class AgentOrders(Shown):
    role: Role
    active: str
    """The agent whose reports count."""
    wanted: int
    """The generation wanted in the switches."""
    lease_seconds: float
    """How long it is active without a further report."""
    stamp: str
    """Of `wanted`: tells it from one of the same number in another past."""

    @classmethod
    def of(cls, orders: messages.Orders) -> Self:
        return cls.showing(orders, role="active" if orders.leads else "standby")


class AgentAnswer(Shown):
    name: str
    role: Role
    condition: Condition
    detail: str | None
    generation: int | None
    """Confirmed in the switches."""
    published: int | None
    behind: bool
    """Its OpenSM would route by older files if it became the master."""
    holds: int
    """Allocations whose hosts or links are held until its set is newer."""
    engine: Annotated[str | None, ENGINE]
    master: Annotated[Master | None, MASTER]
    seen_at: AwareDatetime

    @classmethod
    def of(cls, agent: ports.Agent, *, behind: bool, holds: int = 0) -> Self:
        return cls.showing(
            agent,
            agent.seen,
            agent.seen.running,
            role="active" if agent.active else "standby",
            behind=behind,
            holds=holds,
        )


class AgentList(Schema):
    agents: list[AgentAnswer]
    next: str | None
    """The next page."""

    @classmethod
    def of(
        cls,
        shown: Iterable[ports.Agent],
        behind: Collection[str],
        held: Mapping[str, Collection[str]],
        following: str | None,
    ) -> Self:
        """``held`` are the managers by the allocation that is held for them."""
        holds = Counter(name for managers in held.values() for name in managers)
        agents = [
            AgentAnswer.of(agent, behind=agent.name in behind, holds=holds[agent.name])
            for agent in shown
        ]
        return cls(agents=agents, next=following)


class FileSetAnswer(Shown):
    manifest: dict[str, Any]
    """The document of `manifest.json`."""
    sizes: dict[str, int]
    """Bytes by file."""
    parts: dict[str, list[Annotated[list[int | str], Field(min_length=2, max_length=2)]]]
    """Size and sha256 of each piece, in order, of files made of pieces."""


class FormHeader(Schema):
    laas_set_form: Annotated[int, Field(alias="Laas-Set-Form", ge=1, le=2**31 - 1)] = 4
    """The newest form of a set that the agent knows; 4 if it does not say."""


class FileHeaders(FormHeader):
    range: Annotated[str | None, Field(alias="Range", max_length=LONGEST_HEADER)] = None
    """One range of bytes, such as `bytes=0-1023`."""


class Octets(RootModel[Annotated[Path, WithJsonSchema({"type": "string", "format": "binary"})]]):
    """A file, or the range of its bytes that was asked for."""

# SPDX-License-Identifier: Apache-2.0

"""Schemas of the observation of a fabric: its mode, the last reading, alarm and news."""

from datetime import UTC, datetime
from typing import Literal, Self

from pydantic import AwareDatetime

from laas_service.api.schemas.base import Body, Guid, Schema, Shown, guid
from laas_service.api.schemas.fabrics import SaidBy
from laas_service.app.requests import FabricObservation
from laas_service.domain.faults.interpretation import UnreadSwitch
from laas_service.domain.faults.memory import LinkCondition
from laas_service.domain.faults.observation import Mode
from laas_service.domain.inventory import PortRef
from laas_service.domain.topology import link_name

MOST = 1000
"""The most entries of each list of counters."""


class ObservedLink(Shown):
    id: str
    condition: LinkCondition
    since: AwareDatetime
    evidence: str
    recorded: bool
    """Whether the link is recorded as failed."""


class ObservedSwitch(Shown):
    guid: Guid
    name: str
    state: UnreadSwitch
    since: AwareDatetime


class AbsentHost(Schema):
    name: str
    since: AwareDatetime


class AlarmAnswer(Shown):
    """Why nothing is recorded until it is acknowledged, or the fabric is as before."""

    since: AwareDatetime
    text: str


class Acknowledged(Shown):
    """The last alarm that was accepted."""

    at: AwareDatetime
    by: SaidBy | None
    """User or process that accepted it."""
    text: str


class PortErrorsAnswer(Shown):
    """A port whose counters grew too much."""

    port: str
    """The switch's name and the port's number."""
    guid: Guid
    number: int
    link: str | None
    """The link at the port, if it has one."""
    counter: str
    """As perfquery prints it, or `bit error rate`."""
    since: AwareDatetime
    text: str
    allocation: str | None
    """The owner of the link or the host."""


class ForeignData(Shown):
    """More data on the links of an allocation than its own ports brought to a switch."""

    allocation: str
    switch: str
    guid: Guid
    direction: Literal["up", "down"]
    sent: int
    """Bytes on its links, in this direction."""
    received: int
    """Bytes that its ports brought."""
    tolerated: int
    """Bytes that others may have sent."""
    seconds: float


class Counters(Schema):
    """What port counters show. At most 1,000 entries of each list; the counts are complete."""

    switches: int
    """Switches whose counters were read."""
    oldest: AwareDatetime | None
    """The last reading of the switch read least lately."""
    newest: AwareDatetime | None
    port_errors: int
    errors: list[PortErrorsAnswer]
    foreign_data: int
    foreign: list[ForeignData]


class ObservedNews(Shown):
    at: AwareDatetime
    text: str


class ObservationAnswer(Shown):
    fabric: str
    mode: Mode
    """`act` records and repairs, `observe` only tells, `frozen` also keeps all routes as they are.
    """
    configured: bool
    """Whether the mode is that of [faults] mode."""
    mode_by: SaidBy | None
    """User that chose the mode, or gave it back."""
    mode_since: AwareDatetime | None
    read_at: AwareDatetime | None
    """The time of the last reading."""
    observer: str | None
    """The port that it was made through."""
    alarm: AlarmAnswer | None
    acknowledged: Acknowledged | None
    links: list[ObservedLink]
    """Suspected, failed and quarantined links."""
    withheld: list[str]
    """Links of switches that are not confirmed: for no new owner."""
    withheld_hosts: list[str]
    """Hosts at switches that are not confirmed, or moved."""
    switches: list[ObservedSwitch]
    """Those that are not confirmed."""
    absent_hosts: list[AbsentHost]
    """Not a fault by itself."""
    news: list[ObservedNews]
    """What is not as recorded, newest last; re-import the fabric."""
    counters: Counters

    @classmethod
    def of(cls, observed: FabricObservation) -> Self:
        seen, fabric = observed.observation, observed.fabric
        memory, known = seen.memory, fabric.inventory.switch_of_guid
        return cls.showing(
            seen,
            fabric=fabric.id,
            mode=observed.mode,
            configured=seen.mode is None,
            alarm=None
            if memory.alarm is None
            else AlarmAnswer(since=_time(memory.alarm.at), text=memory.alarm.text),
            links=[
                ObservedLink.showing(
                    entry, id=link_name(link), since=_time(entry.since), recorded=entry.marked
                )
                for link, entry in memory.links.items()
                if entry.condition.bad or entry.marked
            ],
            withheld=sorted(map(link_name, memory.withheld)),
            withheld_hosts=[
                fabric.inventory.host_names[host]
                for host in memory.withheld_hosts
                if host < len(fabric.inventory.host_names)
            ],
            switches=[
                ObservedSwitch.showing(
                    entry,
                    guid=switch,
                    name=known[switch].name if switch in known else guid(switch),
                    since=_time(entry.since),
                )
                for switch, entry in memory.switches.items()
            ],
            absent_hosts=[
                AbsentHost(name=name, since=_time(since)) for name, since in memory.hosts.items()
            ],
            counters=_counters(observed),
        )


def _counters(observed: FabricObservation) -> Counters:
    inventory = observed.fabric.inventory
    ends, names = inventory.far_ends, inventory.switch_of_guid
    times = [findings.at for findings in observed.counters]
    errors = [error for findings in observed.counters for error in findings.errors]
    foreign = [(findings.guid, f) for findings in observed.counters for f in findings.foreign]

    def link(end: PortRef) -> str | None:
        _, cable = ends.get(end, (None, None))
        return link_name(cable.link) if cable is not None and cable.link is not None else None

    return Counters(
        switches=len(times),
        oldest=_time(min(times)) if times else None,
        newest=_time(max(times)) if times else None,
        port_errors=len(errors),
        errors=[
            PortErrorsAnswer.showing(
                error,
                port=f"{names[error.end.guid].name} port {error.end.port}",
                guid=error.end.guid,
                number=error.end.port,
                link=link(error.end),
                since=_time(error.since),
                allocation=error.owner or None,
            )
            for error in errors[:MOST]
        ],
        foreign_data=len(foreign),
        foreign=[
            ForeignData.showing(
                f,
                allocation=f.owner,
                switch=names[switch].name,
                guid=switch,
                tolerated=f.allowed,
            )
            for switch, f in foreign[:MOST]
        ],
    )


class ObservationChange(Body):
    """At least one field; the others stay unchanged."""

    mode: Literal["act", "observe", "frozen", "configured"] | None = None
    """`configured`: that of [faults] mode."""
    acknowledge: bool = False
    """Accept what raised the alarm, so that it is recorded."""


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)

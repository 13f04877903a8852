# SPDX-License-Identifier: Apache-2.0

"""The subnet-manager port on UFM: partitions by its REST interface, routing by files.

UFM is asked what it has before anything is changed and before anything is confirmed, so that
each step can be repeated, and lost, late or half answers do no harm.
"""

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from laas_service.adapters.ufm import port_states
from laas_service.adapters.ufm.memory import Membership, PartitionMemory, PartitionRequest
from laas_service.adapters.ufm.rest import GUIDS_A_CALL, TENANTS, Member, UfmPartitions, UfmRest
from laas_service.app.ports.store import Store
from laas_service.app.ports.subnet_manager import SubnetManager
from laas_service.domain.errors import Conflict, InvalidInput, LaasError
from laas_service.domain.faults.counters import SwitchCounters
from laas_service.domain.faults.reading import FabricReading
from laas_service.domain.inventory import PortRef
from laas_service.domain.wording import listed
from laas_service.messages import Applied, Condition, ConfirmedBy, FabricState, Span, Standing
from opensm_writer.desired import chains, guid_text, partitions, with_virtual_ports

LOG = logging.getLogger(__name__)

REST = 9
"""For each reading of the ports, this many times as long without one."""


class RouteGeneration(NamedTuple):
    """A generation of routes, and the members of its partitions by key."""

    generation: int
    stamp: str
    members: Mapping[int, frozenset[int]]

    def contradicts(self, request: PartitionRequest) -> bool:
        """Whether a request that is carried out late would leave other members."""
        members = self.members.get(request.pkey, frozenset())
        wrong = request.guids - members if request.adds else request.guids & members
        return bool(wrong)


class PartitionChange(NamedTuple):
    """What differs in one partition. ``empty``: it is not wanted, and has no members."""

    pkey: int
    remove: frozenset[int]
    add: frozenset[int]
    empty: bool = False


def changes(
    wanted: Mapping[int, frozenset[int]], present: Mapping[int, Mapping[int, Member]]
) -> list[PartitionChange]:
    """What to change in UFM, by ascending key.

    A port that is a member in another way than ``TENANTS`` is removed and added.
    """
    found = []
    for pkey in sorted(wanted.keys() | present.keys()):
        desired, there = wanted.get(pkey, frozenset()), present.get(pkey, {})
        right = {guid for guid, member in there.items() if member == TENANTS and guid in desired}
        change = PartitionChange(pkey, frozenset(there.keys() - right), desired - right)
        if change.remove or change.add:
            found.append(change)
        elif pkey in present and not there and not desired:
            found.append(change._replace(empty=True))
    return found


@dataclass(frozen=True, slots=True)
class UfmRules:
    """The fabric and the partitions of a UFM that belong to the service.

    ``pkeys`` are the keys that nobody else gives to ports; whatever else is in them is removed.
    The ports are read every ``ports_interval`` seconds, and links in quarantine are marked
    unhealthy if ``mark_unhealthy``. ``chains`` says that UFM's manager routes by routing chains.
    """

    fabric: str
    pkeys: range
    virtual_ports: bool = False
    ip_over_ib: bool = False
    ports_interval: float = 10.0
    mark_unhealthy: bool = False
    chains: bool = False


class UfmSubnetManager:
    """The partitions of one fabric in UFM; ``files`` are for its subnet manager, None: no files.

    ``files`` writes them, or has an agent on UFM's machine do so.

    A generation is confirmed if UFM's own answer lists exactly the tenants' ports in our keys,
    UFM has ended every request that would change that, and the files of the generation are
    current. A membership that was withdrawn cannot come back by a late round: before each change
    the generation is compared with the recorded one, and an older one changes nothing. Nor by a
    request that UFM carries out late: the request is noted before it is sent, and a generation
    that it contradicts is not confirmed until its job has ended or, if UFM named none, until
    ``UfmSettings.job_timeout`` after it began.

    ``now`` is the clock of the service, in seconds since the epoch.
    """

    confirmed_by = ConfirmedBy.UFM

    def __init__(
        self,
        ufm: UfmRest,
        rules: UfmRules,
        recorded: Store,
        memory: PartitionMemory,
        files: SubnetManager | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._ufm, self._rules, self._recorded, self._files = ufm, rules, recorded, files
        self._memory, self._clock, self._now = memory, clock, now
        self._published: RouteGeneration | None = None  # by this process
        self._newest: RouteGeneration | None = None  # as recorded, when last asked
        self._reading: FabricReading | None = None
        self._comparison_problem = ""  # as logged last
        self._taken_back: frozenset[PortRef] = frozenset()  # marks that UFM was asked to end
        self._unhealthy: frozenset[PortRef] = frozenset()  # by the last reading
        self._marked: frozenset[PortRef] = frozenset()  # as noted at the last reading
        self._marks_read = False  # since marks were last changed
        self._read_at = -math.inf  # by ``clock``: when the next reading is due

    def publish(self, state: FabricState) -> Mapping[Span, float]:
        """See ``laas_service.app.ports.subnet_manager.SubnetManager``.

        Raises:
            Conflict, LimitExceeded: see ``opensm_writer.publish.publish_set``; LimitExceeded with
                an agent, too, if routing chains cannot hold the tenants; Conflict also if
                a newer generation is recorded, or a tenant has a key outside of ours.
            Unavailable: UFM fails; what is changed stays, and another try changes the rest.
        """
        self._check_fabric(state.fabric)
        self._check_newest(state.fabric, state.generation)
        wanted = self._routes(state)
        if self._rules.chains:
            chains(state)  # refuses what an agent could not be told
        spent = dict(self._files.publish(state)) if self._files is not None else {}
        begun = self._clock()
        self._published = wanted
        self._carry_out(state, changes(wanted.members, self._ours(self._ufm.partitions())))
        return {**spent, Span.RELOAD: spent.get(Span.RELOAD, 0.0) + self._clock() - begun}

    def _carry_out(self, state: FabricState, found: Iterable[PartitionChange]) -> None:
        """All removals come before the first addition: no port is in two tenants' partitions."""
        found = list(found)
        for change in found:
            for guids in _parts(change.remove):
                self._ask(
                    PartitionRequest(state.fabric, change.pkey, False, guids, state.generation)
                )
            if change.empty:
                self._check_newest(state.fabric, state.generation)
                self._ufm.delete(change.pkey)
        for change in found:
            for guids in _parts(change.add):
                self._ask(
                    PartitionRequest(state.fabric, change.pkey, True, guids, state.generation)
                )

    def _ask(self, request: PartitionRequest) -> None:
        """Have UFM carry out a request; it counts as under way until its end is known."""
        self._check_newest(request.fabric, request.generation)
        id = self._memory.begin(request)
        if request.adds:
            ip_over_ib = self._rules.ip_over_ib
            job = self._ufm.add(request.pkey, request.guids, ip_over_ib=ip_over_ib)
        else:
            job = self._ufm.remove(request.pkey, request.guids)
        if job is not None:
            self._memory.note_job(id, job)
            self._ufm.wait(job)
        self._memory.end([id])

    def _under_way(self, fabric: str) -> list[PartitionRequest]:
        """The requests that UFM may still carry out; forgets those that have ended."""
        left, ended = [], []
        for id, request, job, age in self._memory.under_way(fabric):
            if self._ufm.runs(job) if job is not None else age < self._ufm.job_timeout:
                left.append(request)
            else:
                ended.append(id)
        if ended:
            self._memory.end(ended)
        return left

    def on_disk(self, fabric: str) -> tuple[int, str] | None:
        """See ``laas_service.app.ports.subnet_manager.SubnetManager``."""
        return self._files.on_disk(fabric) if self._files is not None else None

    def standing(self, fabric: str) -> Standing | None:
        """None: UFM shows no table."""
        return None

    def prepared(self, fabric: str) -> bool:
        """See ``laas_service.app.ports.subnet_manager.SubnetManager``; one request tells all."""
        return True

    def applied(self, fabric: str) -> Applied:
        """See ``laas_service.app.ports.subnet_manager.SubnetManager``. Raises: Unavailable."""
        self._check_fabric(fabric)
        under_way = self._under_way(fabric)  # first, so that the partitions are not older
        present = self._ufm.partitions()
        if present.default_is_full:
            text = "UFM makes every port a full member of the default partition; "
            fix = "set default_membership = limited in its gv.cfg"
            return self._unconfirmed(text + fix, Condition.WRONG_SETTINGS)
        ours = self._ours(present)
        newest = self._recorded_routes(fabric)
        last = self._published
        known = [newest] if last is None or last[:2] == newest[:2] else [newest, last]
        confirmed = next((routes for routes in known if not changes(routes.members, ours)), None)
        if confirmed is None:
            differing = changes(known[-1].members, ours)
            return self._unconfirmed(self._told(fabric, differing), Condition.WRONG_KEYS)
        late = [request for request in under_way if confirmed.contradicts(request)]
        if late:
            return self._unconfirmed(_told_late(late), None)
        if self._files is not None:
            files = self._files.applied(fabric)
            if files.generation != confirmed.generation:
                problem = files.problem or f"files of generation {files.generation} are current"
                return self._unconfirmed(problem, None)
        return Applied(
            confirmed.generation,
            by=self.confirmed_by,
            condition=Condition.APPLIED,
            stamp=confirmed.stamp,
        )

    def _unconfirmed(self, problem: str, condition: Condition | None) -> Applied:
        return Applied(None, problem, by=self.confirmed_by, condition=condition)

    def reading(self, fabric: str) -> FabricReading | None:
        """See ``laas_service.app.ports.subnet_manager.SubnetManager``; the last one until another
        is due.
        """
        self._check_fabric(fabric)
        begun = self._clock()
        if begun >= self._read_at:
            self._read_at = begun + self._rules.ports_interval
            at, before = self._now(), self._reading
            inventory = self._recorded.fabrics.get(fabric).inventory
            ports, unhealthy = self._ufm.ports(), self._ufm.unhealthy_ports()
            removed, marked = self._removed_links(), self._memory.marked(fabric)
            self._reading = port_states.reading(inventory, ports, unhealthy, marked, removed, at)
            ended = self._clock()
            changed = before is not None and replace(before, at=at) != self._reading
            interval = 0.0 if changed else self._rules.ports_interval
            self._read_at = max(begun + interval, ended + REST * (ended - begun))
            self._unhealthy, self._marked = frozenset(port for port, _ in unhealthy), marked
            self._marks_read = True
        return self._reading

    def _removed_links(self) -> list[tuple[PortRef, PortRef]]:
        """See ``UfmRest.removed_links``; none if they cannot be read, which is logged once."""
        problem, removed = "", []
        try:
            removed = self._ufm.removed_links()
        except LaasError as error:
            problem = str(error)
        if problem and problem != self._comparison_problem:
            LOG.warning("without a comparison of topologies: %s", problem)
        self._comparison_problem = problem
        return removed

    def marks_differ(self, fabric: str, wanted: frozenset[PortRef]) -> bool:
        """See ``laas_service.app.ports.subnet_manager.SubnetManager``; once for each reading."""
        return self._marks_read and any(self._mark_changes(self._marked, wanted))

    def mark_ports(self, fabric: str, wanted: frozenset[PortRef]) -> None:
        """See ``laas_service.app.ports.subnet_manager.SubnetManager``. Raises: Unavailable."""
        self._check_fabric(fabric)
        gone, back, new, again = self._mark_changes(self._memory.marked(fabric), wanted)
        self._marks_read = False
        self._memory.unmark(fabric, gone)
        self._memory.mark(fabric, new)  # before UFM is asked
        if back:
            self._ufm.set_unhealthy(back, False)
        if new | again:
            self._ufm.set_unhealthy(new | again, True)
        self._taken_back = back

    def _mark_changes(
        self, marked: frozenset[PortRef], wanted: frozenset[PortRef]
    ) -> tuple[frozenset[PortRef], ...]:
        """By the last reading: marks that UFM has ended, and those to end, to make, to repeat."""
        wanted = wanted if self._rules.mark_unhealthy else frozenset()
        back = marked - wanted
        gone = (back & self._taken_back) - self._unhealthy
        new = wanted - marked - self._unhealthy
        return gone, back - gone, new, (wanted & marked) - self._unhealthy

    def counters(self, fabric: str) -> tuple[SwitchCounters, ...]:
        """See ``laas_service.app.ports.subnet_manager.SubnetManager``; UFM keeps its own."""
        return ()

    # -- what is wanted --------------------------------------------------------------

    def _check_fabric(self, fabric: str) -> None:
        if fabric != self._rules.fabric:
            fix = f"this UFM manages {self._rules.fabric!r}; a worker serves one UFM"
            raise InvalidInput("[ufm] fabric", fabric, fix)

    def _check_newest(self, fabric: str, generation: int) -> None:
        """Raises: Conflict, if another round knows better by now."""
        newest = self._recorded.fabrics.get(fabric).routes_generation
        if newest > generation:
            raise Conflict(
                f"generation {generation} comes late: {newest} is recorded; memberships that were "
                "withdrawn since are not added again"
            )

    def _routes(self, state: FabricState) -> RouteGeneration:
        """Raises: Conflict."""
        found = partitions(state)
        for partition in found:
            if partition.pkey not in self._rules.pkeys:
                raise Conflict(
                    f"{partition.name} has the key {partition.pkey:#06x}, which [opensm] pkeys "
                    "does not have: widen that, or release the allocation first"
                )
        if self._rules.virtual_ports:
            found = with_virtual_ports(found, state.virtual_guids)
        members = {partition.pkey: frozenset(partition.members) for partition in found}
        return RouteGeneration(state.generation, state.stamp, members)

    def _recorded_routes(self, fabric: str) -> RouteGeneration:
        record = self._recorded.fabrics.get(fabric)
        known = self._newest
        if known is None or known[:2] != (record.routes_generation, record.routes_stamp):
            known = self._newest = self._routes(self._recorded.fabrics.routed(fabric))
        return known

    # -- what is there ---------------------------------------------------------------

    def _ours(self, present: UfmPartitions) -> dict[int, Mapping[int, Member]]:
        """The partitions with our keys; those of others are not looked at."""
        return {
            pkey: members for pkey, members in present.members.items() if pkey in self._rules.pkeys
        }

    def _told(self, fabric: str, differing: Iterable[PartitionChange]) -> str:
        """What differs, in a sentence."""
        differing = list(differing)
        withdrawn = self._memory.withdrawn(fabric, [change.pkey for change in differing])
        return "UFM differs: " + listed([_sentence(change, withdrawn) for change in differing])


def _sentence(change: PartitionChange, withdrawn: Mapping[Membership, int]) -> str:
    pkey = f"key {change.pkey:#06x}"
    if change.empty:
        return f"{pkey} is an empty partition that nobody recorded"
    parts = []
    if too_many := change.remove - change.add:
        known = [Membership(change.pkey, guid) for guid in too_many]
        back = [withdrawn[membership] for membership in known if membership in withdrawn]
        parts.append(f"has ports too many: {_ports(too_many)}")
        if back:
            parts.append(f"{len(back)} of them withdrawn by generation {max(back)}")
    if missing := change.add - change.remove:
        parts.append(f"lacks {_ports(missing)}")
    if wrong := change.add & change.remove:
        parts.append(f"has limited members, or not at index 0: {_ports(wrong)}")
    return f"{pkey} {', '.join(parts)}"


def _told_late(requests: Iterable[PartitionRequest]) -> str:
    verbs = [
        f"{'add' if adds else 'remove'} {_ports(guids)} {'to' if adds else 'from'} key "
        f"{pkey:#06x}, as generation {generation} asked"
        for _, pkey, adds, guids, generation in requests
    ]
    return f"UFM may still {listed(verbs)}"


def _ports(guids: Iterable[int]) -> str:
    return listed(map(guid_text, sorted(guids)))


def _parts(guids: Collection[int]) -> Iterator[frozenset[int]]:
    """GUIDs for one request each."""
    ordered = sorted(guids)
    for at in range(0, len(ordered), GUIDS_A_CALL):
        yield frozenset(ordered[at : at + GUIDS_A_CALL])

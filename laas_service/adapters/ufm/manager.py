# SPDX-License-Identifier: Apache-2.0

"""The subnet-manager port on UFM: partitions by its REST interface, routing by files.

UFM is asked what it has before anything is changed and before anything is confirmed, so that
each step can be repeated, and lost, late or half answers do no harm.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from laas_service.adapters.ufm.rest import TENANTS, Member, UfmPartitions, UfmRest
from laas_service.app.records import FabricRecord
from laas_service.domain.errors import Conflict, InvalidInput
from laas_service.domain.faults.counters import SwitchCounters
from laas_service.domain.faults.reading import FabricReading
from laas_service.domain.wording import listed
from laas_service.messages import Applied, Condition, ConfirmedBy, FabricState, Span
from opensm_writer.desired import guid_text, partitions, with_virtual_ports
from opensm_writer.local import LocalSubnetManager

MOST_REMEMBERED = 100_000
"""Withdrawn memberships that a process remembers."""


class Recorded(Protocol):
    """The fabrics and their routes, as recorded."""

    def fabric(self, id: str) -> FabricRecord:
        """``NotFound``."""

    def routed(self, fabric_id: str) -> FabricState:
        """``NotFound``."""


class Routes(NamedTuple):
    """A generation of routes, and the members of its partitions by key."""

    generation: int
    stamp: str
    members: Mapping[int, frozenset[int]]


class Change(NamedTuple):
    """What differs in one partition. ``empty``: it is not wanted, and has no members."""

    pkey: int
    remove: frozenset[int]
    add: frozenset[int]
    empty: bool = False


def changes(
    wanted: Mapping[int, frozenset[int]], present: Mapping[int, Mapping[int, Member]]
) -> list[Change]:
    """What to change in UFM, by ascending key.

    A port that is a member in another way than ``TENANTS`` is removed and added.
    """
    found = []
    for pkey in sorted(wanted.keys() | present.keys()):
        desired, there = wanted.get(pkey, frozenset()), present.get(pkey, {})
        right = {guid for guid, member in there.items() if member == TENANTS and guid in desired}
        change = Change(pkey, frozenset(there.keys() - right), desired - right)
        if change.remove or change.add:
            found.append(change)
        elif pkey in present and not there and not desired:
            found.append(change._replace(empty=True))
    return found


@dataclass(frozen=True, slots=True)
class UfmRules:
    """The fabric and the partitions of a UFM that belong to the service.

    ``pkeys`` are the keys that nobody else gives to ports; whatever else is in them is removed.
    """

    fabric: str
    pkeys: range
    virtual_ports: bool = False
    ip_over_ib: bool = False


class UfmSubnetManager:
    """The partitions of one fabric in UFM; ``files`` are for its subnet manager, None: no files.

    A generation is confirmed if UFM's own answer lists exactly the tenants' ports in our keys,
    and the files of the generation are current. A membership that was withdrawn cannot come
    back by a late round: before each change the generation is compared with the recorded one,
    and an older one changes nothing. The next look sees what another writer brings back, or a
    request that UFM carries out late.
    """

    confirmed_by = ConfirmedBy.UFM

    def __init__(
        self,
        ufm: UfmRest,
        rules: UfmRules,
        recorded: Recorded,
        files: LocalSubnetManager | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ufm, self._rules, self._recorded, self._files = ufm, rules, recorded, files
        self._clock = clock
        self._published: Routes | None = None  # by this process
        self._newest: Routes | None = None  # as recorded, when last asked
        self._withdrawn: dict[tuple[int, int], int] = {}  # key and GUID -> generation without it

    def publish(self, state: FabricState) -> Mapping[Span, float]:
        """See ``laas_service.app.ports.subnet_manager.SubnetManager``.

        Raises:
            Conflict, LimitExceeded: see ``opensm_writer.publish.publish_set``; Conflict also if
                a newer generation is recorded, or a tenant has a key outside of ours.
            Unavailable: UFM fails; what is changed stays, and another try changes the rest.
        """
        self._check_fabric(state.fabric)
        self._check_newest(state)
        wanted = self._routes(state)
        spent = dict(self._files.publish(state)) if self._files is not None else {}
        begun = self._clock()
        self._remember(wanted)
        self._carry_out(state, changes(wanted.members, self._ours(self._ufm.partitions())))
        return {**spent, Span.RELOAD: spent.get(Span.RELOAD, 0.0) + self._clock() - begun}

    def _carry_out(self, state: FabricState, found: Iterable[Change]) -> None:
        """All removals come before the first addition: no port is in two tenants' partitions."""
        found = list(found)
        for change in found:
            if change.remove:
                self._check_newest(state)
                self._ufm.remove(change.pkey, change.remove)
            if change.empty:
                self._check_newest(state)
                self._ufm.delete(change.pkey)
        for change in found:
            if change.add:
                self._check_newest(state)
                self._ufm.add(change.pkey, change.add, ip_over_ib=self._rules.ip_over_ib)

    def on_disk(self, fabric: str) -> tuple[int, str] | None:
        """See ``laas_service.app.ports.subnet_manager.SubnetManager``."""
        return self._files.on_disk(fabric) if self._files is not None else None

    def prepared(self, fabric: str) -> bool:
        """See ``laas_service.app.ports.subnet_manager.SubnetManager``; one request tells all."""
        return True

    def applied(self, fabric: str) -> Applied:
        """See ``laas_service.app.ports.subnet_manager.SubnetManager``. Raises: Unavailable."""
        self._check_fabric(fabric)
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
            return self._unconfirmed(self._told(differing), Condition.WRONG_KEYS)
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
        """See ``laas_service.app.ports.subnet_manager.SubnetManager``."""
        return None

    def counters(self, fabric: str) -> tuple[SwitchCounters, ...]:
        """See ``laas_service.app.ports.subnet_manager.SubnetManager``; UFM keeps its own."""
        return ()

    # -- what is wanted --------------------------------------------------------------

    def _check_fabric(self, fabric: str) -> None:
        if fabric != self._rules.fabric:
            fix = f"this UFM manages {self._rules.fabric!r}; a worker serves one UFM"
            raise InvalidInput("[ufm] fabric", fabric, fix)

    def _check_newest(self, state: FabricState) -> None:
        """Raises: Conflict, if another round knows better by now."""
        newest = self._recorded.fabric(state.fabric).routes_generation
        if newest > state.generation:
            raise Conflict(
                f"generation {state.generation} comes late: {newest} is recorded; memberships "
                "that were withdrawn since are not added again"
            )

    def _routes(self, state: FabricState) -> Routes:
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
        return Routes(state.generation, state.stamp, members)

    def _recorded_routes(self, fabric: str) -> Routes:
        record = self._recorded.fabric(fabric)
        known = self._newest
        if known is None or known[:2] != (record.routes_generation, record.routes_stamp):
            known = self._newest = self._routes(self._recorded.routed(fabric))
        return known

    def _remember(self, wanted: Routes) -> None:
        """Note which memberships end with this generation."""
        before = self._published.members if self._published is not None else {}
        for pkey, guids in before.items():
            for guid in guids - wanted.members.get(pkey, frozenset()):
                self._withdrawn[pkey, guid] = wanted.generation
        for pkey, guids in wanted.members.items():
            for guid in guids:
                self._withdrawn.pop((pkey, guid), None)
        while len(self._withdrawn) > MOST_REMEMBERED:
            del self._withdrawn[next(iter(self._withdrawn))]
        self._published = wanted

    # -- what is there ---------------------------------------------------------------

    def _ours(self, present: UfmPartitions) -> dict[int, Mapping[int, Member]]:
        """The partitions with our keys; those of others are not looked at."""
        return {
            pkey: members for pkey, members in present.members.items() if pkey in self._rules.pkeys
        }

    def _told(self, differing: Iterable[Change]) -> str:
        """What differs, in a sentence."""
        return "UFM differs: " + listed([self._sentence(change) for change in differing])

    def _sentence(self, change: Change) -> str:
        pkey = f"key {change.pkey:#06x}"
        if change.empty:
            return f"{pkey} is an empty partition that nobody recorded"
        parts = []
        if too_many := change.remove - change.add:
            back = [g for g in too_many if (change.pkey, g) in self._withdrawn]
            parts.append(f"has ports too many: {listed(map(guid_text, sorted(too_many)))}")
            if back:
                since = max(self._withdrawn[change.pkey, guid] for guid in back)
                parts.append(f"{len(back)} of them withdrawn by generation {since}")
        if missing := change.add - change.remove:
            parts.append(f"lacks {listed(map(guid_text, sorted(missing)))}")
        if wrong := change.add & change.remove:
            ports = listed(map(guid_text, sorted(wrong)))
            parts.append(f"has limited members, or not at index 0: {ports}")
        return f"{pkey} {', '.join(parts)}"

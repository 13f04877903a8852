# SPDX-License-Identifier: Apache-2.0

"""Requests for hosts that tenants share, and for slots on them: the rows of ``app.kinds``."""

import math
from collections.abc import Sequence
from dataclasses import replace

from laas_service.app.kinds import Destination, RequestsOfKind, WholeHosts
from laas_service.app.lookup import Lookup, check_enterable, choose
from laas_service.app.ports.snapshots import Snapshot
from laas_service.app.ports.store import Store
from laas_service.app.records import AllocationRecord, Caller, Enclosing
from laas_service.app.requests import AllocationRequest, Fit
from laas_service.app.sharing.fit import slot_fit
from laas_service.domain.allocation import NoFit
from laas_service.domain.budget import RequestBudget
from laas_service.domain.errors import InvalidInput, NotFound, NotSupported
from laas_service.domain.sharing.policy import SharedSlots
from laas_service.domain.tenancy import Kind, SharedHosts, Slots
from laas_service.domain.tenancy.slots import MOST_SLOTS, SlotDemand, listed_amounts


def check_demand(demand: SlotDemand) -> None:
    """Check the numbers of a demand. Raises: InvalidInput."""
    if not 1 <= demand.slots <= MOST_SLOTS:
        raise InvalidInput("slots", demand.slots, f"ask for 1 to {MOST_SLOTS} slots")
    for name in ("bandwidth", "deviation"):
        amounts = getattr(demand, name)
        if isinstance(amounts, tuple) and len(amounts) != demand.slots:
            fix = f"give one number, or one for each of {demand.slots} slots"
            raise InvalidInput(name, f"{len(amounts)} numbers", fix)
    for bandwidth in listed_amounts(demand.bandwidth):
        if not 0 < bandwidth < math.inf:
            raise InvalidInput("bandwidth", bandwidth, "give Gb/s above 0 for each slot")
    for deviation in listed_amounts(demand.deviation):
        if not 0 <= deviation < math.inf:
            raise InvalidInput("deviation", deviation, "give Gb/s, 0 or more")


class HostsToShare(WholeHosts):
    """Answers for requests for hosts that further allocations share.

    ``unshared`` says why hosts are not shared here; empty if they are.
    """

    def __init__(self, store: Store, lookup: Lookup, slots: SharedSlots, unshared: str) -> None:
        super().__init__(store, lookup)
        self._slots = slots
        self._unshared = unshared

    def check(self, asked: AllocationRequest) -> None:
        _check_offered(self._unshared)
        super().check(asked)

    def target(self, caller: Caller, snapshot: Snapshot, asked: AllocationRequest) -> Destination:
        found = super().target(caller, snapshot, asked)
        if snapshot.possible[found.fabric].fabric.topology.rails > 1:
            fix = f"hosts of {found.fabric} have more than one rail"
            raise InvalidInput("sharing", "...", fix)
        return found

    def admitted(self, record: AllocationRecord) -> None:
        fabric, id = record.fabric, record.id
        self._slots.prepare(lambda: self._store.fabrics.ledger(fabric)[0].ledger(id))


class SlotRequests:
    """Answers for requests for slots; ``unshared`` as in ``HostsToShare``."""

    def __init__(self, store: Store, lookup: Lookup, slots: SharedSlots, unshared: str) -> None:
        self._store = store
        self._lookup = lookup
        self._slots = slots
        self._unshared = unshared

    def check(self, asked: AllocationRequest) -> None:
        _check_offered(self._unshared)
        check_demand(_demand(asked))

    def target(self, caller: Caller, snapshot: Snapshot, asked: AllocationRequest) -> Destination:
        parent = self.shared_hosts(caller, snapshot, asked)
        return Destination(parent.fabric, parent.id, self._slots.name)

    def admitted(self, record: AllocationRecord) -> None:
        pass

    def explained(
        self,
        caller: Caller,
        request: AllocationRequest,
        refusal: NoFit,
        budget: RequestBudget,
        effort: RequestBudget,
        server_limit: int | None,
    ) -> NoFit:
        ledger, _ = self._store.fabrics.ledger(request.fabric)
        empty = ledger.ledger(request.parent).unowned()
        possible = self._slots.fits(empty, _demand(request), budget)
        return replace(refusal, fits_when_empty=possible, cut_off=refusal.cut_off or budget.cut)

    def fit(
        self,
        caller: Caller,
        asked: AllocationRequest,
        risks: Sequence[float],
        budget: RequestBudget,
    ) -> Fit:
        check_demand(_demand(asked))
        snapshot = self._lookup.read(asked)
        parent = self.shared_hosts(caller, snapshot, asked)
        ledger = snapshot.possible[parent.fabric].ledger.ledger(parent.id)
        return slot_fit(self._slots, ledger, _demand(asked), budget, risks)

    def shared_hosts(
        self, caller: Caller, snapshot: Snapshot, asked: AllocationRequest
    ) -> Enclosing:
        """The allocation whose hosts slots are asked of: that of ``parent``, or the only one.

        One of another project is found if its hosts are open to others.

        Raises:
            NotFound: there is no such allocation that the caller may use.
            InvalidInput: it shares no hosts, is on another fabric, does not hold its hosts, allows
                a higher risk than is accepted, or none is named and there are several.
        """
        if asked.parent is None:
            record = self._only_one(caller, snapshot, asked)
        elif snapshot.parent is None or not _may_share(caller, snapshot.parent):
            raise NotFound("allocation", asked.parent)
        else:
            record = snapshot.parent
        id, kind = record.id, record.kind
        if not isinstance(kind, SharedHosts):
            raise InvalidInput("parent", id, "name an allocation made with sharing")
        check_enterable(record, asked, "shared hosts are")
        if asked.risk is not None and asked.risk < kind.sharing.risk:
            fix = f"{id} promises {kind.sharing.risk:g} for each link; accept that, or name another"
            raise InvalidInput("risk", asked.risk, fix)
        return record

    def _only_one(self, caller: Caller, snapshot: Snapshot, asked: AllocationRequest) -> Enclosing:
        if asked.fabric:
            self._lookup.fabric(snapshot, asked.fabric)
        known = [record for record in snapshot.parts if _may_share(caller, record)]
        if not known:
            fix = "no hosts are set aside to be shared; have an allocation made with sharing"
            raise InvalidInput("class", "shared", fix)
        if len(known) > 1:
            raise InvalidInput("parent", None, choose([p.id for p in known], "parent"))
        return known[0]


def sharing_kinds(
    store: Store, lookup: Lookup, slots: SharedSlots, unshared: str
) -> dict[type[Kind], RequestsOfKind]:
    """The answers for requests for hosts to share and for slots."""
    return {
        SharedHosts: HostsToShare(store, lookup, slots, unshared),
        Slots: SlotRequests(store, lookup, slots, unshared),
    }


def _demand(asked: AllocationRequest) -> SlotDemand:
    kind = asked.kind
    assert isinstance(kind, Slots), f"request {asked.id!r} is for hosts"
    return kind.demand


def _may_share(caller: Caller, record: Enclosing) -> bool:
    is_open = isinstance(record.kind, SharedHosts) and record.kind.sharing.open
    return caller.admin or is_open or record.project_id == caller.project_id


def _check_offered(unshared: str) -> None:
    """Raises: NotSupported."""
    if unshared:
        raise NotSupported(f"hosts are not shared here: {unshared}")

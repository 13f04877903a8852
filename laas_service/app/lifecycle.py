# SPDX-License-Identifier: Apache-2.0

"""The life of an allocation: states, changes of placement, the next action; pure.

The only module that knows them. Convergence, the database, the API and the drift check ask
it, so a new state or a new step of a change of placement is added here. ``wording`` has the
sentences about them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from laas_service.domain.allocation import Allocation, Sharing, SlotDemand
from laas_service.domain.errors import Conflict
from laas_service.domain.moves.mend import Joined
from laas_service.domain.tenancy import Container, Kind, Owned, SharedHosts, Slots, kind_of
from laas_service.domain.topology import Link, Topology

# -- states ---------------------------------------------------------------------------


class State(enum.Enum):
    """Life of an allocation; in ``ERROR`` it keeps its claims until it is retried or released."""

    QUEUED = "queued"
    ALLOCATING = "allocating"
    ACTIVE = "active"
    RELEASING = "releasing"
    RELEASED = "released"
    ERROR = "error"


SIZE_STATES = frozenset({State.QUEUED, State.ALLOCATING, State.RELEASED})
"""States whose beginning claims hosts or frees them."""


SUCCESSORS = {
    State.QUEUED: {State.QUEUED, State.ALLOCATING, State.RELEASED},
    State.ALLOCATING: {
        State.ALLOCATING,
        State.ACTIVE,
        State.QUEUED,
        State.RELEASING,
        State.ERROR,
    },
    State.ACTIVE: {State.ACTIVE, State.RELEASING, State.ERROR},
    State.RELEASING: {State.RELEASING, State.RELEASED, State.ERROR},
    State.ERROR: {State.ERROR, State.ALLOCATING, State.ACTIVE, State.RELEASING},
    State.RELEASED: set[State](),
}
"""The states that may follow a state; the same state again is one more entry in the history."""

OVER = frozenset({State.RELEASED})
"""The states that no other follows; an allocation in one of them has nothing."""

LIVE = frozenset(State) - OVER
"""The states in which an allocation holds hosts, or waits for them."""

HOLDING = LIVE - {State.QUEUED}
"""The states in which an allocation has claims."""

MOVING = frozenset({State.QUEUED, State.ALLOCATING, State.RELEASING})
"""The states that the service leaves by itself."""

DUE = MOVING - {State.QUEUED}
"""The states in which a worker always has a step to take; the queue admits the queued."""

DUE_IF_CHANGING = frozenset({State.ACTIVE})
"""The states in which a worker has a step to take while the placement changes, and begins a
change when a link has failed (if repair of links is switched on)."""

HANDED_OVER = frozenset({State.ACTIVE})
"""The states in which exactly the allocation's hosts accept its project in Nova."""

ENTERABLE = frozenset({State.ALLOCATING, State.ACTIVE})
"""The states in which a container takes further allocations."""


# -- changes of placement ---------------------------------------------------------------


class Phase(enum.Enum):
    """The step of a change of placement that is under way, as recorded and shown."""

    STOP = "stop"
    PREPARE = "prepare"
    SWITCH = "switch"
    ENTER = "enter"
    LEAVE = "leave"
    WITHDRAW = "withdraw"


class Action(enum.Enum):
    """What a worker does next for one allocation."""

    NOTHING = "nothing"
    PUBLISH = "publish routes"
    HAND_OVER = "hand over"
    TAKE_BACK = "take back"
    CUT_OFF = "cut off"
    FREE = "free"
    REQUEUE = "requeue"
    REPAIR = "repair"
    PROCEED = "proceed"
    OPEN = "open new hosts"
    GIVE_BACK = "give hosts back"
    STOP = "stop servers"
    MOVE = "move"
    SETTLE = "settle slots"


@dataclass(frozen=True, slots=True)
class WantedRoutes:
    """What the subnet manager routes for one allocation.

    Its traffic uses ``traffic``; the routes of ``beside`` are in the tables too, so that
    traffic can move to them or may still arrive over them. ``bridge`` has the links that join the
    hosts of both besides their own. ``beneath`` are routes over other links for the same hosts,
    which are in the tables wherever these have none.
    """

    traffic: Allocation
    beside: Allocation | None = None
    bridge: Allocation | None = None
    beneath: WantedRoutes | None = None

    @property
    def together(self) -> tuple[Allocation, ...]:
        """Placements within which packets arrive, once these routes are confirmed."""
        if self.beside is None:
            return (self.traffic,)
        if self.bridge is None:
            return self.traffic, self.beside
        return (self.traffic.joined(self.beside),)


@dataclass(frozen=True, slots=True)
class ChangeStep:
    """One step of a change of placement.

    ``routes`` are those that the step wants; with ``awaits_routes`` the worker takes
    ``action`` only after they are confirmed, else at once. The hosts of ``open_hosts`` accept
    servers of the project once ``action`` is taken. Both placements are claimed during every step.
    """

    phase: Phase
    routes: Callable[[Change], WantedRoutes]
    open_hosts: Callable[[Change], Allocation]
    action: Action = Action.PROCEED
    awaits_routes: bool = True


@dataclass(frozen=True, slots=True)
class Way:
    """How allocations of a kind change their placement."""

    order: Sequence[ChangeStep]
    """All steps that a change may have."""
    takes: Callable[[Change, Phase], bool]
    """Whether a change has a step of ``order``."""
    turns_back: bool
    """Whether a change may lead back before its last step."""


@dataclass(frozen=True, slots=True)
class Mending:
    """Other links for the hosts of a change under way, and how far it is to use them alone.

    They are laid beneath the present ones (``PREPARE``), used (``SWITCH``), and alone
    (``WITHDRAW``); then the present ones are freed. All are claimed meanwhile.
    """

    links: Joined
    phase: Phase = Phase.PREPARE

    @property
    def next_phase(self) -> Phase | None:
        """The phase that follows; None after the last one."""
        following = {Phase.PREPARE: Phase.SWITCH, Phase.SWITCH: Phase.WITHDRAW}
        return following.get(self.phase)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of placement from ``old`` to ``new``, and how far it is (``phase``).

    A placement is a value with hosts and links. The order of a change:

    1. what the new placement has and the old one lacks is claimed, with the decision
       (``claimed``), and the bridge;
    2. the steps (``steps``), one after the other;
    3. what only the old placement had is freed, with the end of the last step (``freed``), and
       the bridge.

    A change may turn back (``way_back``) until its last step.
    """

    old: Allocation
    new: Allocation
    phase: Phase
    bridge: Allocation | None = None
    """The links that join old and new hosts besides those of the placements, which may be none.
    None if no links can join them, or if no hosts are exchanged."""
    mending: Mending | None = None
    """Links that have failed in it are being replaced; None: none are."""

    @classmethod
    def begun(cls, old: Allocation, new: Allocation, bridge: Allocation | None = None) -> Change:
        """A change at its first step; at its end if it has none."""
        first = next(iter(cls(old, new, STEPS[0].phase, bridge).steps()), STEPS[-1])
        return cls(old, new, first.phase, bridge)

    @property
    def way(self) -> Way:
        """How allocations of its kind change."""
        return WAYS[type(self.new.kind)]

    def steps(self) -> Sequence[ChangeStep]:
        """All steps of this change, in order."""
        way = self.way
        return [step for step in way.order if way.takes(self, step.phase)]

    @property
    def step(self) -> ChangeStep:
        """The step under way."""
        return next(step for step in self.way.order if step.phase is self.phase)

    @property
    def next_phase(self) -> Phase | None:
        """The phase that follows; None if the change ends with the present one."""
        phases = [step.phase for step in STEPS]
        following = phases[phases.index(self.phase) + 1 :]
        taken = {step.phase for step in self.steps()}
        return next((phase for phase in following if phase in taken), None)

    @property
    def routes(self) -> WantedRoutes:
        """What the subnet manager routes now."""
        present, mending = self.step.routes(self), self.mending
        if mending is None:
            return present
        mended = self.step.routes(self.mended)
        if mending.phase is Phase.PREPARE:
            return replace(present, beneath=mended)
        return replace(mended, beneath=present if mending.phase is Phase.SWITCH else None)

    @property
    def mended(self) -> Change:
        """The change over the links that replace failed ones; itself if none are replaced."""
        if self.mending is None:
            return self
        links = self.mending.links
        return Change(links.old, links.new, self.phase, links.bridge)

    @property
    def open_hosts(self) -> Allocation:
        """A placement whose hosts accept servers of the project once the step is taken."""
        return self.step.open_hosts(self)

    @property
    def held(self) -> Allocation:
        """Everything that is claimed until the change is over."""
        both = self.new.joined(self.old)
        both = both if self.bridge is None else both.joined(self.bridge)
        return both if self.mending is None else both.joined(self.mended.held)

    @property
    def claimed(self) -> Allocation:
        """What is claimed when the change begins."""
        return self.held.beyond(self.old)

    @property
    def freed(self) -> Allocation:
        """What is freed when the change ends."""
        return self.held.beyond(self.new)

    @property
    def kept(self) -> Allocation:
        """The hosts and links that both placements have."""
        return self.old.beyond(self.old.beyond(self.new))

    @property
    def parted(self) -> bool:
        """Whether hosts are exchanged, and no links join the old ones to the new ones."""
        exchanged = self.bridge is None and self.old.isolated
        return exchanged and bool(self.claimed.size and self.freed.size)

    def server_targets(self, topology: Topology) -> dict[int, int]:
        """For each host that is freed the claimed host that its servers go to, by number.

        The first to the first; empty if the change claims no hosts.
        """
        joining = self.claimed.hosts(topology)
        leaving = self.freed.hosts(topology)
        return {host: joining[n % len(joining)] for n, host in enumerate(leaving) if joining}

    @property
    def way_back(self) -> Change | None:
        """The change from ``new`` to ``old`` that goes on from here.

        None in the last step, and while its links are replaced.

        Routes go back in the order in which they came. Before the traffic was switched, only the
        routes of ``new`` have to be withdrawn. After it, the hosts that may have accepted servers
        are given back, or opened again, while the routes of both placements are there. Where
        nothing joins old and new hosts, the step that stops servers before it opens hosts does so.
        """
        if self.phase is Phase.WITHDRAW or self.mending is not None or not self.way.turns_back:
            return None
        back = Change(self.new, self.old, Phase.WITHDRAW, self.bridge)
        if self.parted:
            return replace(back, phase=Phase.LEAVE)
        if self.phase is Phase.PREPARE:
            return back
        phases = {step.phase for step in back.steps()}
        order = [Phase.LEAVE, Phase.ENTER, Phase.SWITCH]
        if self.phase is Phase.LEAVE:
            order = [Phase.ENTER]
        return replace(back, phase=next(phase for phase in order if phase in phases))


STEPS: Sequence[ChangeStep] = (
    ChangeStep(
        Phase.STOP,
        routes=lambda change: WantedRoutes(change.old),
        open_hosts=lambda change: change.kept,
        action=Action.STOP,
        awaits_routes=False,
    ),
    ChangeStep(
        Phase.PREPARE,
        routes=lambda change: WantedRoutes(change.old, change.new, change.bridge),
        open_hosts=lambda change: change.kept if change.parted else change.old,
    ),
    ChangeStep(
        Phase.SWITCH,
        routes=lambda change: WantedRoutes(change.new, change.old, change.bridge),
        open_hosts=lambda change: change.kept if change.parted else change.old,
    ),
    ChangeStep(
        Phase.ENTER,
        routes=lambda change: WantedRoutes(change.new, change.old, change.bridge),
        open_hosts=lambda change: change.new if change.parted else change.held,
        action=Action.OPEN,
    ),
    ChangeStep(
        Phase.LEAVE,
        routes=lambda change: WantedRoutes(change.new, change.old, change.bridge),
        open_hosts=lambda change: change.new,
        action=Action.GIVE_BACK,
    ),
    ChangeStep(
        Phase.WITHDRAW,
        routes=lambda change: WantedRoutes(change.new),
        open_hosts=lambda change: change.new,
    ),
)
"""The steps of a change: stop servers that the new hosts could not reach, lay the new routes
beside the old ones, move the traffic to them, hand over the new hosts, take back the old hosts once
they are empty, withdraw the old routes. A host accepts servers only while its routes are
confirmed."""


MOVE_UNITS = ChangeStep(
    Phase.LEAVE,
    routes=lambda change: WantedRoutes(change.new),
    open_hosts=lambda change: change.new,
    action=Action.SETTLE,
    awaits_routes=False,
)
"""The only step of a change of slots in which virtual machines move. Hosts and links promise both
places until then."""


def _takes_of_hosts(change: Change, phase: Phase) -> bool:
    """Servers stop only if nothing joins the hosts that they leave to the new ones."""
    match phase:
        case Phase.STOP:
            return change.parted
        case Phase.ENTER:
            return change.claimed.size > 0
        case Phase.LEAVE:
            return change.freed.size > 0
        case _:
            return True


def _takes_of_slots(change: Change, phase: Phase) -> bool:
    """Slots change at once unless virtual machines move, and no routes with them."""
    return bool(change.new.unit_moves)


_HOSTS_CHANGE = Way(STEPS, _takes_of_hosts, turns_back=True)
_SLOTS_CHANGE = Way((MOVE_UNITS,), _takes_of_slots, turns_back=False)

WAYS: Mapping[type[Kind], Way] = {
    Owned: _HOSTS_CHANGE,
    Container: _HOSTS_CHANGE,
    SharedHosts: _HOSTS_CHANGE,
    Slots: _SLOTS_CHANGE,
}
"""How allocations change, by their kind."""


def routes(
    placed: Allocation,
    leaving: Allocation | None,
    phase: Phase | None,
    bridge: Allocation | None = None,
    mending: Mending | None = None,
) -> WantedRoutes:
    """What the subnet manager routes for an allocation with claims that is not handed back.

    The others are None unless its placement changes.
    """
    if leaving is None or phase is None:
        return WantedRoutes(placed)
    return Change(leaving, placed, phase, bridge, mending).routes


# -- one allocation ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AllocationFaults:
    """The failed links and hosts of an allocation, ascending by number.

    ``drained`` are its links at switches under maintenance, which still work.
    """

    links: tuple[Link, ...] = ()
    hosts: tuple[int, ...] = ()
    drained: tuple[Link, ...] = ()

    @property
    def replaceable(self) -> tuple[Link, ...]:
        """The links that other links should replace."""
        return (*self.links, *self.drained)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What decides about an allocation's next step; ``records.AllocationRecord`` has the rest."""

    id: str
    state: State
    placed: Allocation | None
    """The placement, the new one while it changes; None while it is queued and once the claims
    are freed."""
    leaving: Allocation | None = None
    """The old placement while it changes; it stays claimed."""
    phase: Phase | None = None
    """The step of the change of placement that is under way."""
    bridge: Allocation | None = None
    """The links that join old and new hosts meanwhile, as in ``Change``."""
    mending: Mending | None = None
    """Links that replace failed ones meanwhile, as in ``Change``."""
    faults: AllocationFaults | None = None
    """Of everything it holds; None if nothing has failed or is under maintenance."""
    handed_back: bool
    """The subnet manager must no longer route this tenant: Nova has confirmed that its hosts are
    taken back, or the release is forced and the network is cut first. An allocation that is
    still ``ALLOCATING`` is then placed anew."""
    force: bool
    """Its release is forced."""
    container: bool = False
    sharing: Sharing | None = None
    """How its hosts are shared by allocations inside; None: they are not."""
    slots: SlotDemand | None = None
    """What it asks for in place of hosts; None: it asks for hosts."""
    generation: int = 0
    """The fabric's generation at which this allocation's routes last changed: they are confirmed
    once the subnet manager has applied it."""
    next_try: datetime | None = None
    """When the step that failed or waits is tried again; UTC and aware."""
    parked: State | None = None
    """The state from which it came into ``ERROR``; None in other states."""
    announced: Allocation | None = None
    """The placement that it moves to at ``moves_at``, if a move is announced."""
    moves_at: datetime | None = None
    """When an announced move begins; while it is under way, when it could have begun."""
    move_forced: bool = False
    """Its owner cannot call off the move that is announced."""
    begun_at: datetime | None = None
    """When its change of placement began, or turned back; None without one."""

    @property
    def kind(self) -> Kind:
        """What kind of tenancy it is."""
        return kind_of(self.container, self.sharing, self.slots)

    @property
    def demand(self) -> SlotDemand:
        """What an allocation of kind ``Slots`` asks for."""
        assert self.slots is not None, f"allocation {self.id!r} has hosts"
        return self.slots

    @property
    def in_compute(self) -> bool:
        """Whether its hosts are handed over to its project."""
        return self.kind.handed_over

    @property
    def change(self) -> Change | None:
        """The change of placement under way."""
        if self.placed is None or self.leaving is None or self.phase is None:
            return None
        return Change(self.leaving, self.placed, self.phase, self.bridge, self.mending)

    @property
    def held(self) -> Allocation | None:
        """Everything that it has claimed: while its placement changes, old and new."""
        return self.placed if self.change is None else self.change.held

    @property
    def traffic(self) -> Allocation | None:
        """The placement whose links its traffic uses, as far as is decided."""
        return self.placed if self.change is None else self.change.routes.traffic

    @property
    def open_hosts(self) -> Allocation | None:
        """A placement whose hosts are its project's in Nova once the present step is taken.

        All that it holds, where it is not handed over: none of them may have servers of others.
        """
        if self.change is None or self.state not in HANDED_OVER:
            return self.held
        return self.change.open_hosts


def gets_other_hosts(placed: Allocation, to: Allocation) -> bool:
    """Whether a move to a placement counts for the quota: hosts change, or virtual machines go."""
    return bool(to.beyond(placed).size or to.unit_moves)


def moves_now(allocation: Situation, now: datetime | None) -> bool:
    """Whether a move is announced whose notice is over at ``now``."""
    begins = allocation.moves_at
    if allocation.announced is None or now is None or begins is None:
        return False
    return begins <= now


def next_action(
    allocation: Situation, confirmed: bool, *, repair_links: bool, now: datetime | None = None
) -> Action:
    """The next safe action; ``confirmed`` as the function of that name.

    A move that is announced begins at ``now`` or earlier; None: not yet.

    With ``repair_links`` links that have failed or are under maintenance are replaced; those of
    a container stay, as others may be on them.
    """
    if allocation.state in DUE_IF_CHANGING:
        if allocation.change is not None:
            step, mends = allocation.change.step, allocation.change.mending is not None
            if not confirmed and step.awaits_routes:
                return Action.PUBLISH
            return Action.PROCEED if mends else step.action
        if moves_now(allocation, now):
            return Action.MOVE
        repairs = repair_links and has_replaceable_links(allocation)
        return Action.REPAIR if repairs and not allocation.kind.keeps_links else Action.NOTHING
    if allocation.state is State.ALLOCATING:
        done = Action.REQUEUE if allocation.handed_back else Action.HAND_OVER
        return done if confirmed else Action.PUBLISH
    if allocation.state is not State.RELEASING:
        return Action.NOTHING
    if not allocation.handed_back:
        return Action.CUT_OFF if allocation.force else Action.TAKE_BACK
    return Action.FREE if confirmed else Action.PUBLISH


def awaits_routes(allocation: Situation) -> bool:
    """Whether the next action depends on what the switches run."""
    if allocation.state in DUE_IF_CHANGING:
        return allocation.change is not None and allocation.change.step.awaits_routes
    if allocation.state is State.RELEASING:
        return allocation.handed_back  # before that its routes are still to change
    return allocation.state is State.ALLOCATING


def awaited_change(allocation: Situation) -> Allocation | None:
    """The hosts and links that the awaited routes begin to use, or stop using (``frees``)."""
    change = allocation.change
    if change is None:
        return allocation.placed
    if change.mending is not None:
        ends = change.mending.phase is Phase.WITHDRAW
        return change.held.beyond(change.mended.held) if ends else change.mended.held
    return change.freed if change.phase is Phase.WITHDRAW else change.claimed


def awaited_hosts(allocation: Situation) -> Allocation | None:
    """A placement with the hosts that are handed over later; None if there are none."""
    if not allocation.in_compute or allocation.placed is None:
        return None
    if allocation.state is State.ALLOCATING:
        return None if allocation.handed_back else allocation.placed
    change = allocation.change
    if allocation.state not in DUE_IF_CHANGING or change is None or not change.claimed.size:
        return None
    if change.mending is not None:
        return None  # they wait until its links are replaced
    return None if change.phase in (Phase.LEAVE, Phase.WITHDRAW) else change.claimed


def frees(allocation: Situation) -> bool:
    """Whether links are free for others once the awaited routes are confirmed."""
    if allocation.change is not None and allocation.state in DUE_IF_CHANGING:
        change = allocation.change
        return Phase.WITHDRAW in (change.phase, change.mending and change.mending.phase)
    return allocation.state is State.RELEASING


def confirmed(allocation: Situation, applied: int | None) -> bool:
    """Whether the routes that it waits for are confirmed.

    ``applied`` is the generation that is confirmed, None if none is.
    """
    return awaits_routes(allocation) and applied is not None and applied >= allocation.generation


def has_replaceable_links(allocation: Situation) -> bool:
    """Whether a link that it holds has failed or is under maintenance."""
    return allocation.faults is not None and bool(allocation.faults.replaceable)


def is_degraded(allocation: Situation) -> bool:
    """Whether a host or link that it holds has failed."""
    faults = allocation.faults
    return faults is not None and bool(faults.links or faults.hosts)


def is_moving(allocation: Situation) -> bool:
    """Whether the service still changes its state or placement by itself."""
    return allocation.state in MOVING or allocation.change is not None


def has_step_now(allocation: Situation) -> bool:
    """Whether a worker takes its next step, or would if it had the time."""
    due = allocation.state in DUE or allocation.change is not None
    return due and allocation.next_try is None


def hands_over(allocation: Situation) -> bool:
    """Whether the present step changes its hosts in Nova, so that either state is right."""
    change = allocation.change
    return change is not None and change.step.action is not Action.PROCEED


def keeps_servers_stopped(allocation: Situation) -> bool:
    """Whether no server may run on the hosts that its change leaves.

    Nothing joins them to the new ones, so packets between them would use links of others. A forced
    release cuts the network at once instead.
    """
    change = allocation.change
    if change is None or not change.parted or not allocation.in_compute:
        return False
    if allocation.state is State.RELEASING:
        waits = not allocation.handed_back and not allocation.force
        return waits and change.phase not in (Phase.STOP, Phase.WITHDRAW)
    between = (Phase.PREPARE, Phase.SWITCH, Phase.ENTER)
    return allocation.state in DUE_IF_CHANGING and change.phase in between


def is_at_rest(allocation: Situation) -> bool:
    """Whether it is handed over, without a change under way or a fault.

    An error of such an allocation is about its hosts in Nova.
    """
    settled = allocation.change is None and allocation.faults is None
    return allocation.state in HANDED_OVER and settled


def parked_from(allocation: Situation, to: State) -> State | None:
    """The state in which it came into ``ERROR``, if ``to`` is that."""
    if to is not State.ERROR:
        return None
    return allocation.parked if allocation.state is State.ERROR else allocation.state


# -- refusals -----------------------------------------------------------------------------


def check_successor(allocation: Situation, to: State) -> None:
    """Raises: Conflict, if the state cannot follow, or if claims are to be freed with it."""
    frees = to in OVER or (to is State.QUEUED and allocation.state in HOLDING)
    if to not in SUCCESSORS[allocation.state] or frees:
        raise _conflict(allocation, f"it cannot become {to.value}")


def check_queued(allocation: Situation, only: str = "can be cancelled") -> None:
    """Raises: Conflict, if it is not queued."""
    if allocation.state is not State.QUEUED:
        raise _conflict(allocation, f"only a queued request {only}")


def check_releasing(allocation: Situation) -> None:
    """Raises: Conflict, if it is not releasing."""
    if allocation.state is not State.RELEASING:
        raise _conflict(allocation, "it is not being released")


def check_handing_back(allocation: Situation) -> None:
    """Raises: Conflict, if neither a release nor a new placement is under way."""
    if allocation.state is not State.ALLOCATING:
        check_releasing(allocation)


def check_requeueable(allocation: Situation) -> None:
    """Raises: Conflict, if it is not to be placed anew, or its routes may still be in use."""
    if allocation.state is not State.ALLOCATING or not allocation.handed_back:
        raise _conflict(allocation, "it cannot be placed anew")


def check_freeable(allocation: Situation) -> None:
    """Raises: Conflict, if its hosts or its routes may still be in use."""
    check_releasing(allocation)
    if not allocation.handed_back:
        raise _conflict(allocation, "its hosts are not handed back")


def check_active(allocation: Situation) -> Allocation:
    """Its placement. Raises: Conflict, if it is not active."""
    if allocation.state is not State.ACTIVE or allocation.placed is None:
        raise _conflict(allocation, "wait until it is active")
    return allocation.placed


def check_changeable(allocation: Situation) -> Allocation:
    """Its placement. Raises: Conflict, if no change of it can begin."""
    placed = check_active(allocation)
    if allocation.change is not None:
        raise Conflict(f"the placement of allocation {allocation.id!r} is changing already")
    return placed


def check_changing(allocation: Situation) -> Change:
    """The change under way. Raises: Conflict, if there is none that can proceed."""
    if allocation.state not in DUE_IF_CHANGING or allocation.change is None:
        raise Conflict(f"no change of placement of allocation {allocation.id!r} is under way")
    return allocation.change


def check_resizable(allocation: Situation) -> Allocation:
    """Its placement. Raises: Conflict, if it cannot get another size now."""
    if why := allocation.kind.keeps_hosts:
        raise Conflict(f"allocation {allocation.id!r} {why}")
    return check_changeable(allocation)


def check_slots_changeable(allocation: Situation) -> Allocation:
    """Its placement. Raises: Conflict, if it has no slots or cannot get others now."""
    if allocation.kind.whole_hosts:
        raise Conflict(f"allocation {allocation.id!r} has hosts and no slots; change its hosts")
    return check_changeable(allocation)


def check_announced(allocation: Situation) -> Allocation:
    """The placement of the move that is announced. Raises: Conflict, if there is none."""
    if allocation.announced is None:
        raise Conflict(f"no move of allocation {allocation.id!r} is announced")
    return allocation.announced


def check_turning_back(allocation: Situation) -> Change:
    """The change that leads back. Raises: Conflict, if nothing changes or it is too late."""
    change = check_changing(allocation)
    back = change.way_back
    if change.mending is not None:
        raise Conflict(
            f"failed links of allocation {allocation.id!r} are being replaced; wait until its step "
            f"{change.phase.value!r} goes on, then turn the change back"
        )
    if back is None:
        raise Conflict(
            f"the old placement of allocation {allocation.id!r} is being withdrawn; wait until "
            "the change is over, then change it again"
        )
    return back


def check_repairable(allocation: Situation) -> Allocation:
    """Its placement. Raises: Conflict, if its links cannot be replaced."""
    placed = check_active(allocation)
    if why := allocation.kind.keeps_links:
        raise Conflict(f"allocation {allocation.id!r} {why}")
    return placed


def _conflict(allocation: Situation, why: str) -> Conflict:
    return Conflict(f"allocation {allocation.id!r} is {allocation.state.value}; {why}")

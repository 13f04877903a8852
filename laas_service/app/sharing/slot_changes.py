# SPDX-License-Identifier: Apache-2.0

"""Beginning a change or a move of the slots that an allocation has on shared hosts."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from laas_service.app import lifecycle, settling
from laas_service.app.lifecycle import Change
from laas_service.app.placement_changes import AnnouncedMove, current_ledger
from laas_service.app.ports.placement_changes import PlacementChanges
from laas_service.app.records import AllocationRecord, Limits, NewPlacement
from laas_service.app.wording import reasons
from laas_service.domain.allocation import Allocation, Amounts, NoFit, SlotDemand
from laas_service.domain.budget import RequestBudget
from laas_service.domain.errors import Conflict, DoubleClaim
from laas_service.domain.ledger import Ledger
from laas_service.domain.sharing.announced import in_the_way
from laas_service.domain.sharing.policy import SharedSlots
from laas_service.domain.tenancy import Kind, Slots
from laas_service.messages import Initiator


def _first(amounts: Amounts, slots: int) -> Amounts:
    """The amounts of the first virtual machines; one amount stays that of all."""
    return amounts[:slots] if isinstance(amounts, tuple) else amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotsRequest:
    """A request for other slots of an allocation; None leaves a value as it is."""

    slots: int | None = None
    bandwidth: Amounts | None = None
    deviation: Amounts | None = None

    def demand(self, present: SlotDemand) -> SlotDemand:
        """The demand with these values; a list alone says how many slots, too.

        Fewer slots without a list keep the first numbers of the present one.
        """
        lengths = [len(x) for x in (self.bandwidth, self.deviation) if isinstance(x, tuple)]
        numbers = (number for number in (self.slots, *lengths) if number is not None)
        slots = next(numbers, present.slots)
        return SlotDemand(
            slots,
            _first(present.bandwidth, slots) if self.bandwidth is None else self.bandwidth,
            _first(present.deviation, slots) if self.deviation is None else self.deviation,
        )


@dataclass(frozen=True, slots=True)
class SlotChange:
    """Other slots for an allocation: ``demand`` in all; ``names`` are those of hosts.

    ``budget`` bounds the searches, anew after each lost race. With ``settles`` compute keeps
    servers to their slots, so it carries out each change.
    """

    demand: SlotDemand
    policy: SharedSlots
    names: Sequence[str]
    budget: RequestBudget
    settles: bool = False

    def chosen(
        self, fabric: Ledger, record: AllocationRecord, placed: Allocation
    ) -> Allocation | NoFit:
        """The place with the fewest moves, or a refusal. Raises: ConcurrentUpdate."""
        ledger = current_ledger(fabric, record, placed, self.budget)
        answer = self.policy.change(ledger, placed, self.demand, self.budget)
        if self.settles and isinstance(answer, Allocation):
            self._check_settled(placed, answer)
        return answer

    def _check_settled(self, placed: Allocation, answer: Allocation) -> None:
        """Raises: Conflict, if servers that have to go would hold what the others shall get."""
        given_up = settling.gives_up_slots(placed, answer)
        if given_up and settling.asks_more(placed, answer) and not answer.unit_moves:
            raise Conflict(
                "slots are given up and others get more bandwidth: change the slots first, then "
                "the bandwidth"
            )

    def named(self, answer: Allocation) -> list[str]:
        """The moves that lead to a place, for its owner."""
        return [
            f"virtual machine {unit} moves from {self.names[old]} to {self.names[new]}"
            for unit, old, new in answer.unit_moves
        ]


def begin_slot_change(
    changes: PlacementChanges,
    record: AllocationRecord,
    wanted: SlotChange,
    by: Initiator,
    limits: Limits,
) -> AllocationRecord | NoFit:
    """Begin to give an allocation other slots.

    At once, unless virtual machines have to move or compute keeps them to their slots.

    Raises:
        Conflict: it has no slots, is not active, or changes already.
        ConcurrentUpdate: it moved on; read it again.
        QuotaExceeded: its project may not have so many slots.
    """
    placed = lifecycle.check_slots_changeable(record)

    def choose(fabric: Ledger) -> NewPlacement | NoFit:
        answer = wanted.chosen(fabric, record, placed)
        if isinstance(answer, NoFit):
            return answer
        named = wanted.named(answer)
        reason = reasons.slot_change_reason(placed, answer, named, by.user_id)
        return NewPlacement(answer, reason, settles=wanted.settles)

    return changes.begin(record, choose, by=by, limits=limits)


def announced_slots(
    fabric: Ledger,
    record: AllocationRecord,
    placed: Allocation,
    to: Allocation,
    *,
    settles: bool,
) -> NewPlacement | str:
    """Decides on an announced move to other slots, as ``AnnouncedMove``.

    With ``settles`` compute keeps servers to their slots, as in ``SlotChange``.
    """
    if (why := in_the_way(fabric.ledger(placed.parent), placed, to)) is not None:
        return why
    try:
        fabric.change(to.joined(placed))
    except DoubleClaim:
        return f"its new {to.kind.claims} are no longer free"
    reason = reasons.moved_reason(Change.begun(placed, to), record.consent.movable)
    return NewPlacement(to, reason, settles=settles)


def announced_moves(*, settles: bool) -> dict[type[Kind], AnnouncedMove]:
    """The decisions on announced moves, by the kinds that only sharing has."""
    return {Slots: partial(announced_slots, settles=settles)}

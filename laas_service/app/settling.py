# SPDX-License-Identifier: Apache-2.0

"""Changes of slots that compute carries out: whether the old place stays claimed; pure."""

from laas_service.app.lifecycle import MOVE_UNITS, Change
from laas_service.domain.allocation import Allocation


def settling(old: Allocation, new: Allocation) -> Change:
    """A change of slots that compute carries out, though no virtual machine is planned to move.

    The old place stays claimed beside the new one only if something of it is given up.
    """
    return Change(old if gives_up(old, new) else new, new, MOVE_UNITS.phase)


def gives_up(old: Allocation, new: Allocation) -> bool:
    """Whether a host has fewer slots in the new place, or the same ones are promised less."""
    if gives_up_slots(old, new):
        return True
    had, has = old.held_slots.demand, new.held_slots.demand
    both = zip(had.each, has.each, strict=False)
    less = any(now < was for pair in both for was, now in zip(*pair, strict=True))
    return less and has.slots == had.slots and not asks_more(old, new)


def gives_up_slots(old: Allocation, new: Allocation) -> bool:
    """Whether a host has fewer slots in the new place."""
    counts = new.held_slots.counts
    return any(counts.get(host, 0) < units for host, units in old.held_slots.counts.items())


def asks_more(old: Allocation, new: Allocation) -> bool:
    """Whether each virtual machine is promised more in the new place."""
    both = zip(old.held_slots.demand.each, new.held_slots.demand.each, strict=False)
    return any(now > was for pair in both for was, now in zip(*pair, strict=True))

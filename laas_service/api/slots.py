# SPDX-License-Identifier: Apache-2.0

"""Demands of slots as requests give them."""

from laas_service.domain.allocation import Amounts, SlotDemand


def slot_demand(
    slots: int | None,
    bandwidth: float | list[float] | None,
    deviation: float | list[float] | None,
) -> SlotDemand | None:
    """The demand; None without a number of slots or a bandwidth."""
    given = amounts(bandwidth)
    if slots is None or given is None:
        return None
    return SlotDemand(slots, given, amounts(deviation) or 0.0)


def amounts(given: float | list[float] | None) -> Amounts | None:
    """One amount, or a tuple of them."""
    return tuple(given) if isinstance(given, list) else given

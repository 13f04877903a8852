# SPDX-License-Identifier: Apache-2.0

"""Sizes that earlier searches proved not to fit, so that no search looks for them again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.pod_leaves import LeafRoom

NEVER = 1 << 62
"""More hosts than any fabric has: no size is known not to fit."""


@dataclass(slots=True)
class Misfits:
    """The smallest size known not to fit, by place; kept with a ledger (``reader_cache``).

    A place is a policy's name for anywhere in the fabric, or a pod's number for two or more
    leaf groups of that pod. Larger sizes do not fit either. Each size is remembered with the
    ledger's generation of what became free (``freed`` or ``pod_freed[pod]``) and holds until
    that advances: claims and faults make no room.

    Of full leaf groups in several pods, a size is remembered for longer: until something
    becomes free that such a placement could take (``in_several_pods``).
    """

    _sizes: dict[str | int, tuple[int, int]] = field(default_factory=dict)
    """(generation, size) by place."""
    _in_several_pods: tuple[int, int, int] = NEVER, 0, 0
    """A size that did not fit, the ``freed`` of that time, and the least hosts on its leaves."""

    def smallest(self, place: str | int, generation: int) -> int:
        """The smallest size known not to fit at this generation, NEVER if none is known."""
        known = self._sizes.get(place)
        return known[1] if known is not None and known[0] == generation else NEVER

    def remember(self, place: str | int, generation: int, hosts: int) -> None:
        """So many hosts do not fit; a smaller size was not known at this generation."""
        self._sizes[place] = generation, hosts

    def in_several_pods(self, fabric: LedgerView) -> int:
        """The smallest size known not to fit on full leaf groups and a remainder leaf.

        Let a size S with a remainder leaf of R hosts have been refused, and after that only
        leaf groups with less than R free hosts have become free in part. Then no S' >= S fits
        now. Its full leaf groups and spine uplinks were free then, too. If its remainder leaf
        has R or more hosts, so was that leaf, and S' would have fitted. If not, S' has a full
        leaf group more than S. The placement without its remainder leaf would have fitted, has
        S or more hosts and is legal, in one pod or several. That was refused as well.
        """
        hosts, generation, leaf_hosts = self._in_several_pods
        if hosts == NEVER or fabric.last_freed(leaf_hosts) > generation:
            return NEVER
        return hosts

    def remember_in_several_pods(self, fabric: LedgerView, hosts: int, leaf_hosts: int) -> None:
        """So many hosts fit nowhere, with ``leaf_hosts`` on the smallest leaf in several pods."""
        self._in_several_pods = hosts, fabric.freed, leaf_hosts

    def copy(self) -> Misfits:
        return Misfits(dict(self._sizes), self._in_several_pods)


class SeenLeaves(NamedTuple):
    """What a search saw free: the leaf groups and the spine uplinks of each pod."""

    rooms: tuple[LeafRoom, ...]
    lanes: tuple[int, ...]
    """By pod, as ``LedgerView.free_lanes``."""

    def nothing_new(self, earlier: SeenLeaves, leaf_hosts: int) -> bool:
        """Whether each leaf group that can have ``leaf_hosts`` hosts is as free as it was.

        It could have them earlier, with all uplinks that it has free now, and so could its pod's
        spine uplinks be used.
        """
        for room, lanes, earlier_room, earlier_lanes in zip(
            self.rooms, self.lanes, earlier.rooms, earlier.lanes, strict=True
        ):
            new_spines = lanes & ~earlier_lanes
            if room is earlier_room and not new_spines:
                continue
            before = zip(earlier_room.hosts, earlier_room.uplinks, strict=True)
            now = zip(room.hosts, room.uplinks, strict=True)
            for (hosts, uplinks), (hosts_before, uplinks_before) in zip(now, before, strict=True):
                if hosts >= leaf_hosts and (
                    new_spines or hosts_before < leaf_hosts or uplinks & ~uplinks_before
                ):
                    return False
        return True


_Refused = tuple[int, SeenLeaves]
"""A number of leaves, and what was free when a search found that so many do not fit."""


@dataclass(slots=True)
class LeafMisfits:
    """Leaves in several pods that do not fit, by hosts on a leaf; kept with a ledger.

    A refusal holds as long as each leaf group that could be one of the leaves is no freer than
    it was (``SeenLeaves.nothing_new``): then a placement would have been one before.

    Without its remainder leaf a placement of more leaves has one of fewer leaves in it: a leaf
    of the remainder pod is left out, or one of a full pod, which becomes the remainder pod. And
    leaves can have fewer hosts. So what is refused without regard to the remainder leaf rules
    out more leaves and larger ones. With a remainder leaf there must be room for its pod, and
    the full leaves may lie in one pod. So these two cases are kept apart.
    """

    _leaves: dict[int, _Refused] = field(default_factory=dict)
    """By hosts on a leaf: so many leaves do not fit, and no remainder leaf was asked for."""
    _before_rest: dict[int, _Refused] = field(default_factory=dict)
    """The same, with a remainder leaf of any size, because the others do not fit."""
    _with_rest: dict[int, tuple[int, int, SeenLeaves]] = field(default_factory=dict)
    """The same with a remainder leaf of at least so many hosts (the second number)."""

    def refuse(self, leaf_hosts: int, leaves: int, rest: int, seen: SeenLeaves) -> bool:
        """Whether ``leaves`` leaves of ``leaf_hosts`` hosts and one of ``rest`` are refused.

        Refusals about no larger leaves that no longer hold are forgotten.
        """
        for hosts in range(leaf_hosts, 0, -1):
            if not rest and self._holds(self._leaves, hosts, leaves, seen):
                return True
            if self._holds(self._before_rest, hosts, leaves - (not rest), seen):
                return True
        if not rest or leaf_hosts not in self._with_rest:
            return False
        known, known_rest, earlier = self._with_rest[leaf_hosts]
        return (
            known == leaves
            and known_rest <= rest
            and seen.nothing_new(earlier, leaf_hosts)
            and seen.nothing_new(earlier, known_rest)
        )

    def _holds(
        self, refused: dict[int, _Refused], leaf_hosts: int, leaves: int, seen: SeenLeaves
    ) -> bool:
        """Whether so many leaves are among ``refused``; forgets what no longer holds."""
        known = refused.get(leaf_hosts)
        if known is None or known[0] > leaves:
            return False
        if seen.nothing_new(known[1], leaf_hosts):
            return True
        refused.pop(leaf_hosts, None)
        return False

    def remember(
        self, leaf_hosts: int, leaves: int, rest: int, seen: SeenLeaves, *, before_rest: bool
    ) -> None:
        """A search without constraints proved that they do not fit; 2 or more ``leaves``.

        ``before_rest``: no set of full leaves was found for which to look for a remainder leaf.
        """
        if not rest:
            self._leaves[leaf_hosts] = leaves, seen
        elif before_rest:
            self._before_rest[leaf_hosts] = leaves, seen
        else:
            self._with_rest[leaf_hosts] = leaves, rest, seen

    def copy(self) -> LeafMisfits:
        return LeafMisfits(dict(self._leaves), dict(self._before_rest), dict(self._with_rest))

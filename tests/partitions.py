# SPDX-License-Identifier: Apache-2.0

"""Allocations written by hand, and a Hypothesis strategy that draws any legal partition."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from laas_service.domain.allocation import Allocation, ColumnShare, GroupShare
from laas_service.domain.topology import Xgft


def tenant(
    id: str,
    groups: Sequence[tuple[int, int, int]],
    columns: Sequence[tuple[int, int, int]] = (),
) -> Allocation:
    return Allocation(
        id,
        1,
        "hand",
        tuple(GroupShare(*g) for g in groups),
        tuple(ColumnShare(*c) for c in columns),
    )


@st.composite
def partitions(draw: st.DrawFn, tree: Xgft) -> Allocation:
    """Any partition that meets Jigsaw's conditions, on trees without parallel cables."""

    def subset(size: int, of: Sequence[int]) -> list[int]:
        return sorted(draw(st.permutations(of))[:size])

    def mask(positions: Sequence[int]) -> int:
        return sum(1 << position for position in positions)

    (m1, m2, m3), (_, w2, w3) = tree.m, tree.w
    hosts = draw(st.integers(1, min(m1, w2)))
    leaves = draw(st.integers(1, min(m2, w3)))
    pods = draw(st.integers(1, m3))
    rest = draw(st.integers(0, leaves * hosts - 1)) if pods < m3 else 0
    chosen_pods = subset(pods + (rest > 0), range(m3))
    uplinks = subset(hosts, range(w2))
    spines = {l2: subset(leaves, range(w3)) for l2 in uplinks}
    groups, columns = [], []
    for place, pod in enumerate(chosen_pods):
        full, part = (leaves, 0) if place < pods else divmod(rest, hosts)
        some = subset(part, uplinks)
        local = draw(st.permutations(range(m2)))[: full + (part > 0)]
        for number, leaf in enumerate(local):
            size, ups = (hosts, uplinks) if number < full else (part, some)
            groups.append((pod * m2 + leaf, mask(subset(size, range(m1))), mask(ups)))
        if len(chosen_pods) > 1:
            for l2 in uplinks:
                need = full + (l2 in some)
                if need:
                    columns.append((pod, l2, mask(subset(need, spines[l2]))))
    return tenant("t-any", sorted(groups), sorted(columns))

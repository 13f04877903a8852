# SPDX-License-Identifier: Apache-2.0

"""Max-min fair rates of flows with fixed paths, by progressive filling (Bertsekas, Gallager,
"Data Networks", section 6.5.2)."""

import numpy as np
from numpy.typing import NDArray

NO_LINK = -1

EQUAL = 1e-9
"""Shares that differ by less than this part count as equal."""


def max_min_rates(
    paths: NDArray[np.int64],
    capacity: NDArray[np.float64],
    known: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """The rate of each flow; in the unit of ``capacity``, infinite without any link.

    ``paths`` has a row for each flow: the numbers of its links, filled up with ``NO_LINK``.
    ``capacity`` is by link, above 0. All flows grow at one speed until a link is full; the flows
    over it keep their rate, and the others go on.

    ``known`` has rates that were computed before, and infinity for the other flows. When flows
    have ended, the rates that were lower than each of theirs are still right: the links of the
    flows that ended were not full until these had grown to their rate.
    """
    links = len(capacity)
    rates = np.full(len(paths), np.inf) if known is None else known.copy()
    settled = np.isfinite(rates)
    columns = np.where(paths == NO_LINK, links, paths).T
    taken = _by_link(columns[:, settled], links, rates[settled])
    left = np.maximum(capacity - taken, 0)
    open_flows = np.flatnonzero(~settled & (paths != NO_LINK).any(axis=1))
    columns = columns[:, open_flows]
    load = _by_link(columns, links)
    while len(open_flows):
        share = np.full(links + 1, np.inf)
        np.divide(left, load, out=share[:links], where=load > 0)
        level = share.min()
        stopped = (share <= level * (1 + EQUAL))[columns].any(axis=0)
        rates[open_flows[stopped]] = level
        count = _by_link(columns[:, stopped], links)
        left = np.maximum(left - level * count, 0)
        load -= count
        open_flows, columns = open_flows[~stopped], columns[:, ~stopped]
    return rates


def _by_link(
    columns: NDArray[np.int64], links: int, weights: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """How many of the flows, or how much of their weights, each link has."""
    if weights is None:
        weights = np.ones(columns.shape[1])
    sums = np.bincount(columns.ravel(), np.tile(weights, len(columns)), links + 1)
    return sums[:links].astype(np.float64, copy=False)

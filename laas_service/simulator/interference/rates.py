# SPDX-License-Identifier: Apache-2.0

"""Max-min fair rates of flows with fixed paths, by progressive filling (Bertsekas, Gallager,
"Data Networks", section 6.5.2)."""

import numpy as np
from numpy.typing import NDArray

NO_LINK = -1

EQUAL = 1e-9
"""Shares that differ by less than this part count as equal."""


def max_min_rates(paths: NDArray[np.int64], capacity: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rate of each flow; in the unit of ``capacity``, infinite without any link.

    ``paths`` has a row for each flow: the numbers of its links, filled up with ``NO_LINK``.
    ``capacity`` is by link, above 0. All flows grow at one speed until a link is full; the flows
    over it keep their rate, and the others go on.
    """
    flows, links = len(paths), len(capacity)
    rates = np.full(flows, np.inf)
    padded = np.where(paths == NO_LINK, links, paths)
    left = capacity.astype(float).copy()
    open_flows = np.flatnonzero((paths != NO_LINK).any(axis=1))
    while len(open_flows):
        rows = padded[open_flows]
        load = np.bincount(rows.ravel(), minlength=links + 1)[:links]
        used = load > 0
        share = np.full(links + 1, np.inf)
        share[:links][used] = left[used] / load[used]
        level = share.min()
        full = share <= level * (1 + EQUAL)
        stopped = full[rows].any(axis=1)
        rates[open_flows[stopped]] = level
        taken = np.bincount(rows[stopped].ravel(), minlength=links + 1)[:links]
        left = np.maximum(left - level * taken, 0)
        open_flows = open_flows[~stopped]
    return rates

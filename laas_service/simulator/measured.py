# SPDX-License-Identifier: Apache-2.0

"""Run times as measured among other tenants, from results of ``laas-simulate interference``."""

from collections.abc import Mapping, Sequence
from typing import Any

from laas_service.domain.errors import InvalidInput

ROUTINGS = ("own", "d-mod-k", "ecmp", "adaptive")
"""Each tenant on its own links; D-mod-k on the whole tree; a random up-path for each flow; every
flow split over all shortest paths."""

RANDOM = "random"
"""The placement on hosts chosen at random."""

SHARED = ("baseline", RANDOM)
"""Placements whose tenants own no links."""


def times_to_private(
    results: Sequence[Mapping[str, Any]], policy: str, routing: str
) -> list[tuple[int, float]]:
    """The hosts of each tenant under a policy, and its time over that in a cluster of its own.

    ``results`` are those of ``run``. ``routing`` is that of policies whose tenants own no links;
    the tenants of the others have their own.

    Raises:
        InvalidInput: there is no such result, or it has no such figures.
    """
    wanted = routing if policy in SHARED else "own"
    rows = [r for r in results if (r.get("policy"), r.get("routing")) == (policy, wanted)]
    try:
        pairs = [(int(hosts), float(times)) for r in rows for hosts, _, times in r["by_size"]]
    except (KeyError, TypeError, ValueError):
        pairs = []
    if not pairs or min(times for _, times in pairs) <= 0:
        fix = f"measure {policy} with routing {wanted} by laas-simulate interference --format json"
        raise InvalidInput("interference", f"{policy}, {wanted}", fix)
    return pairs

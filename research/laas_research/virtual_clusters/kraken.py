# SPDX-License-Identifier: Apache-2.0

"""Kraken: requests of elastic virtual clusters on a tree, as in sections IV-C and IV-D.

Source: Fuerst, Schmid, Suresh and Costa, "Kraken: Online and Elastic Resource Reservations
for Cloud Datacenters". The search is ``laas_service.domain.sharing.tree_search``. No function
here changes the site.
"""

import math

from laas_research.virtual_clusters.site import Site
from laas_service.domain.errors import DoubleClaim, InvalidInput
from laas_service.domain.sharing.cluster import Cluster
from laas_service.domain.sharing.migration import UnitMigration
from laas_service.domain.sharing.tree_search import (
    CostModel,
    cheapest,
    fewest_migrations,
    least_footprint,
)


def embed(
    site: Site, cluster: Cluster, costs: CostModel = fewest_migrations
) -> UnitMigration | None:
    """A plan for a new cluster, with the least footprint; None if the cluster does not fit.

    All demands of ``cluster`` are the same and have variance 0: VC(n, b).

    Raises:
        DoubleClaim: the site holds a cluster of this id.
        InvalidInput: the demands differ or have a variance, or there are none.
    """
    if cluster.id in site.clusters:
        raise DoubleClaim(f"cluster {cluster.id!r} exists already; change it")
    return cheapest(_Free(site, cluster), cluster, costs)


def upgrade(
    site: Site, id: str, more: int = 0, factor: float = 1.0, costs: CostModel = fewest_migrations
) -> UnitMigration | None:
    """Algorithm 1: from VC(n, b) to VC(n + more, factor * b); None if that does not fit.

    Raises:
        InvalidInput: ``more`` is below 0 or ``factor`` below 1.
        NotFound: the site holds no such cluster.
    """
    if more < 0:
        raise InvalidInput("more", more, "give 0 or more units, or use a downgrade")
    if not 1 <= factor < math.inf:
        raise InvalidInput("factor", factor, "give 1 or more, or use a downgrade")
    return change(site, _changed(site, id, more, factor), costs)


def downgrade(
    site: Site, id: str, fewer: int = 0, factor: float = 1.0, costs: CostModel = fewest_migrations
) -> UnitMigration | None:
    """Section IV-D: to VC(n - fewer, factor * b); always granted, without migrations.

    The units that remain have the least footprint.

    Raises:
        InvalidInput: ``fewer`` would leave no unit, or ``factor`` is not above 0 and up to 1.
        NotFound: the site holds no such cluster.
    """
    if not 0 <= fewer < len(site.held(id)[0].demands):
        raise InvalidInput("fewer", fewer, "give 0 or more units, fewer than the cluster has")
    if not 0 < factor <= 1:
        raise InvalidInput("factor", factor, "give a number above 0, up to 1")
    return change(site, _changed(site, id, -fewer, factor), costs)


def change(
    site: Site, cluster: Cluster, costs: CostModel = fewest_migrations
) -> UnitMigration | None:
    """From the cluster that the site holds by this id to ``cluster``, of any size and bandwidth.

    None if that does not fit.

    Raises:
        NotFound: the site holds no such cluster.
        InvalidInput: the demands differ or have a variance, or there are none.
    """
    site.held(cluster.id)
    return cheapest(_Free(site, cluster), cluster, costs)


def without_partial_moves(site: Site, cluster: Cluster) -> UnitMigration | None:
    """KrakenNP (section V-C): a change that needs a migration embeds the cluster from scratch.

    The new embedding has the least footprint, and keeps as many units in place as that allows.
    """
    plan = change(site, cluster)
    return plan if plan is None or not plan.moves else change(site, cluster, least_footprint)


def _changed(site: Site, id: str, more: int, factor: float) -> Cluster:
    demands = site.held(id)[0].demands
    return Cluster.alike(id, len(demands) + more, demands[0].mean * factor)


class _Free:
    """The offer of a site."""

    def __init__(self, site: Site, cluster: Cluster) -> None:
        self.tree = site.tree
        self.slots, self.limits = site.offered(cluster)
        _, self.previous, _ = site.clusters.get(cluster.id, (cluster, {}, {}))

# SPDX-License-Identifier: Apache-2.0

"""laas-manage fabric plane: withhold links from tenants for shared traffic."""

import argparse
from typing import NamedTuple

from rich.table import Table

from laas_service.app.records import FabricRecord
from laas_service.cmd.manage.output import print_table
from laas_service.cmd.manage.shared import fabric_of, parts_of
from laas_service.domain import common_plane_cost
from laas_service.domain.common_plane import CommonPlane
from laas_service.domain.errors import InvalidInput
from laas_service.domain.ledger import Ledger, LedgerView
from laas_service.domain.policies import POLICIES
from laas_service.simulator.scenario import Scenario, run
from laas_service.simulator.workload import Exponential


def plane(args: argparse.Namespace) -> int:
    """Show, change or try out which links are withheld for shared traffic."""
    parts = parts_of(args)
    record = fabric_of(parts, args.fabric)
    chosen = CommonPlane.of(record.topology.tree, tuple(args.l2), tuple(args.spines))
    if args.none and chosen:
        raise InvalidInput("--none", "with indices", "give --none, or indices, not both")
    ledger, _ = parts.store.fabrics.ledger(record.id)
    if not (chosen or args.none):
        _print_reach(record, ledger, record.shared_plane)
    elif args.dry_run:
        _print_reach(record, ledger, chosen, "would be ")
        _print_cost(ledger, chosen, args.jobs, args.seed)
    else:
        generation = parts.store.components.set_shared_plane(record.id, chosen)
        _print_reach(record, ledger, chosen)
        print(f"{record.id}: recorded as generation {generation}")
    return 0


def _print_reach(
    record: FabricRecord, ledger: LedgerView, plane: CommonPlane, would: str = ""
) -> None:
    reach = common_plane_cost.reach(ledger, record.inventory, plane)
    print(
        f"{record.id}: {plane} {would}withheld, {reach.leaf_links} leaf links and "
        f"{reach.spine_links} spine links"
    )
    for switches, problem in (
        (
            reach.unreached,
            "has no working link of the plane: shared traffic of its hosts uses any links",
        ),
        (reach.mixed, "is also above L2 indices of tenants: name it with --spines"),
    ):
        for switch in switches:
            print(f"  switch {switch.guid:#018x} ({switch.name}) {problem}")


def _print_cost(ledger: LedgerView, plane: CommonPlane, jobs: int | None, seed: int) -> None:
    """Print what policies place now and with the new plane, under a load beyond capacity."""
    policies = [POLICIES[name]() for name in ("jigsaw", "laas", "lc")]
    table = Table("POLICY", "LARGEST", "BEYOND A LEAF", "UTILIZATION", "NEVER PLACED", box=None)
    for before, after in common_plane_cost.costs(ledger, plane, policies):
        loads = [
            _loaded(common_plane_cost.without_tenants(ledger, each), before.policy, jobs, seed)
            for each in (ledger.shared_plane, plane)
        ]
        table.add_row(
            before.policy,
            f"{before.largest} -> {after.largest}",
            f"{before.beyond_leaf} -> {after.beyond_leaf}",
            " -> ".join(load.utilization for load in loads),
            " -> ".join(load.never for load in loads),
        )
    print("on the fabric without tenants, now -> then:")
    print_table(table)


class _Load(NamedTuple):
    """Outcome of a simulated load, as text for a table cell."""

    utilization: str
    """Steady-state utilization in percent, or ``-``."""

    never: str
    """Share of jobs that do not fit even an empty fabric, or ``-``."""


def _loaded(fabric: Ledger, policy: str, jobs: int | None, seed: int) -> _Load:
    """Simulate tenants of exponential sizes, one leaf on average, that all arrive at the start."""
    hosts, mean = max(fabric.free_host_count, 1), fabric.topology.hosts_per_group
    count = max(200, 4 * hosts // mean) if jobs is None else jobs
    if count < 1:
        return _Load("-", "-")
    scenario = Scenario(
        policy, fabric.topology.tree, Exponential(mean, count), hosts, (20, 3000), seed=seed
    )
    result = run(scenario, fabric=fabric)
    utilization = result["utilization"] * fabric.topology.hosts / hosts
    return _Load(f"{utilization:.1f}%", f"{result['unplaceable'] / count:.1%}")

# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

"""``laas-manage``: the operator's tool for the database and the fabrics.

Works on the database itself, so it needs no running service. Exit status 0: done.
1: refused, or violations found. 2: the command line was wrong, or ``fabric verify``
could not check.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from oslo_config import cfg
from oslo_log import log as logging
from rich.console import Console
from rich.table import Table

from laas_service import conf as options
from laas_service.adapters import documents, ibnetdiscover, slurm
from laas_service.adapters.fabric_file import FabricFile, parse_fabric, read_fabric
from laas_service.adapters.netlist import netlist
from laas_service.adapters.recovery import Selection
from laas_service.app.records import PROJECT, FabricRecord, HostState, LinkState, State
from laas_service.domain import verification, withholding
from laas_service.domain.allocation import Allocation
from laas_service.domain.errors import InvalidInput, LaasError
from laas_service.domain.fabric import Fabric, FabricView
from laas_service.domain.features import DEAREST, TRAIT, HostChange
from laas_service.domain.plane import SharedPlane
from laas_service.domain.policies import POLICIES
from laas_service.domain.topology import Topology
from laas_service.simulator.scenario import Scenario, run
from laas_service.simulator.workload import Exponential
from laas_service.wiring import Parts
from opensm_writer.reader import dumped_tables

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

DEFAULT_FABRIC = "fabric"
"""Id of an imported fabric where none is given."""


def main(argv: list[str] | None = None) -> int:
    """Carry out one command."""
    args = parser().parse_args(argv)
    try:
        command: Callable[[argparse.Namespace], int] = args.command
        return command(args)
    except LaasError as error:
        print(f"laas-manage: {error}", file=sys.stderr)
        return 2 if args.command is verify else 1


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="laas-manage", description=__doc__)
    top.add_argument("--config-file", action="append", metavar="PATH", help="may be repeated")
    top.add_argument("--config-dir", action="append", metavar="PATH", help="may be repeated")
    groups = top.add_subparsers(required=True, metavar="db|fabric|host|quota")
    _add_database(groups.add_parser("db", help="the database").add_subparsers(required=True))
    _add_fabric(groups.add_parser("fabric", help="the fabrics").add_subparsers(required=True))
    _add_host(groups.add_parser("host", help="what hosts are like").add_subparsers(required=True))
    _add_quota(groups.add_parser("quota", help="of projects").add_subparsers(required=True))
    return top


def _add_quota(commands: Commands) -> None:
    add = commands.add_parser("list", help="what projects may have and have")
    add.set_defaults(command=show_quotas)
    add = commands.add_parser("set", help="what a project may have instead of [limits]")
    add.add_argument("project", help="id of the project")
    for thing in ("hosts", "allocations"):
        text = f"{thing} it may have at one time; -1: any number; left out: what [limits] says"
        add.add_argument(f"--{thing}", type=_limit, metavar="NUMBER", help=text)
    add.set_defaults(command=set_quota)
    add = commands.add_parser("unset", help="what [limits] says is for a project again")
    add.add_argument("project", help="id of the project")
    add.set_defaults(command=unset_quota)


def _add_database(commands: Commands) -> None:
    add = commands.add_parser("upgrade", help="bring the tables up to this release")
    add.set_defaults(command=upgrade)
    add = commands.add_parser("version", help="where the tables are, and should be")
    add.set_defaults(command=version)


def _add_fabric(commands: Commands) -> None:
    add = commands.add_parser("import", help="take a fabric under management")
    add.add_argument("file", help="ibnetdiscover dump, snapshot or description; - for stdin")
    add.add_argument("--id", default=DEFAULT_FABRIC, help="name to manage it under")
    for option, what in (
        ("exclude", "hosts that are not for tenants"),
        ("include", "hosts that are, though --exclude names them"),
        ("subnet-manager", "subnet managers: not for tenants, highest LIDs"),
    ):
        text = f"{what}; host name pattern, may be repeated"
        add.add_argument(f"--{option}", action="append", default=[], metavar="GLOB", help=text)
    add.add_argument("--dry-run", action="store_true", help="only report what is recognised")
    add.set_defaults(command=import_fabric)

    add = commands.add_parser("export", help="write a managed fabric")
    add.add_argument("id", nargs="?", help="fabric; may be left out where there is one")
    add.add_argument("--format", choices=sorted(_FORMATS), default="snapshot")
    add.add_argument("--output", metavar="PATH", help="file to write instead of standard output")
    add.set_defaults(command=export)

    add = commands.add_parser("list", help="the managed fabrics")
    add.set_defaults(command=show)

    add = commands.add_parser("generate", help="write a fabric of our own making")
    add.add_argument("description", help='a JSON file, or such as "3;18,18,36;1,18,18"')
    add.add_argument("--format", choices=sorted(_FORMATS), default="ibnetdiscover")
    add.add_argument("--output", metavar="PATH", help="file to write instead of standard output")
    add.set_defaults(command=generate)

    add = commands.add_parser("plane", help="links withheld from tenants for shared traffic")
    add.add_argument("id", nargs="?", help="fabric; may be left out where there is one")
    for option, what in (
        ("l2", "L2 index to withhold in every pod"),
        ("spines", "spine to withhold in every group; without it all above the L2 indices"),
    ):
        add.add_argument(
            f"--{option}", type=int, action="append", default=[], metavar="INDEX", help=what
        )
    add.add_argument("--none", action="store_true", help="give everything back to tenants")
    add.add_argument("--dry-run", action="store_true", help="only say what it would cost")
    add.add_argument(
        "--jobs", type=int, metavar="N", help="synthetic tenants of a dry run, per policy; 0: none"
    )
    add.add_argument("--seed", type=int, default=1, help="of the synthetic tenants")
    add.set_defaults(command=plane)

    add = commands.add_parser("verify", help="re-derive every promise from what is recorded")
    add.add_argument("id", nargs="?", help="fabric; may be left out where there is one")
    add.add_argument(
        "--lfts",
        metavar="FILE",
        help="also walk these tables: output of dump_lfts, or opensm-lfts.dump; - for stdin",
    )
    add.add_argument(
        "--subnet-manager",
        action="append",
        default=[],
        type=_guid,
        metavar="GUID",
        help="port of a subnet manager, which must reach everything; may be repeated",
    )
    add.add_argument(
        "--permutations",
        type=int,
        default=3,
        metavar="N",
        help="random permutations routed for each allocation, besides adversarial ones",
    )
    add.set_defaults(command=verify)


def _add_host(commands: Commands) -> None:
    add = commands.add_parser("set", help="traits and cost of hosts; what is left out stays")
    add.add_argument("names", nargs="+", metavar="NAME", help="host, or a pattern such as gpu*")
    add.add_argument("--fabric", metavar="ID", help="may be left out where there is one")
    traits = add.add_mutually_exclusive_group()
    text = "they have these and no others; may be repeated"
    traits.add_argument("--trait", action="append", type=_trait, help=text)
    traits.add_argument("--no-traits", action="store_true", help="they have none any more")
    add.add_argument("--cost", type=_cost, help="what each costs, a whole number in any unit")
    add.set_defaults(command=set_hosts)


def _trait(text: str) -> str:
    if not re.fullmatch(TRAIT, text):
        raise argparse.ArgumentTypeError(f"{text!r}: use letters, digits and _ . : -")
    return text


def _cost(text: str) -> int:
    if not text.isdecimal() or int(text) > DEAREST:
        raise argparse.ArgumentTypeError(f"{text!r}: give 0 to {DEAREST}")
    return int(text)


def _limit(text: str) -> int:
    if text != "-1" and not (text.isdecimal() and len(text) < 10):
        raise argparse.ArgumentTypeError(f"{text!r}: give -1, or 0 to 999999999")
    return int(text)


def _guid(text: str) -> int:
    return int(text, 16)


def _parts(args: argparse.Namespace) -> Parts:
    conf = cfg.ConfigOpts()
    options.register_opts(conf)
    given = [f"--config-file={path}" for path in args.config_file or ()]
    given += [f"--config-dir={path}" for path in args.config_dir or ()]
    try:
        conf(given, project="laas", prog="laas-manage")
    except cfg.Error as error:
        raise InvalidInput("configuration", " ".join(given), str(error)) from error
    logging.setup(conf, "laas-manage")
    return Parts(conf)


# -- database -----------------------------------------------------------------


def upgrade(args: argparse.Namespace) -> int:
    """Bring the tables up to what this release needs; safe to repeat."""
    parts = _parts(args)
    parts.upgrade_database()
    print(f"the database is at revision {parts.database_revisions()[0]}")
    return 0


def version(args: argparse.Namespace) -> int:
    """Print the revisions; 1 if the tables are not where this release needs them."""
    current, head = _parts(args).database_revisions()
    print(f"the database is at revision {current or 'none'}, this release needs {head}")
    return 0 if current == head else 1


# -- quotas -------------------------------------------------------------------


def show_quotas(args: argparse.Namespace) -> int:
    """Print what projects may have and have."""
    parts = _parts(args)
    for quota in parts.quotas.all():
        print(
            f"{quota.project_id}: {quota.used_hosts} of {_most(quota.hosts)} hosts, "
            f"{quota.used_allocations} of {_most(quota.allocations)} allocations"
        )
    return 0


def _most(number: int | None) -> str:
    return {None: "the default", -1: "any"}.get(number, str(number))


def set_quota(args: argparse.Namespace) -> int:
    """Record what a project may have; what it has already stays."""
    if args.hosts is None and args.allocations is None:
        raise InvalidInput("quota", None, "give --hosts or --allocations, or use unset")
    if not re.fullmatch(PROJECT, args.project):
        raise InvalidInput("project", args.project, "give the id of a project")
    _parts(args).quotas.set(args.project, args.hosts, args.allocations)
    return 0


def unset_quota(args: argparse.Namespace) -> int:
    """Forget what was said of a project."""
    _parts(args).quotas.unset(args.project)
    return 0


# -- fabrics ------------------------------------------------------------------


def import_fabric(args: argparse.Namespace) -> int:
    """Read a fabric, report what was recognised, and record it."""
    selection = Selection(tuple(args.exclude), tuple(args.include), tuple(args.subnet_manager))
    if args.file == "-":
        fabric = parse_fabric(sys.stdin.read(), "standard input", selection)
    else:
        fabric = read_fabric(Path(args.file), selection)
    for line in fabric.report.lines() if fabric.report else [_summary(fabric.topology)]:
        print(line)
    if not args.dry_run:
        _record(_parts(args), args.id, fabric)
        print(f"recorded as {args.id}")
    return 0


def _record(parts: Parts, id: str, fabric: FabricFile) -> None:
    store = parts.store
    store.add_fabric(id, fabric.topology, fabric.inventory)
    store.set_shared_plane(id, fabric.shared_plane)
    for host in sorted(fabric.failed_hosts):
        store.set_host_state(id, host, HostState.FAILED)
    for link in sorted(fabric.failed_links, key=fabric.topology.tree.link_id):
        store.set_link_state(id, link, LinkState.FAILED)
    if fabric.features.hosts:
        known = fabric.features.hosts
        store.describe_hosts(id, {host: HostChange(*one) for host, one in known.items()})


def _summary(topology: Topology) -> str:
    tree = topology.tree
    hosts = topology.hosts - len(topology.absent_hosts)
    shape = f"XGFT(3; {','.join(map(str, tree.m))}; {','.join(map(str, tree.w))})"
    return f"{shape}, {hosts} hosts on {topology.rails} rail(s)"


def _snapshot(fabric: FabricFile, ledger: FabricView) -> str:
    document = documents.snapshot(ledger)
    document["inventory"] = documents.inventory_document(fabric.inventory)
    return json.dumps(document) + "\n"


_FORMATS: dict[str, Callable[[FabricFile, FabricView], str]] = {
    "snapshot": _snapshot,
    "netlist": lambda fabric, _: netlist(fabric.inventory),
    "ibnetdiscover": lambda fabric, _: ibnetdiscover.render(fabric.inventory),
    "slurm": lambda fabric, _: slurm.topology_conf(fabric.topology, fabric.inventory),
}


def export(args: argparse.Namespace) -> int:
    """Write a managed fabric and, in a snapshot, its allocations."""
    parts = _parts(args)
    record = _fabric(parts, args.id)
    ledger, _ = parts.store.ledger(record.id)
    fabric = FabricFile(record.topology, lambda: record.inventory)
    return _write(_FORMATS[args.format](fabric, ledger), args.output)


def generate(args: argparse.Namespace) -> int:
    """Write a generated fabric as the tools would print it."""
    fabric = read_fabric(args.description)
    ledger = Fabric(fabric.topology)
    ledger.describe_hosts(fabric.features.hosts)
    return _write(_FORMATS[args.format](fabric, ledger), args.output)


def _write(text: str, output: str | None) -> int:
    if output is None:
        sys.stdout.write(text)
        return 0
    try:
        Path(output).write_text(text)
    except OSError as error:
        why = f"give a file that can be written ({(error.strerror or str(error)).lower()})"
        raise InvalidInput("output", output, why) from error
    return 0


def show(args: argparse.Namespace) -> int:
    """List the managed fabrics."""
    table = Table("ID", "TREE", "RAILS", "HOSTS", "SWITCHES", "GENERATION", box=None)
    for record in _parts(args).store.fabrics():
        tree, levels = record.topology.tree, Counter(s.level for s in record.inventory.switches)
        table.add_row(
            record.id,
            f"{','.join(map(str, tree.m))} ; {','.join(map(str, tree.w))}",
            str(record.topology.rails),
            str(sum(map(bool, record.inventory.host_names))),
            " / ".join(str(levels[level]) for level in sorted(levels)),
            str(record.generation),
        )
    Console().print(table)
    return 0


# -- the shared plane -----------------------------------------------------------


def plane(args: argparse.Namespace) -> int:
    """Show, change or try out what is withheld for shared traffic."""
    parts = _parts(args)
    record = _fabric(parts, args.id)
    chosen = SharedPlane.of(record.topology.tree, tuple(args.l2), tuple(args.spines))
    if args.none and chosen:
        raise InvalidInput("--none", "with indices", "give --none, or indices, not both")
    ledger, _ = parts.store.ledger(record.id)
    if not (chosen or args.none):
        _say_reach(record, ledger, record.shared_plane)
    elif args.dry_run:
        _say_reach(record, ledger, chosen, "would be ")
        _say_cost(ledger, chosen, args.jobs, args.seed)
    else:
        generation = parts.store.set_shared_plane(record.id, chosen)
        _say_reach(record, ledger, chosen)
        print(f"{record.id}: recorded as generation {generation}")
    return 0


def _say_reach(
    record: FabricRecord, ledger: FabricView, plane: SharedPlane, would: str = ""
) -> None:
    found = withholding.reach(ledger, record.inventory, plane)
    print(
        f"{record.id}: {plane} {would}withheld, {found.leaf_links} leaf links and "
        f"{found.spine_links} spine links"
    )
    for switches, what in (
        (found.unreached, "has no working link of it: what hangs there uses any links"),
        (found.mixed, "also stands above L2 indices of tenants: name it with --spines"),
    ):
        for switch in switches:
            print(f"  switch {switch.guid:#018x} ({switch.name}) {what}")


def _say_cost(ledger: FabricView, plane: SharedPlane, jobs: int | None, seed: int) -> None:
    """What policies can do now and then; measured on a load that is more than the fabric holds."""
    wanted = [POLICIES[name]() for name in ("jigsaw", "laas", "lc")]
    table = Table("POLICY", "LARGEST", "BEYOND A LEAF", "UTILIZATION", "NEVER PLACED", box=None)
    for before, after in withholding.costs(ledger, plane, wanted):
        loads = [
            _loaded(withholding.emptied(ledger, each), before.policy, jobs, seed)
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
    Console(width=None if sys.stdout.isatty() else 120).print(table)


class _Load(NamedTuple):
    """Steady-state utilization, and the share of jobs that no empty fabric could place."""

    utilization: str
    never: str


def _loaded(fabric: Fabric, policy: str, jobs: int | None, seed: int) -> _Load:
    """Tenants of exponential sizes, a leaf on average, all there from the start."""
    hosts, mean = max(fabric.free_host_count, 1), fabric.topology.slots
    count = max(200, 4 * hosts // mean) if jobs is None else jobs
    if count < 1:
        return _Load("-", "-")
    scenario = Scenario(
        policy, fabric.topology.tree, Exponential(mean, count), hosts, (20, 3000), seed=seed
    )
    found = run(scenario, fabric=fabric)
    utilization = found["utilization"] * fabric.topology.hosts / hosts
    return _Load(f"{utilization:.1f}%", f"{found['unplaceable'] / count:.1%}")


def _fabric(parts: Parts, id: str | None) -> FabricRecord:
    """The named fabric, or the only one."""
    if id is not None:
        return parts.store.fabric(id)
    found = parts.store.fabrics()
    if len(found) != 1:
        raise InvalidInput("id", "", f"name one of {', '.join(x.id for x in found) or 'none'}")
    return found[0]


# -- hosts --------------------------------------------------------------------


def set_hosts(args: argparse.Namespace) -> int:
    """Record what hosts are like; all of them, or none."""
    traits = [] if args.no_traits else args.trait
    if traits is None and args.cost is None:
        raise InvalidInput("--trait", None, "say what to change: --trait, --no-traits or --cost")
    store = (parts := _parts(args)).store
    record = _fabric(parts, args.fabric)
    change = HostChange(None if traits is None else frozenset(traits), args.cost)
    hosts = _named(record, args.names)
    store.describe_hosts(record.id, dict.fromkeys(hosts, change))
    print(f"{record.id}: {len(hosts)} hosts described")
    return 0


def _named(record: FabricRecord, patterns: list[str]) -> list[int]:
    """The hosts of these names, or that match these patterns."""
    numbers, absent = record.inventory.host_numbers, record.topology.absent_hosts
    found: set[int] = set()
    for pattern in patterns:
        names = [pattern] if pattern in numbers else fnmatch.filter(numbers, pattern)
        if not names:
            fix = f"fabric {record.id} has no host of this name or pattern"
            raise InvalidInput("NAME", pattern, fix)
        found.update(numbers[name] for name in names)
    return sorted(found - absent)


# -- verification ---------------------------------------------------------------


def verify(args: argparse.Namespace) -> int:
    """Print every broken promise; 0 none, 1 some, 2 (by ``main``) could not check."""
    parts = _parts(args)
    record = _fabric(parts, args.id)
    ledger, generation = parts.store.ledger(record.id)
    held = sorted(ledger.everybody(), key=lambda allocation: allocation.id)
    changing = _changing(parts, record.id)
    allocations = [changing.get(one.id, one) for one in held]
    chance = Random(0)  # noqa: S311 - the same permutations every time
    found = verification.violations(
        record.topology,
        allocations,
        chance,
        permutations=args.permutations,
        plane=record.shared_plane,
    )
    found += [
        text
        for text in verification.isolation_violations(record.topology, held)
        if text not in found
    ]
    checked = "the record"
    if args.lfts:
        walks = _walked(record, held, args.lfts, args.subnet_manager)
        found += walks.violations
        checked += f" and on {walks.tenant_pairs} walks inside tenants"
        if args.subnet_manager:
            checked += f" and {walks.manager_pairs} from and to subnet managers"
        if record.shared_plane:
            checked += f" and {walks.shared_pairs} over the shared plane"
        if walks.neighbours:
            checked += (
                f" ({walks.neighbours} more begin on a tenant's own leaf, where what a service "
                "sends to that tenant goes over the tenant's links)"
            )
    for violation in found:
        print(violation)
    print(
        f"{record.id}, generation {generation}: {len(allocations)} allocations, "
        f"{len(found) or 'no'} violations in {checked}"
    )
    return 1 if found else 0


def _changing(parts: Parts, fabric_id: str) -> dict[str, Allocation]:
    """The new placements of allocations that still hold their old one too."""
    found: dict[str, Allocation] = {}
    marker = None
    while page := parts.store.allocations(
        fabric=fabric_id, states=[State.ACTIVE, State.RELEASING], marker=marker
    ):
        found |= {one.id: one.placed for one in page if one.phase and one.placed}
        marker = page[-1].id
    return found


def _walked(
    record: FabricRecord, allocations: list[Allocation], source: str, managers: list[int]
) -> verification.Walks:
    """Reachability, isolation and credit loops in the tables that the switches hold."""
    inventory = record.inventory
    rows = _dumped(source)
    if not rows.keys() & inventory.switch_of_guid.keys():
        raise InvalidInput(
            "--lfts", source, "give what dump_lfts prints for this fabric, or opensm-lfts.dump"
        )
    tables = verification.physical_tables(rows, inventory.lids)
    walks = verification.walk_violations(
        record.topology, inventory, tables, allocations, managers, record.shared_plane
    )
    loop = verification.credit_loop(inventory, tables)
    if loop:
        ports = ", ".join(f"{guid:#018x} port {port}" for guid, port in loop)
        walks.violations.append(f"deadlock: these ports may wait for each other: {ports}")
    return walks


def _dumped(source: str) -> dict[int, bytes]:
    if source == "-":
        return dumped_tables(sys.stdin)
    try:
        with Path(source).open(errors="replace") as lines:
            return dumped_tables(lines)
    except OSError as error:
        why = f"give a file that can be read ({(error.strerror or str(error)).lower()})"
        raise InvalidInput("--lfts", source, why) from error


if __name__ == "__main__":
    sys.exit(main())

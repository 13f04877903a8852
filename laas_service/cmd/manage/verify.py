# SPDX-License-Identifier: Apache-2.0

"""laas-manage fabric verify: check isolation and routes, derived again from the record."""

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random

from laas_service.app.lifecycle import HOLDING, Change, Phase
from laas_service.app.ports.allocations import every_allocation
from laas_service.app.records import FabricRecord
from laas_service.cmd.manage.shared import parts_of
from laas_service.domain import verification
from laas_service.domain.allocation import Allocation
from laas_service.domain.errors import InvalidInput, LaasError, Unavailable
from laas_service.domain.routing.fabric_tables import forwarding_tables
from laas_service.domain.verification.chain_files import CHAINS_FILE
from laas_service.domain.verification.chains import OddLinks, chain_verdict
from laas_service.domain.wording import listed
from laas_service.messages import FabricState
from laas_service.wiring.composition import Composition
from opensm_writer.functions import tables_of
from opensm_writer.keys import Enforcement, KeyReading, reading_of
from opensm_writer.parse import dumped_tables

ENGINE = "file"
"""The routing engine that reads our tables."""

CHAIN_TEXTS = frozenset({".conf", ".json", ".roots", ".cn"})
"""Endings of the files of a set that concern its routing chains."""

TRIES = 10
"""Attempts to read a fabric between two changes."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of the checks of one fabric."""

    fabric: str
    """Id of the fabric."""

    generation: int
    """Generation of the record that was checked."""

    allocations: int
    """Number of allocations that were checked."""

    violations: list[str]
    """A sentence for each broken promise; empty if the fabric is sound."""

    walks: dict[str, int] | None = None
    """Number of walks over the tables, by purpose; None without tables."""

    ports: int | None = None
    """Number of ports whose partition keys were checked; None without keys."""

    virtual_ports: dict[str, int] = field(default_factory=dict)
    """Number of virtual ports that are ``recorded``, and of those whose own keys were ``read``."""

    unsettled: str | None = None
    """Why the tables may be of another generation than the record."""

    unmanaged: list[str] = field(default_factory=list)
    """Switches and aggregation nodes without a route to or from a subnet manager; no violation."""

    engine: str | None = None
    """The routing engine that OpenSM used last, as recorded; None if it is not known."""

    master: str | None = None
    """Port GUID of the master: in the keys if they were given, else as recorded."""

    chains: dict[str, object] | None = None
    """Of the routing chains, without chains None: ``ports`` that the topologies of steps have,
    pairs of ports ``apart``, and ``engines`` by id of the allocation."""

    def __str__(self) -> str:
        outcome = f"{len(self.violations) or 'no'} violations in {self._checked()}"
        unsettled = f"; {self.unsettled}" if self.unsettled else ""
        text = f"{self.allocations} allocations, {outcome}{unsettled}"
        if self.engine is not None:
            text += f"; routing engine {self.engine}"
        if self.master is not None:
            text += f"; master {self.master}"
        return f"{self.fabric}, generation {self.generation}: {text}"

    def _checked(self) -> str:
        keys = f" and the partition keys of {self.ports} ports" if self.ports is not None else ""
        if recorded := self.virtual_ports.get("recorded"):
            read = self.virtual_ports["read"] or "none"
            keys += f" (of {recorded} recorded virtual ports the own keys of {read} were read)"
        if self.chains is not None:
            keys += f" and {self.chains['ports']} switch ports of routing chains"
            if apart := self.chains["apart"]:
                keys += (
                    f" ({apart} pairs of ports of tenants, whose links do not join them, follow "
                    "the base step over links of others)"
                )
        if self.walks is None:
            return f"the record{keys}"
        checked = f"the record and on {self.walks['tenants']} walks inside tenants"
        if managers := self.walks["managers"]:
            checked += f" and {managers} from and to subnet managers"
        if shared := self.walks["shared"]:
            checked += f" and {shared} over the common plane"
        if neighbours := self.walks["neighbours"]:
            checked += (
                f" ({neighbours} more begin on a tenant's own leaf, where traffic from a service "
                "to that tenant uses the tenant's links)"
            )
        if beside := self.walks["beside_managers"]:
            checked += (
                f" ({beside} pairs on rails apart cross links of others from the switch of a "
                "subnet manager, which has to reach every port)"
            )
        if self.unmanaged:
            checked += (
                f" ({len(self.unmanaged)} switches and aggregation nodes have no route: "
                f"{listed(self.unmanaged)})"
            )
        return checked + keys


def verify(args: argparse.Namespace) -> int:
    """Print every violation; 0 none, 1 some, 2 (also from ``main``) a check could not run.

    If one fabric cannot be checked, the others still are.
    """
    parts = parts_of(args)
    parts.store.check()
    records = [parts.store.fabrics.get(args.fabric)] if args.fabric else parts.store.fabrics.all()
    if not records:
        raise InvalidInput("fabric", "", "there is no fabric; import one")
    for option in ("partitions", "functions", "chains"):
        if getattr(args, option) and len(records) > 1:
            raise InvalidInput("--fabric", "", f"name the fabric that --{option} is of")
    tables = _dumped(args.lfts) if args.lfts else None
    if tables is not None and not any(_has(record, tables) for record in records):
        raise InvalidInput(
            "--lfts", args.lfts, "give what dump_lfts prints for this fabric, or opensm-lfts.dump"
        )
    keys = _keys(args.keys) if args.keys else None
    if keys is not None and not any(_is_of(record, keys) for record in records):
        fix = "give what laas-opensm-keys prints for this fabric"
        raise InvalidInput("--keys", args.keys, fix)
    verdicts, failures = [], {}
    for record in records:
        try:
            verdicts.append(_verdict(parts, record, tables, keys, args))
        except LaasError as error:
            failures[record.id] = str(error)
    (_print_json if args.json else _print_text)(verdicts, failures)
    if failures:
        return 2
    return 1 if any(verdict.violations for verdict in verdicts) else 0


def _print_text(verdicts: list[Verdict], failures: Mapping[str, str]) -> None:
    for verdict in verdicts:
        for violation in verdict.violations:
            print(violation)
        print(verdict)
    for fabric, reason in failures.items():
        print(f"laas-manage: {fabric} was not checked: {reason}", file=sys.stderr)


def _print_json(verdicts: list[Verdict], failures: Mapping[str, str]) -> None:
    print(
        json.dumps(
            {"fabrics": [asdict(verdict) for verdict in verdicts], "failures": dict(failures)}
        )
    )


def _verdict(
    parts: Composition,
    record: FabricRecord,
    tables: Mapping[int, bytes] | None,
    keys: KeyReading | None,
    args: argparse.Namespace,
) -> Verdict:
    held, sharers, changing, generation = _steady(parts, record.id)
    allocations = [
        changing[allocation.id].new if allocation.id in changing else allocation
        for allocation in held
    ]
    chance = Random(0)  # noqa: S311 - the same permutations every time
    violations = verification.violations(
        record.topology,
        allocations,
        chance,
        permutations=args.permutations,
        plane=record.shared_plane,
    )
    violations += [
        text
        for text in verification.isolation_violations(record.topology, held)
        if text not in violations
    ]
    violations += _slot_violations(parts, record, held, sharers, changing, tables)
    ports = None
    if keys is not None and _is_of(record, keys):
        violations += _key_violations(parts, record, keys, args.subnet_manager)
        ports = len(keys.ports)
    if args.partitions:
        violations += _partition_violations(parts, record, _text("--partitions", args.partitions))
    virtual = parts.store.components.virtual_ports(record.id)
    names = {guid for guids in virtual.values() for guid in guids}
    counts = {"recorded": len(names), "read": 0}
    if args.functions:
        functions = _functions(args.functions)
        violations += _function_violations(parts, record, functions)
        counts["read"] = len(names & functions.keys())
    of_tables = keys is not None or tables is not None or args.partitions or args.functions
    chains = None
    if args.chains:
        state = parts.store.fabrics.routed(record.id)
        judged = chain_verdict(
            record.topology,
            record.inventory,
            held,
            _chain_files(args.chains),
            OddLinks(
                record.shared_plane, frozenset(state.moved_links), frozenset(state.failed_links)
            ),
            {id: _chained(change) for id, change in changing.items()},
            one_rule=parts.subnet_managers.one_rule_per_group,
        )
        violations += judged.violations
        chains = {"ports": judged.ports, "apart": judged.apart, "engines": judged.engines}
    unsettled = _unsettled(parts, record.id) if of_tables or args.chains else None
    running = parts.store.observations.holding(record.id).running
    master = running.master.guid if running.master is not None else None
    if ports is not None and keys is not None:
        master = _master(keys)
    if of_tables and running.engine not in (None, ENGINE):
        violations.append(
            f"the routing engine that ran last is {running.engine}, not {ENGINE}: "
            "forwarding tables may be its own"
        )
    verdict = Verdict(
        *(record.id, generation, len(allocations), violations, None, ports, counts, unsettled),
        engine=running.engine,
        master=None if master is None else f"{master:#018x}",
        chains=chains,
    )
    if tables is None or not _has(record, tables):
        return verdict
    walks = _walked(record, held, changing, tables, args.subnet_manager)
    walked = {
        "tenants": walks.tenant_pairs,
        "managers": walks.manager_pairs if args.subnet_manager else 0,
        "shared": walks.shared_pairs if record.shared_plane else 0,
        "neighbours": walks.neighbours,
        "beside_managers": walks.beside_managers,
    }
    violations += walks.violations
    return replace(verdict, walks=walked, unmanaged=walks.unmanaged)


def _chained(change: Change) -> tuple[Allocation, ...]:
    """The placements of which the topology of a tenant's chain has one.

    Only all that is held, while servers may be on old and new hosts.
    """
    hosts_change = change.claimed.size or change.freed.size
    if not hosts_change or change.parted:
        return change.old, change.new
    if change.phase in (Phase.SWITCH, Phase.ENTER, Phase.LEAVE):
        return (change.held,)
    return change.old, change.new, change.held


def _slot_violations(
    parts: Composition,
    record: FabricRecord,
    held: list[Allocation],
    sharers: list[Allocation],
    changing: Mapping[str, Change],
    rows: Mapping[int, bytes] | None,
) -> list[str]:
    if not sharers:
        return []
    failed = parts.store.fabrics.routed(record.id).failed_links
    if rows is not None and _has(record, rows):
        tables = verification.physical_tables(rows, record.inventory.lids)
    else:
        shared = [allocation for allocation in held if allocation.sharing is not None]
        routed = forwarding_tables(
            record.topology, record.inventory, shared, failed, plane=record.shared_plane
        )
        tables = verification.physical_tables(routed.rows, routed.index)
    places = {
        id: [change.old.held_slots, change.new.held_slots]
        for id, change in changing.items()
        if not change.new.kind.whole_hosts
    }
    return verification.slot_violations(
        record.topology, record.inventory, held, sharers, tables, places, failed
    )


def _unsettled(parts: Composition, fabric_id: str) -> str | None:
    """Why the switches may not run the recorded routes yet; None once a worker confirmed them."""
    desired = parts.store.fabrics.get(fabric_id).routes_generation
    holding = parts.store.observations.holding(fabric_id)
    if holding.seen_at is None or holding.applied == desired:
        return None
    return f"the routes of generation {desired} are not confirmed yet; verify again when they are"


def _steady(
    parts: Composition, fabric_id: str
) -> tuple[list[Allocation], list[Allocation], dict[str, Change], int]:
    """Placements, slots, changes of placement by allocation id, and the generation of all.

    Raises:
        Unavailable: the fabric changed during each of ``TRIES`` attempts.
    """
    for _ in range(TRIES):
        ledger, generation = parts.store.fabrics.ledger(fabric_id)
        changing = _changing(parts, fabric_id)
        if parts.store.fabrics.get(fabric_id).generation == generation:
            held = sorted(ledger.everybody(), key=lambda allocation: allocation.id)
            sharers = sorted(ledger.sharers(), key=lambda allocation: allocation.id)
            return held, sharers, changing, generation
    raise Unavailable(f"fabric {fabric_id} changed each of {TRIES} times it was read; try again")


def _changing(parts: Composition, fabric_id: str) -> dict[str, Change]:
    """The changes of allocations that still hold their old placement too, by allocation id."""
    records = every_allocation(parts.store.allocations, fabric=fabric_id, states=HOLDING)
    return {record.id: record.change for record in records if record.change}


def _has(record: FabricRecord, tables: Mapping[int, bytes]) -> bool:
    """Whether any of the tables belongs to a switch of the fabric."""
    return bool(tables.keys() & record.inventory.switch_of_guid.keys())


def _is_of(record: FabricRecord, keys: KeyReading) -> bool:
    """Whether any of the ports belongs to a switch of the fabric."""
    known = record.inventory.switch_of_guid.keys()
    return any(port.guid in known for port in keys.ports)


def _key_violations(
    parts: Composition, record: FabricRecord, keys: KeyReading, managers: list[int]
) -> list[str]:
    state = parts.store.fabrics.routed(record.id)
    read = verification.ReadKeys(
        {port: entry.keys for port, entry in keys.ports.items()},
        {port for port, entry in keys.ports.items() if entry.enforcement is Enforcement.OFF},
        _master(keys),
    )
    return verification.key_violations(
        record.topology,
        record.inventory,
        _tenants(state),
        read,
        managers=managers,
        services=parts.subnet_managers.services,
        pkeys=parts.subnet_managers.pkeys,
    )


def _master(keys: KeyReading) -> int | None:
    """Port GUID of the master; None if none answered."""
    master = keys.master.master if keys.master is not None else None
    return master.guid if master is not None else None


def _partition_violations(parts: Composition, record: FabricRecord, text: str) -> list[str]:
    state = parts.store.fabrics.routed(record.id)
    virtual = state.virtual_guids if parts.subnet_managers.virtual_ports else {}
    tenants = _tenants(state)
    return verification.partition_violations(
        record.topology, record.inventory, tenants, virtual, text
    )


def _function_violations(
    parts: Composition, record: FabricRecord, tables: Mapping[int, tuple[int, ...]]
) -> list[str]:
    state = parts.store.fabrics.routed(record.id)
    return verification.function_violations(
        *(record.topology, record.inventory, _tenants(state), state.virtual_guids, tables),
        pkeys=parts.subnet_managers.pkeys,
    )


def _tenants(state: FabricState) -> list[tuple[list[int], Allocation]]:
    """Partition keys by rail, and all hosts that their tenant may be on."""
    rails = range(state.topology.rails)
    return [([tenant.key(rail) for rail in rails], tenant.held) for tenant in state.tenants]


def _text(option: str, source: str) -> str:
    """Raises: InvalidInput."""
    try:
        return sys.stdin.read() if source == "-" else Path(source).read_text(errors="replace")
    except OSError as error:
        raise _unreadable(option, source, error) from error


def _chain_files(source: str) -> dict[str, str]:
    """The text of the files of a set that concern its chains, by name. Raises: InvalidInput."""
    directory = Path(source)
    if not (directory / CHAINS_FILE).is_file():
        raise InvalidInput(
            "--chains", source, "give the directory of a set with routing chains (chains.conf)"
        )
    paths = (path for path in directory.rglob("*") if path.is_file() and path.suffix in CHAIN_TEXTS)
    return {str(path.relative_to(directory)): _text("--chains", str(path)) for path in paths}


def _keys(source: str) -> KeyReading:
    """Raises: InvalidInput, InvalidFile."""
    return reading_of(_text("--keys", source), source)


def _functions(source: str) -> Mapping[int, tuple[int, ...]]:
    """Raises: InvalidInput, InvalidFile."""
    return tables_of(_text("--functions", source).splitlines(), source)


def _walked(
    record: FabricRecord,
    allocations: list[Allocation],
    changing: Mapping[str, Change],
    rows: Mapping[int, bytes],
    managers: list[int],
) -> verification.Walks:
    """Check reachability, isolation and credit loops in dumped forwarding tables."""
    inventory = record.inventory
    tables = verification.physical_tables(rows, inventory.lids)
    walks = verification.walk_violations(
        record.topology,
        inventory,
        tables,
        allocations,
        managers,
        record.shared_plane,
        {id: change.routes.together for id, change in changing.items()},
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
        raise _unreadable("--lfts", source, error) from error


def _unreadable(option: str, source: str, error: OSError) -> InvalidInput:
    fix = f"give a file that can be read ({(error.strerror or str(error)).lower()})"
    return InvalidInput(option, source, fix)

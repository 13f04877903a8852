# SPDX-License-Identifier: Apache-2.0

"""Check of the database: does every table agree with the others?

Reads rows without the store's code. Constraints of the database are checked, too, because a
file may have been edited by hand.
"""

from collections import Counter, defaultdict
from collections.abc import Generator, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, ForeignKeyConstraint, and_, func, select

from laas_service import messages
from laas_service.adapters.db import models
from laas_service.adapters.db.allocation_rows import ALLOCATIONS, CONTAINER, KINDS
from laas_service.adapters.db.apart import shared
from laas_service.adapters.documents import (
    STORED_GRAIN,
    allocation_from,
    inventory_from,
    mending_from,
    steps_from,
    stored_capacity,
    topology_from,
)
from laas_service.app.lifecycle import HOLDING, Phase, State
from laas_service.app.records import HostState, LinkState
from laas_service.domain.allocation import Allocation, Promise
from laas_service.domain.errors import LaasError
from laas_service.domain.grouping import grouped
from laas_service.domain.inventory import Inventory
from laas_service.domain.tenancy import SharedHosts, Slots
from laas_service.domain.topology import Topology
from laas_service.domain.wording import listed


def findings(connection: Connection) -> list[str]:
    """All contradictions, a sentence each; empty means sound.

    The connection is one of ``engine.consistent_read``, and the schema is this release's.
    """
    contradictions = list(_dangling(connection))
    contradictions += _numbers(connection)
    inventories = []
    for id, topology, inventory in _layouts(connection, contradictions):
        inventories.append((id, inventory))
        rows = connection.execute(ALLOCATIONS.where(models.AllocationRow.fabric == id)).all()
        contradictions += _generations(connection, id, rows)
        contradictions += _claims(connection, id, topology, rows)
        contradictions += _shared(connection, id, topology, rows)
        contradictions += _states(connection, id, topology)
        contradictions += _words(connection, id, topology, inventory)
    contradictions += shared(inventories)
    contradictions += _histories(connection)
    contradictions += _outbox(connection)
    return contradictions


def _rows(connection: Connection, model: type[models.Base], **where: Any) -> Sequence[Any]:
    query = select(model.__table__).filter_by(**where)
    return connection.execute(query).all()


# -- rows that name others -------------------------------------------------------


def _dangling(connection: Connection) -> Iterator[str]:
    """References to rows that do not exist."""
    for table in models.Base.metadata.sorted_tables:
        for key in table.foreign_key_constraints:
            count = connection.scalar(_unmatched(key))
            if count:
                names = ", ".join(column.name for column in key.columns)
                yield (
                    f"{count} rows of {table.name} name a {key.referred_table.name} ({names}) "
                    "that is not there"
                )
    child, parent = models.AllocationRow.__table__, models.AllocationRow.__table__.alias()
    query = (
        select(
            *(child.c.id, child.c.kind, child.c.fabric),
            *(parent.c.kind.label("outer"), parent.c.fabric.label("there")),
        )
        .select_from(child.outerjoin(parent, parent.c.id == child.c.parent))
        .where(child.c.parent.is_not(None))
    )
    for id, kind, here, outer, there in connection.execute(query):
        if outer != (KINDS[SharedHosts] if kind == KINDS[Slots] else CONTAINER) or there != here:
            yield f"allocation {id} is inside what is no container of its fabric"


def _unmatched(key: ForeignKeyConstraint) -> Any:
    other = key.referred_table.alias()
    pairs = [(e.parent, other.c[e.column.name]) for e in key.elements]
    joined = key.table.outerjoin(other, and_(*(mine == theirs for mine, theirs in pairs)))
    set_ = [mine.is_not(None) for mine, _ in pairs]
    return select(func.count()).select_from(joined).where(*set_, pairs[0][1].is_(None))


def _numbers(connection: Connection) -> Iterator[str]:
    """Numbers out of range."""
    for row in _rows(connection, models.LeaseRow):
        if row.token < 1:
            yield f"fabric {row.fabric}: the lease has the token {row.token}"
    for row in _rows(connection, models.QuotaRow):
        for name in ("hosts", "allocations", "moves", "slots"):
            if (most := getattr(row, name)) is not None and most < -1:
                yield f"project {row.project_id}: the quota of {name} is {most}"


# -- fabrics -----------------------------------------------------------------------


def _layouts(
    connection: Connection, contradictions: list[str]
) -> Iterator[tuple[str, Topology, Inventory]]:
    """The fabrics that can be read; the others are appended to ``contradictions``."""
    for row in _rows(connection, models.FabricRow):
        try:
            yield row.id, topology_from(row.topology), inventory_from(row.inventory)
        except LaasError as error:
            contradictions.append(f"fabric {row.id} cannot be read: {error}")


def _generations(connection: Connection, id: str, rows: Sequence[Any]) -> Iterator[str]:
    """No record is of a later generation than the fabric, and no delta is missing."""
    table, delta = models.FabricRow, models.DeltaRow
    now, routes = connection.execute(
        select(table.generation, table.routes_generation).where(table.id == id)
    ).one()
    if not 1 <= routes <= now:
        yield f"fabric {id}: its routes are of generation {routes}, it is at {now}"
    count, first, last = connection.execute(
        select(func.count(), func.min(delta.generation), func.max(delta.generation)).where(
            delta.fabric == id
        )
    ).one()
    if count and (last != now or last - first + 1 != count):
        yield f"fabric {id}: {count} changes from {first} to {last} do not lead to generation {now}"
    for row in rows:
        if row.generation > now:
            yield f"allocation {row.id} is of generation {row.generation}, {id} is at {now}"


def _states(connection: Connection, id: str, topology: Topology) -> Iterator[str]:
    """Rows of states and features are of hosts and links of the fabric."""
    hosts = set(range(topology.hosts)) - topology.absent_hosts
    tree = topology.tree
    down = {state.value for state in HostState if state is not HostState.UP}
    links_down = {state.value for state in LinkState if state is not LinkState.UP}
    for row in _rows(connection, models.HostStateRow, fabric=id):
        if row.host not in hosts or row.state not in down:
            yield f"fabric {id}: host {row.host} is recorded as {row.state!r}"
    for row in _rows(connection, models.LinkStateRow, fabric=id):
        in_tree = 0 <= row.link < tree.leaf_links + tree.spine_links
        absent = in_tree and tree.link_at(row.link) in topology.absent_links
        if not in_tree or absent or row.state not in links_down:
            yield f"fabric {id}: link {row.link} is recorded as {row.state!r}"
    for row in _rows(connection, models.HostFeatureRow, fabric=id):
        if row.host not in hosts or row.cost < 0:
            yield f"fabric {id}: host {row.host} is described, with cost {row.cost}"


def _words(
    connection: Connection, id: str, topology: Topology, inventory: Inventory
) -> Iterator[str]:
    """Each state follows from what operators, observation and Nova say, also of switches."""
    failed, drained = LinkState.FAILED.value, LinkState.DRAINED.value
    switches = {
        int(row.guid, 16): row.state for row in _rows(connection, models.SwitchStateRow, fabric=id)
    }
    levels = {switch.guid: switch.level for switch in inventory.switches}
    of_hosts, of_links = defaultdict(set), defaultdict(set)
    for endpoint in inventory.endpoints:
        word = switches.get(endpoint.at.guid) if levels.get(endpoint.at.guid) == 1 else None
        if endpoint.host is not None and word is not None:
            of_hosts[endpoint.host].add(failed if word == failed else drained)
    for cable in inventory.cables:
        if cable.link is None:
            continue
        for guid in (cable.lower.guid, cable.upper.guid):
            word = switches.get(guid) if guid in levels else None
            if word == failed or (word is not None and levels[guid] > 1):
                number = topology.tree.link_id(cable.link)
                of_links[number].add(failed if word == failed else drained)
    for what, model, said in (
        ("host", models.HostStateRow, of_hosts),
        ("link", models.LinkStateRow, of_links),
    ):
        recorded = {}
        for row in _rows(connection, model, fabric=id):
            number = getattr(row, what)
            recorded[number] = row.state
            said[number] |= {row.operator, row.observed}
            if what == "host":
                said[number].add(row.nova)
            if what == "link" and row.moved and row.observed != failed:
                yield f"fabric {id}: link {number} was moved, and is observed as {row.observed!r}"
        for number, words in sorted(said.items()):
            follows = next((state for state in (failed, drained) if state in words), "up")
            if (state := recorded.get(number, "up")) != follows:
                text = f"is {state}, but what is said makes it {follows}"
                yield f"fabric {id}: {what} {number} {text}"


# -- claims --------------------------------------------------------------------------


def _claims(
    connection: Connection, id: str, topology: Topology, rows: Sequence[Any]
) -> Iterator[str]:
    """Records and claims agree, and each host and link has one owner in a scope."""
    tree = topology.tree
    claimed: dict[str, dict[str, set[int]]] = {"host": defaultdict(set), "link": defaultdict(set)}
    scopes = {row.id: row.parent or "" for row in rows}
    for what, model in (("host", models.HostClaimRow), ("link", models.LinkClaimRow)):
        owners: Counter[tuple[str, int]] = Counter()
        for claim in _rows(connection, model, fabric=id):
            number = getattr(claim, what)
            claimed[what][claim.allocation].add(number)
            owners[scopes.get(claim.allocation, ""), number] += 1
            if claim.scope != (claim.parent or "") or claim.scope != scopes.get(claim.allocation):
                yield f"fabric {id}: {what} {number} is claimed in another scope than its owner's"
        twice = [number for (_, number), count in owners.items() if count > 1]
        if twice:
            yield f"fabric {id}: two owners of {what} {listed(sorted(twice))}"
    pkey_claims = _rows(connection, models.PkeyClaimRow, fabric=id)
    pkeys = grouped((claim.allocation, claim.pkey) for claim in pkey_claims)
    for row in rows:
        held = yield from _held(row)
        yield from _life(row, pkeys[row.id])
        if held is None:
            continue
        wanted = {
            "host": set(held.hosts(topology)),
            "link": {tree.link_id(link) for link in held.links(topology)},
        }
        for what, numbers in wanted.items():
            present = claimed[what][row.id]
            if missing := sorted(numbers - present):
                yield f"allocation {row.id} has {what} {listed(missing)} without a claim"
            if many := sorted(present - numbers):
                yield f"allocation {row.id} claims {what} {listed(many)}, which it does not have"


def _shared(
    connection: Connection, id: str, topology: Topology, rows: Sequence[Any]
) -> Iterator[str]:
    """Records, slots and promises agree, and no host or link has given more than it has."""
    placed = {row.id: held for row in rows if (held := _read(row)) is not None}
    units: dict[str, dict[int, int]] = defaultdict(dict)
    loads: dict[str, dict[int, tuple[int, ...]]] = defaultdict(dict)
    parts = {row.id: row.parent for row in rows}
    used: Counter[tuple[str, int]] = Counter()
    sums: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    for claim in _rows(connection, models.SlotClaimRow, fabric=id):
        units[claim.allocation][claim.host] = claim.units
        used[claim.part, claim.host] += claim.units
        if claim.part != parts.get(claim.allocation):
            yield f"allocation {claim.allocation} has slots of {claim.part}, not of its parent"
    for load in _rows(connection, models.LinkLoadRow, fabric=id):
        amounts = (load.certain, load.mean, load.variance)
        loads[load.allocation][load.link] = amounts
        for at, amount in enumerate(amounts):
            sums[load.part, load.link][at] += amount
    for row in rows:
        held = placed.get(row.id)
        counts, promised = dict[int, int](), tuple[Promise, ...]()
        if held is not None and not held.kind.whole_hosts:
            counts, promised = held.held_slots.counts, held.held_slots.promised
        if held is not None and KINDS[type(held.kind)] != row.kind:
            yield f"allocation {row.id} is of another class than its placement"
        if units[row.id] != counts:
            yield f"allocation {row.id} claims other slots than it has"
        recorded = {link: list(amounts) for link, *amounts in promised}
        claimed = {link: [*map(steps_from, amounts)] for link, amounts in loads[row.id].items()}
        if claimed != recorded:
            yield f"allocation {row.id} claims other promises of links than it has"
    shared = {held.id: held.hosts(topology) for held in placed.values() if held.sharing}
    hosts = {(part, host) for part, numbers in shared.items() for host in numbers}
    for row in _rows(connection, models.SharedHostRow, fabric=id):
        of = placed.get(row.part)
        if of is None or (row.part, row.host) not in hosts:
            yield f"fabric {id}: {row.part} shares host {row.host}, which it does not share"
        elif row.slots != of.terms.slots or not 0 <= row.used <= row.slots:
            yield f"fabric {id}: host {row.host} has given {row.used} of {row.slots} slots"
        if row.used != used.pop((row.part, row.host), 0):
            yield f"fabric {id}: host {row.host} counts {row.used} slots, its owners others"
    for row in _rows(connection, models.SharedLinkRow, fabric=id):
        of = placed.get(row.part)
        shares = of is not None and isinstance(of.kind, SharedHosts)
        if (
            of is None
            or not shares
            or row.capacity
            not in (
                int(of.terms.bandwidth * STORED_GRAIN),  # before promises were whole kb/s
                stored_capacity(of.terms.bandwidth),
            )
        ):
            yield f"fabric {id}: directed link {row.link} of {row.part} has another bandwidth"
        room = row.capacity - row.certain - row.mean
        if room < 0 or room**2 < row.chance * row.variance:
            yield f"fabric {id}: directed link {row.link} promises more than it has"
        if [row.certain, row.mean, row.variance] != sums.pop((row.part, row.link), [0, 0, 0]):
            yield f"fabric {id}: directed link {row.link} counts other promises than it has made"
    for (part, number), _ in [*used.items(), *sums.items()]:
        yield f"fabric {id}: {part} has no row of shared host or link {number}"


def _read(row: Any) -> Allocation | None:
    """What the allocation holds; None if nothing, or if the record cannot be read."""
    try:
        placed = None if row.placed is None else allocation_from(row.placed)
        if placed is None or row.leaving is None:
            return placed
        return placed.joined(allocation_from(row.leaving))
    except LaasError:
        return None  # ``_held`` tells


def _held(row: Any) -> Generator[str, None, Allocation | None]:
    """Returns everything that the allocation holds, None if the record cannot be read."""
    nothing = Allocation(row.id, requested=0, policy="", groups=())
    try:
        placed = nothing if row.placed is None else allocation_from(row.placed)
        for other in filter(None, (row.leaving, row.bridge)):
            placed = placed.joined(allocation_from(other))
        if row.mending is not None:
            placed = placed.joined(mending_from(row.mending).links.held)
        return placed
    except LaasError as error:
        yield f"allocation {row.id} cannot be read: {error}"
    return None


def _life(row: Any, pkeys: list[int]) -> Iterator[str]:
    """The columns of a record agree with its state."""
    name = f"allocation {row.id} ({row.state})"
    states = {state.value: state for state in State}
    state = states.get(row.state)
    if state is None:
        yield f"{name}: there is no such state"
        return
    if (row.placed is not None) != (state in HOLDING):
        yield f"{name} has {'a' if row.placed is not None else 'no'} placement"
    half = (row.leaving is None) != (row.phase is None) or (row.leaving and not row.placed)
    if half or ((row.bridge or row.mending) is not None and row.leaving is None):
        yield f"{name}: its change of placement is half recorded"
    if row.phase is not None and row.phase not in {phase.value for phase in Phase}:
        yield f"{name}: there is no phase {row.phase!r}"
    if row.parked is not None and (state is not State.ERROR or row.parked not in states):
        yield f"{name}: it was parked from {row.parked!r}"
    if (row.kind == KINDS[SharedHosts]) != (row.sharing is not None) or (
        (row.kind == KINDS[Slots]) != (row.demand is not None)
    ):
        yield f"{name}: it is of kind {row.kind}, and the rows beside it are of another"
    if row.version < 0 or row.failures < 0:
        yield f"{name}: version {row.version}, {row.failures} failures"
    wanted = []
    if row.placed is not None and row.kind not in (CONTAINER, KINDS[Slots]):
        wanted = sorted({row.pkey or 0, *(row.pkeys or ())})
    spare = row.phase is not None and set(pkeys) > set(wanted)  # for the new placement
    if (sorted(pkeys) != wanted and not spare) or (wanted and wanted[0] < 1):
        yield f"{name}: it has partition key {row.pkey} and claims {listed(pkeys) or 'none'}"


def _histories(connection: Connection) -> Iterator[str]:
    """The history of an allocation ends with its state."""
    event, table = models.EventRow.__table__, models.AllocationRow.__table__
    last = select(event.c.allocation, func.max(event.c.id).label("id")).group_by(event.c.allocation)
    ends = last.subquery()
    query = select(table.c.id, table.c.state, event.c.state.label("last")).select_from(
        table.outerjoin(ends, ends.c.allocation == table.c.id).outerjoin(
            event, event.c.id == ends.c.id
        )
    )
    for id, state, last in connection.execute(query):
        if last != state:
            yield f"allocation {id} is {state}, but its story ends with {last or 'nothing'}"


def _outbox(connection: Connection) -> Iterator[str]:
    for row in _rows(connection, models.NotificationRow):
        try:
            messages.read(messages.Notification, row.document)
        except (LaasError, TypeError, KeyError) as error:
            yield f"notification {row.id} cannot be read: {error}"

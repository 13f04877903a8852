# SPDX-License-Identifier: Apache-2.0

"""kill -9 at every step of allocate, release and repair, then a restart: no state is lost.

Of the commits and answers of a change of size every third; all of them with LAAS_CRASH=full.

The tests use SQLite, the directory of commands, the subnet manager's files and real
processes. Steps are the effects of convergence, the moments before and after each commit,
and every call that renames, links or removes a file or creates a directory.
"""

import multiprocessing
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import pytest
import sqlalchemy as sa

from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.app import lifecycle
from laas_service.app.lifecycle import State
from laas_service.app.ports.compute import MoveProgress, ServerMoves
from laas_service.app.records import AllocationRecord, Caller, LinkState, RoomState
from laas_service.app.requests import AllocationRequest, AllocationView, ResizeRequest
from laas_service.domain.constraints import Constraints, Within
from laas_service.domain.moves.consent import NO_CONSENT, Consent, Movable
from laas_service.domain.topology import link_name
from laas_service.domain.verification import (
    isolation_violations,
    physical_tables,
    shape_violations,
    walk_violations,
)
from laas_service.wiring.composition import Composition
from opensm_writer import fileset, parse
from tests.options import options_from
from tests.walks import Hop, Walks

OPERATOR = Caller("blue", "operator", admin=True, request_id="test")
NEIGHBOUR = AllocationRequest(name="b", hosts=3, project_id="red")
WISH = AllocationRequest(name="a", hosts=5, project_id="blue", idempotency_key="the-key")
WAITER = AllocationRequest(
    name="c", hosts=10, project_id="green", idempotency_key="other", wait=True
)
HEAD = AllocationRequest(
    name="c",
    hosts=2,
    project_id="green",
    idempotency_key="other",
    wait=True,
    constraints=Constraints(within=Within.LEAF),
)
HOLDER = AllocationRequest(
    name="a", hosts=6, project_id="blue", idempotency_key="the-key", container=True
)
RESIZE_STEPS = 1 if os.environ.get("LAAS_CRASH") == "full" else 3
"""Of this many commits and answers of a change of size one is crossed with a death."""
FILES = {"os.rename", "os.symlink", "os.mkdir", "os.remove"}


class Site:
    """The state that survives a crash, in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def parts(self, at: Callable[[str], None] = lambda step: None) -> Composition:
        conf = options_from()
        conf.set_override("state_dir", str(self.directory))
        conf.set_override("enabled_policies", ["jigsaw"], group="api")
        conf.set_override("retry_first", 0.01, group="worker")
        conf.set_override("lease_seconds", 3600.0, group="worker")
        conf.set_override("make_room", "on", group="queue")
        return Composition(conf, at=at)

    def copy(self, to: Path) -> "Site":
        shutil.copytree(self.directory, to, symlinks=True)
        return Site(to)


def converge(parts: Composition) -> None:
    """Act as the worker until no step is due.

    A lease of a worker killed on this machine is free at once, so that nothing waits for it.
    """
    while (
        parts.admission_queue.serve_all()
        + parts.queue_moves.serve_all()
        + parts.fabric_leases.run_once()
        or not parts.fabric_leases.fabrics
    ):
        pass


def set_up(site: Site) -> None:
    """A fabric, and the allocation of a neighbour, which no crash may change."""
    parts = site.parts()
    parts.database.upgrade()
    made = generate(Description(xgft="3;2,2,4;1,2,2"))
    parts.store.fabrics.add("f", made.topology, made.inventory)
    parts.use_cases(wake=lambda: None).allocations.allocate(OPERATOR, NEIGHBOUR)
    converge(parts)


def allocate(parts: Composition, acknowledge: Callable[[str], None]) -> None:
    """Allocate, acknowledge, and converge until the allocation is active."""
    converge(parts)
    answer = parts.use_cases(wake=lambda: None).allocations.allocate(OPERATOR, WISH)
    assert isinstance(answer, AllocationView)
    acknowledge(answer.record.id)
    converge(parts)


def release(parts: Composition, acknowledge: Callable[[str], None], *, force: bool = False) -> None:
    converge(parts)
    (id,) = [r.id for r in parts.store.allocations.page() if r.name == "a"]
    parts.use_cases(wake=lambda: None).allocations.release(OPERATOR, id, force=force)
    acknowledge(id)
    converge(parts)


def forced_release(parts: Composition, acknowledge: Callable[[str], None]) -> None:
    release(parts, acknowledge, force=True)


def wait(parts: Composition, acknowledge: Callable[[str], None]) -> None:
    """Queue a request that fits only after another allocation is released; release that one."""
    allocations = parts.use_cases(wake=lambda: None).allocations
    answer = allocations.allocate(OPERATOR, WAITER)
    assert isinstance(answer, AllocationView)
    acknowledge(answer.record.id)
    for record in parts.store.allocations.page(states=[State.ACTIVE]):
        if record.name == "a":
            allocations.release(OPERATOR, record.id)
    converge(parts)


def crowd(parts: Composition, acknowledge: Callable[[str], None]) -> None:
    """Fill the fabric, but for a host beside the movable tenant and one on another leaf."""
    converge(parts)
    allocations = parts.use_cases(wake=lambda: None).allocations
    for name, hosts in (("fill", 1), ("big", 8), ("a", 1), ("q", 1), ("r", 1), ("s", 1)):
        consent = Consent(Movable.RESTART) if name == "a" else NO_CONSENT
        asked = AllocationRequest(name=name, hosts=hosts, project_id=name, consent=consent)
        assert isinstance(allocations.allocate(OPERATOR, asked), AllocationView)
        converge(parts)
    for record in parts.store.allocations.page(states=[State.ACTIVE]):
        if record.name in ("q", "r"):
            allocations.release(OPERATOR, record.id)
    converge(parts)


def make_room(parts: Composition, acknowledge: Callable[[str], None]) -> None:
    """Queue a request that fits only after another tenant has moved."""
    run_move_scripts(parts)
    allocations = parts.use_cases(wake=lambda: None).allocations
    answer = allocations.allocate(OPERATOR, HEAD)
    assert isinstance(answer, AllocationView)
    acknowledge(answer.record.id)
    converge(parts)


def run_move_scripts(parts: Composition) -> None:
    """From now on somebody runs the scripts that move servers as soon as they are written."""
    asked, directory = parts.compute.move_servers, Path(parts._conf.compute.directory)

    def move_servers(moves: ServerMoves) -> MoveProgress:
        asked(moves)
        for script in (directory / "commands").glob("*-move-*.sh"):
            (directory / "answers" / script.stem).touch()
        return asked(moves)

    parts.compute.move_servers = move_servers  # type: ignore[method-assign]


def repair(parts: Composition, acknowledge: Callable[[str], None]) -> None:
    """Mark a link as failed, as the operator does; the worker replaces it."""
    converge(parts)
    link = (Path(parts._conf.state_dir) / "fails").read_text()
    parts.use_cases(wake=lambda: None).components.set_link_state(
        OPERATOR, "f", link, LinkState.FAILED
    )
    acknowledge(link)
    converge(parts)


def resize(parts: Composition, acknowledge: Callable[[str], None]) -> None:
    """Ask for nine hosts, then, once the tenant has them, for three."""
    converge(parts)
    changes = parts.use_cases(wake=lambda: None).changes
    (record,) = [r for r in parts.store.allocations.page() if r.name == "a"]
    if not record.placed or record.placed.requested != 3:
        for hosts in (9, 3):
            answer = changes.resize(OPERATOR, record.id, ResizeRequest(hosts=hosts))
            assert isinstance(answer, AllocationRecord), answer
            acknowledge(str(hosts))
            converge(parts)


def nest(parts: Composition, acknowledge: Callable[[str], None]) -> None:
    """Allocate a container and an allocation inside it."""
    allocations = parts.use_cases(wake=lambda: None).allocations
    outer = allocations.allocate(OPERATOR, HOLDER)
    assert isinstance(outer, AllocationView)
    wish = AllocationRequest(
        name="c", hosts=4, project_id="green", idempotency_key="inner", parent=outer.record.id
    )
    answer = allocations.allocate(OPERATOR, wish)
    assert isinstance(answer, AllocationView)
    acknowledge(answer.record.id)
    converge(parts)


def unnest(parts: Composition, acknowledge: Callable[[str], None]) -> None:
    """Release both allocations, the inner one first."""
    allocations = parts.use_cases(wake=lambda: None).allocations
    for name in ("c", "a"):
        for record in parts.store.allocations.page():
            if record.name == name:
                allocations.release(OPERATOR, record.id)
        converge(parts)
    acknowledge("gone")


def restart(parts: Composition, acknowledge: Callable[[str], None]) -> None:
    """Act as a worker that starts: take all steps, then compare; no drift may be left."""
    converge(parts)
    assert parts.fabric_leases.reconcile() == []


def every(step: str) -> bool:
    return True


def in_process(
    site: Site,
    act: Callable[..., None],
    dies_at: int | None = None,
    counted: Callable[[str], bool] = every,
) -> str | None:
    """Run ``act`` in a process that kills itself at step ``dies_at``.

    Only steps for which ``counted`` is true are counted. Returns the step at which the process
    was killed, or None if it ended before.
    """
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_run, args=(site, act, dies_at, counted))
    process.start()
    process.join(600)
    note = site.directory / "died"
    if process.exitcode == -signal.SIGKILL and note.exists():
        step = note.read_text()
        note.unlink()
        return step
    assert process.exitcode == 0, f"{act.__name__} failed with {process.exitcode}"
    return None


def _run(
    site: Site, act: Callable[..., None], dies_at: int | None, counted: Callable[[str], bool]
) -> None:
    count = 0

    def at(step: str) -> None:
        nonlocal count
        count += counted(step)
        if counted(step) and count == dies_at:
            file = os.open(site.directory / "died", os.O_WRONLY | os.O_CREAT)
            os.write(file, step.encode())
            os.kill(os.getpid(), signal.SIGKILL)

    def audit(event: str, arguments: tuple[object, ...]) -> None:
        if event in FILES and not (event == "os.mkdir" and os.path.isdir(str(arguments[0]))):
            at(f"{event} {arguments[0]!r}")

    def acknowledge(id: str) -> None:
        at("before the answer")
        (site.directory / "acknowledged").write_text(id)
        at("after the answer")

    parts = site.parts(at)
    if dies_at is not None:
        sys.addaudithook(audit)  # a hook cannot be removed; it ends with this process
    act(parts, acknowledge)


class Seen:
    """Database, compute directory and published files, as another process reads them."""

    def __init__(self, site: Site) -> None:
        parts = site.parts()
        self.records = {record.id: record for record in parts.store.allocations.page()}
        self.fabric = parts.store.fabrics.get("f")
        self.ledger, _ = parts.store.fabrics.ledger("f")
        with parts.database.engine.connect() as connection:
            self.hosts = _claims(connection, "host")
            self.links = _claims(connection, "link")
        parts.database.engine.dispose()
        self.open = {
            id: handover
            for id, handover in parts.compute.handed_over().items()
            if handover.project_id != "laas-nobody"
        }
        current = site.directory / "opensm" / "f" / "current"
        with (current / "lfts").open() as lines:
            self.rows = parse.dumped_tables(lines)
        self.tables = physical_tables(self.rows, self.fabric.inventory.lids)
        manifest = fileset.current(site.directory / "opensm", "f")
        assert manifest is not None
        assert not fileset.damaged(site.directory / "opensm" / "f" / "current", manifest)
        self.routed = dict(manifest.tenants)

    def id(self, name: str) -> str | None:
        """The id of the only allocation of that name; None if there is none."""
        ids = [record.id for record in self.records.values() if record.name == name]
        assert len(ids) <= 1, "the same request was allocated twice"
        return ids[0] if ids else None

    def the(self, name: str) -> str:
        id = self.id(name)
        assert id is not None
        return id

    def check(self, before: "Seen") -> None:
        """Assert the invariants that hold at every moment, also between a crash and a restart."""
        topology = self.fabric.topology
        placed = [record.placed for record in self.records.values() if record.placed]
        held = [record.held for record in self.records.values() if record.held]
        assert isolation_violations(topology, held) == []
        routed = [
            record.open_hosts.over(record.held)
            for record in self.records.values()
            if record.open_hosts and record.held and record.id in self.routed
        ]
        walks = walk_violations(topology, self.fabric.inventory, self.tables, routed)
        assert walks.violations == []
        assert [text for a in placed for text in shape_violations(topology, a)] == []
        assert self.hosts == self.ledger.owners_of_hosts()
        assert self.links == {
            topology.tree.link_id(link): id for link, id in self.ledger.owners_of_links().items()
        }
        names = self.fabric.inventory.host_names
        for id, handover in self.open.items():
            record = self.records[id]
            assert record.placed is not None, "freed while hosts are handed over"
            assert record.held is not None
            assert record.open_hosts is not None
            opened = set(handover.hosts)
            if lifecycle.hands_over(record):
                assert opened <= {names[h] for h in record.held.hosts(topology)}
            else:
                assert opened == {names[h] for h in record.open_hosts.hosts(topology)}
            assert id in self.routed, "hosts are handed over without routes"
        for id in self.routed:
            assert self.records[id].placed is not None, "freed while still routed"
        neighbour = before.the("b")
        assert self.open[neighbour] == before.open[neighbour]
        assert self.paths_inside(neighbour) == before.paths_inside(neighbour)

    def paths_inside(self, id: str) -> list[list[Hop]]:
        """The paths of packets between the hosts of an allocation."""
        inventory, held = self.fabric.inventory, self.records[id].held
        assert held is not None
        walks = Walks.over_rows(inventory, self.rows)
        ends = [inventory.endpoint_of_port[host, 0] for host in held.hosts(self.fabric.topology)]
        return [walks.path(one.at.guid, other.guid) for one, other in permutations(ends, 2)]

    def same_as(self, other: "Seen") -> bool:
        return (
            self.ledger.state() == other.ledger.state()
            and self.open == other.open
            and self.routed == other.routed
        )


def _claims(connection: sa.Connection, what: str) -> dict[int, str]:
    query = f"select {what}, allocation from {what}_claim order by scope"  # innermost claim last
    rows = connection.execute(sa.text(query)).all()
    return dict(map(tuple, rows))


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """A site with the neighbour's allocation alone."""
    site = Site(tmp_path_factory.mktemp("site") / "empty")
    assert in_process(site, set_up_and_forget) is None
    return site


def set_up_and_forget(parts: Composition, acknowledge: Callable[[str], None]) -> None:
    set_up(Site(Path(parts._conf.state_dir)))


@pytest.fixture(scope="module")
def taken(empty, tmp_path_factory):
    """A site with the neighbour's allocation and another active one."""
    site = empty.copy(tmp_path_factory.mktemp("site") / "taken")
    assert in_process(site, allocate) is None
    (site.directory / "acknowledged").unlink()
    return site


def crashes(
    site: Site,
    act: Callable[..., None],
    directory: Path,
    counted: Callable[[str], bool] = every,
    at_least: int = 20,
    stride: int = 1,
):
    """Yield a copy of the site after a crash at each ``stride``-th step in turn, and the step."""
    for dies_at in range(1, 1000, stride):
        crashed = site.copy(directory / str(dies_at))
        step = in_process(crashed, act, dies_at, counted)
        if step is None:
            assert dies_at > at_least
            return
        yield crashed, step
        shutil.rmtree(crashed.directory)


def test_allocate(empty, tmp_path):
    before, steps = Seen(empty), set()
    for site, step in crashes(empty, allocate, tmp_path):
        steps.add(step.split(" '")[0])
        seen = Seen(site)
        seen.check(before)
        acknowledged = site.directory / "acknowledged"
        assert in_process(site, restart) is None
        seen = Seen(site)
        seen.check(before)
        if seen.id("a") is None:
            assert not acknowledged.exists(), f"lost after {step}"
            assert seen.same_as(before), f"something is left after {step}"
            assert seen.records.keys() == before.records.keys()
        assert in_process(site, allocate) is None  # the client asks again with its key
        seen = Seen(site)
        seen.check(before)
        id = seen.the("a")
        assert seen.records[id].state is State.ACTIVE
        assert set(seen.open) == set(seen.routed) == {id, before.the("b")}
    assert {
        "before commit: admit",
        "after commit: admit",
        "before the answer",
        "before publish",
        "after publish",
        "before hand over",
        "after hand over",
        "before commit: active",
        "after commit: active",
        "os.rename",
    } <= steps


@pytest.mark.parametrize("act", [release, forced_release])
def test_release(empty, taken, tmp_path, act):
    before, steps = Seen(taken), set()
    id, end = before.the("a"), Seen(empty)
    for site, step in crashes(taken, act, tmp_path):
        steps.add(step.split(" '")[0])
        seen = Seen(site)
        seen.check(before)
        acknowledged = (site.directory / "acknowledged").exists()
        assert in_process(site, restart) is None
        seen = Seen(site)
        seen.check(before)
        if seen.records[id].state is State.ACTIVE:
            assert not acknowledged, f"forgotten after {step}"
            assert seen.same_as(before), f"something changed after {step}"
        else:
            assert seen.records[id].state is State.RELEASED
        assert in_process(site, act) is None  # the client asks again
        seen = Seen(site)
        seen.check(before)
        assert seen.records[id].state is State.RELEASED
        assert seen.same_as(end)
    assert {
        "before commit: releasing",
        "after commit: releasing",
        "before fence",
        "after fence",
        "before take back",
        "after take back",
        "before commit: hand back",
        "after commit: hand back",
        "before publish",
        "after publish",
        "before commit: free",
        "after commit: free",
        "os.rename",
    } <= steps


def test_repair(taken, tmp_path):
    """Both placements stay claimed until the routes have moved; history has one replacement."""
    site = taken.copy(tmp_path / "hurt")
    before = Seen(site)
    id, topology = before.the("a"), before.fabric.topology
    placed = before.records[id].placed
    assert placed is not None
    assert str(placed.shape) == "1x(2x2)+(0x2+1)"
    by_pod = Counter(link.pod for link in placed.spine_links(topology))
    (failed,) = [x for x in placed.spine_links(topology) if by_pod[x.pod] == 1]
    (site.directory / "fails").write_text(link_name(failed))
    mended = site.copy(tmp_path / "mended")
    assert in_process(mended, repair) is None
    end, steps = Seen(mended), set()
    now = end.records[id].placed
    assert now is not None
    assert set(placed.links(topology)) - set(now.links(topology)) == {failed}
    for crashed, step in crashes(site, repair, tmp_path):
        steps.add(step.split(" '")[0])
        seen = Seen(crashed)
        seen.check(before)
        acknowledged = (crashed.directory / "acknowledged").exists()
        assert in_process(crashed, restart) is None
        seen = Seen(crashed)
        seen.check(before)
        if seen.ledger.failed_links:
            assert seen.same_as(end), f"not repaired after {step}"
        else:
            assert not acknowledged, f"forgotten after {step}"
            assert seen.same_as(before), f"something changed after {step}"
        assert in_process(crashed, repair) is None  # the operator repeats the request
        seen = Seen(crashed)
        seen.check(before)
        assert seen.same_as(end)
        record = Site(crashed.directory).parts().store.allocations.get(id)
        assert (record.state, record.faults, record.phase) == (State.ACTIVE, None, None)
        story = [event.reason for event in record.history]
        assert sum("replaced by" in line for line in story) == 1
    assert {
        "before commit: set state",
        "after commit: set state",
        "before the answer",
        "before commit: move",
        "after commit: move",
        "before publish",
        "after publish",
        "before commit: switch",
        "after commit: switch",
        "before commit: withdraw",
        "after commit: withdraw",
        "before commit: settle",
        "after commit: settle",
        "os.rename",
    } <= steps


def planned(step: str) -> bool:
    """Whether the step begins, carries on or ends a plan that makes room, or answers."""
    return step.endswith((": make room", ": move", "the answer"))


def test_room_for_the_queue(empty, tmp_path):
    """The head gets the room of one move, whenever the worker dies; its tenant is asked once."""
    site = empty.copy(tmp_path / "crowded")
    assert in_process(site, crowd) is None
    before, steps = Seen(site), set()
    mover = before.the("a")
    for crashed, step in crashes(site, make_room, tmp_path, planned, at_least=8):
        steps.add(step)
        Seen(crashed).check(before)
        assert in_process(crashed, make_room) is None  # the client asks again with its key
        seen = Seen(crashed)
        seen.check(before)
        head = seen.records[seen.the("c")]
        assert (head.state, head.placed and head.placed.size) == (State.ACTIVE, 2)
        parts = crashed.parts()
        story = [event.reason for event in parts.store.allocations.get(mover).history]
        assert sum("announced by the queue" in line for line in story) == 1, step
        assert sum("moves as announced" in line for line in story) == 1, step
        room = parts.store.admissions.room("f")
        assert room is not None
        assert (room.state, room.allocation) == (RoomState.DONE, head.id)
    assert {
        "before the answer",
        "before commit: make room",
        "after commit: make room",
        "before commit: move",
        "after commit: move",
    } <= steps


def decided(step: str) -> bool:
    """Whether the step reads or writes the queue, or answers the queued request."""
    return step.endswith((": admit", ": free", "the answer"))


def test_waiting(taken, tmp_path):
    before, steps = Seen(taken), set()
    for site, step in crashes(taken, wait, tmp_path, decided, at_least=8):
        steps.add(step)
        seen = Seen(site)
        seen.check(before)
        acknowledged = site.directory / "acknowledged"
        assert in_process(site, restart) is None
        seen = Seen(site)
        seen.check(before)
        if seen.id("c") is None:
            assert not acknowledged.exists(), f"lost after {step}"
        assert in_process(site, wait) is None  # the client asks again with its key
        seen = Seen(site)
        seen.check(before)
        id = seen.the("c")
        assert seen.records[id].state is State.ACTIVE
        assert set(seen.open) == set(seen.routed) == {id, before.the("b")}
        story = [e.state for e in Site(site.directory).parts().store.allocations.get(id).history]
        assert story == [State.QUEUED, State.ALLOCATING, State.ACTIVE]
    assert {
        "before commit: admit",
        "after commit: admit",
        "before the answer",
        "after the answer",
        "before commit: free",
        "after commit: free",
    } <= steps


def recorded(step: str) -> bool:
    """Whether the step commits a decision or answers a request."""
    return step.startswith(("before commit", "after commit")) or step.endswith("the answer")


def test_resize(taken, tmp_path):
    """Grows, then shrinks; after a death at any commit it goes on, or was never asked for."""
    done = taken.copy(tmp_path / "done")
    assert in_process(done, resize) is None
    before, end, steps = Seen(taken), Seen(done), set()
    id = before.the("a")
    assert len(end.open[id].hosts) == 3
    crashed = crashes(taken, resize, tmp_path / "crashes", recorded, 12, RESIZE_STEPS)
    for site, step in crashed:
        steps.add(step)
        Seen(site).check(before)
        asked = site.directory / "acknowledged"
        sizes = {5, 9} if not asked.exists() else {9, 3} if asked.read_text() == "9" else {3}
        assert in_process(site, restart) is None
        seen = Seen(site)
        seen.check(before)
        placed = seen.records[id].placed
        assert placed is not None
        assert placed.requested in sizes, f"forgotten after {step}"
        assert len(seen.open[id].hosts) == placed.size
        assert in_process(site, resize) is None  # the client asks again
        seen = Seen(site)
        seen.check(before)
        assert seen.same_as(end)
    phases = ("move", "switch", "enter", "leave", "withdraw", "settle")
    expected = {f"{when} commit: {phase}" for when in ("before", "after") for phase in phases}
    assert expected <= steps if RESIZE_STEPS == 1 else len(expected & steps) > 3


def test_nesting(empty, tmp_path):
    """After a crash at any step, container and inner allocation can be completed and released."""
    before, steps = Seen(empty), set()
    for site, step in crashes(empty, nest, tmp_path, recorded, at_least=8):
        steps.add(step)
        Seen(site).check(before)
        assert in_process(site, restart) is None
        seen = Seen(site)
        seen.check(before)
        if (site.directory / "acknowledged").exists():
            assert seen.id("c") is not None, f"lost after {step}"
        assert in_process(site, nest) is None  # the client asks again with its keys
        seen = Seen(site)
        seen.check(before)
        outer, inner = seen.the("a"), seen.the("c")
        assert seen.records[outer].state is seen.records[inner].state is State.ACTIVE
        assert set(seen.open) == set(seen.routed) == {inner, before.the("b")}
        assert in_process(site, unnest) is None
        assert Seen(site).same_as(before)
    assert {"before commit: admit", "after commit: admit", "after the answer"} <= steps

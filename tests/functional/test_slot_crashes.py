# SPDX-License-Identifier: Apache-2.0

"""kill -9 after each change of slots in Nova and placement, and around each commit; restarts.

A tenant gets slots of shared hosts, grows so that a server has to migrate, and gives them back.
Workers are processes of their own; the stand-in for Nova and placement outlives them. With
``LAAS_CRASH=full`` a process is killed at every step and the rows are written on the page
``crash-matrix`` (``tox -e slot-crashes``), otherwise at every fourth, and its row has to be there.
At each step, otherwise at every ninth, a request to Nova or placement is lost, or its answer, or
the database when a transaction commits; the process goes on, and the end is the same.

The judge reads records, and the state of the stand-in; it uses nothing of the adapters.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from keystoneauth1.exceptions import ConnectFailure
from keystoneauth1.session import Session
from oslo_config import cfg

from laas_service import conf as options
from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.app.lifecycle import State
from laas_service.app.records import AllocationRecord, Caller
from laas_service.app.requests import AllocationRequest, AllocationView
from laas_service.app.sharing.slot_changes import SlotsRequest
from laas_service.domain.allocation import Sharing, SlotDemand
from laas_service.domain.errors import Unavailable
from laas_service.domain.moves.consent import Consent, Movable
from laas_service.wiring.composition import Composition
from tests import crashes as page
from tests.functional.test_crash import Site, converge, crashes, in_process
from tests.nova_standin import TOKEN, Cloud, Server
from tests.waiting import eventually

STRIDE, LOSSES_STRIDE = (1, 1) if page.FULL else (4, 9)
PART = AllocationRequest(name="part", hosts=4, sharing=Sharing(3, 100.0, open=True))
NEIGHBOUR = AllocationRequest(name="b", hosts=0, slots=SlotDemand(4, 5.0))
WISH = AllocationRequest(name="a", hosts=0, slots=SlotDemand(4, 5.0), idempotency_key="the-key")
CONSENT = Consent(Movable.RESTART)
PROJECTS = {"part": f"{1:032x}", "a": f"{2:032x}", "b": f"{3:032x}"}
NOBODY = "laas-nobody"
REPEATS = "client: no answer, repeats"


def caller(name: str) -> Caller:
    return Caller(PROJECTS[name], "operator", admin=True, request_id="test")


class Losses:
    """Loses the ``number``-th of the messages that ``lost`` is about, once."""

    def __init__(self, number: int, lost: str) -> None:
        self.number, self.lost, self.step = number, lost, ""

    def meet(self, step: str, message: str) -> None:
        """Raise what a caller sees if this is the message."""
        if COUNTING and message == self.lost:
            self.number -= 1
            if self.number == 0:
                self.step = step
                raise (LOST if message in COMMITS else ConnectFailure(f"lost: {step}"))


REQUESTS = ("the request", "the answer")
COMMITS = ("the transaction", "the end of the transaction")
LOST = Unavailable("the database does not answer: lost in the test")


class CloudSite(Site):
    """A site whose compute is the stand-in at ``server``."""

    server: Server
    losses: Losses | None = None

    def parts(self, at: Callable[[str], None] | None = None) -> Composition:
        """``at`` is also called after each change at Nova and placement."""
        conf = cfg.ConfigOpts()
        options.register_opts(conf)
        file = self.directory.parent / f"{self.directory.name}.conf"
        file.write_text(
            f"[nova]\nauth_type = admin_token\nendpoint = {self.server.url}/compute\n"
            f"token = {TOKEN}\n[placement]\nauth_section = nova\n"
            f"endpoint_override = {self.server.url}/placement\n"
        )
        conf(["--config-file", str(file)], project="laas", default_config_dirs=[])
        conf.set_override("state_dir", str(self.directory))
        conf.set_override("kind", "nova", group="compute")
        conf.set_override("access", "together", group="sharing")
        for name in ("retry_first", "retry_last"):
            conf.set_override(name, 0.01, group="worker")
        conf.set_override("lease_seconds", 3600.0, group="worker")
        if at is not None:
            _watch(at, self.losses)
        return Composition(
            conf, at=_losing(at, self.losses) if at and self.losses else at or _ignore
        )

    def copy(self, to: Path) -> CloudSite:
        super().copy(to)
        return self.at(to)

    def at(self, directory: Path) -> CloudSite:
        """A site of the same cloud in another directory."""
        made = CloudSite(directory)
        made.server = self.server
        return made


def _ignore(step: str) -> None:
    pass


def _losing(at: Callable[[str], None], losses: Losses) -> Callable[[str], None]:
    def lose(step: str) -> None:
        at(step)
        for word, message in zip(("before", "after"), COMMITS, strict=True):
            if step.startswith(f"{word} commit: "):
                losses.meet(step, message)

    return lose


def _watch(at: Callable[[str], None], losses: Losses | None = None) -> None:
    """Tell each change that this process makes at Nova and placement, once it is made."""
    request = Session.request

    def watched(session: Session, url: str, method: str, **options: Any) -> Any:
        if method == "GET":
            return request(session, url, method, **options)
        address = options.get("endpoint_override") or ""
        step = f"{method} {urlsplit(f'{address}{url}').path}{_verb(options.get('json'))}"
        if losses is not None:
            losses.meet(step, REQUESTS[0])
        answer = request(session, url, method, **options)
        at(step)
        if losses is not None:
            losses.meet(step, REQUESTS[1])
        return answer

    Session.request = watched  # type: ignore[assignment, method-assign]


def _verb(body: object) -> str:
    """What an action does."""
    verb = next(iter(body), "") if isinstance(body, dict) and len(body) == 1 else ""
    return "" if verb in ("", "aggregate") else f" {verb}"


CHANGES = (
    (r"POST \S*/os-aggregates", "Nova: create the aggregate"),
    (r"POST \S*/os-aggregates/\S+ set_metadata", "Nova: set the metadata of an aggregate"),
    (r"POST \S*/os-aggregates/\S+ add_host", "Nova: add a host to the aggregate"),
    (r"POST \S*/os-aggregates/\S+ remove_host", "Nova: remove a host from the aggregate"),
    (r"DELETE \S*/os-aggregates/\S+", "Nova: delete the aggregate"),
    (r"POST \S*/servers/\S+ migrate", "Nova: migrate a server"),
    (r"POST \S*/servers/\S+ confirmResize", "Nova: confirm a migration"),
    (r"PUT \S*/resource_classes/\S+", "placement: create the class of slots"),
    (r"DELETE \S*/resource_classes/\S+", "placement: delete the class of slots"),
    (r"POST \S*/resource_providers.*", "placement: create a provider of slots"),
    (r"DELETE \S*/resource_providers/\S+", "placement: delete a provider of slots"),
    (r"PUT \S*/resource_providers/\S+/inventories.*", "placement: set the slots of a host"),
)


def told(step: str) -> str:
    """The step, without names."""
    for pattern, words in CHANGES:
        if re.fullmatch(pattern, step):
            return words
    assert not re.match("(POST|PUT|DELETE) ", step), f"{step} needs a name"
    return step


Act = Callable[[Composition, Callable[[str], None]], None]
"""What a process does."""

COUNTING: list[bool] = []
"""Holds True in a process that begins with what is crossed with deaths."""


def counted(step: str) -> bool:
    """Files are crossed with deaths elsewhere."""
    return bool(COUNTING) and not step.startswith("os.")


# -- what processes do -------------------------------------------------------------


def rounds(parts: Composition, done: Callable[[], bool], what: str) -> None:
    """Act as the worker until something is done."""

    def seen() -> bool:
        converge(parts)
        return done()

    eventually(seen, what, pause=0.02)


def record(parts: Composition, name: str) -> AllocationRecord | None:
    everything = parts.store.allocations.page()
    found = [r for r in everything if r.name == name and r.state is not State.RELEASED]
    assert len(found) <= 1, f"{name} was allocated twice"
    return found[0] if found else None


def settled(parts: Composition, name: str) -> bool:
    found = record(parts, name)
    return found is not None and found.state is State.ACTIVE and found.change is None


def ask(parts: Composition, asked: AllocationRequest) -> AllocationRecord:
    answer = parts.use_cases(wake=lambda: None).allocations.allocate(caller(asked.name), asked)
    assert isinstance(answer, AllocationView), answer
    return answer.record


def set_up(parts: Composition, acknowledge: Callable[[str], None]) -> None:
    """A fabric whose hosts are pooled, hosts that are shared, and a neighbour there."""
    parts.database.upgrade()
    made = generate(Description(xgft="2;2,4;1,2"))
    parts.store.fabrics.add("f", made.topology, made.inventory)
    rounds(parts, lambda: True, "hosts are pooled")
    for asked in (PART, NEIGHBOUR):
        ask(parts, asked)
        rounds(parts, partial(settled, parts, asked.name), f"{asked.name} is active")


def begin(parts: Composition) -> None:
    """Do what is left from before."""
    converge(parts)
    COUNTING.append(True)


def allocate(parts: Composition, acknowledge: Callable[[str], None]) -> None:
    begin(parts)
    acknowledge(ask(parts, WISH).id)
    rounds(parts, lambda: settled(parts, "a"), "a is active")


GROWTH: dict[str, Any] = {}
"""The change of slots in which one server moves; found once, known to all processes."""


def grow(parts: Composition, acknowledge: Callable[[str], None]) -> None:
    """Ask for what needs a move; a server migrates."""
    begin(parts)
    found = record(parts, "a")
    assert found is not None
    use_cases = parts.use_cases(wake=lambda: None)
    use_cases.allocations.consent(
        caller("a"), found.id, lambda c: replace(c, movable=Movable.RESTART)
    )
    if found.change is None and found.slots != _grown():
        answer = use_cases.sharing.change_slots(caller("a"), found.id, SlotsRequest(**GROWTH))
        assert isinstance(answer, AllocationRecord), answer
        acknowledge(found.id)
    rounds(parts, lambda: settled(parts, "a"), "a has grown")


def _grown() -> SlotDemand:
    return SlotDemand(GROWTH["slots"], GROWTH["bandwidth"])


def release(parts: Composition, acknowledge: Callable[[str], None]) -> None:
    begin(parts)
    if (found := record(parts, "a")) is not None:
        parts.use_cases(wake=lambda: None).allocations.release(caller("a"), found.id)
        acknowledge(found.id)
    rounds(parts, lambda: record(parts, "a") is None, "a is released")


def repeated(act: Act, parts: Composition, acknowledge: Callable[[str], None]) -> None:
    """Clients ask again, and workers go on, when they are told that something does not answer."""
    while True:
        try:
            return act(parts, acknowledge)
        except Unavailable:
            continue


def restart(parts: Composition, acknowledge: Callable[[str], None]) -> None:
    """A worker that starts takes all steps; then nothing differs."""

    def done() -> bool:
        found = record(parts, "a")
        return found is None or settled(parts, "a")

    rounds(parts, done, "what was begun is over")
    assert parts.fabric_leases.reconcile() == []


# -- the judge ---------------------------------------------------------------------


@dataclass
class Seen:
    """Records and cloud between two processes."""

    held: dict[str, dict[str, int]]
    """Name of the allocation -> host -> slots that it holds, those of both places of a change."""
    placed: dict[str, dict[str, int]]
    states: dict[str, str]
    names: dict[str, str]
    """Class of slots -> name."""
    cloud: Cloud

    @classmethod
    def of(cls, site: CloudSite) -> Seen:
        parts = site.parts()
        hosts = parts.store.fabrics.get("f").inventory.host_names
        held: dict[str, dict[str, int]] = {}
        placed: dict[str, dict[str, int]] = {}
        states, names = {}, {}
        for found in parts.store.allocations.page():
            states[found.name] = f"{found.state.value}{' and changing' * bool(found.change)}"
            for places, place in ((held, found.held), (placed, found.placed)):
                if place is not None and place.slots is not None:
                    places[found.name] = {hosts[h]: n for h, n in place.slots.counts.items()}
            if found.name in held:
                names["CUSTOM_LAAS_SLOT_" + found.id.upper().replace("-", "_")] = found.name
        parts.database.engine.dispose()
        return cls(held, placed, states, names, site.server.cloud.copy())

    def open(self) -> dict[str, dict[str, int]]:
        """Slots that placement lets servers claim, by name and host."""
        found: dict[str, dict[str, int]] = {}
        for (host, slot), number in self.cloud.claimable().items():
            assert slot in self.names, f"{slot} is open on {host}, and nobody holds it"
            found.setdefault(self.names[slot], {})[host] = number
        return found

    def problems(self, before: Seen) -> list[str]:
        """Broken promises at any moment, in sentences."""
        found, cloud = [], self.cloud
        for name, by_host in self.open().items():
            for host, number in by_host.items():
                if number > self.held[name].get(host, 0):
                    found.append(f"{number} slots of {name} are open on {host}: {self.held[name]}")
        used = Counter(
            (self.names.get(cloud.slot_of[id], ""), host)
            for place in (cloud.servers, cloud.held)
            for id, (host, _) in place.items()
        )
        for (name, host), number in used.items():
            if not name or number > self.held[name].get(host, 0):
                found.append(f"{number} servers of {name} hold slots on {host}")
        for host in cloud.providers:
            let_in = cloud.accepts(host) - {NOBODY}
            holding = {PROJECTS[name] for name in self.held if host in self.held[name]}
            if not let_in <= holding:
                found.append(f"{host} lets in {let_in}, and {holding} have slots")
        if self.open()["b"] != before.open()["b"]:
            found.append("slots of the neighbour differ")
        return found

    def agrees(self) -> list[str]:
        """What of Nova and placement is not as recorded once all is settled."""
        cloud, found = self.cloud, []
        if self.open() != self.placed:
            found.append(f"open are {self.open()}, recorded {self.placed}")
        if cloud.classes != set(self.names):
            found.append(f"classes {cloud.classes} of {set(self.names)}")
        if any(not child.inventories for child in cloud.below.values()):
            found.append("a provider of slots is empty")
        for host in cloud.providers:
            wanted = {PROJECTS[name] for name in self.placed if host in self.placed[name]}
            if cloud.accepts(host) != wanted | {NOBODY}:
                found.append(f"{host} lets in {cloud.accepts(host)}, wanted are {wanted}")
        if cloud.held or cloud.states:
            found.append(f"servers are not settled: {cloud.held} {cloud.states}")
        return found

    def left(self) -> str:
        """What a dead process left of allocation a, for the page."""
        if "a" not in self.states:
            return "nothing is recorded"
        wanted = Counter(self.held.get("a", {}))
        opened = sum(self.open().get("a", {}).values())
        inside = {
            host
            for aggregate in self.cloud.aggregates.values()
            if aggregate.metadata.get("filter_tenant_id") == PROJECTS["a"]
            for host in aggregate.hosts
        }
        moving = ", a server between two hosts" * bool(self.cloud.held)
        return (
            f"{self.states['a']}: {wanted.total()} slots held, {opened} open, "
            f"{len(inside)} hosts let the project in{moving}"
        )


# -- tests -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server():
    with Server() as server:
        yield server


@pytest.fixture(scope="module")
def empty(server, tmp_path_factory):
    """A site with shared hosts and a neighbour, and its cloud."""
    site = CloudSite(tmp_path_factory.mktemp("slots") / "empty")
    site.server = server
    names = generate(Description(xgft="2;2,4;1,2")).inventory.host_names
    server.cloud = Cloud([name for name in names if name])
    assert in_process(site, set_up) is None
    return site, server.cloud


@pytest.fixture(scope="module")
def taken(empty, tmp_path_factory):
    """The same with slots of a, each with a server."""
    site, cloud = empty
    site.server.cloud = cloud.copy()
    site = site.copy(tmp_path_factory.mktemp("slots") / "taken")
    assert in_process(site, allocate) is None
    (site.directory / "acknowledged").unlink()
    parts, cloud = site.parts(), site.server.cloud
    found = record(parts, "a")
    assert found is not None
    slot = next(name for name in cloud.classes if name.endswith(found.id.upper().replace("-", "_")))
    for host, number in Seen.of(site).placed["a"].items():
        for _ in range(number):
            cloud.boot(host, PROJECTS["a"], slot)
    GROWTH.update(one_move(parts, found))
    parts.database.engine.dispose()
    return site, cloud


def one_move(parts, found):
    """The first growth in which one virtual machine moves."""
    changes = parts.use_cases(wake=lambda: None).sharing
    for slots in range(4, 8):
        for bandwidth in (5.0, 10.0, 20.0, 25.0, 30.0, 33.0, 40.0, 50.0):
            asked = SlotsRequest(slots=slots, bandwidth=bandwidth)
            answer = changes.propose_slots(caller("a"), found.id, asked)
            planned = getattr(answer, "allocation", None)
            if planned is not None and len(planned.slots.moves) == 1:
                return {"slots": slots, "bandwidth": bandwidth}
    raise AssertionError("no growth needs exactly one move")


def crossed(state, act, tmp_path, title):
    """Kill ``act`` at each step in turn, restart, ask again; the judge looks each time."""
    site, cloud = state
    site.server.cloud = cloud.copy()
    whole = site.copy(tmp_path / "whole")
    before = Seen.of(site)
    assert in_process(whole, act) is None
    end = Seen.of(whole)
    assert end.agrees() == []
    site.server.cloud, rows, steps = cloud.copy(), [], set()
    for crashed, step in crashes(site, act, tmp_path / "crashes", counted, 12 // STRIDE, STRIDE):
        seen = Seen.of(crashed)
        assert seen.problems(before) == [], step
        left = seen.left()
        steps.add(told(step))
        acknowledged = (crashed.directory / "acknowledged").exists()
        assert in_process(crashed, restart) is None
        seen = Seen.of(crashed)
        assert seen.problems(before) + seen.agrees() == [], step
        done = (seen.states, seen.placed) == (end.states, end.placed)
        assert done or not acknowledged, f"lost after {step}"
        rows.append([told(step), left, page.DONE if done else REPEATS])
        assert in_process(crashed, act) is None  # the client asks again
        seen = Seen.of(crashed)
        assert seen.problems(before) + seen.agrees() == [], step
        assert (seen.states, seen.placed) == (end.states, end.placed), step
        assert sorted(seen.cloud.servers.values()) == sorted(end.cloud.servers.values()), step
        site.server.cloud = cloud.copy()
    page.tell(title, rows, page.SLOTS)
    site.server.cloud = cloud.copy()
    for message in (*REQUESTS, *COMMITS):
        for lossy, step in lost(site, act, tmp_path / "losses", message):
            seen = Seen.of(lossy)
            assert seen.problems(before) + seen.agrees() == [], (message, step)
            assert (seen.states, seen.placed) == (end.states, end.placed), (message, step)
            assert sorted(seen.cloud.servers.values()) == sorted(end.cloud.servers.values())
    return end, steps


def lost(
    site: CloudSite, act: Act, directory: Path, message: str
) -> Iterator[tuple[CloudSite, str]]:
    """Yield a copy of the site after ``act`` with a message lost, each in turn, and its step."""
    kind, cloud = (*REQUESTS, *COMMITS).index(message), site.server.cloud
    for number in range(1, 1000, LOSSES_STRIDE):
        site.server.cloud = cloud.copy()
        lossy = site.copy(directory / f"{kind}-{number}")
        lossy.losses = Losses(number, message)
        assert in_process(lossy, partial(noted, lossy, act)) is None
        step = (lossy.directory / "lost").read_text()
        if not step:
            assert number > 1, f"{message} was never lost"
            site.server.cloud = cloud
            return
        yield lossy, step


def noted(
    site: CloudSite, act: Act, parts: Composition, acknowledge: Callable[[str], None]
) -> None:
    """Act until nothing is lost any more, and write down what was."""
    repeated(act, parts, acknowledge)
    assert site.losses is not None
    (site.directory / "lost").write_text(site.losses.step)


def test_slots_that_a_worker_was_handing_over_are_handed_over(empty, tmp_path):
    end, steps = crossed(empty, allocate, tmp_path, "Hand over slots of shared hosts")
    assert sum(end.placed["a"].values()) == 4
    assert (
        STRIDE > 1
        or {
            "Nova: add a host to the aggregate",
            "placement: set the slots of a host",
            "placement: create the class of slots",
            "before commit: active",
        }
        <= steps
    )


def test_a_server_that_migrated_when_its_worker_died_arrives(taken, tmp_path):
    _, cloud = taken
    end, steps = crossed(taken, grow, tmp_path, "Change slots, one server migrates")
    before = Counter(cloud.servers.values())
    assert (Counter(end.cloud.servers.values()) - before).total() == 1
    assert (
        STRIDE > 1
        or {
            "Nova: migrate a server",
            "Nova: confirm a migration",
            "placement: set the slots of a host",
        }
        <= steps
    )


def test_slots_that_a_worker_was_taking_back_are_free(taken, tmp_path):
    site, cloud = taken
    left = cloud.copy()
    left.servers.clear()
    left.slot_of.clear()
    end, steps = crossed((site, left), release, tmp_path, "Take slots back")
    assert "a" not in end.placed
    assert (
        STRIDE > 1
        or {
            "placement: delete the class of slots",
            "Nova: delete the aggregate",
            "before commit: free",
        }
        <= steps
    )

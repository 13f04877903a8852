# SPDX-License-Identifier: Apache-2.0

"""The story's judge finds each kind of violation; the story stops at the first one."""

from __future__ import annotations

import pytest

from tests.story.judge import Held, Server, Subnet, problems
from tests.story.scenario import STRANGER, Story

RED, BLUE = "red", "blue"
TOLD = [Held("a", RED, frozenset({"n0", "n1"})), Held("b", BLUE, frozenset({"n2", "n3"}))]
SERVERS = [Server("s0", RED, "n0"), Server("s1", BLUE, "n3"), Server("s2", RED, None)]
LET_IN = {"n0": {RED}, "n1": {RED, "x"}, "n2": {BLUE}, "n3": {BLUE}, "n4": {"x"}}

LEAVES, TOPS = ("0xa0", "0xa1"), ("0xb0", "0xb1")
HOSTS = {"n0": (1, 0), "n1": (2, 1), "n2": (3, 0), "n3": (4, 1), "n4": (5, 0)}
"""LID and leaf; hosts hang on port LID, ports 11 and 12 lead to the two tops."""

UP = {1: 11, 2: 11, 3: 12, 4: 12, 5: 11}
"""The port up that a leaf takes towards a LID."""

KEYS = {1: 0x8001, 2: 0x8001, 3: 0x8002, 4: 0x8002, 5: 0}


def subnet(up=UP, keys=KEYS):
    """Two leaves and two top switches, as the InfiniBand tools print them."""
    links = [
        f"CA {lid} 1 0xc{lid} 4x SDR - SW 20 {lid} {LEAVES[leaf]} ( '{name} mlx5_0' - 'leaf' )"
        for name, (lid, leaf) in HOSTS.items()
    ] + [
        f"SW 30 {1 + number} {top} 4x SDR - SW 20 {port} {leaf} ( 'top' - 'leaf' )"
        for top, port in zip(TOPS, (11, 12), strict=True)
        for number, leaf in enumerate(LEAVES)
    ]
    tables = []
    for number, guid in enumerate(LEAVES):
        tables.append(f"Unicast lids [0x0-0x5] of switch Lid 20 guid {guid} (leaf):")
        for lid, leaf in HOSTS.values():
            tables.append(f"0x{lid:04x} {lid if leaf == number else up[lid]:03d} : (x)")
    for guid in TOPS:
        tables.append(f"Unicast lids [0x0-0x5] of switch Lid 30 guid {guid} (top):")
        tables += [f"0x{lid:04x} {1 + leaf:03d} : (x)" for lid, leaf in HOSTS.values()]

    def run(*words):
        if words[0] == "smpquery":
            return f"   0: 0x7fff 0x{keys[int(words[2])]:04x} 0x0000 \n64 pkeys capacity"
        return "\n".join(links if words[0] == "ibnetdiscover" else tables)

    return Subnet(run).seen()


def judged(told=TOLD, servers=SERVERS, let_in=LET_IN, wires=None):
    return problems(told, servers, let_in, [RED, BLUE], wires or subnet())


def test_all_is_as_told():
    assert judged() == []


@pytest.mark.parametrize(
    ("lie", "found"),
    [
        ({"servers": [Server("s", RED, "n2")]}, "server s of red runs on n2 of blue"),
        ({"servers": [Server("s", RED, "n4")]}, "server s of red runs on n4 of nobody"),
        ({"told": [*TOLD, Held("c", BLUE, TOLD[0].hosts)]}, "n0 was given twice"),
        ({"let_in": LET_IN | {"n4": set()}}, "n4 is open to everybody"),
        ({"let_in": LET_IN | {"n4": {BLUE}}}, "n4 lets in ['blue'], not []"),
        ({"let_in": LET_IN | {"n0": {RED, BLUE}}}, "n0 lets in ['blue', 'red'], not ['red']"),
        ({"let_in": LET_IN | {"n0": {"x"}}}, "n0 lets in [], not ['red']"),
        ({"wires": subnet(keys=KEYS | {2: 0x8002})}, "the hosts of red have different keys"),
        ({"wires": subnet(keys=KEYS | {2: 0x8002})}, "key 0x2 is shared by ['a', 'b']"),
        ({"wires": subnet(keys=KEYS | {2: 0})}, "port 2 of n1 has the keys []"),
        ({"wires": subnet(keys=KEYS | {5: 0x8001})}, "key 0x1 is shared by ['a', 'nobody']"),
        ({"wires": subnet(up=UP | {2: 12})}, "serves ['blue', 'red']"),
        ({"wires": subnet(up=UP | {2: 13})}, "sends LID 2 to port 13"),
    ],
)
def test_each_lie_is_found(lie, found):
    assert any(found in problem for problem in judged(**lie)), judged(**lie)


class Hotel:
    """A site in memory; with ``spill`` a server starts on any host."""

    def __init__(self, hosts=40, spill=False):
        self.free = {f"n{number}" for number in range(hosts)}
        self.all = frozenset(self.free)
        self.spill = spill
        self.held, self.running = {}, []

    def allocate(self, project, hosts):
        if len(self.free) < hosts:
            return None
        self.held[project] = Held(project, project, frozenset(sorted(self.free)[:hosts]))
        self.free -= self.held[project].hosts
        return self.held[project]

    def release(self, held):
        self.free |= self.held.pop(held.project).hosts

    def boot(self, project, count):
        mine = sorted(self.held[project].hosts if project in self.held else ())
        if self.spill:
            mine = sorted(self.all)
        if not mine:
            return 0
        self.running += [Server(str(n), project, mine[n % len(mine)]) for n in range(count)]
        return count

    def delete(self, project):
        self.running = [server for server in self.running if server.project != project]

    def servers(self):
        return self.running

    def let_in(self):
        doors = {host: {"nobody"} for host in self.all}
        for held in self.held.values():
            doors |= {host: {"nobody", held.project} for host in held.hosts}
        return doors

    def subnet(self):
        return None


@pytest.mark.parametrize("at_once", [1, 3])
def test_the_story_comes_to_its_end(at_once):
    told = Story(Hotel(), servers=300, tenants=6, at_once=at_once).tell()
    assert told.problems == []
    assert told.booted >= 300
    assert told.released == told.allocated > 6
    assert told.turned_away >= told.allocated


def test_the_story_stops_where_somebody_runs_elsewhere():
    told = Story(Hotel(spill=True), tenants=6).tell()
    assert any("of nobody" in problem for problem in told.problems)
    assert f"{STRANGER} holds no hosts, and started a server" in told.problems
    assert told.looks == 1

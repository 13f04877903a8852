# SPDX-License-Identifier: Apache-2.0

"""The import recognises the topology of generated fabrics."""

import dataclasses
from collections import Counter

import pytest

from laas_service.adapters.fabric_import import ibnetdiscover
from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.adapters.fabric_import.recovery import Selection, recover
from laas_service.domain.inventory import Cable, Endpoint, PortRef

SERVICES = Selection(exclude=("storage*",), include=("node*",), managers=("sm*",))


def imported(inventory, selection=SERVICES):
    return recover(ibnetdiscover.parse(ibnetdiscover.render(inventory)), selection)


def made(**words):
    return generate(Description(**words))


def kinds(report):
    return Counter(odd.kind for odd in report.irregularities)


def place_of_switch(fabric):
    """GUID -> level of the switch; the numbers that the import chooses do not matter."""
    inventory = fabric.inventory
    return {s.guid: s.level for s in inventory.switches}


REGULAR = [
    {"xgft": "2;4,1;1,1"},
    {"xgft": "2;4,3;1,2"},
    {"xgft": "2;6,4;1,6", "cables": (2, 1)},
    {"xgft": "3;2,2,3;1,2,2"},
    {"xgft": "3;4,3,5;1,2,3"},  # tapered
    {"xgft": "3;3,4,4;1,6,8", "cables": (2, 2)},
    {"xgft": "3;4,2,3;1,1,2"},
    {"xgft": "3;1,2,2;1,2,2"},
    {"xgft": "3;4,4,3;1,4,4", "rails": 2},
    {"xgft": "3;4,8,2;1,4,8", "rails": 4},
    {"xgft": "3;4,3,4;1,3,3", "rails": 2, "wiring": "plane"},
    {"xgft": "2;5,8;1,4", "rails": 8},
]
IRREGULAR = {
    "missing_hosts": 3,
    "missing_cables": 3,
    "extra_cables": 2,
    "subnet_managers": 1,
    "storage_hosts": 2,
    "aggregation_nodes": True,
    "odd_names": True,
}


@pytest.mark.parametrize("words", REGULAR, ids=lambda w: w["xgft"])
def test_regular_fabric_comes_back(words):
    fabric = made(**words)
    result = imported(fabric.inventory)
    assert result.topology == fabric.topology
    assert result.inventory == fabric.inventory
    assert result.report.irregularities == ()


@pytest.mark.parametrize("words", REGULAR[3:6] + REGULAR[8:11], ids=lambda w: w["xgft"])
@pytest.mark.parametrize("seed", range(3))
def test_irregular_fabric_comes_back_and_is_told(words, seed):
    fabric = made(**words, **IRREGULAR, seed=seed)
    result = imported(fabric.inventory)
    assert result.topology == fabric.topology
    assert result.inventory == fabric.inventory
    told = kinds(result.report)
    assert told["extra parallel cable"] == 2
    assert 1 <= told["missing cable"] <= 3
    assert result.report.absent_cables == 3
    beside = {"host beside a subnet manager"} if result.topology.planes > 1 else set()
    assert set(told) == {"extra parallel cable", "missing cable"} | beside
    assert result.report.aggregation_nodes == len(fabric.inventory.switches)


@pytest.mark.parametrize("words", REGULAR, ids=lambda w: w["xgft"])
def test_shape_is_read_from_the_cables_alone(words):
    fabric = made(**words, shuffled=True, aggregation_nodes=True, seed=5)
    result = imported(fabric.inventory)
    assert result.report.irregularities == ()
    assert result.topology.tree == fabric.topology.tree
    assert result.topology.rails == fabric.topology.rails
    assert result.topology.absent_links == frozenset()
    assert result.topology.absent_hosts == frozenset()
    assert place_of_switch(result) == place_of_switch(fabric)
    ours, theirs = fabric.inventory, result.inventory
    per_pod, per_group = fabric.topology.tree.l2_per_pod, fabric.topology.tree.spines_per_group
    leaves = fabric.topology.tree.m[1]
    for width, group in ((leaves, "leaf_guids"), (per_group, "spine_guids")):
        assert _rows(getattr(ours, group), width) == _rows(getattr(theirs, group), width)
    assert _columns(ours.l2_guids, per_pod) == _columns(theirs.l2_guids, per_pod)
    assert _rows(ours.l2_guids, per_pod) == _rows(theirs.l2_guids, per_pod)
    assert leaf_groups(fabric) == leaf_groups(result)


def _rows(guids, width):
    return {frozenset(guids[i : i + width]) for i in range(0, len(guids), width)} if width else {}


def _columns(guids, width):
    return {frozenset(guids[i::width]) for i in range(width)}


def leaf_groups(fabric):
    topology, leaf_guids = fabric.topology, fabric.inventory.leaf_guids
    return {
        frozenset(leaf_guids[leaf] for leaf in topology.leaves_of_group(group))
        for group in range(topology.groups)
    }


def test_spines_shared_by_l2_indices_are_repeated():
    """A director: L2 switches 0 and 1 of every pod go to the same spines."""
    fabric = made(xgft="3;4,4,3;1,4,2")
    inventory, tree = fabric.inventory, fabric.topology.tree
    shared = {}
    for i in range(4):
        for j in range(2):
            shared[inventory.spine_guids[2 * i + j]] = inventory.spine_guids[4 * (i // 2) + j]

    def moved(cable):
        if cable.upper.guid not in shared:
            return cable
        port = cable.upper.port + (tree.m[2] if cable.link.l2 % 2 else 0)
        return dataclasses.replace(cable, upper=PortRef(shared[cable.upper.guid], port))

    director = dataclasses.replace(
        inventory,
        cables=tuple(moved(cable) for cable in inventory.cables),
        switches=tuple(
            dataclasses.replace(s, ports=8)
            for s in inventory.switches
            if shared.get(s.guid, s.guid) == s.guid
        ),
    )
    result = imported(director)
    assert result.topology == fabric.topology
    assert result.inventory.spine_guids == tuple(shared[g] for g in inventory.spine_guids)
    assert result.report.switches == (12, 12, 4)
    assert result.report.irregularities == ()


class TestOddities:
    """The import names each irregularity by its ends and recognises the rest of the fabric."""

    words = {"xgft": "3;4,4,3;1,4,4"}

    def put(self, *, cables=(), endpoints=(), drop=lambda cable: False, words=None, **selection):
        fabric = made(**(words or self.words))
        inventory = fabric.inventory
        switches = tuple(dataclasses.replace(s, ports=40) for s in inventory.switches)
        changed = dataclasses.replace(
            inventory,
            switches=switches,
            cables=(*(c for c in inventory.cables if not drop(c)), *cables(inventory))
            if cables
            else tuple(c for c in inventory.cables if not drop(c)),
            endpoints=(*inventory.endpoints, *(endpoints(inventory) if endpoints else ())),
        )
        return fabric, imported(changed, Selection(**selection))

    @pytest.mark.parametrize(
        ("kind", "ends"),
        [
            ("cable inside a level", lambda i: (i.leaf_guids[0], i.leaf_guids[5])),
            ("cable inside a level", lambda i: (i.l2_guids[0], i.l2_guids[1])),
            ("cable past a level", lambda i: (i.leaf_guids[0], i.spine_guids[0])),
            ("cable between pods", lambda i: (i.leaf_guids[0], i.l2_guids[5])),
            ("cable to a foreign spine", lambda i: (i.l2_guids[0], i.spine_guids[5])),
            ("extra parallel cable", lambda i: (i.leaf_guids[0], i.l2_guids[0])),
            ("extra parallel cable", lambda i: (i.l2_guids[0], i.spine_guids[0])),
        ],
    )
    def test_cable_astray(self, kind, ends):
        names: list[str] = []

        def cables(inventory):
            a, b = ends(inventory)
            names.extend(f"{inventory.switch_of_guid[g].name}[{g:#018x}] port 40" for g in (a, b))
            return [Cable(PortRef(a, 40), PortRef(b, 40))]

        fabric, result = self.put(cables=cables)
        assert result.topology == fabric.topology
        (odd,) = result.report.irregularities
        assert odd.kind == kind
        assert set(odd.cables[0]) == set(names)
        assert result.report.irregular_cables == 1

    @pytest.mark.parametrize("level", ["l2_guids", "spine_guids"])
    @pytest.mark.parametrize("count", [1, 3])
    def test_hosts_above_the_leaves(self, level, count):
        def endpoints(inventory):
            at = getattr(inventory, level)[1]
            return [
                Endpoint(0xABC0 + n, f"sm{n} mlx5_0", PortRef(at, 30 + n)) for n in range(count)
            ]

        fabric, result = self.put(endpoints=endpoints)
        assert result.topology == fabric.topology
        assert kinds(result.report) == {"host above the leaves": count}
        assert any("sm0" in odd.cables[0][1] for odd in result.report.irregularities)

    def test_a_spine_with_a_host_joins_no_pods_where_each_has_one_l2(self):
        def endpoints(inventory):
            return [Endpoint(0xABC1, "sm0 mlx5_0", PortRef(inventory.spine_guids[1], 30))]

        fabric, result = self.put(words={"xgft": "3;4,4,3;1,1,4"}, endpoints=endpoints)
        assert result.topology == fabric.topology
        assert kinds(result.report) == {"host above the leaves": 1}

    def test_second_adapter_on_a_leaf(self):
        def endpoints(inventory):
            return [Endpoint(0xABC1, "node03 mlx5_7", PortRef(inventory.leaf_guids[0], 30))]

        fabric, result = self.put(endpoints=endpoints)
        assert result.topology == fabric.topology
        assert kinds(result.report) == {"extra adapter": 1}

    def test_host_on_two_leaves_of_a_one_rail_fabric_is_kept_out(self):
        def endpoints(inventory):
            return [Endpoint(0xABC1, "node03 mlx5_7", PortRef(inventory.leaf_guids[1], 30))]

        _, result = self.put(endpoints=endpoints)
        assert "node03" not in result.inventory.host_names
        assert kinds(result.report) == {"host breaks the rail pattern": 1}
        assert result.report.hosts == 47

    def test_rail_pattern_is_by_majority(self):
        words = {"xgft": "3;4,4,3;1,4,4", "rails": 2}

        def endpoints(inventory):
            leaf = inventory.leaf_guids
            return [
                Endpoint(0xABC1, "cross mlx5_0", PortRef(leaf[0], 30)),
                Endpoint(0xABC3, "cross mlx5_1", PortRef(leaf[3], 30)),
                Endpoint(0xABC5, "login mlx5_0", PortRef(leaf[2], 30)),
            ]

        fabric, result = self.put(words=words, endpoints=endpoints)
        assert result.topology == fabric.topology
        out = result.report.irregularities
        assert [x.kind for x in out] == ["host breaks the rail pattern"] * 2
        assert {x.detail.split()[0] for x in out} == {"cross", "login"}
        assert [len(x.cables) for x in sorted(out, key=lambda x: x.detail)] == [2, 1]

    def test_leaf_that_lost_a_spine_cable_and_an_unpopulated_leaf(self):
        fabric, result = self.put(
            drop=lambda cable: cable.link is not None and tuple(cable.link) == (1, 2, 3)
        )
        assert result.topology.absent_links == {
            link for link in fabric.inventory.cable_of_link if tuple(link) == (1, 2, 3)
        }
        missing = [x for x in result.report.irregularities if x.kind == "missing cable"]
        assert len(missing) == 2  # the leaf link and the spine link of these numbers
        assert all(x.detail == "0 of 1 cables" for x in missing)

    def test_leaf_without_hosts_stays_a_leaf(self):
        fabric = made(xgft="3;4,4,3;1,4,4")
        inventory = fabric.inventory
        gone = inventory.leaf_guids[6]
        changed = dataclasses.replace(
            inventory, endpoints=tuple(e for e in inventory.endpoints if e.at.guid != gone)
        )
        result = imported(changed)
        assert result.topology.tree == fabric.topology.tree
        assert result.topology.absent_hosts == {24, 25, 26, 27}
        assert kinds(result.report) == {"leaf without hosts": 1}

    def test_short_pod(self):
        fabric = made(xgft="3;4,4,3;1,4,4")
        inventory = fabric.inventory
        gone = set(inventory.leaf_guids[9:])
        changed = dataclasses.replace(
            inventory,
            switches=tuple(s for s in inventory.switches if s.guid not in gone),
            cables=tuple(c for c in inventory.cables if c.lower.guid not in gone),
            endpoints=tuple(e for e in inventory.endpoints if e.at.guid not in gone),
        )
        result = imported(changed)
        assert result.topology.tree == fabric.topology.tree
        assert result.report.pods == ((4, 4), (4, 4), (1, 4))
        assert result.inventory.leaf_guids[9:] == (0, 0, 0)
        assert result.report.irregularities == ()
        assert len(result.topology.absent_links) == 3 * 4

    def test_slow_cable(self):
        text = ibnetdiscover.render(made(xgft="2;4,3;1,2").inventory)
        cabling = ibnetdiscover.parse(text)
        slow = {0x0002C90201000000, 0x0002C90202000000}
        wires = tuple(
            wire._replace(speed="4xEDR") if {wire.a.guid, wire.b.guid} == slow else wire
            for wire in cabling.wires
        )
        (odd,) = recover(dataclasses.replace(cabling, wires=wires)).report.irregularities
        assert odd.kind == "slow cable"
        assert "4xEDR where most run 4xHDR" in odd.detail
        assert [end.split("[")[0] for end in odd.cables[0]] == ["leaf-0-0", "l2-0-0"]

    def test_nameless_adapters_are_no_host(self):
        def endpoints(inventory):
            name = "MT4129 ConnectX7   Mellanox Technologies"
            return [
                Endpoint(0xABC1 + 2 * n, name, PortRef(inventory.leaf_guids[n], 30)) for n in (0, 1)
            ]

        fabric, result = self.put(endpoints=endpoints)
        assert result.topology == fabric.topology
        (odd,) = result.report.irregularities
        assert odd.kind == "adapters without a host name"
        assert len(odd.cables) == 2


HOSTILE = [
    "--property",
    "-rf",
    "n\0",
    "n\x1b[2J",
    "n\x9b2J",
    "\u202egnp",
    "n\u2028m",
    "n\u2066m",
    "n;reboot",
    "nöde",
    "n" * 256,
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_host_that_compute_would_refuse_is_kept_out_by_its_line(name):
    """The other hosts are imported; nothing that a person reads has a control character."""
    text = ibnetdiscover.render(made(xgft="3;2,2,3;1,2,2").inventory)
    text = text.replace("node05", name)
    [line] = [
        n for n, row in enumerate(text.split("\n"), 1) if row.startswith("Ca") and name in row
    ]
    result = recover(ibnetdiscover.parse(text))
    (odd,) = result.report.irregularities
    assert odd.kind == "host name that compute refuses"
    assert f"(line {line}) kept out" in odd.detail
    names = [f"node{number:02d}" for number in range(12) if number != 5]
    assert sorted(filter(None, result.inventory.host_names)) == names
    assert all(row.isprintable() for row in result.report.lines())
    assert all(endpoint.name.isprintable() for endpoint in result.inventory.endpoints)


def test_switches_and_skipped_lines_are_shown_without_control_characters():
    text = ibnetdiscover.render(made(xgft="2;2,2;1,2").inventory)
    result = recover(
        ibnetdiscover.parse("\x1b[2Jshell$ ibnetdiscover\n" + text.replace("l2-", "\x1b["))
    )
    assert all(row.isprintable() for row in result.report.lines())
    assert r"\x1b[0-0" in {switch.name for switch in result.inventory.switches}


def test_planes_that_never_meet():
    """Every rail is a plane of its own, and there are no spines."""
    fabric = made(xgft="3;4,3,2;1,3,1", rails=2, wiring="plane")
    inventory = fabric.inventory
    spines = set(inventory.spine_guids)
    changed = dataclasses.replace(
        inventory,
        switches=tuple(s for s in inventory.switches if s.level < 3),
        cables=tuple(c for c in inventory.cables if c.upper.guid not in spines),
    )
    result = imported(changed)
    assert (result.topology.rails, result.topology.planes) == (2, 2)
    assert result.topology.tree == fabric.topology.tree
    assert result.report.switches == (6, 6)
    assert result.report.irregularities == ()


class TestPlanes:
    """Leaf groups over two planes: pods 0 and 1 pair up, and 2 and 3."""

    words = {"xgft": "3;4,3,4;1,3,3", "rails": 2, "wiring": "plane"}

    def put(self, leaf_of, words=None):
        """Import with the adapters of each leaf on another leaf; same ports there."""
        fabric = made(**(words or self.words))
        inventory, tree = fabric.inventory, fabric.topology.tree
        endpoints = []
        for end in inventory.endpoints:
            pod, leaf, _ = fabric.topology.ports_of(end.host)[end.rail]
            there = inventory.leaf_guids[tree.leaf_id(*leaf_of(pod, leaf))]
            endpoints.append(dataclasses.replace(end, at=end.at._replace(guid=there)))
        return fabric, imported(dataclasses.replace(inventory, endpoints=tuple(endpoints)))

    def test_groups_over_other_pods_are_kept_out(self):
        _, result = self.put(
            lambda pod, leaf: (4 - pod, leaf) if pod % 2 and leaf == 2 else (pod, leaf)
        )
        assert kinds(result.report) == {"host breaks the rail pattern": 8}
        assert all("in other pods" in odd.detail for odd in result.report.irregularities)
        assert (result.report.hosts, result.topology.planes) == (16, 2)

    def test_groups_inside_one_pod_are_kept_out(self):
        swap = {(1, 1): (0, 2), (0, 2): (1, 1)}
        _, result = self.put(lambda pod, leaf: swap.get((pod, leaf), (pod, leaf)))
        assert kinds(result.report) == {"host breaks the rail pattern": 8}
        assert (result.report.hosts, result.topology.planes) == (16, 2)

    def test_groups_in_other_proportions_are_kept_out(self):
        """Four rails, two in each pod; but two groups with one rail here and three there."""
        swap = {(0, 5): (1, 5), (1, 5): (0, 5)}

        def leaf_of(pod, leaf):
            spread = ((pod + leaf % 4 // 2) % 2, leaf)
            return swap.get(spread, spread)

        _, result = self.put(leaf_of, {"xgft": "3;2,8,2;1,2,2", "rails": 4})
        assert kinds(result.report) == {"host breaks the rail pattern": 4}
        assert (result.report.hosts, result.topology.planes) == (4, 2)

    def test_rails_follow_the_planes_where_adapters_are_plugged_in_crosswise(self):
        fabric, result = self.put(lambda pod, leaf: (pod ^ 1, leaf) if leaf == 2 else (pod, leaf))
        assert result.topology == fabric.topology
        assert result.report.irregularities == ()


def test_subnet_managers_have_the_highest_lids():
    inventory = imported(made(xgft="2;4,6;1,4", **IRREGULAR).inventory).inventory
    (manager,) = (e for e in inventory.endpoints if e.name.startswith("sm"))
    assert inventory.lids[manager.guid] == max(inventory.lids.values())
    hosts = [inventory.lids[e.guid] for e in inventory.endpoints if e.host is not None]
    assert sorted(hosts) == list(range(1, len(hosts) + 1))


@pytest.mark.parametrize("ports", range(40, 70))
def test_highest_lid_is_no_multiple_of_64(ports):
    inventory = made(xgft=f"2;1,{ports};1,4").inventory
    assert max(inventory.lids.values()) % 64
    assert len(set(inventory.lids.values())) == len(inventory.lids)

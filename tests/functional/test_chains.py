# SPDX-License-Identifier: Apache-2.0

"""Histories of requests, repairs and moves; the judge reads the routing chains after each step."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from laas_service.adapters.fabric_import import ibnetdiscover
from laas_service.adapters.fabric_import.recovery import Selection, recover
from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, Request
from laas_service.domain.common_plane import NO_PLANE, CommonPlane
from laas_service.domain.errors import LimitExceeded
from laas_service.domain.faults.repair import repair
from laas_service.domain.inventory import Inventory
from laas_service.domain.ledger import Ledger
from laas_service.domain.moves.bridge import bridge
from laas_service.domain.policies import POLICIES
from laas_service.domain.topology import Topology
from laas_service.messages import FabricState, TenantRoute
from opensm_writer import desired
from tests.chains import chain_texts, judged
from tests.functional.test_manage import Tool, elsewhere, tenants
from tests.shared import SHARED, needs_shared
from tests.unit.domain.verification.sound import TOPOLOGIES, inventory_of

REQUESTS = 200

DUMPS = ("lassen-edr-2019", "dgx-ndr-2025", "lab4sw-2023")
"""All folders' fabrics with cables; the import refuses the others, which have none."""

ROOMY = ("lassen-edr-2019", "dgx-ndr-2025")
"""Those of them that have room for two tenants with links; the laboratory has four switches."""

GROUPS, TOPOS, CHAINS = "port_groups.conf", "topologies.conf", "chains.conf"

Break = Callable[[dict[str, str], str, str], None]
"""Changes the files of a set in one place; the ids are those of two tenants."""

ISOLATING = sorted(name for name, policy in POLICIES.items() if policy.isolating)


class History:
    """A fabric whose chains are judged after each step, and twice while a placement changes."""

    def __init__(
        self, topology: Topology, inventory: Inventory, plane: CommonPlane, seed: int
    ) -> None:
        self.ledger, self.inventory, self.chance = Ledger(topology), inventory, Random(seed)
        self.ledger.withhold(plane)
        self.seen: Counter[str] = Counter()

    def run(self, requests: int) -> Counter[str]:
        """Judge ``requests`` requests, with faults, repairs and moves between them."""
        steps = (self.fail, self.mend, self.move, self.release, self.release)
        for number in range(requests):
            self.request(f"t{number}")
            self.chance.choice(steps)()
        return self.seen

    def request(self, id: str) -> None:
        topology = self.ledger.topology
        most = self.chance.choice((topology.hosts_per_group, topology.hosts // 3 + 1))
        policy = POLICIES[self.chance.choice(ISOLATING)]()
        found = admit(policy, self.ledger, Request(id, self.chance.randint(1, most)))
        self.seen["admitted" if isinstance(found, Allocation) else "refused"] += 1
        self.judge()

    def release(self) -> None:
        if self.ledger.allocations:
            self.ledger.release(self.one())
            self.seen["released"] += 1
            self.judge()

    def fail(self) -> None:
        cables = self.inventory.cable_of_link
        self.ledger.fail_link(self.chance.choice(sorted(cables, key=repr)))
        self.judge()

    def mend(self) -> None:
        """Replace the failed links of an allocation; then the failed cables work again."""
        broken = [
            id
            for id, a in self.ledger.allocations.items()
            if not self.ledger.failed_links.isdisjoint(a.links(self.ledger.topology))
        ]
        for id in broken:
            old = self.ledger.allocations[id]
            new = repair(self.ledger, old)
            if isinstance(new, Allocation):
                self.change(old, new)
                self.seen["repaired"] += 1
        for link in list(self.ledger.failed_links):
            self.ledger.repair_link(link)

    def move(self) -> None:
        """Place an allocation anew beside itself, if there is room, and move it there."""
        if not self.ledger.allocations:
            return
        old = self.ledger.allocations[self.one()]
        new = admit(POLICIES[old.policy](), self.ledger, Request("next", old.requested))
        if isinstance(new, Allocation):
            self.ledger.release("next")
            self.change(old, replace(new, id=old.id))
            self.seen["moved"] += 1

    def change(self, old: Allocation, new: Allocation) -> None:
        links = bridge(self.ledger, old, new)
        held = old.joined(new) if links is None else old.joined(new).joined(links)
        self.ledger.change(held)
        exchanged = bool(old.beyond(new).size)
        both = (held,) if exchanged and links is not None else (old, new)
        if exchanged:
            self.seen["bridged" if links is not None else "parted"] += 1
        for now, beside in ((old, new), (new, old)):
            self.judge(TenantRoute(now, 0x7000, beside, bridge=links), both)
        self.ledger.change(new)
        self.judge()

    def one(self) -> str:
        return self.chance.choice(sorted(self.ledger.allocations))

    def judge(self, changing: TenantRoute | None = None, both: tuple[Allocation, ...] = ()) -> None:
        held = dict(sorted(self.ledger.allocations.items()))
        routes = {id: TenantRoute(a, 0x100 + n) for n, (id, a) in enumerate(held.items())}
        placements = {}
        if changing is not None:
            routes[changing.allocation.id] = changing
            placements[changing.allocation.id] = both
        failed = sorted(self.ledger.failed_links, key=self.ledger.topology.tree.link_id)
        state = FabricState(
            "site",
            1,
            self.ledger.topology,
            self.inventory,
            tuple(routes.values()),
            tuple(failed),
            self.ledger.shared_plane,
        )
        old_release = bool(self.chance.getrandbits(1))
        try:
            files = chain_texts(state, one_rule_per_group=old_release)
        except LimitExceeded:
            linked = sum(any(r.allocation.links(state.topology)) for r in routes.values())
            assert linked > desired.MAX_TOPOLOGIES - 1 - bool(state.shared_plane.l2)
            self.seen["beyond the limit"] += 1
            return
        verdict = judged(state, files, list(held.values()), placements, one_rule=old_release)
        assert verdict.violations == [], (changing, both)
        self.seen["judged"] += 1
        self.seen["ports"] += verdict.ports


def planes(topology: Topology) -> list[CommonPlane]:
    """No plane, and one of an L2 index if tenants keep another."""
    return [NO_PLANE, *([CommonPlane.of(topology.tree, (0,))] * (topology.tree.l2_per_pod > 1))]


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_history_keeps_the_tenants_apart(name):
    topology, total = TOPOLOGIES[name], Counter[str]()
    for plane in planes(topology):
        seen = History(topology, inventory_of(topology), plane, 24).run(REQUESTS)
        assert seen["judged"] > REQUESTS
        total += seen
    assert min(total["repaired"], total["bridged"], total["ports"]) > 0, total


@needs_shared
@pytest.mark.parametrize("name", DUMPS)
def test_every_history_on_a_real_fabric_keeps_the_tenants_apart(name):
    path = SHARED / "fabrics" / f"{name}.ibnetdiscover.txt"
    fabric = recover(ibnetdiscover.parse(path.read_text(), path.name), Selection())
    for plane in planes(fabric.topology):
        seen = History(fabric.topology, fabric.inventory, plane, 24).run(REQUESTS)
        assert seen["judged"] + seen["beyond the limit"] > REQUESTS


@needs_shared
@pytest.mark.parametrize("name", ROOMY)
def test_ten_ways_to_break_the_chains_of_a_real_fabric_are_caught(name):
    """Each changes one thing of a tenant that the dump's fabric holds beside another one."""
    path = SHARED / "fabrics" / f"{name}.ibnetdiscover.txt"
    fabric = recover(ibnetdiscover.parse(path.read_text(), path.name), Selection())
    topology, ledger = fabric.topology, Ledger(fabric.topology)
    size = min(topology.hosts // 3, 2 * topology.hosts_per_group)
    for id in ("one", "two"):
        admit(POLICIES["jigsaw"](), ledger, Request(id, max(size, topology.hosts_per_group + 1)))
    tenants = tuple(TenantRoute(a, 0x100 + n) for n, a in enumerate(ledger.allocations.values()))
    linked = [t.allocation.id for t in tenants if any(t.allocation.links(topology))]
    site = FabricState("site", 1, topology, fabric.inventory, tenants)
    good = chain_texts(site)
    record = list(ledger.allocations.values())
    assert judged(site, good, record).violations == []
    for way, change in BREAKS.items():
        files = dict(good)
        change(files, *linked)
        assert files != good, way
        assert judged(site, files, record).violations != [], way


def _group(files: dict[str, str], name: str) -> re.Match[str]:
    found = re.search(rf"port-group\nname: {name}\n(.*\n)*?end-port-group\n", files[GROUPS])
    assert found is not None
    return found


def _in_group(old: str, new: str, kind: str = "-sw") -> Break:
    """Replace the first match of a pattern in a group of the first tenant."""

    def change(files: dict[str, str], one: str, two: str) -> None:
        group = _group(files, f"laas-{one}{kind}")
        text = re.sub(old, new, group[0], count=1)
        files[GROUPS] = files[GROUPS].replace(group[0], text)

    return change


def _with_ports_of_the_other(files: dict[str, str], one: str, two: str) -> None:
    """A rule of the other tenant's switches stands in the first one's group, too."""
    rule = re.findall("port-guid: .*\n", _group(files, f"laas-{two}-sw")[0])[-1]
    group = _group(files, f"laas-{one}-sw")[0]
    files[GROUPS] = files[GROUPS].replace(
        group, group.replace("end-port-group", f"{rule}end-port-group")
    )


def _with_an_adapter_of_the_other(files: dict[str, str], one: str, two: str) -> None:
    theirs = re.findall("0x[0-9a-f]{16}", _group(files, f"laas-{two}-hca")[0])[0]
    group = _group(files, f"laas-{one}-hca")[0]
    files[GROUPS] = files[GROUPS].replace(
        group, group.replace("port-guid: ", f"port-guid: {theirs}, ", 1)
    )


def _in(name: str, old: str, new: str) -> Break:
    def change(files: dict[str, str], one: str, two: str) -> None:
        given = {"one": re.escape(one), "two": two}
        files[name] = re.sub(old.format(**given), new.format(**given), files[name], count=1)

    return change


def _with_roots_of_the_other(files: dict[str, str], one: str, two: str) -> None:
    files[f"engines/{one}.roots"] = files[f"engines/{two}.cn"]


def _without_the_end_nodes(files: dict[str, str], one: str, two: str) -> None:
    del files[f"engines/{one}.cn"]


BREAKS: dict[str, Break] = {
    "ports of the other tenant": _with_ports_of_the_other,
    "a switch with all of its ports": _in_group(r"(0x[0-9a-f]{16})@[\d/]+", r"\1"),
    "one end of a cable": _in_group(r"@(\d+)/", "@"),
    "another port of a switch": _in_group(r"@(\d+)", "@254"),
    "an adapter of the other tenant": _with_an_adapter_of_the_other,
    "an adapter left out": _in_group("port-guid: 0x[0-9a-f]{16}, ", "port-guid: ", "-hca"),
    "the other tenant's topology": _in(TOPOS, "sw-grp: laas-{one}-sw", "sw-grp: laas-{two}-sw"),
    "a step over the whole fabric": _in(CHAINS, "topology: 1\n", "topology: 0\n"),
    "roots that are no switches": _with_roots_of_the_other,
    "end nodes that are missing": _without_the_end_nodes,
}


@needs_shared
def test_every_dump_with_cables_is_judged():
    found = {path.name.removesuffix(".ibnetdiscover.txt") for path in SHARED.glob("fabrics/*.txt")}
    assert found == set(DUMPS)


def test_the_command_judges_a_published_set(tmp_path, capsys):
    tool = Tool(tmp_path, capsys)
    tool("db", "upgrade")
    (tmp_path / "f.json").write_text('{"xgft": "3;4,4,2;1,4,4", "rails": 2}')
    tool("fabric", "import", tmp_path / "f.json")
    tenants(tool.store(), "f", 5, 3)
    published = chain_texts(tool.store().fabrics.routed("f"))
    for name, text in published.items():
        (tmp_path / "set" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "set" / name).write_text(text)
    verify = "fabric", "verify", "--chains", tmp_path / "set"
    assert "no violations in the record and 40 switch ports of routing chains" in tool(*verify)
    (verdict,) = json.loads(tool(*verify, "--json"))["fabrics"]
    assert verdict["chains"] == {"ports": 40, "apart": 0, "engines": {"t0": "ftree", "t1": "ftree"}}
    groups = tmp_path / "set" / "port_groups.conf"
    groups.write_text(re.sub("@[0-9/]+", "", groups.read_text()))
    assert "not its own" in tool(*verify, rc=1)
    rule = re.search("port-guid: .*\n", published["port_groups.conf"])
    assert rule is not None
    groups.write_text(published["port_groups.conf"].replace(rule[0], rule[0] * 2, 1))
    tool(*verify)
    with (tmp_path / "laas.conf").open("a") as config:
        config.write("[opensm]\none_rule_per_group = true\n")
    assert "has 2 rules, not one rule" in tool(*verify, rc=1)
    assert "chains.conf" in tool("fabric", "verify", "--chains", tmp_path, rc=2)
    again = tmp_path / "again.json"
    (tmp_path / "f.json").write_text("2;2,2;1,2")
    tool("fabric", "generate", tmp_path / "f.json", "--format", "snapshot", "--output", again)
    again.write_text(elsewhere(again.read_text()))
    tool("fabric", "import", again, "--id", "g")
    assert "name the fabric that --chains is of" in tool(*verify, rc=2)

# SPDX-License-Identifier: Apache-2.0

"""The judge of routing chains accepts what is published, and catches files broken on purpose."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, Request
from laas_service.domain.common_plane import CommonPlane
from laas_service.domain.ledger import Ledger
from laas_service.domain.moves.bridge import bridge
from laas_service.domain.policies import POLICIES
from laas_service.domain.policies.jigsaw import Jigsaw
from laas_service.domain.verification.chains import ChainVerdict
from laas_service.messages import FabricState, TenantRoute
from opensm_writer import desired
from tests.chains import DIRECTORY, chain_texts, judged
from tests.unit.domain.verification.sound import PLANES, TOPOLOGIES, inventory_of
from tests.unit.opensm_writer.states import POD, TINY, WIDE, state

PLANE = CommonPlane.of(TINY.topology.tree, (0,))

Files = dict[str, str]


def shared_state() -> FabricState:
    """Two tenants beside a common plane."""
    ledger = Ledger(TINY.topology)
    ledger.withhold(PLANE)
    tenants = [admit(Jigsaw(), ledger, Request(id, 4)) for id in ("a", "b")]
    assert all(isinstance(tenant, Allocation) for tenant in tenants)
    return replace(state(ledger.allocations.values()), shared_plane=PLANE)


def test_the_verdict_on_the_golden_tenants():
    verdict = judged(state(), chain_texts(state()))
    assert verdict == ChainVerdict([], 31, 0, {"a.pod": "ftree", "wide_0": "ftree"})
    assert verdict.adaptive == []


@pytest.mark.parametrize(("plane", "one_rule"), [(False, True), (True, False)])
@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_published_chains_keep_every_tenant_on_its_links(name, policy, plane, one_rule):
    topology, ledger = TOPOLOGIES[name], Ledger(TOPOLOGIES[name])
    shared = CommonPlane.of(topology.tree, (0,)) if plane else CommonPlane()
    ledger.withhold(shared)
    for number, hosts in enumerate((7, 3, 9, 2, 5, 1, 4, 6, 8)):
        admit(POLICIES[policy](), ledger, Request(f"t{number}", hosts))
    routes = (TenantRoute(a, 0x100 + int(id[1:])) for id, a in sorted(ledger.allocations.items()))
    inventory = inventory_of(topology)
    site = FabricState("site", 1, topology, inventory, tuple(routes), (), shared)
    verdict = judged(site, chain_texts(site, one_rule_per_group=one_rule), one_rule=one_rule)
    assert verdict.violations == []
    linked = [id for id, a in ledger.allocations.items() if any(a.links(topology))]
    assert sorted(verdict.engines) == sorted(linked)
    apart = topology is PLANES and POLICIES[policy].isolating
    assert bool(verdict.apart) <= apart or topology.rails > 1


def test_ports_on_rails_apart_are_counted_because_the_base_step_routes_them():
    ledger = Ledger(PLANES)
    admit(Jigsaw(), ledger, Request("a", 2))
    (alone,) = ledger.allocations.values()
    site = FabricState("site", 1, PLANES, inventory_of(PLANES), (TenantRoute(alone, 0x100),))
    assert not any(alone.links(PLANES))
    verdict = judged(site, chain_texts(site))
    assert (verdict.violations, verdict.apart) == ([], 4)  # each host to the other's other rail


@pytest.fixture
def exchanged():
    """Two placements of one tenant without a common host."""
    ledger = Ledger(TINY.topology)
    for id in ("old", "new"):
        admit(Jigsaw(), ledger, Request(id, 4))
    return tuple(replace(ledger.allocations[id], id="t") for id in ("old", "new"))


def test_where_nothing_joins_the_hosts_of_a_move_the_chains_have_either_placement(exchanged):
    old, new = exchanged
    for now, beside in ((old, new), (new, old)):
        changing = replace(state(), tenants=(TenantRoute(now, 0x100, beside),))
        files = chain_texts(changing)
        assert judged(changing, files, placements={"t": (old, new)}).violations == []
        assert judged(changing, files, placements={"t": (beside,)}).violations != []


def test_the_chains_of_a_tenant_that_moves_join_old_and_new_hosts(exchanged):
    """Also of one that gives hosts back: its servers may be on them until the routes go."""
    old, new = exchanged
    ledger = Ledger(TINY.topology)
    ledger.claim(old)
    joins = bridge(ledger, old, new)
    assert joins is not None
    assert any(joins.links(TINY.topology))
    grown = old.joined(new).joined(joins)
    nothing = replace(joins, groups=(), columns=())
    for now, beside, links in ((old, new, joins), (new, old, joins), (new, grown, nothing)):
        changing = replace(state(), tenants=(TenantRoute(now, 0x100, beside, bridge=links),))
        files = chain_texts(changing)
        verdict = judged(changing, files, placements={"t": (grown,)})
        assert verdict.violations == []
        assert verdict.engines == {"t": "minhop"}
        assert verdict.apart == 0
        whole = beside == grown
        assert whole is (judged(changing, files, placements={"t": (now, beside)}).violations == [])
        bare = desired.chains(changing, moves=False)
        assert [step.engine for step in bare.steps] == ["updn", "ftree"]
    alone = replace(state(), tenants=(TenantRoute(old, 0x100, new, bridge=nothing),))
    found = judged(alone, chain_texts(alone), placements={"t": (grown,)}).violations
    assert any("does not join" in text for text in found), "without the bridge"


def test_a_child_without_links_is_routed_over_the_links_of_its_container():
    wide = replace(WIDE, container=True, policy="jigsaw")
    topology = TINY.topology
    child = replace(
        wide, id="child", policy="baseline", parent=wide.id, container=False, columns=()
    )
    child = replace(child, groups=tuple(share._replace(uplinks=0) for share in wide.groups))
    site = replace(state(), tenants=(TenantRoute(child.over(wide), 0x100),))
    assert judged(site, chain_texts(site), record=[wide, child]).violations == []
    assert any(child.over(wide).links(topology))
    stranger = replace(child, parent=None)
    found = judged(site, chain_texts(site), record=[stranger, POD]).violations
    assert any("not its own" in text for text in found)


# -- broken on purpose --------------------------------------------------------------


def substitute(name: str, old: str, new: str, count: int = 1) -> Callable[[Files], None]:
    """A change of one text in a file; ``old`` is a regular expression that has to match."""

    def change(files: Files) -> None:
        files[name], times = re.subn(old, new, files[name], count=count)
        assert times

    return change


def crowded(files: Files) -> None:
    for id in range(10, 60):
        files["topologies.conf"] += (
            f"topology\nid: {id}\nsw-grp: laas-a.pod-sw\nhca-grp: laas-a.pod-hca\nend-topology\n"
        )


def without(name: str) -> Callable[[Files], None]:
    def change(files: Files) -> None:
        del files[name]

    return change


GROUPS, TOPOS, CHAINS = "port_groups.conf", "topologies.conf", "chains.conf"
A_STEP = r"unicast-step\nid: 2\n(.*\n)*?end-unicast-step\n"
OF_WIDE, OF_POD = f"{DIRECTORY}/engines/wide_0", f"{DIRECTORY}/engines/a.pod"

BROKEN: dict[str, tuple[Callable[[Files], None], str]] = {
    "a whole cable of another tenant": (
        substitute(GROUPS, "01000000@1/4(, .*)", r"01000000@1/4/5\g<1>, 0x0002c90202000010@1"),
        "a.pod has port 5 of switch 0x0002c90201000000 (link leaf-0-0-1), not its own",
    ),
    "a switch with all of its ports": (
        substitute(GROUPS, "01000000@1/4,", "01000000,"),
        "a.pod has port 2 of switch 0x0002c90201000000",
    ),
    "the port of another tenant's host": (
        substitute(GROUPS, "01000000@1/4,", "01000000@1/2/4,"),
        "a.pod has port 2 of switch 0x0002c90201000000",
    ),
    "one end of a cable": (
        substitute(GROUPS, "02000000@1/2", "02000000@1"),
        "topology 1 has one end of a cable: port 4 of switch 0x0002c90201000010",
    ),
    "a cable left out": (
        substitute(GROUPS, r"01000010@1/4, (\w*)02000000@1/2", r"01000010@1, \g<1>02000000@1"),
        "topology 1 of a.pod does not join switches",
    ),
    "an adapter of another tenant": (
        substitute(GROUPS, "0300000001, ", "0300000001, 0x0002c90300000003, "),
        "topology 1 has adapters of a.pod, wide_0, not of one tenant",
    ),
    "an adapter of nobody": (
        substitute(GROUPS, "0300000001, ", "0300000001, 0x0002c90300000009, "),
        "topology 1 has adapters of a.pod, node04 mlx5_0, not of one tenant",
    ),
    "an adapter left out": (
        substitute(GROUPS, r"\w*0300000001, ", ""),
        "topology 1 does not have the adapters of a.pod, all of them",
    ),
    "a topology of another tenant": (
        substitute(TOPOS, r"laas-a\.pod-sw", "laas-wide_0-sw"),
        "topology 1 of a.pod has port 2 of switch",
    ),
    "no topology": (
        substitute(TOPOS, r"topology\nid: 1\n(.*\n)*?end-topology\n", ""),
        "a.pod has links and no topology",
    ),
    "no step": (substitute(CHAINS, A_STEP, ""), "no step routes topology 1"),
    "a step over the whole fabric": (
        substitute(CHAINS, "topology: 1", "topology: 0"),
        "step 2 routes the whole fabric again",
    ),
    "a step that names no topology": (
        substitute(CHAINS, "topology: 1\n", ""),
        "step 2 routes the whole fabric again",
    ),
    "a fallback to another topology": (
        substitute(CHAINS, "id: 3\n", "id: 3\nfallback-to: 2\n"),
        "step 3 falls back into another topology",
    ),
    "no step for the whole fabric": (
        substitute(CHAINS, "topology: 0", "topology: 2"),
        "the first step does not route the whole fabric",
    ),
    "an engine that nobody documents": (
        substitute(CHAINS, "engine: ftree", "engine: any"),
        "no manual has engine 'any'",
    ),
    "a path bit": (
        substitute(CHAINS, "topology: 1", "topology: 1\npath-bit: 1"),
        "a path bit needs an LMC",
    ),
    "the engine file of another tenant": (
        substitute(CHAINS, OF_POD, OF_WIDE),
        "step 2: its roots are not the highest switches",
    ),
    "roots of another tenant": (
        substitute("engines/a.pod.conf", f"{OF_POD}.roots", f"{OF_WIDE}.roots"),
        "step 2: its roots are not the highest switches",
    ),
    "end nodes of another tenant": (
        substitute("engines/a.pod.conf", f"{OF_POD}.cn", f"{OF_WIDE}.cn"),
        "step 2: its end nodes are not the adapters",
    ),
    "no roots": (substitute("engines/a.pod.conf", ".*roots\n", ""), "ftree needs its roots"),
    "an engine of its own in an engine file": (
        substitute("engines/a.pod.conf", r"\Z", "routing_engine minhop\n"),
        "may not set 'routing_engine minhop'",
    ),
    "an engine file outside of the set": (
        substitute(CHAINS, f"{OF_POD}.conf", "/etc/a.conf"),
        "/etc/a.conf: the set lacks this file",
    ),
    "a file that is missing": (without("engines/a.pod.cn"), "the set lacks this file"),
    "a main configuration without chains": (
        substitute("opensm.conf", "rch_policy_file", "rch"),
        "rch_policy_file does not name chains.conf",
    ),
    "another host's port in the index": (
        substitute("guid_index.json", "0300000001", "0300000003"),
        "guid_index.json has other ports of hosts",
    ),
    "two groups of one name": (
        substitute(GROUPS, r"name: laas-wide_0-hca", "name: laas-a.pod-hca"),
        "a group is called 'laas-a.pod-hca'",
    ),
    "a reserved name": (
        substitute(GROUPS, r"name: laas-a.pod-hca", "name: ALL_CAS"),
        "a group is called 'ALL_CAS'",
    ),
    "a group that is empty": (
        substitute(GROUPS, r"name: laas-a.pod-hca\nport-guid.*\n", "name: laas-a.pod-hca\n"),
        "has 0 rules",
    ),
    "a colon in a value": (
        substitute(GROUPS, "name: laas-a.pod-hca", "name: laas-a.pod-hca\nuse: a:b"),
        "a value has a colon",
    ),
    "a rule of 256 bytes": (
        substitute(GROUPS, "port-guid: (.*)\n", r"port-guid: \g<1>, \g<1>, \g<1>, \g<1>\n"),
        "a rule of laas-a.pod-sw has 256 bytes or more",
    ),
    "a group that nobody defines": (
        substitute(TOPOS, "laas-a.pod-hca", "laas-a.pod-all"),
        "no group 'laas-a.pod-all'",
    ),
    "a rule by name": (
        substitute(GROUPS, "port-guid: .*\n", "port-regexp: .*\n"),
        "no manual has 'port-regexp: .*' here",
    ),
    "more than 50 topologies": (crowded, "holds 50 topologies"),
    "a step beyond 100": (substitute(CHAINS, "id: 3\n", "id: 101\n"), "holds 50 steps"),
}


@pytest.mark.parametrize("way", BROKEN)
def test_files_broken_on_purpose_are_caught(way):
    change, words = BROKEN[way]
    files = chain_texts(state([POD, WIDE]))
    assert judged(state([POD, WIDE]), files).violations == []
    change(files)
    found = judged(state([POD, WIDE]), files).violations
    assert any(words in text for text in found), found


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_other_port_in_a_topology_is_caught(data):
    site = data.draw(st.sampled_from([state(), shared_state()]))
    files = chain_texts(site)
    ports = [
        (match, number.span(), number[0])
        for match in re.finditer(r"0x([0-9a-f]{16})@([\d/]+)", files[GROUPS])
        for number in re.finditer(r"\d+", match[0][19:])
    ]
    match, (start, end), old = data.draw(st.sampled_from(ports))
    new = data.draw(st.integers(1, 12).filter(lambda n: f"{n}" not in match[2].split("/")))
    at = match.start() + 19
    files[GROUPS] = files[GROUPS][: at + start] + str(new) + files[GROUPS][at + end :]
    assert judged(site, files).violations != [], (match[0], old, new)


def test_old_releases_allow_one_rule_a_group():
    files = chain_texts(state())
    assert any("not one rule" in text for text in judged(state(), files, one_rule=True).violations)
    files = chain_texts(state(), one_rule_per_group=True)
    assert judged(state(), files, one_rule=True).violations == []
    substitute(GROUPS, r"union-rule: (\S+), (\S+)", r"union-rule: \g<1>, \g<2>, \g<2>")(files)
    assert any("joins 3 groups" in text for text in judged(state(), files).violations)
    files = chain_texts(state(), one_rule_per_group=True)
    substitute(GROUPS, r"union-rule: (\S+), (\S+)", r"union-rule: \g<1>, laas-wide_0-sw")(files)
    assert any("which is not a group" in text for text in judged(state(), files).violations)


def test_the_shared_plane_comes_first_and_has_no_other_links():
    site = shared_state()
    good = chain_texts(site)
    assert judged(site, good).violations == []
    for change, words in (
        (substitute(CHAINS, "id: 2\n", "id: 9\n"), "overwrites its entries"),
        (substitute(GROUPS, r"laas.plane-hca\nport-guid: \w+, ", "laas.plane-hca\nport-guid: "),
         "of the common plane lacks"),
        (substitute(GROUPS, r"(laas.plane-sw\nport-guid: \w+@)1/", r"\g<1>"),
         "of the common plane lacks"),
        (substitute(TOPOS, r"sw-grp: laas.plane-sw", "sw-grp: laas-a-sw"),
         "not of one tenant"),
        (substitute(TOPOS, r"topology\nid: 1\n(.*\n)*?end-topology\n", ""),
         "the common plane has no topology"),
    ):  # fmt: skip
        files = dict(good)
        change(files)
        found = judged(site, files).violations
        assert any(words in text for text in found), (words, found)


def test_a_moved_link_is_in_no_topology():
    link = next(WIDE.leaf_links(TINY.topology))
    moved = replace(state([WIDE]), failed_links=(link,), moved_links=(link,))
    assert judged(moved, chain_texts(moved)).violations == []
    found = judged(moved, chain_texts(state([WIDE]))).violations
    assert sum("not its own" in text for text in found) == 2


def test_an_adaptive_engine_is_told_for_each_tenant():
    files = chain_texts(state())
    substitute(CHAINS, "engine: ftree", "engine: ar_updn")(files)
    verdict = judged(state(), files)
    assert (verdict.violations, verdict.adaptive) == ([], ["a.pod"])

# SPDX-License-Identifier: Apache-2.0

"""Which hosts are withheld for what compute shows of them."""

import json

import pytest

from laas_service.adapters.memories import HOST_MEMORY
from laas_service.domain.compute_hosts import (
    MISSING,
    Cause,
    HostMemory,
    HostRules,
    HostView,
    judge,
    released,
)

NAMES = [f"n{number}" for number in range(10)]
RULES = HostRules(hold_down=100.0, outage_share=0.5)
DOWN = HostView(up=False)


def views(**changed):
    return {name: HostView() for name in NAMES} | changed


def after(*looks, rules=RULES):
    """The memory after looks, each ``(seconds, views)``."""
    memory = HostMemory()
    for now, seen in looks:
        memory = judge(memory, NAMES, seen, now, rules)
        assert HOST_MEMORY.read(json.loads(json.dumps(HOST_MEMORY.write(memory)))) == memory
    return memory


@pytest.mark.parametrize(
    ("view", "why"),
    [
        (DOWN, "down in Nova"),
        (HostView(enabled=False, reason="memory"), "disabled in Nova: memory"),
        (HostView(enabled=False), "disabled in Nova"),
        (HostView(strangers="server x runs there"), "server x runs there"),
        (HostView(unfit="cleaning"), "not free in Ironic: cleaning"),
        (None, "unknown in Nova"),
    ],
)
def test_a_problem_withholds_a_host_after_the_hold_down_and_while_it_lasts(view, why):
    seen = views(n1=view)
    if view is None:
        del seen["n1"]
    first = (-60.0, views())
    early = after(first, (0.0, seen), (99.0, seen))
    assert early.withheld() == {}
    assert early.troubles["n1"].problem == why
    assert after(first, (0.0, seen), (100.0, seen)).withheld() == {"n1": (0.0, why)}
    back = after(first, (0.0, seen), (100.0, seen), (101.0, views()))
    assert (back.withheld(), back.troubles) == ({}, {})
    short = after(first, (0.0, seen), (50.0, views()), (100.0, seen), (150.0, seen))
    assert short.withheld() == {}, "it was well in between"


def test_an_outage_withholds_nobody_and_is_one_alarm():
    away = views(**dict.fromkeys(NAMES[:6], DOWN))
    memory = after((0.0, views(n0=DOWN)), (100.0, views(n0=DOWN)), (200.0, away), (900.0, away))
    assert len(memory.withheld()) == 6
    assert memory.alarm is None, "5 of 10 newly are not more than half"
    away = views(**dict.fromkeys(NAMES[:7], DOWN))
    memory = after((0.0, views(n0=DOWN)), (100.0, views(n0=DOWN)), (150.0, away), (900.0, away))
    assert memory.withheld().keys() == {"n0"}, "it was withheld before"
    assert memory.alarm is not None
    assert memory.alarm.startswith("6 of 10 hosts are down or unknown in Nova")
    assert judge(memory, NAMES, views(), 901.0, RULES) == HostMemory(strange=frozenset())


def test_hosts_that_were_never_known_are_no_outage():
    """They are withheld at once, and the alarm names the first pair that nearly matches."""
    near = {"n3": "N-3", "n2": "N-2"}
    memory = judge(HostMemory(), NAMES, {"n0": HostView()}, 0.0, RULES, near=near)
    assert memory.withheld().keys() == {*NAMES[1:]}
    assert memory.withheld()["n2"] == (0.0, "unknown in Nova; 'N-2' nearly matches")
    assert {c: len(n) for c, n in memory.withheld_by_cause().items() if n} == {Cause.UNKNOWN: 9}
    assert memory.alarm == (
        "9 of 10 hosts have been unknown in Nova since their import, so no new owner gets them; "
        "host 'n2' nearly matches 'N-2' there"
    )
    later = judge(memory, NAMES, views(), 60.0, RULES)
    assert (later.withheld(), later.alarm) == ({}, None)
    away = judge(later, NAMES, {"n0": HostView()}, 120.0, RULES)
    assert away.withheld() == {}, "they were known: that is an outage"
    assert away.alarm is not None
    assert "so none of them is withheld" in away.alarm


def test_a_few_that_were_never_known_are_withheld_without_an_alarm():
    seen = views()
    del seen["n1"], seen["n2"]
    memory = after((0.0, seen))
    assert memory.withheld().keys() == {"n1", "n2"}
    assert memory.alarm is None


def test_other_names_are_remembered_while_their_hosts_are_away():
    memory = after((0.0, views(n1=HostView(name="N1"))), (60.0, {"n0": HostView()}))
    assert [memory.name(host) for host in ("n0", "n1", "n2")] == ["n0", "N1", "n2"]
    assert HostMemory().name("n0") == "", "nobody has looked"


def test_hosts_that_an_older_release_called_unknown_were_never_known():
    document = HOST_MEMORY.write(after((0.0, views()), (60.0, {"n0": HostView()})))
    del document["strange"], document["names"]
    memory = judge(HOST_MEMORY.read(document), NAMES, {"n0": HostView()}, 70.0, RULES)
    assert memory.withheld().keys() == {*NAMES[1:]}


def test_nodes_are_told_in_terms_of_ironic():
    rules = HostRules(0.0, 0.5, unknown=MISSING, away="Ironic did not know its node")
    deployed = views(n2=HostView(servers=frozenset({"instance"})))
    seen = views(n0=HostView(unfit="in maintenance"))
    del seen["n1"], seen["n2"]
    memory = after((0.0, deployed), (1.0, seen), rules=rules)
    assert {name: why for name, (_, why) in memory.withheld().items()} == {
        "n0": "not free in Ironic: in maintenance",
        "n1": "unknown in Ironic",
        "n2": "quarantined: server instance vanished while Ironic did not know its node",
    }
    causes = {cause: names for cause, names in memory.withheld_by_cause().items() if names}
    assert causes == {Cause.UNFIT: ["n0"], Cause.MISSING: ["n1"], Cause.QUARANTINED: ["n2"]}
    memory = after((0.0, {}), rules=rules)
    assert memory.alarm is not None
    assert memory.alarm.startswith("10 of 10 hosts have been unknown in Ironic")


def test_disabled_hosts_are_no_outage():
    seen = {name: HostView(enabled=False) for name in NAMES}
    memory = after((0.0, seen), (100.0, seen))
    assert (len(memory.withheld()), memory.alarm) == (10, None)


RUNS = HostView(servers=frozenset({"1234567890"}))


def test_a_server_that_vanishes_while_compute_is_down_puts_its_host_in_quarantine():
    why = "quarantined: server 12345678 vanished while nova-compute was not up"
    memory = after((0.0, views(n1=RUNS)), (10.0, views(n1=DOWN)))
    assert memory.withheld() == {"n1": (10.0, why)}
    later = judge(memory, NAMES, views(), 1e6, RULES)
    assert later.withheld() == {"n1": (10.0, why)}, "nobody said that it is empty"
    assert released(later, "n1").withheld() == {}
    vanished = after(
        (0.0, views(n1=RUNS)),
        (10.0, views(n1=HostView(up=False, servers=RUNS.servers))),
        (20.0, views()),
    )
    assert "n1" in vanished.withheld(), "deleted before compute was back"


@pytest.mark.parametrize("unseen", [DOWN, None], ids=["down", "unknown"])
def test_a_host_that_its_owner_leaves_while_compute_is_down_is_in_quarantine(unseen):
    """A server that came and was deleted between two looks may still run there."""
    seen = {name: view for name, view in views(n1=unseen).items() if view}
    before = after((-60.0, views()))
    memory = judge(before, NAMES, seen, 0.0, RULES, left=["n1", "n2"])
    why = "quarantined: its owner left while nova-compute was not up"
    assert memory.withheld() == {"n1": (0.0, why)}
    assert judge(memory, NAMES, views(), 1e6, RULES).withheld() == {"n1": (0.0, why)}
    assert judge(before, NAMES, seen, 0.0, RULES).withheld() == {}


def test_a_server_that_goes_while_compute_is_up_proves_its_host_empty():
    assert after((0.0, views(n1=RUNS)), (10.0, views()), (20.0, views(n1=DOWN))).withheld() == {}


def test_two_reap_intervals_after_the_return_end_a_quarantine_where_that_is_configured():
    rules = HostRules(hold_down=100.0, reap_interval=1800.0)
    lost = ((0.0, views(n1=RUNS)), (10.0, views(n1=DOWN)))
    away = views(n1=DOWN)
    assert "n1" in after(*lost, (20.0, views()), (3619.0, views()), rules=rules).withheld()
    assert after(*lost, (20.0, views()), (3620.0, views()), rules=rules).withheld() == {}
    again = after(*lost, (20.0, views()), (30.0, away), (40.0, views()), (3630.0, views()))
    assert "n1" in again.withheld()

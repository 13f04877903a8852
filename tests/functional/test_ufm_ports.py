# SPDX-License-Identifier: Apache-2.0

"""Port states, unhealthy ports and comparisons of topologies from UFM become observed faults.

The stand-in shows a fabric; readings of it go through the circuit breaker and the hold-down into a
real database. The expected ends and links come from the cabling, not from what reads them.
"""

from __future__ import annotations

import contextlib
import logging
from datetime import UTC, datetime

import pytest

from laas_service.adapters.db.ufm_memory import SqlUfmMemory
from laas_service.adapters.fabric_import import ibnetdiscover
from laas_service.adapters.fabric_import.fabric_file import parse_fabric
from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.adapters.ufm.manager import UfmRules, UfmSubnetManager
from laas_service.adapters.ufm.rest import UfmRest
from laas_service.domain.errors import LeaseLost, Unavailable
from laas_service.domain.faults.interpretation import UnreadSwitch
from laas_service.domain.faults.memory import LinkCondition
from laas_service.domain.faults.observation import Rules
from laas_service.domain.faults.reading import EndReading, PortState
from laas_service.domain.inventory import PortRef
from tests.convergers import Observing
from tests.ufm.cabling import Fabric
from tests.ufm.manager import OURS, settings
from tests.ufm.server import standing_in
from tests.ufm.state import Ufm

RULES = Rules(
    hold_down=2.0, breaker_share=0.2, breaker_window=10.0, quarantine=100.0, reading_lifetime=30.0
)
TEXT = ibnetdiscover.render(generate(Description(xgft="3;2,2,2;1,4,4")).inventory)
STEP = 1.0


class Site:
    """A UFM, and the observer that reads its ports."""

    def __init__(self, standin, store, directory, **rules):
        self.ufm, self.standin = standin.ufm, standin
        self.store, self.directory = store, directory
        imported = parse_fabric(TEXT, "dump")
        self.inventory = imported.inventory
        store.fabrics.add("f", imported.topology, imported.inventory)
        self.now = 1_800_000_000.0
        self.restart(**rules)

    def restart(self, **rules):
        """A worker that remembers nothing, with these rules."""
        own = UfmRules("f", OURS, **{"ports_interval": STEP, **rules})
        memory = SqlUfmMemory(self.store._engine)
        rest = UfmRest(settings(self.standin, self.directory), sleep=lambda seconds: None)
        clock = lambda: self.now  # noqa: E731
        self.port = UfmSubnetManager(rest, own, self.store, memory, clock=clock, now=clock)
        when = lambda: datetime.fromtimestamp(self.now, UTC)  # noqa: E731
        self.steps: list[str] = []
        self.lost = False
        self.observing = Observing(
            *(self.store, self.port, "f", when),
            faults=RULES,
            at=self.steps.append,
            before_effect=self.check_lease,
        )

    def check_lease(self):
        """Fails once another worker has the fabric."""
        if self.lost:
            raise LeaseLost("another worker holds f")

    def round(self, seconds=STEP):
        self.now += seconds
        with contextlib.suppress(LeaseLost):
            return self.observing.round()

    def rounds(self, number, seconds=STEP):
        for _ in range(number):
            self.round(seconds)

    def read(self):
        self.now += STEP
        return self.port.reading("f")

    def cable(self, number=0):
        """A link of the tree, and its cable."""
        return sorted(self.inventory.cable_of_link.items(), key=repr)[number]

    @property
    def failed(self):
        return set(self.store.fabrics.ledger("f")[0].failed_links)

    @property
    def memory(self):
        return self.store.faults.observation("f").memory

    def settle(self):
        self.ufm.finish_jobs()


@pytest.fixture
def standin():
    with standing_in(Ufm(Fabric(ibnetdiscover.parse(TEXT)))) as standing:
        yield standing


@pytest.fixture
def site(standin, store, tmp_path):
    return Site(standin, store, tmp_path)


def name(port):
    return f"{port.guid:016x}_{port.port}"


# -- readings ------------------------------------------------------------------------------


def test_a_sound_fabric_has_nothing_to_report(site):
    reading = site.read()
    assert (reading.ends, reading.unknown_cables, reading.unknown_switches) == ((), (), ())
    assert reading.switches_read == len(site.inventory.switches)
    assert reading.nodes_read == len(site.inventory.switches) + len(site.inventory.endpoints)
    assert reading.at == site.now


def test_cables_and_ports_that_are_down(site):
    _, cut = site.cable(0)
    _, off = site.cable(1)
    site.ufm.fabric.down.add(tuple(cut.lower))
    site.ufm.fabric.disabled.add(tuple(off.upper))
    host = site.inventory.endpoints[0]
    site.ufm.fabric.down.add(tuple(host.at))
    expected = {cut.lower, cut.upper, off.lower, off.upper, host.at}
    assert set(site.read().ends) == {EndReading(end, PortState.DOWN) for end in expected}


def test_a_cable_in_another_port(site):
    """Two cables of a leaf have changed places at its end."""
    fabric = site.ufm.fabric
    (_, one), (_, two) = site.cable(0), site.cable(1)
    assert one.lower.guid == two.lower.guid
    for here, there in ((one.lower, two.upper), (two.lower, one.upper)):
        near, far = fabric.far[there][1]._replace(port=here.port), fabric.far[there][0]
        fabric.far[here], fabric.far[there] = (near, far, ""), (far, near, "")
    assert set(site.read().ends) == {
        EndReading(one.lower, PortState.OTHER, two.upper),
        EndReading(two.upper, PortState.OTHER, one.lower),
        EndReading(two.lower, PortState.OTHER, one.upper),
        EndReading(one.upper, PortState.OTHER, two.lower),
    }
    site.round()
    assert {site.cable(0)[0], site.cable(1)[0]} <= site.failed


def test_ports_are_read_once_in_an_interval_and_again_after_a_change(site):
    def reads():
        return sum(path == "/resources/ports" for _, path in site.ufm.calls)

    first = site.read()
    site.now += 0.9 * STEP
    assert site.port.reading("f") is first
    assert reads() == 1
    site.ufm.fabric.down.add(tuple(site.cable()[1].lower))
    site.now += 0.1 * STEP
    assert site.port.reading("f").ends
    site.port.reading("f")
    assert reads() == 3, "a change is looked at twice"
    site.port.reading("f")
    assert reads() == 3


def test_a_ufm_that_answers_slowly_is_asked_less_often(site):
    original = site.port._ufm.ports

    def slowly():
        site.now += 7.0
        return original()

    site.port._ufm.ports = slowly
    first = site.read()
    site.now += 62.0
    assert site.port.reading("f") is first
    site.now += 2.0
    assert site.port.reading("f") is not first


@pytest.mark.parametrize("spoil", [{"guid": "x"}, {"physical_state": None}, {"peer": "N/A"}])
def test_ports_in_another_form_are_no_reading(site, monkeypatch, spoil):
    rows = site.ufm.fabric.ports()
    row = next(row for row in rows if row.get("peer_guid"))
    monkeypatch.setattr(site.ufm.fabric, "ports", lambda *options: [{**row, **spoil}])
    if spoil == {"physical_state": None}:
        assert EndReading(PortRef(int(row["guid"], 16), row["number"]), PortState.DOWN) in (
            site.read().ends
        )
        return
    with pytest.raises(Unavailable, match="unknown form"):
        site.read()


def test_a_ufm_that_shows_nothing_cuts_no_link(site):
    site.round()
    site.ufm.fabric.silent |= set(site.ufm.fabric.cabling.nodes)
    site.rounds(5)
    assert "reads no switch" in site.memory.alarm.text
    assert site.failed == set()


# -- observed faults ---------------------------------------------------------------------------


def test_a_cut_link_fails_after_the_hold_down_and_comes_back(site):
    link, cable = site.cable()
    site.round()
    site.ufm.fabric.down.add(tuple(cable.upper))
    site.round()
    assert site.failed == set(), "within the hold-down"
    site.rounds(3)
    assert site.failed == {link}
    assert site.memory.marked == {link}, "by observation"
    site.ufm.fabric.down.clear()
    site.rounds(2)
    assert site.failed == set()


def test_too_many_cut_links_raise_the_alarm_instead(site):
    site.round()
    links = sorted(site.inventory.cable_of_link.items(), key=repr)
    for _, cable in links[: len(links) // 2]:
        site.ufm.fabric.down.add(tuple(cable.upper))
    site.rounds(6)
    assert site.memory.alarm is not None
    assert site.failed == set()


def test_a_switch_that_ufm_lost_is_dead(site):
    site.round()
    spine = max(site.inventory.switches, key=lambda switch: switch.level).guid
    site.ufm.fabric.silent.add(spine)
    site.rounds(5)
    assert {guid: entry.state for guid, entry in site.memory.switches.items()} == {
        spine: UnreadSwitch.DEAD
    }
    cables = site.inventory.cable_of_link.items()
    assert site.failed == {link for link, cable in cables if cable.upper.guid == spine}


def test_a_comparison_tells_of_ports_that_ufm_does_not_list(site):
    link, cable = site.cable()
    site.ufm.fabric.omits_down = True
    site.ufm.fabric.down.add(tuple(cable.upper))
    site.rounds(5)
    assert site.failed == set(), "nothing proves that the link is down"
    site.ufm.compare()
    site.settle()
    site.rounds(5)
    assert site.failed == {link}


def test_a_comparison_of_another_form_is_told_once_and_left_out(site, caplog):
    caplog.set_level(logging.WARNING)
    site.ufm.report = {"removed": [7]}
    site.rounds(3)
    assert len([r for r in caplog.records if "comparison of topologies" in r.getMessage()]) == 1
    assert site.read().ends == ()


# -- unhealthy ports ---------------------------------------------------------------------------


@pytest.mark.parametrize("listed", [False, True])
def test_a_port_that_ufm_holds_unhealthy_is_quarantined(site, listed):
    link, cable = site.cable()
    site.ufm.listed_conditions = listed
    site.round()
    site.ufm.hold_unhealthy(name(cable.upper), "FLAPPING")
    site.rounds(2)
    assert site.failed == {link}
    entry = site.memory.links[link]
    assert entry.condition is LinkCondition.QUARANTINED
    assert "unhealthy (FLAPPING)" in entry.evidence
    site.ufm.hold_healthy(name(cable.upper))
    site.rounds(10, seconds=9.0)
    assert site.failed == {link}, "its quarantine lasts"
    site.rounds(4, seconds=9.0)
    assert site.failed == set()


def test_many_unhealthy_ports_raise_the_alarm(site):
    site.round()
    for _, cable in sorted(site.inventory.cable_of_link.items(), key=repr)[:20]:
        site.ufm.hold_unhealthy(name(cable.upper), "UNRESPONSIVE")
    site.rounds(5)
    assert site.memory.alarm is not None
    assert site.failed == set()


def test_an_unhealthy_port_of_a_host_makes_it_absent(site):
    host = site.inventory.endpoints[0]
    site.ufm.hold_unhealthy(name(host.at), "REBOOT")
    site.rounds(2)
    assert set(site.memory.hosts) == {site.inventory.host_names[host.host]}


# -- marks ---------------------------------------------------------------------------------------


def flap(site, cable):
    """Have a link go down three times; then it is up."""
    for _ in range(3):
        site.ufm.fabric.down.add(tuple(cable.upper))
        site.round()
        site.ufm.fabric.down.clear()
        site.round()


def marks(site):
    site.settle()
    return set(site.ufm.unhealthy)


@pytest.fixture
def marking(standin, store, tmp_path):
    return Site(standin, store, tmp_path, mark_unhealthy=True)


def test_a_quarantined_link_is_marked_until_its_quarantine_ends(marking):
    site, (link, cable) = marking, marking.cable()
    both = {name(cable.lower), name(cable.upper)}
    site.round()
    flap(site, cable)
    site.rounds(3)
    assert site.failed == {link}
    assert marks(site) == both
    site.rounds(9, seconds=9.0)
    assert site.failed == {link}
    assert marks(site) == both
    site.rounds(4, seconds=9.0)
    assert site.failed == set(), "its own marks keep no link in quarantine"
    assert marks(site) == set()
    site.rounds(3)
    assert site.port._memory.marked("f") == frozenset()
    assert site.failed == set()


def test_ports_are_marked_in_a_step_of_the_worker_that_holds_the_fabric(marking):
    """A reading only asks; so a worker that lost its fabric marks nothing, and can be killed."""
    site, (link, cable) = marking, marking.cable()
    site.round()
    site.lost = True
    flap(site, cable)
    site.rounds(3)
    assert site.failed == {link}
    site.read()
    assert (marks(site), site.steps) == (set(), [])
    assert not [path for verb, path in site.ufm.calls if verb == "PUT"]
    site.lost = False
    site.rounds(2)
    assert marks(site) == {name(cable.lower), name(cable.upper)}
    assert site.steps[:2] == ["before mark ports", "after mark ports"]


def test_without_the_option_nothing_is_marked(site):
    link, cable = site.cable()
    site.round()
    flap(site, cable)
    site.rounds(3)
    assert site.failed == {link}
    assert marks(site) == set()
    assert not [path for verb, path in site.ufm.calls if verb == "PUT"]


def test_a_mark_of_somebody_else_is_left_alone(marking):
    site, (link, cable) = marking, marking.cable()
    site.round()
    theirs = name(cable.lower)
    site.ufm.hold_unhealthy(theirs)
    site.rounds(3)
    assert site.failed == {link}
    assert marks(site) == {theirs, name(cable.upper)}
    site.ufm.hold_healthy(theirs)
    site.rounds(15, seconds=9.0)
    site.settle()
    site.rounds(3)
    assert site.failed == set()
    assert marks(site) == set()


def test_a_link_that_goes_down_while_it_is_marked_stays_in_quarantine(marking):
    site, (link, cable) = marking, marking.cable()
    site.round()
    flap(site, cable)
    site.rounds(3)
    assert marks(site)
    site.rounds(9, seconds=9.0)
    flap(site, cable)
    site.rounds(9, seconds=9.0)
    assert site.failed == {link}
    assert marks(site) == {name(cable.lower), name(cable.upper)}


def test_marks_are_taken_back_when_the_option_is_switched_off(marking):
    site, (link, cable), (other, far) = marking, marking.cable(), marking.cable(9)
    theirs = name(far.lower)
    site.round()
    site.ufm.hold_unhealthy(theirs)
    flap(site, cable)
    site.rounds(3)
    assert marks(site) == {theirs, *map(name, (far.upper, cable.lower, cable.upper))}
    site.restart(mark_unhealthy=False)
    site.round()
    assert marks(site) == {theirs}, "an operator's"
    site.rounds(2)
    assert site.port._memory.marked("f") == frozenset()
    assert site.failed == {link, other}


def test_a_refused_mark_is_told_and_tried_again_by_the_next_process(marking, caplog):
    caplog.set_level(logging.WARNING)
    site, (link, cable) = marking, marking.cable()
    site.round()
    site.standin.faults.plan(503, times=99, method="PUT")
    flap(site, cable)
    site.rounds(3)
    assert site.failed == {link}, "the reading counts"
    assert "are not marked in UFM" in caplog.text
    assert marks(site) == set()
    site.standin.faults.planned.clear()
    site.restart(mark_unhealthy=True)
    site.round()
    assert marks(site) == {name(cable.lower), name(cable.upper)}


def test_a_mark_that_ufm_makes_late_is_taken_back_nevertheless(marking):
    """The quarantine ends before UFM has carried out the mark."""
    site, (link, cable) = marking, marking.cable()
    site.round()
    site.ufm.slowness = 10**9
    flap(site, cable)
    site.rounds(3)
    assert site.failed == {link}
    site.rounds(14, seconds=9.0)
    assert site.failed == set()
    site.settle()
    site.rounds(4)
    assert marks(site) == set()
    site.rounds(4)
    assert site.port._memory.marked("f") == frozenset()
    assert site.failed == set()

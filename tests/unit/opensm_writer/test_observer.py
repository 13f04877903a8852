# SPDX-License-Identifier: Apache-2.0

"""When the ports of a fabric are read, with a file in place of ``iblinkinfo``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from laas_service.adapters.fabric_import import generator
from opensm_writer import observer
from opensm_writer.observer import LinkEvents, LinkObserver
from opensm_writer.opensm import OpenSm
from tests.unit.opensm_writer.iblinkinfo import output
from tests.waiting import eventually

MADE = generator.generate(generator.Description(xgft="3;2,2,2;1,2,2", subnet_managers=1))
CABLES = MADE.inventory.cable_ends
MANAGER = next(e for e in MADE.inventory.endpoints if e.host is None).guid
SPINE = MADE.inventory.spine_guids[0]
TRAP = (
    "Nov 22 15:57:27 250709 [B54A86C0] 0x02 -> log_notice: Reporting Urgent Notice "
    '"Link state change" from switch LID 3, GUID 0x0000000000200001\n'
)
SWEEP = "Nov 22 15:57:28 250709 [B54A86C0] 0x02 -> SUBNET UP\n"


class Site:
    """A clock that stands still unless the command runs, which takes ``seconds``."""

    def __init__(self, directory, log=True):
        self.time, self.seconds = 0.0, 0.5
        self.links, self.log, self.runs = directory / "links", directory / "log", directory / "runs"
        self.log.write_text("OpenSM\n")
        self.set()
        script = 'echo >> "$0"; cat "$1"'
        self.opensm = OpenSm(
            links_command=("sh", "-c", script, str(self.runs), str(self.links)),
            links_patience=600,
            log_file=self.log if log else None,
        )
        self.observer = LinkObserver(self.opensm, clock=self.clock, now=lambda: self.time + 1000)

    def clock(self):
        return self.time

    def set(self, **changes):
        self.links.write_text(output(CABLES, MANAGER, **changes))

    def tell(self, text=TRAP):
        with self.log.open("a") as log:
            log.write(text)

    def count(self):
        return len(self.runs.read_text()) if self.runs.exists() else 0

    def look(self, after=0.0, **options):
        """Look after some seconds; whether the ports were read, and the reading's time."""
        self.time += after
        before = self.count()
        seen = self.observer.look(CABLES, **options)
        return self.count() > before, seen and seen.reading.at - 1000

    def settled(self):
        assert self.look()[0]
        assert self.look(5)[0]
        assert not self.look(5)[0]


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def test_ports_are_read_after_an_event_and_at_intervals(site):
    site.settled()
    assert site.look(5) == (False, 15)
    site.tell()
    assert site.look(1) == (True, 16)
    assert site.look(1) == (False, 17)
    assert site.look(59) == (True, 76)


@pytest.mark.parametrize(
    "line",
    [
        'x -> log_notice: Reporting Informational Notice "GID out of service", GID:fe80::20:2\n',
        'x -> log_notice: Reporting Informational Notice "GID in service", GID:fe80::20:2\n',
        "x -> SUBNET UP\n",
    ],
)
def test_events(site, line):
    site.settled()
    site.tell("x -> Entering MASTER state\n")
    assert not site.look(1)[0]
    site.tell(line[:10])
    assert not site.look(1)[0]
    site.tell(line[10:])
    assert site.look(1)[0]
    assert not site.look(1)[0]


def test_a_new_log_is_read_from_its_start(site):
    site.settled()
    site.log.unlink()
    assert not site.look(1)[0]
    site.tell()
    assert site.look(1)[0]


def test_a_changed_reading_is_read_again(site):
    site.settled()
    site.set(dead=[SPINE])
    site.tell()
    assert site.look(1)[0]
    assert site.look(1)[0]
    assert not site.look(1)[0]


def test_at_most_a_tenth_of_the_time_is_spent(site, monkeypatch):
    real = OpenSm.links

    def slow(opensm):
        site.time += 2
        return real(opensm)

    monkeypatch.setattr(OpenSm, "links", slow)
    for _ in range(observer.BURST):
        site.tell(SWEEP)
        assert site.look(0.25)[0]
    begun, count = site.time, 0
    for _ in range(400):
        site.tell(SWEEP)
        count += site.look(0.25)[0]
    spent = site.time - begun
    assert 0.05 < 2 * count / spent <= 0.11
    assert site.look(60)[0]
    for _ in range(observer.BURST - 1):
        site.tell(SWEEP)
        assert site.look(0.25)[0]
    site.tell(SWEEP)
    at = site.look(1)[1]
    assert site.look(1) == (False, at)  # the event makes the reading old until the next one


def test_a_change_of_a_port_does_not_wait_for_the_rest_of_sweeps(site, monkeypatch):
    """Sweeps have used up what may be read; then a cable fails, and OpenSM sweeps."""
    real = OpenSm.links

    def slow(opensm):
        site.time += 2
        return real(opensm)

    monkeypatch.setattr(OpenSm, "links", slow)
    for _ in range(observer.BURST + 2):
        site.tell(SWEEP)
        site.look()
    site.tell()
    assert site.look()[0]
    site.tell(SWEEP)  # because of the change
    assert site.look()[0]
    site.tell(SWEEP)
    assert not site.look(1)[0]
    begun, count = site.time, 0
    for _ in range(400):  # a port that changes all the time
        site.tell()
        count += site.look(0.25)[0]
    assert 0.2 < 2 * count / (site.time - begun) <= 0.4


@pytest.fixture
def gate(site, tmp_path):
    """The command waits for this file, and calls do not wait for the command."""
    site.settled()
    gate = tmp_path / "gate"
    script = 'until [ -e "$2" ]; do sleep 0.02; done; echo >> "$0"; cat "$1"'
    command = ("sh", "-c", script, str(site.runs), str(site.links), str(gate))
    site.opensm = replace(site.opensm, links_patience=0, links_command=command)
    site.observer._opensm = site.opensm
    return gate


def finished(site):
    """The comparison, once the reading has ended."""
    seen = site.observer.look(CABLES)
    return None if site.observer.under_way else seen


def test_a_slow_reading_goes_on_beside_the_rounds(site, gate):
    """Meanwhile calls return the last reading, with its time."""
    before = site.look()[1]
    site.set(dead=[SPINE])
    site.tell()
    for _ in range(3):
        assert site.look(1)[1] == before
        assert site.observer.under_way
    gate.touch()
    seen = eventually(lambda: finished(site), "the reading has ended")
    assert seen is not None
    assert seen.dead == {SPINE}
    assert seen.reading.at == before + 1 + 1000


def test_an_event_during_a_reading_has_the_ports_read_again(site, gate):
    site.tell()
    site.look(1)
    site.tell()
    site.look(1)
    gate.touch()
    eventually(lambda: finished(site), "the reading has ended")
    read = site.count()
    site.look(30)
    eventually(lambda: site.count() > read, "the ports are read again")


def test_a_reading_that_fails_beside_the_rounds_is_repeated(site, gate):
    site.links.unlink()
    site.tell()
    site.look(1)
    gate.touch()
    eventually(lambda: finished(site), "the reading has ended")
    site.set()
    read = site.count()
    site.look(30)
    eventually(lambda: site.count() > read, "the ports are read again")


def test_a_doubtful_reading_is_read_again(site):
    site.settled()
    assert site.look(1, doubtful=True)[0]


def test_without_a_log_a_reading_holds_as_of_its_own_time(tmp_path):
    site = Site(tmp_path, log=False)
    site.settled()
    assert site.look(5) == (False, 5)
    assert site.look(55) == (True, 70)


def test_other_cables_are_compared_at_once(site):
    site.settled()
    assert len(site.observer.look(CABLES[1:]).reading.unknown_cables) == 1


def test_failures_are_repeated_after_a_pause(site, caplog):
    site.settled()
    site.links.write_text("")
    site.tell()
    assert site.look(1) == (True, 10)
    assert site.look(1) == (False, 10)
    site.set()
    assert site.look(observer.RETRY) == (True, 17)
    assert site.look(1) == (False, 18)
    assert len([r for r in caplog.records if "printed no port" in r.getMessage()]) == 1


def test_without_a_command_nothing_is_read(tmp_path):
    assert LinkObserver(OpenSm(log_file=tmp_path / "log")).look(CABLES) is None


def test_a_set_without_the_cabling_is_not_compared(site):
    assert site.observer.look(()) is None
    assert site.count() == 0


def test_the_last_comparison_is_kept_for_its_cables(site):
    assert site.observer.last(CABLES) is None
    site.settled()
    assert site.observer.last(CABLES).reading.ends == ()
    assert site.observer.last(CABLES[1:]) is None


def test_each_event_is_told_once(site):
    events = LinkEvents(site.opensm)
    assert not events.happened()
    site.tell()
    assert events.happened()
    assert not events.happened()


def test_lids_are_read_for_each_port_that_appears_and_each_process(site):
    site.observer.lids(CABLES, "1")
    count = site.count()
    assert site.observer.lids(CABLES, "1") == dict.fromkeys({g for e in CABLES for g, _ in e}, 3)
    assert site.observer.lids(CABLES, "2") is not None
    assert site.count() > count
    site.links.write_text("")
    assert site.observer.lids(CABLES, "2") is not None  # no need to read
    site.tell('x -> log_notice: Reporting Informational Notice "GID in service", GID:fe80::2\n')
    assert site.observer.lids(CABLES, "2") is None
    site.set()
    assert site.observer.lids(CABLES, "2") is None  # after a failure there is a pause
    site.time += observer.RETRY
    assert site.observer.lids(CABLES, "2") is not None

# SPDX-License-Identifier: Apache-2.0

"""Random histories of faults, operators and repair under the real OpenSM and the real worker."""

from __future__ import annotations

import time
from collections import Counter

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from laas_service.app.records import LinkState
from laas_service.domain.topology import Link, link_name
from tests.faults.fabrics import tree
from tests.faults.scenarios import links_of
from tests.faults.site import ID, Site
from tests.waiting import eventually

FABRIC = tree("16", "3;2,2,4;1,4,4", (5, 3, 2))
"""16 hosts with twice as many uplinks, so that failed links can be replaced."""

FAULTS = {
    "hold_down": 1,
    "flaps": 3,
    "quarantine": 3,
}
numbers = st.integers(0, 1000)


class Histories(RuleBasedStateMachine):
    """The truth of the fabric, and what operators said, beside the real thing."""

    def __init__(self) -> None:
        super().__init__()
        self.site = Site(FABRIC, faults=FAULTS, worker={"poll_interval": 0.5}, sweep=2)
        self.site.__enter__()
        inventory = self.site.inventory
        self.cables = inventory.cable_of_link
        self.links: list[Link] = sorted(self.cables, key=link_name)
        manager = FABRIC.manager.at.guid
        self.switches = [s.guid for s in inventory.switches if s.guid != manager]
        self.dead: set[int] = set()
        self.said: dict[Link, LinkState] = {}
        """By operators."""
        self.incidents: Counter[str] = Counter()
        """How often a link stopped working, or an operator called it failed; by its name."""
        self.names = set(map(link_name, self.links))

    def _link(self, number: int) -> Link:
        return self.links[number % len(self.links)]

    def _gone(self, *links: Link) -> None:
        """Count incidents of links that worked until now."""
        for link in links:
            if self.site.wiring.works(self.cables[link]):
                self.incidents[link_name(link)] += 1

    # -- faults -----------------------------------------------------------------

    @rule(number=numbers)
    def cut(self, number: int) -> None:
        held = sorted((x for _, links in self.site.tenants() for x in links), key=link_name)
        link = held[number % len(held)] if held and number % 3 else self._link(number)
        self._gone(link)
        self.site.cut([self.cables[link].lower])

    @rule(number=numbers)
    def mend(self, number: int) -> None:
        broken = [x for x in self.links if not self.site.wiring.works(self.cables[x])]
        ends = [self.cables[x] for x in broken]
        ends = [c for c in ends if not {c.lower.guid, c.upper.guid} & self.dead]
        if ends:
            self.site.mend([ends[number % len(ends)].lower])

    @rule(number=numbers)
    def kill(self, number: int) -> None:
        switch = self.switches[number % len(self.switches)]
        self._gone(*links_of(self.site, switch))
        self.dead.add(switch)
        self.site.kill(switch)

    @rule(number=numbers)
    def revive(self, number: int) -> None:
        if self.dead:
            switch = sorted(self.dead)[number % len(self.dead)]
            self.dead.remove(switch)
            far = self.site.wiring.recorded
            ports = self.site.wiring.ports(switch)
            self.site.mend(port for port in ports if far[port].guid not in self.dead)

    # -- operators and time -------------------------------------------------------

    @rule(number=numbers, drain=st.booleans())
    def say(self, number: int, drain: bool) -> None:
        link = self._link(number)
        self.incidents[link_name(link)] += not drain
        self.said[link] = LinkState.DRAINED if drain else LinkState.FAILED
        self.site.store.components.set_link_state(ID, link, self.said[link])

    @rule(number=numbers)
    def repair(self, number: int) -> None:
        if self.said:
            link = sorted(self.said, key=link_name)[number % len(self.said)]
            del self.said[link]
            self.site.store.components.set_link_state(ID, link, LinkState.UP)

    @rule()
    def acknowledge(self) -> None:
        self.site.store.faults.acknowledge_alarm(ID)

    @rule(seconds=st.floats(0.2, 3))
    def wait(self, seconds: float) -> None:
        time.sleep(seconds)
        self.check()

    # -- what always holds --------------------------------------------------------

    def check(self) -> None:
        pairs = self.site.pairs()
        assert pairs.foreign == 0, pairs.examples
        for record in self.site.store.allocations.page(fabric=ID):
            self.check_repairs(record.id)

    def check_repairs(self, id: str) -> None:
        """Each repair of a tenant frees a link that failed since it was repaired last."""
        used: Counter[str] = Counter()
        for event in self.site.store.allocations.get(id).history:
            if event.reason.startswith("repair: "):
                freed = event.reason.removeprefix("repair: ").split(" replaced by ")[0]
                named = self.names & set(freed.replace(",", " ").split())
                failed = {name for name in named if used[name] < self.incidents[name]}
                assert failed, f"{id} was repaired without a reason: {event.reason}"
                used.update(failed)

    # -- the end ------------------------------------------------------------------

    def teardown(self) -> None:
        try:
            eventually(self._is_true, self._describe, patience=240, pause=0.5)
            self.check()
        finally:
            self.site.close()

    def _is_true(self) -> bool:
        """Whether the record says what operators said, else what is so; and routes are there."""
        self.site.store.faults.acknowledge_alarm(ID)
        ledger, _ = self.site.store.fabrics.ledger(ID)
        reached = self._reached()
        for link in self.links:
            cable = self.cables[link]
            ends = {cable.lower.guid, cable.upper.guid}
            said = self.said.get(link)
            if not ends & reached and said is not LinkState.FAILED:
                continue  # nobody can tell
            broken = not self.site.wiring.works(cable)
            failed = broken or said is LinkState.FAILED
            if (link in ledger.failed_links) != failed:
                return False
            if said is LinkState.DRAINED and not failed and link not in ledger.drained_links:
                return False
        return self.site.is_settled()

    def _reached(self) -> set[int]:
        """The switches that the subnet manager's port reaches over the cables as they are."""
        reached, rest = set(), [FABRIC.manager.at.guid]
        while rest:
            switch = rest.pop()
            if switch not in reached:
                reached.add(switch)
                ports = self.site.wiring.ports(switch)
                far = [self.site.wiring.far[port] for port in ports if port in self.site.wiring.far]
                rest += [port.guid for port in far if port.port]
        return reached

    def _describe(self) -> str:
        broken = [link_name(x) for x in self.links if not self.site.wiring.works(self.cables[x])]
        failed = sorted(map(link_name, self.site.failed))
        return f"broken {broken}, failed {failed}, said {self.said}: {self.site.describe()}"


def run(count: int, steps: int = 8) -> None:
    """Play so many histories. Raises: AssertionError."""
    run_state_machine_as_test(
        Histories,
        settings=settings(
            max_examples=count,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )

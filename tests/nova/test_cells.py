# SPDX-License-Identifier: Apache-2.0

"""Our adapter on a real Nova with two cells."""

from __future__ import annotations

import pytest
from nova.tests import fixtures as nova_fixtures

from laas_service.app.ports.compute import Handover
from laas_service.domain.errors import HostsBusy, Unavailable
from tests.nova import cloud
from tests.nova.test_holes import BLUE, FULL, HOSTS, RED, Lab


@pytest.fixture(scope="module")
def nova():
    with cloud.started(HOSTS, cells=2) as nova:
        nova.admin.flavors.create("full", 7000, 1, 1, flavorid=FULL)
        yield nova


@pytest.fixture
def ours(nova):
    """Our filter is on, all hosts are in the pool, and no server runs."""
    lab = Lab(nova)
    lab.compute.pool(HOSTS)
    nova.scheduler_knows()
    yield lab
    lab.clear()


class TestSeveralCells:
    """The six hosts are in two cells by turns."""

    ACROSS = Handover("a1", RED, ("n1", "n2"))
    """A host of each cell."""

    def test_an_allocation_in_two_cells(self, ours):
        cells = {ours.nova.host_mappings[h].cell_mapping.name for h in self.ACROSS.hosts}
        assert cells == {"cell1", "cell2"}
        ours.hand_over(self.ACROSS)
        assert set(ours.boot(RED, times=2, flavor=FULL)) == {"n1", "n2"}
        assert ours.boot(BLUE) == []
        seen = ours.compute.look(HOSTS)
        assert {s.host for state in seen.values() for s in state.servers} == {"n1", "n2"}
        with pytest.raises(HostsBusy, match="n1 runs"):
            ours.compute.take_back(self.ACROSS)
        ours.delete(RED)
        ours.compute.take_back(self.ACROSS)
        ours.nova.scheduler_knows()
        assert ours.boot(RED) == ours.boot(BLUE) == []

    def test_pages_go_through_all_cells(self, ours):
        ours.flags(group="api", max_limit=2)
        assert ours.compute.look(HOSTS).keys() == set(HOSTS)

    def test_a_cell_that_is_down_frees_no_host(self, ours):
        """Nova then lists the servers of the other cells only; hypervisors it cannot list."""
        ours.hand_over(self.ACROSS)
        assert set(ours.boot(RED, times=2, flavor=FULL)) == {"n1", "n2"}
        down = ours.nova.cell_mappings["cell2"]
        with nova_fixtures.DownCellFixture([down]):
            assert {s.id for s in ours.nova.client(RED).servers.list()} != set()
            for act in (ours.compute.take_back, ours.compute.hand_over):
                with pytest.raises(Unavailable, match="list hypervisors"):
                    act(self.ACROSS)
            with pytest.raises(Unavailable):
                ours.compute.occupants(["n2"])
            with pytest.raises(Unavailable):
                ours.compute.look(HOSTS)
        with pytest.raises(HostsBusy, match="n2 runs"):
            ours.compute.take_back(self.ACROSS)

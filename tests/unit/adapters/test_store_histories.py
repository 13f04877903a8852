# SPDX-License-Identifier: Apache-2.0

"""Random histories: three processes' stores on one database always equal the ledger in memory."""

from dataclasses import replace

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from laas_service.adapters.db.store import SqlStore
from laas_service.app.lifecycle import State
from laas_service.app.records import HostState, LinkState, NewPlacement
from laas_service.app.requests import AllocationRequest
from laas_service.domain.allocation import Allocation, ColumnShare, GroupShare, NoFit, Refusal
from laas_service.domain.common_plane import NO_PLANE, CommonPlane
from laas_service.domain.errors import Conflict
from laas_service.domain.features import HostChange
from laas_service.domain.inventory import Inventory
from laas_service.domain.ledger import Ledger
from laas_service.domain.topology import LeafLink, Link, Port, SpineLink, Topology, Xgft
from tests import databases
from tests.drafts import on_ledger

TREE = Xgft((3, 2, 2), (1, 4, 2), cables=(2, 1))
ONE_RAIL = Topology(TREE, absent_hosts=frozenset({4}), absent_links=frozenset({LeafLink(0, 1, 2)}))
TWO_RAILS = Topology(  # both leaves of a pod form one leaf group: a host has a port on each
    TREE,
    rails=2,
    host_ports=tuple((Port(pod, 0, k), Port(pod, 1, k)) for pod in (0, 1) for k in range(3)),
)

PLANES = [NO_PLANE, CommonPlane((0,)), CommonPlane((1,), (1,)), CommonPlane((), (0,))]
processes = st.integers(0, 2)
masks = st.integers(0, 0b1111)


class Histories(RuleBasedStateMachine):
    allocations: Bundle[str] = Bundle("allocations")
    topology = ONE_RAIL

    def __init__(self) -> None:
        super().__init__()
        self.database = databases.fresh()
        engine = self.engine = self.database.__enter__()
        self.stores = [SqlStore(engine), SqlStore(engine), SqlStore(engine, keep_deltas=2)]
        self.stores[0].fabrics.add("f", self.topology, Inventory((), (), (), (), (), (), ()))
        self.model = Ledger(self.topology)
        self.count = 0

    def teardown(self) -> None:
        self.database.__exit__(None, None, None)

    def draw(self, id: str, fabric: Ledger, hosts: int, uplinks: int, spines: int) -> Allocation:
        """An allocation of all that is free under the masks, in every group and column."""
        groups = tuple(
            GroupShare(g, free & hosts, fabric.free_uplinks[g] & uplinks)
            for g, free in enumerate(fabric.free_hosts)
            if free & hosts
        )
        width = self.topology.columns_per_pod
        columns = tuple(
            ColumnShare(*divmod(column, width), free & spines)
            for column, free in enumerate(fabric.free_spines)
            if free & spines
        )
        return Allocation(id, 1, "test", groups, columns)

    @rule(target=allocations, process=processes, hosts=masks, uplinks=masks, spines=masks)
    def admit(self, process, hosts, uplinks, spines):
        self.count += 1
        id = f"a{self.count}"
        wanted = self.draw(id, self.model, hosts, uplinks, spines)

        def propose(fabric):
            answer = self.draw(id, fabric, hosts, uplinks, spines)
            return answer if answer.groups else NoFit(Refusal.TOO_FEW_HOSTS, "none free")

        answer = self.stores[process].admissions.admit(
            AllocationRequest(id=id, fabric="f", name=id, project_id="p", policy="test", hosts=1),
            on_ledger(propose),
        )
        if isinstance(answer, NoFit):
            assert not wanted.groups
            return ""
        assert answer.placed == wanted
        self.model.claim(wanted)
        return id

    @rule(process=processes, id=allocations, hosts=masks, uplinks=masks, spines=masks)
    def move(self, process, id, hosts, uplinks, spines):
        """Begin a change of placement, or take the next step of the one under way."""
        if id not in self.model.allocations:
            return
        store = self.stores[process]
        record = store.allocations.get(id)
        if record.state is State.ALLOCATING:
            record = store.allocations.transition(record, State.ACTIVE, "handed over")
        if record.phase is not None:
            record = store.placement_changes.proceed(record, "on")
            if record.phase is None:
                self.model.change(record.placed)
            return

        def choose(fabric):
            """Keep a part of the present placement and add free hosts and links."""
            held = fabric.allocations[id]
            groups = tuple(GroupShare(g, h & 1, u & 5) for g, h, u in held.groups if h & 1)
            kept = Allocation(id, 1, "test", groups, held.columns[:1])
            new = self.draw(id, fabric, hosts, uplinks, spines).joined(kept)
            free = fabric.copy()
            free.change(new.joined(held))
            links = self.draw(id, free, hosts, uplinks >> 1, spines >> 1)
            groups = tuple(share._replace(hosts=0) for share in links.groups if share.uplinks)
            return NewPlacement(new, "elsewhere", replace(links, groups=groups))

        if record.container:
            if self.model.inside[id].allocations:
                with pytest.raises(Conflict):
                    store.placement_changes.begin(record, choose)
            return
        record = store.placement_changes.begin(record, choose)
        assert record.leaving == self.model.allocations[id]
        self.model.change(record.held)

    @rule(process=processes, id=consumes(allocations))
    def release(self, process, id):
        store = self.stores[process]
        known = {a.id for a in self.model.everybody()}
        if id in self.model.inside and self.model.inside[id].allocations:
            with pytest.raises(Conflict):
                store.allocations.transition(store.allocations.get(id), State.RELEASING, "asked")
        elif id in known and not any(
            ledger.scope == id and ledger.allocations for ledger in self.model.ledgers()
        ):
            record = store.allocations.transition(
                store.allocations.get(id), State.RELEASING, "asked"
            )
            store.allocations.free(store.allocations.hand_back(record), "gone")
            self.model.release(id)

    @rule(process=processes, data=st.data(), state=st.sampled_from(HostState))
    def change_host(self, process, data, state):
        present = set(range(self.topology.hosts)) - self.topology.absent_hosts
        host = data.draw(st.sampled_from(sorted(present)))
        self.stores[process].components.set_host_state("f", host, state)
        self.model.repair_host(host)
        if state is HostState.DRAINED:
            self.model.drain_host(host)
        elif state is HostState.FAILED:
            self.model.fail_host(host)

    @rule(process=processes, data=st.data(), state=st.sampled_from(LinkState))
    def change_link(self, process, data, state):
        links = [
            *(LeafLink(pod, leaf, up) for pod in (0, 1) for leaf in (0, 1) for up in range(4)),
            *(SpineLink(pod, l2, up) for pod in (0, 1) for l2 in (0, 1) for up in (0, 1)),
        ]
        link = data.draw(st.sampled_from([x for x in links if x not in self.topology.absent_links]))
        self.stores[process].components.set_link_state("f", link, state)
        self.model.repair_link(link)
        if state is LinkState.DRAINED:
            self.model.drain_link(link)
        elif state is LinkState.FAILED:
            self.model.fail_link(link)

    @rule(
        process=processes,
        data=st.data(),
        traits=st.none() | st.frozensets(st.sampled_from(["gpu", "nvme"])),
        cost=st.none() | st.integers(0, 2),
    )
    def describe_hosts(self, process, data, traits, cost):
        present = sorted(set(range(self.topology.hosts)) - self.topology.absent_hosts)
        hosts = data.draw(st.sets(st.sampled_from(present)))
        change = HostChange(traits, cost)
        self.stores[process].components.describe_hosts("f", dict.fromkeys(hosts, change))
        known = self.model.features
        self.model.describe_hosts({host: change.of(known.of(host)) for host in hosts})

    @rule(target=allocations, process=processes, data=st.data(), hosts=masks, uplinks=masks)
    def nest(self, process, data, hosts, uplinks):
        """Allocate the free part of the masks, as a container, inside one, or neither."""
        containers = [a.id for a in self.model.everybody() if a.container]
        parent = data.draw(st.sampled_from([None, *containers]))
        container = data.draw(st.booleans())
        self.count += 1
        id = f"n{self.count}"

        def drawn(fabric):
            some = self.draw(id, fabric.ledger(parent), hosts, uplinks, uplinks)
            return replace(some, parent=parent, container=container)

        wanted = drawn(self.model)
        if not wanted.groups:
            return ""
        new = AllocationRequest(
            id=id,
            fabric="f",
            name=id,
            project_id="p",
            policy="test",
            hosts=1,
            parent=parent,
            container=container,
        )
        assert self.stores[process].admissions.admit(new, on_ledger(drawn)).placed == wanted
        self.model.claim(wanted)
        return id

    @rule(process=processes, plane=st.sampled_from(PLANES))
    def withhold(self, process, plane):
        try:
            self.model.withhold(plane)
        except Conflict:
            with pytest.raises(Conflict):
                self.stores[process].components.set_shared_plane("f", plane)
        else:
            self.stores[process].components.set_shared_plane("f", plane)

    @rule(process=processes)
    def restart(self, process):
        self.stores[process] = SqlStore(self.engine)

    @rule(process=processes)
    def look(self, process):
        assert self.stores[process].fabrics.ledger("f")[0].state() == self.model.state()

    @invariant()
    def faults_are_what_failed_of_what_is_owned(self):
        """A fault is recorded with its innermost owner and with every container around that."""
        failed: dict[str, tuple[set[Link], set[int]]] = {}
        for owner in self.model.everybody():
            links = self.model.failed_links & set(owner.links(self.topology))
            hosts = self.model.failed_hosts & set(owner.hosts(self.topology))
            if links or hosts:
                failed[owner.id] = links, hosts
        noted = {
            record.id: (set(record.faults.links), set(record.faults.hosts))
            for record in self.stores[0].allocations.page()
            if record.faults is not None
        }
        assert noted == failed

    @invariant()
    def claims_are_the_owners(self):
        tree = self.topology.tree
        with self.engine.connect() as connection:
            hosts = connection.execute(
                sa.text("select scope, host, allocation from host_claim")
            ).all()
            links = connection.execute(
                sa.text("select scope, link, allocation from link_claim")
            ).all()
        everybody = list(self.model.everybody())
        assert set(map(tuple, hosts)) == {
            (a.parent or "", host, a.id) for a in everybody for host in a.hosts(self.topology)
        }
        assert set(map(tuple, links)) == {
            (a.parent or "", tree.link_id(x), a.id)
            for a in everybody
            for x in a.links(self.topology)
        }


class HistoriesOnTwoRails(Histories):
    topology = TWO_RAILS


SETTINGS = settings(
    max_examples=12,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
Histories.TestCase.settings = SETTINGS
HistoriesOnTwoRails.TestCase.settings = SETTINGS
TestHistories = Histories.TestCase
TestHistoriesOnTwoRails = HistoriesOnTwoRails.TestCase

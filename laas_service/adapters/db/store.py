# SPDX-License-Identifier: Apache-2.0

"""The store in a relational database: every decision is one transaction."""

import copy
import re
from collections.abc import Callable
from datetime import datetime
from typing import Self

from oslo_db.exception import DBDuplicateEntry
from sqlalchemy import Engine, delete, select

from laas_service.adapters.db import models, schema
from laas_service.adapters.db.admission import Admission
from laas_service.adapters.db.apart import refuse_shared
from laas_service.adapters.db.component_states import ComponentStates
from laas_service.adapters.db.compute_hosts import ComputeHosts
from laas_service.adapters.db.desired_state import DesiredState
from laas_service.adapters.db.fault_observation import FaultObservation
from laas_service.adapters.db.forward import Forward
from laas_service.adapters.db.generations import new_stamp, stored
from laas_service.adapters.db.ledger_cache import LedgerCache
from laas_service.adapters.db.observations import Observations
from laas_service.adapters.db.optimistic import Optimist
from laas_service.adapters.db.placement_changes import PlacementChanges
from laas_service.adapters.db.port_counters import PortCounters
from laas_service.adapters.db.process_order import ProcessOrder
from laas_service.adapters.db.queue_rooms import QueueRooms
from laas_service.adapters.db.quotas import SqlQuotas
from laas_service.adapters.db.reimport import Reimports
from laas_service.adapters.db.retention import WITH_ALLOCATIONS, Retention
from laas_service.adapters.db.thread_order import ThreadOrder
from laas_service.adapters.db.transactions import (
    KEEP_DELTAS,
    KEEP_EVENTS,
    Transactions,
    locked_generation,
    nowhere,
    utc_now,
)
from laas_service.adapters.db.transitions import Transitions
from laas_service.adapters.db.turns import Turns
from laas_service.adapters.db.virtual_ports import VirtualPorts
from laas_service.adapters.db.write_check import WriteCheck
from laas_service.adapters.documents import inventory_document, topology_document
from laas_service.app.lifecycle import OVER
from laas_service.app.records import FabricRecord, Lease
from laas_service.domain.errors import Conflict, InvalidInput
from laas_service.domain.inventory import Inventory
from laas_service.domain.ledger import LedgerView
from laas_service.domain.topology import Topology
from laas_service.domain.wording import listed
from laas_service.messages import PKEYS

FABRIC_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
"""A fabric's id is also the name of a directory."""

_FABRICS = select(models.Fabric.id)


class SqlStore:
    """The store ports of ``app.ports``, on SQLite, PostgreSQL or MariaDB; safe to share between
    threads.

    The store reads, adds and deletes fabrics. Every other port is implemented by a part: the store
    makes the parts and offers their methods. Options as for ``Transactions``.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        now: Callable[[], datetime] = utc_now,
        at: Callable[[str], None] = nowhere,
        keep_deltas: int = KEEP_DELTAS,
        announce: bool = False,
        pkeys: range = PKEYS,
        keep_events: int = KEEP_EVENTS,
    ) -> None:
        self._engine = engine
        self.check_writes = WriteCheck(engine)
        self._ledgers, self._turns = LedgerCache(), Turns(engine)
        self._threads, self._processes = ThreadOrder(), ProcessOrder(engine)
        transactions = Transactions(engine, now, at, keep_deltas, announce, pkeys, keep_events)
        self._compose(transactions)

    def under(self, lease: Lease) -> Self:
        """See ``app.worker.fabric_leases.LeasedStore.under``; the cache is shared."""
        held = copy.copy(self)
        held._compose(self._transactions.under(lease))
        return held

    def _compose(self, transactions: Transactions) -> None:
        """Make the parts, and offer their methods."""
        self._transactions, ledgers = transactions, self._ledgers
        self._forward = forward = Forward(transactions, ledgers)
        self.in_past, self.go_forward = forward.in_past, forward.go_forward
        self.went_forward = forward.went_forward
        self._optimist = Optimist(
            transactions, ledgers, self._turns, self._threads, self._processes, forward.settle
        )

        admission = Admission(transactions, self._optimist)
        self._group = admission.group
        self.answered = admission.answered
        self.admit, self.admit_waiting = admission.admit, admission.admit_waiting

        quotas = SqlQuotas(self._engine, transactions.now)
        self.usage, self.within_limits = quotas.usage, quotas.within_limits
        self.may_grow, self.moves_left = quotas.may_grow, quotas.moves_left
        self.may_have_slots = quotas.may_have_slots

        transitions = Transitions(transactions)
        self.allocation, self.allocations = transitions.allocation, transitions.allocations
        self.events, self.size_events = transitions.events, transitions.size_events
        self.enclosing = transitions.enclosing
        self.due, self.postpone = transitions.due, transitions.postpone
        self.transition, self.rename = transitions.transition, transitions.rename
        self.note_limits = transitions.note_limits
        self.cancel, self.free = transitions.cancel, transitions.free
        self.hand_back, self.requeue = transitions.hand_back, transitions.requeue

        self.forget = Retention(transactions).forget

        changes = PlacementChanges(transactions, ledgers, self._optimist)
        self.move, self.proceed = changes.move, changes.proceed
        self.turn_back, self.consent = changes.turn_back, changes.consent
        self.announce = changes.announce
        self.drop_announcement = changes.drop_announcement

        rooms = QueueRooms(transactions)
        self.queue_room, self.record_room = rooms.queue_room, rooms.record_room

        states = ComponentStates(transactions, ledgers)
        self.set_host_state, self.set_link_state = states.set_host_state, states.set_link_state
        self.set_leaf_state, self.note_faults = states.set_leaf_state, states.note_faults
        self.describe_hosts, self.set_shared_plane = states.describe_hosts, states.set_shared_plane
        self.set_switch_state, self.words = states.set_switch_state, states.words
        self.return_switches = states.return_switches

        virtual = VirtualPorts(transactions, ledgers)
        self.virtual_ports, self.set_virtual_ports = (
            virtual.virtual_ports,
            virtual.set_virtual_ports,
        )

        faults = FaultObservation(transactions, ledgers, states)
        self.observation, self.judged = faults.observation, faults.judged
        self.observation_mode = faults.observation_mode
        self.set_observation_mode = faults.set_observation_mode
        self.acknowledge_alarm = faults.acknowledge_alarm

        counters = PortCounters(transactions, ledgers)
        self.record_counters = counters.record_counters
        self.account_counters = counters.account_counters
        self.counter_findings = counters.counter_findings

        hosts = ComputeHosts(transactions, states)
        self.host_memory, self.judged_hosts = hosts.host_memory, hosts.judged_hosts
        self.release_quarantine = hosts.release_quarantine

        observations = Observations(transactions, ledgers)
        self.note_applied, self.holding = observations.note_applied, observations.holding
        self.fabric_and_holding = observations.fabric_and_holding
        self.note_compared = observations.note_compared
        self.note_drift, self.note_repaired = observations.note_drift, observations.note_repaired
        self.drift, self.repaired = observations.drift, observations.repaired

        self.reimport = Reimports(transactions, ledgers).reimport
        self.routed = DesiredState(transactions, ledgers).routed

    # -- fabrics --------------------------------------------------------------

    def fabric(self, id: str) -> FabricRecord:
        with self._transactions.reading() as session:
            return self._ledgers.record(session, id)

    def fabric_ids(self) -> list[str]:
        with self._transactions.reading() as session:
            return sorted(session.scalars(_FABRICS))

    def fabrics(self) -> list[FabricRecord]:
        with self._transactions.reading() as session:
            ids = session.scalars(_FABRICS).all()
            return [self._ledgers.record(session, id) for id in sorted(ids)]

    def ledger(self, fabric_id: str) -> tuple[LedgerView, int]:
        with self._transactions.reading() as session:
            cached = self._ledgers.caught_up(session, fabric_id)
        self._forward.settle(fabric_id)
        return cached.ledger, cached.generation

    def check(self) -> None:
        with self._transactions.reading() as session:
            schema.check(session.connection())

    def add_fabric(
        self, id: str, topology: Topology, inventory: Inventory, *, apart: bool = False
    ) -> FabricRecord:
        """``apart`` refuses a fabric if another one has one of its switches or ports."""
        if not FABRIC_ID.fullmatch(id):
            fix = "give an id of 1 to 64 of A-Z a-z 0-9 . _ -, not . or - in front"
            raise InvalidInput("fabric", id, fix)
        stamp = new_stamp()
        try:
            with self._transactions.writing("add fabric") as session:
                if apart:
                    refuse_shared(session, id, inventory)
                session.add(
                    models.Fabric(
                        id=id,
                        generation=1,
                        routes_generation=1,
                        stamp=stored(1, stamp),
                        routes_stamp=stored(1, stamp),
                        topology=topology_document(topology),
                        inventory=inventory_document(inventory),
                        created_at=self._transactions.now(),
                    )
                )
                session.flush()
                session.add(models.Delta(fabric=id, generation=1, change={}, stamp=stamp))
        except DBDuplicateEntry as error:
            fix = "take another id, or laas-manage fabric reimport, which takes in what changed"
            raise Conflict(f"there is a fabric {id!r} already; {fix}") from error
        return self.fabric(id)

    def delete_fabric(self, id: str) -> FabricRecord:
        allocation = models.Allocation
        its_own = select(allocation.id).where(allocation.fabric == id)
        with self._transactions.writing("delete fabric") as session:
            # The lease first, as everywhere; admission waits for the lock of the fabric.
            session.execute(
                select(models.Lease.token).where(models.Lease.fabric == id).with_for_update()
            )
            locked_generation(session, id)
            record = self._ledgers.record(session, id)
            over = allocation.state.in_([state.value for state in OVER])
            live = session.scalars(its_own.where(~over).order_by(allocation.sequence)).all()
            if live:
                raise Conflict(
                    f"fabric {id} has {len(live)} allocations: {listed(live)}; delete them first"
                )
            for other in WITH_ALLOCATIONS:
                session.execute(delete(other).where(other.allocation.in_(its_own)))
            for table in reversed(models.Base.metadata.sorted_tables):
                if "fabric" in table.columns:
                    session.execute(delete(table).where(table.columns.fabric == id))
            session.execute(delete(models.Fabric).where(models.Fabric.id == id))
        self._ledgers.forget(id)
        return record

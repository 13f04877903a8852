# SPDX-License-Identifier: Apache-2.0

"""The parts of one process, beyond its database and its subnet managers."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from random import SystemRandom
from typing import Any

from keystoneauth1 import loading
from keystoneauth1.adapter import Adapter
from keystoneauth1.identity.base import BaseIdentityPlugin
from oslo_config import cfg

from laas_service import conf
from laas_service.adapters import ironic, messaging, neutron, nova, process_names
from laas_service.adapters.certificate_keys import CertificateKeys
from laas_service.adapters.compute_directory import DirectoryCompute
from laas_service.adapters.db.leases import SqlLeases
from laas_service.adapters.db.outbox import SqlOutbox
from laas_service.adapters.db.store import SqlStore
from laas_service.adapters.db.transactions import nowhere, utc_now
from laas_service.adapters.keystone import KeystoneProjects
from laas_service.adapters.log_context import acting_for
from laas_service.adapters.rate_limits_directory import DirectoryRateLimits
from laas_service.app.admission_queue import AdmissionQueue
from laas_service.app.ports.compute import Compute
from laas_service.app.ports.projects import Projects
from laas_service.app.ports.rate_limits import RateLimits
from laas_service.app.ports.store import Store
from laas_service.app.ports.subnet_manager import ReadBack, RecordedSwitches
from laas_service.app.queue_moves import QueueMoves
from laas_service.app.quotas import ProjectLimits
from laas_service.app.requests import Envelope, Runtime, ServicePolicy
from laas_service.app.sharing.slot_changes import announced_moves
from laas_service.app.use_cases import UseCases, every_policy, in_background
from laas_service.app.worker.converger import Converger
from laas_service.app.worker.fabric_leases import FabricLeases, Intervals, Renewal
from laas_service.app.worker.hooks import Hooks
from laas_service.app.worker.housekeeper import Housekeeper
from laas_service.app.worker.loop import Loop
from laas_service.app.worker.notifier import Notifier
from laas_service.app.worker.perform import Ports
from laas_service.app.worker.port_events import PortEvents
from laas_service.app.worker.round import CounterMode, LookRules, Pace, WorkerRules
from laas_service.app.worker.watchdog import Watchdog
from laas_service.app.worker.worker import Worker
from laas_service.conf.api import ApiOptions
from laas_service.conf.compute import ComputeOptions
from laas_service.conf.faults import FaultOptions
from laas_service.conf.limits import LimitOptions
from laas_service.conf.opensm import OpenSmOptions
from laas_service.conf.queue import QueueOptions
from laas_service.conf.sharing import SharingOptions
from laas_service.conf.worker import WorkerOptions
from laas_service.domain.policies import POLICIES
from laas_service.domain.sharing.policy import SharedSlots
from laas_service.garbage import Collector
from laas_service.version import user_agent
from laas_service.wiring import evidence
from laas_service.wiring.database import Database
from laas_service.wiring.subnet_managers import SubnetManagers
from opensm_writer.observer import LinkEvents


class Composition:
    """The parts of one process; each is made on first use and kept.

    ``at`` is called with a step's name around every effect (for fault injection).

    Raises (of every part):
        InvalidInput: an option is wrong; names it.
        Unavailable: the database does not answer.
    """

    def __init__(self, conf: cfg.ConfigOpts, *, at: Callable[[str], None] = nowhere) -> None:
        self._conf = conf
        self._at = at
        self._use_cases: list[UseCases] = []

    def reload(self) -> None:
        """Give the existing parts the options that may change in a running process."""
        options, queue = WorkerOptions.of(self._conf), QueueOptions.of(self._conf)
        projects = LimitOptions.of(self._conf)
        for use_cases in self._use_cases:
            use_cases.reload(queue.order, projects.limits, projects.unmoved_projects)
        made = vars(self)
        if "admission_queue" in made:
            self.admission_queue.reload(queue.order)
        if "queue_moves" in made:
            moved = projects.limits, projects.unmoved_projects
            self.queue_moves.reload(queue.room, *moved)
        if "fabric_leases" in made:
            self.fabric_leases.reload(_intervals(options))
        if "housekeeper" in made:
            self.housekeeper.reload(self._conf.retention.released_days)
        for name in {"worker", "notifier"} & made.keys():
            if loop := made[name]:
                loop.every(options.poll_interval)

    @cached_property
    def database(self) -> Database:
        return Database(self._conf, at=self._at)

    @property
    def store(self) -> SqlStore:
        return self.database.store

    @cached_property
    def subnet_managers(self) -> SubnetManagers:
        return SubnetManagers(self._conf, self.database, lambda: self.waker)

    @property
    def default_fabric(self) -> str | None:
        """The configured id of the fabric that is meant if none is named."""
        return ApiOptions.of(self._conf).default_fabric

    @cached_property
    def collector(self) -> Collector:
        """Makes the full garbage collections of this process, between requests and rounds."""
        return Collector()

    @cached_property
    def watchdog(self) -> Watchdog:
        return Watchdog(time.monotonic, WorkerOptions.of(self._conf).step_timeout)

    @cached_property
    def compute(self) -> Compute:
        options = ComputeOptions.of(self._conf)
        if options.kind == "nova":
            return nova.connect(
                self._conf, self._host_guids, self.watchdog.beat, self._names_in_nova
            )
        if options.kind == "ironic":
            return ironic.connect(self._conf, self._host_guids, self.watchdog.beat)
        return DirectoryCompute(
            options.directory,
            pool=options.pool,
            sentinel=options.sentinel,
            waits=not evidence.frees_unanswered(self._conf),
        )

    @cached_property
    def rate_limits(self) -> RateLimits | None:
        """What limits the servers of class ``shared``; None: nothing. Raises: InvalidInput."""
        options = SharingOptions.of(self._conf)
        if options.enforcement == "none":
            return None
        if options.enforcement == "directory":
            return DirectoryRateLimits(options.directory)
        return neutron.connect(self._conf, self.watchdog.beat)

    def _host_guids(self) -> dict[str, set[int]]:
        """The port GUIDs of every host, by its name."""
        found: dict[str, set[int]] = {}
        for fabric in self.store.fabrics.all():
            names = fabric.inventory.host_names
            for endpoint in fabric.inventory.endpoints:
                if endpoint.host is not None:
                    found.setdefault(names[endpoint.host], set()).add(endpoint.guid)
        return found

    def _names_in_nova(self) -> dict[str, str]:
        """Every host by name, with its recorded name in Nova; empty if Nova never had it."""
        found: dict[str, str] = {}
        for fabric in self.store.fabrics.all():
            memory = self.store.faults.host_memory(fabric.id)
            for name in filter(None, fabric.inventory.host_names):
                found[name] = found.get(name) or memory.name(name)
        return found

    @cached_property
    def projects(self) -> Projects:
        """Keystone, where the login of [nova] or [ironic] comes from a Keystone with a catalog."""
        group = ComputeOptions.of(self._conf).kind
        if group not in ("nova", "ironic"):
            return Projects()
        auth = loading.load_auth_from_conf_options(self._conf, group)
        if not isinstance(auth, BaseIdentityPlugin):
            return Projects()
        options = self._conf[group]
        return KeystoneProjects(
            Adapter(
                loading.load_session_from_conf_options(self._conf, group, user_agent=user_agent()),
                auth=auth,
                service_type="identity",
                interface=options.valid_interfaces,
                region_name=options.region_name,
                min_version="3",
                max_version="3.latest",
            )
        )

    @cached_property
    def fabric_leases(self) -> FabricLeases:
        options = WorkerOptions.of(self._conf)
        return FabricLeases(
            self.store,
            SqlLeases(
                self.database.engine, gone=process_names.is_gone, longest=2 * options.lease_seconds
            ),
            self._converger,
            owner=process_names.new_name(),
            seconds=options.lease_seconds,
            intervals=_intervals(options),
            watchdog=self.watchdog,
            clock=time.monotonic,
        )

    def _converger(self, store: Store, fabric: str, before_effect: Callable[[], None]) -> Converger:
        options, manager = WorkerOptions.of(self._conf), self.subnet_managers.of_worker
        compute, faults = ComputeOptions.of(self._conf), FaultOptions.of(self._conf)
        rules = WorkerRules(
            pace=Pace(options.retry_first, options.retry_last, options.apply_timeout),
            repair=options.repair,
            repair_links=options.repair_links,
            move_window=options.move_window,
            free_unread=evidence.frees_unread(self._conf, manager.confirmed_by),
            live_ports=compute.live_ports,
            looks=LookRules(compute.state_interval, compute.stop_strangers, compute.withholding),
            faults=faults.rules,
            counters=CounterMode(faults.counters),
            counter_rules=faults.counter_rules,
        )
        hooks = Hooks(
            now=self.database.clock,
            chance=SystemRandom(),
            clock=time.monotonic,
            at=self._at,
            before_effect=before_effect,
            acting_for=acting_for,
            again=self._wake_after,
        )
        ports = Ports(self.compute, manager, self.rate_limits)
        moves = announced_moves(settles=self.compute.claims_slots)
        return Converger(store, ports, rules, hooks, fabric, moves)

    def _wake_after(self, seconds: float) -> None:
        timer = threading.Timer(seconds, self.worker.wake)
        timer.daemon = True
        timer.start()

    @cached_property
    def worker(self) -> Worker:
        FaultOptions.of(self._conf)  # a wrong threshold is refused at the start
        QueueOptions.of(self._conf)  # and so is a wrong window
        interval = WorkerOptions.of(self._conf).poll_interval
        worker = Worker(self.fabric_leases, self._serve, interval)
        worker.busy = self.collector.busy
        return worker

    def _serve(self) -> int:
        """Serve all queues, if the tables are those of this release. ``Unavailable``."""
        self.store.check()
        generations = self.store.fabrics.generations()
        admitted = self.admission_queue.serve_all(generations)
        return admitted + self.queue_moves.serve_all(generations)

    @cached_property
    def bus(self) -> messaging.Bus | None:
        """The message bus; None if processes share the database only."""
        return messaging.connect(self._conf)

    @cached_property
    def waker(self) -> Callable[[], None]:
        """Wakes workers in other processes; returns at once, whatever the bus does."""
        return self.bus.waker() if self.bus else _polled

    @cached_property
    def notifier(self) -> Notifier | None:
        """Sends notifications; None if they are switched off."""
        if not messaging.announces(self._conf):
            return None
        return Notifier(
            SqlOutbox(self.database.engine),
            messaging.publisher(self._conf).publish,
            clock=self.database.clock,
            interval=WorkerOptions.of(self._conf).poll_interval,
        )

    @cached_property
    def housekeeper(self) -> Housekeeper:
        return Housekeeper(self.store.allocations, self._conf.retention.released_days)

    @contextmanager
    def working(self, patience: float | None = None) -> Iterator[Worker]:
        """Runs the worker in threads of this process until the end of the block.

        The step at hand is finished first, within ``patience`` seconds if given.
        """
        loops: list[Loop] = [self.worker, *([self.notifier] if self.notifier else [])]
        seconds = WorkerOptions.of(self._conf).lease_seconds
        renewal = Renewal(self.fabric_leases, seconds, self.worker.wake)
        listener = self.bus.listener(lambda: _wake(loops)) if self.bus else None
        beside = (
            self.subnet_managers.opensm
            if OpenSmOptions.of(self._conf).reached_by == "worker"
            else None
        )
        events = LinkEvents.of(beside)
        watching: list[Loop] = [renewal, self.housekeeper]
        watching += [PortEvents(events.happened, self.worker.wake)] if events else []
        for loop in (*loops, *watching):
            loop.start()
        if listener:
            listener.start()
        try:
            yield self.worker
        finally:
            if listener:
                listener.stop(timeout=1)
            self.worker.stop(patience)
            for loop in watching:
                loop.stop(timeout=1)
            if self.notifier:
                self.notifier.stop(timeout=1)  # it may wait for the broker for ever

    def _sign(self, statement: Mapping[str, Any]) -> Envelope:
        """Sign a certificate by the keys under the state directory. Raises: Unavailable."""
        return CertificateKeys(Path(self._conf.state_dir) / "certificate-keys").sign(statement)

    @cached_property
    def admission_queue(self) -> AdmissionQueue:
        policies = every_policy(SharedSlots())
        discipline = QueueOptions.of(self._conf).order
        return AdmissionQueue(self.store, policies, discipline, clock=self.database.clock)

    @cached_property
    def queue_moves(self) -> QueueMoves:
        """Makes room for the heads of queues. Raises: InvalidInput."""
        options = LimitOptions.of(self._conf)
        quotas = ProjectLimits(
            self.store, self.compute, limits=options.limits, unmoved=options.unmoved_projects
        )
        return QueueMoves(
            self.store,
            self.admission_queue,
            quotas,
            QueueOptions.of(self._conf).room,
            POLICIES[ApiOptions.of(self._conf).default_policy](),
            clock=self.database.clock,
            live_ports=ComputeOptions.of(self._conf).live_ports,
        )

    def use_cases(self, wake: Callable[[], None]) -> UseCases:
        """The use cases; ``wake`` is called when there is something to converge."""
        options, compute = ApiOptions.of(self._conf), ComputeOptions.of(self._conf)
        projects = LimitOptions.of(self._conf)
        opensm = OpenSmOptions.of(self._conf)
        reached_by = opensm.reached_by
        read_back: ReadBack = (
            self.subnet_managers.of_worker.applied
            if reached_by == "agent"
            else RecordedSwitches(self.store.observations).applied  # OpenSM may be elsewhere
        )
        made = UseCases(
            self.store,
            self.compute,
            {"ufm" if reached_by == "ufm" else "opensm": read_back},
            ServicePolicy(
                policies=options.policies,
                default_policy=options.default_policy,
                default_fabric=options.default_fabric,
                contention_free=options.contention_free,
                foreign_default_routes=reached_by == "ufm" or opensm.enforcement == "chains",
                one_per_project=compute.one_per_project,
                waiters=options.waiters,
                queue=QueueOptions.of(self._conf).order,
                limits=projects.limits,
                unmoved=projects.unmoved_projects,
                unshared=SharingOptions.of(self._conf).unshared,
                search_budget=options.search_budget,
                repair_links=WorkerOptions.of(self._conf).repair_links,
                fault_mode=FaultOptions.of(self._conf).mode,
                live_ports=compute.live_ports,
                move_window=WorkerOptions.of(self._conf).move_window,
            ),
            Runtime(utc_now, self.collector.sleep, wake, lambda: str(uuid.uuid4()), self._sign),
            registry=self.subnet_managers.registry(wake),
            projects=self.projects,
            ahead=in_background,
        )
        self._use_cases.append(made)
        return made


def set_defaults() -> None:
    """For ``oslo-config-generator``: our defaults of other libraries' options."""
    conf.set_defaults()
    messaging.set_defaults()


def _wake(loops: list[Loop]) -> None:
    for loop in loops:
        loop.wake()


def _polled() -> None:
    """Without a bus, workers find new work at their next poll."""


def _intervals(options: WorkerOptions) -> Intervals:
    return Intervals(options.reconcile_interval, options.drift_interval)

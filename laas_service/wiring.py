# SPDX-License-Identifier: Apache-2.0

"""The composition root: makes adapters and use cases as a configuration says."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import time as Time
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from random import SystemRandom
from typing import Any

from keystoneauth1 import loading
from keystoneauth1.adapter import Adapter
from keystoneauth1.identity.base import BaseIdentityPlugin
from oslo_config import cfg
from sqlalchemy import Engine

from laas_service import conf
from laas_service.adapters import ironic, messaging, neutron, nova, process_names, service_rest
from laas_service.adapters.agent_switches import AgentSubnetManager
from laas_service.adapters.compute_directory import DirectoryCompute
from laas_service.adapters.db import backup, restore, schema, soundness
from laas_service.adapters.db.agents import SqlAgents
from laas_service.adapters.db.clock import DatabaseClock
from laas_service.adapters.db.engine import (
    connect,
    consistent_read,
    narrow_characters,
    translated,
    weak_settings,
)
from laas_service.adapters.db.leases import SqlLeases
from laas_service.adapters.db.outbox import SqlOutbox
from laas_service.adapters.db.quotas import SqlQuotas
from laas_service.adapters.db.retention import archive_file
from laas_service.adapters.db.store import SqlStore
from laas_service.adapters.db.transactions import nowhere, utc_now
from laas_service.adapters.db.ufm_memory import SqlUfmMemory
from laas_service.adapters.keystone import KeystoneProjects
from laas_service.adapters.limits_directory import DirectoryLimits
from laas_service.adapters.log_context import acting_for
from laas_service.adapters.ufm.manager import UfmRules, UfmSubnetManager
from laas_service.adapters.ufm.rest import UfmRest, UfmSettings
from laas_service.app.admission_queue import AdmissionQueue
from laas_service.app.agent_registry import AgentRegistry
from laas_service.app.opensm_agent import OpenSmAgent
from laas_service.app.ports.compute import Compute
from laas_service.app.ports.limits import SendingLimits
from laas_service.app.ports.projects import NoProjects, Projects
from laas_service.app.ports.store import Store
from laas_service.app.ports.subnet_manager import RecordedSwitches, SubnetManager, Switches
from laas_service.app.queue_moves import QueueMoves, RoomMode, RoomRules
from laas_service.app.quotas import Quotas
from laas_service.app.records import Limits
from laas_service.app.requests import ServicePolicy
from laas_service.app.room_planner import Permission
from laas_service.app.use_cases import UseCases, in_background
from laas_service.app.worker.converger import Converger
from laas_service.app.worker.fabric_leases import FabricLeases, Renewal
from laas_service.app.worker.housekeeper import BATCH, Housekeeper
from laas_service.app.worker.loop import Loop
from laas_service.app.worker.notifier import Notifier
from laas_service.app.worker.perform import Hooks, Ports
from laas_service.app.worker.port_events import PortEvents
from laas_service.app.worker.round import CounterMode, LookRules, Pace, WorkerRules
from laas_service.app.worker.watchdog import Watchdog
from laas_service.app.worker.worker import Worker
from laas_service.conf import opensm_site
from laas_service.conf.database import connection, engine_options
from laas_service.domain.admission.queue import Discipline, Order, Shadow
from laas_service.domain.compute_hosts import MISSING, HostRules
from laas_service.domain.constraints import ContentionFree
from laas_service.domain.errors import InvalidInput
from laas_service.domain.faults.counters import CounterRules, Tolerance, thresholds_from
from laas_service.domain.faults.observation import Mode, Rules
from laas_service.domain.policies import POLICIES
from laas_service.garbage import Collector
from laas_service.messages import PKEYS
from opensm_writer import render
from opensm_writer.fileset import published_generation
from opensm_writer.local import LocalSubnetManager
from opensm_writer.observer import LinkEvents
from opensm_writer.opensm import OpenSm, steady_time
from opensm_writer.serve import WITH_GUIDS, ServedSets
from opensm_writer.site import SiteSettings, read_key
from opensm_writer.supervisor import Supervisor


class Parts:
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
        options = self._conf.worker
        discipline, project_limits = queue_discipline(self._conf.queue), limits(self._conf.limits)
        unmoved = frozenset(self._conf.limits.unmoved_projects)
        for use_cases in self._use_cases:
            use_cases.reload(discipline, project_limits, unmoved)
        made = vars(self)
        if "admission_queue" in made:
            self.admission_queue.reload(discipline)
        if "queue_moves" in made:
            self.queue_moves.reload(room_rules(self._conf.queue), project_limits, unmoved)
        if "fabric_leases" in made:
            self.fabric_leases.reload(
                reconcile_interval=options.reconcile_interval,
                drift_interval=options.drift_interval,
            )
        if "housekeeper" in made:
            self.housekeeper.reload(self._conf.retention.released_days)
        for name in {"worker", "notifier"} & made.keys():
            if loop := made[name]:
                loop.every(options.poll_interval)

    @property
    def default_fabric(self) -> str | None:
        """The configured id of the fabric that is meant if none is named."""
        configured: str | None = self._conf.api.default_fabric
        return configured

    def upgrade_database(self) -> None:
        """Migrate the tables to this release; safe to repeat."""
        schema.upgrade(self._engine)

    def database_revisions(self) -> tuple[str | None, str]:
        """The revisions of the tables (None: there are none), and of this release."""
        with translated(), self._engine.connect() as connection:
            return schema.current(connection), schema.head()

    def back_up_database(self, path: Path) -> int:
        """Write a backup; returns the number of rows. See ``backup.write``."""
        return backup.write(self._engine, path, utc_now())

    def restore_database(self, path: Path, above: int = 0) -> backup.Header:
        """Fill the database, which must be empty, from a backup. See ``restore.restore``.

        Generations continue above those published on this machine, and above ``above``.
        """
        served = self._file_sets
        roots = (Path(self._conf.opensm.directory), served, served / WITH_GUIDS)

        def newest(fabric: str) -> int:
            return max(above, *(published_generation(root, fabric) for root in roots))

        return restore.restore(self._engine, path, seen=newest, now=utc_now())

    def forget_allocations(self, days: int | None, path: Path | None = None) -> int:
        """Delete the allocations that were released ``days`` ago; returns their number.

        [retention] says how many days if None is given. What is deleted is appended to the file of
        this name, if there is one. Raises: InvalidInput, also if neither names days.
        """
        days = self._conf.retention.released_days if days is None else days
        if days < 1:
            fix = "give at least 1, or set [retention] released_days"
            raise InvalidInput("--released-days", days, fix)
        self.store.check()
        with archive_file(path) if path else nullcontext() as archive:
            total = 0
            while number := self.store.allocations.forget(timedelta(days=days), BATCH, archive):
                total += number
            return total

    def database_findings(self) -> list[str]:
        """Contradictions between tables of the database, a sentence each."""
        self.store.check()
        with consistent_read(self._engine) as connection:
            return soundness.findings(connection)

    @cached_property
    def _engine(self) -> Engine:
        return connect(connection(self._conf), **engine_options(self._conf))

    @cached_property
    def clock(self) -> DatabaseClock:
        """The database's clock, by which everything that is due or taken is judged."""
        return DatabaseClock(self._engine)

    @cached_property
    def collector(self) -> Collector:
        """Makes the full garbage collections of this process, between requests and rounds."""
        return Collector()

    @cached_property
    def store(self) -> SqlStore:
        return SqlStore(
            self._engine,
            now=self.clock,
            at=self._at,
            announce=messaging.announces(self._conf),
            pkeys=self.pkeys,
            keep_events=self._conf.retention.events,
        )

    @cached_property
    def quotas(self) -> SqlQuotas:
        return SqlQuotas(self._engine, self.clock)

    @cached_property
    def watchdog(self) -> Watchdog:
        return Watchdog(time.monotonic, self._conf.worker.step_timeout)

    @cached_property
    def compute(self) -> Compute:
        options = self._conf.compute
        if options.kind == "nova":
            return nova.connect(
                self._conf, self._host_guids, self.watchdog.beat, self._names_in_nova
            )
        if options.kind == "ironic":
            return ironic.connect(self._conf, self._host_guids, self.watchdog.beat)
        return DirectoryCompute(
            Path(options.directory), pool=options.pool, sentinel=options.sentinel
        )

    @cached_property
    def limits(self) -> SendingLimits | None:
        """What limits the servers of class ``shared``; None: nothing. Raises: InvalidInput."""
        options = self._conf.sharing
        if options.enforcement == "none":
            return None
        if options.enforcement == "directory":
            return DirectoryLimits(Path(options.directory))
        if self._conf.compute.kind != "nova":
            fix = "only [compute] kind = nova tells the servers whose ports are to be limited"
            raise InvalidInput("[sharing] enforcement", options.enforcement, fix)
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
            memory = self.store.compute_hosts.memory(fabric.id)
            for name in filter(None, fabric.inventory.host_names):
                found[name] = found.get(name) or memory.name(name)
        return found

    @property
    def services(self) -> frozenset[int]:
        """Port GUIDs that every tenant may reach. Raises: InvalidInput."""
        return frozenset(_guid(text) for text in self._conf.opensm.services)

    @property
    def virtual_ports(self) -> bool:
        """Whether partitions list virtual ports."""
        return bool(self._conf.opensm.virtual_ports)

    @property
    def one_rule_per_group(self) -> bool:
        """Whether port groups of routing chains have one rule each."""
        return bool(self._conf.opensm.one_rule_per_group)

    @property
    def pkeys(self) -> range:
        """The partition keys that new allocations may get. Raises: InvalidInput."""
        return tenant_pkeys(self._conf.opensm.pkeys)

    @cached_property
    def subnet_manager(self) -> AgentSubnetManager | LocalSubnetManager | UfmSubnetManager:
        options = self._conf.opensm
        if options.reached_by == "agent":
            return self._agent_switches
        if options.reached_by == "ufm":
            files: SubnetManager | None = None
            if self._conf.ufm.agent:
                files = self._agent_switches
            elif _names_a_reader(self._conf):
                files = self._files_and_opensm
            return UfmSubnetManager(
                self.ufm, _ufm_rules(self._conf), self.store, SqlUfmMemory(self._engine), files
            )
        return self._files_and_opensm

    @property
    def _agent_switches(self) -> AgentSubnetManager:
        options = self._conf.opensm
        return AgentSubnetManager(
            self._agents,
            seconds=options.agent_lease_seconds,
            patience=options.patience,
            wake=lambda: self.waker(),
        )

    @cached_property
    def ufm(self) -> UfmRest:
        """UFM's REST interface, as [ufm] says. Raises: InvalidInput."""
        options = self._conf.ufm
        paths = ("token_file", "cert_file", "key_file", "ca_file")
        return UfmRest(
            UfmSettings(
                options.url or "",
                **{name: _path(options[name]) for name in paths},
                timeout=options.timeout,
                job_timeout=options.job_timeout,
            )
        )

    @property
    def ufm_fabric(self) -> str | None:
        """The id of the fabric that UFM manages, as configured."""
        configured: str | None = self._conf.ufm.fabric
        return configured

    @property
    def _files_and_opensm(self) -> LocalSubnetManager:
        options = self._conf.opensm
        return LocalSubnetManager(
            Path(options.directory),
            _opensm(self._conf, now=lambda: self.clock().timestamp()),
            enforcement=options.enforcement,
            multicast=options.multicast,
            services=[_guid(text) for text in options.services],
            one_rule_per_group=options.one_rule_per_group,
            virtual_ports=options.virtual_ports,
            level=shared_level(self._conf),
            keep=options.keep,
            site=_site(self._conf),
            attended=_names_a_reader(self._conf),
            patience=options.patience,
        )

    @cached_property
    def projects(self) -> Projects:
        """Keystone, where the login of [nova] or [ironic] comes from a Keystone with a catalog."""
        group = self._conf.compute.kind
        if group not in ("nova", "ironic"):
            return NoProjects()
        auth = loading.load_auth_from_conf_options(self._conf, group)
        if not isinstance(auth, BaseIdentityPlugin):
            return NoProjects()
        options = self._conf[group]
        return KeystoneProjects(
            Adapter(
                loading.load_session_from_conf_options(self._conf, group),
                auth=auth,
                service_type="identity",
                interface=options.valid_interfaces,
                region_name=options.region_name,
                min_version="3",
                max_version="3.latest",
            )
        )

    def weak_database(self) -> list[str]:
        """Settings of the database server that may lose acknowledged requests. ``Unavailable``."""
        return weak_settings(self._engine)

    def narrow_characters(self) -> list[str]:
        """Why the database cannot hold every name, a sentence each. ``Unavailable``."""
        return narrow_characters(self._engine)

    def unread_switches(self) -> str | None:
        """Why no allocation is confirmed by the switches or an agent; None if they are."""
        by = self.subnet_manager.confirmed_by
        if by.was_read:
            return None
        return (
            f"nobody reads the switches back: allocations become active with confirmed_by = "
            f"{by.value}, whatever the switches run; set [opensm] dump_command of the worker, or "
            "reached_by = agent"
        )

    @cached_property
    def _agents(self) -> SqlAgents:
        return SqlAgents(self._engine)

    @property
    def _file_sets(self) -> Path:
        """The directory of the file sets that agents fetch."""
        return Path(self._conf.state_dir) / "file-sets"

    def _agent_registry(self, wake: Callable[[], None]) -> AgentRegistry | None:
        options = self._conf.opensm
        beside_ufm = options.reached_by == "ufm" and self._conf.ufm.agent
        if options.reached_by != "agent" and not beside_ufm:
            return None
        if options.enforcement != "file" and not beside_ufm:
            raise InvalidInput(
                "[opensm] enforcement", options.enforcement, "agents read back; that needs 'file'"
            )
        served = ServedSets(
            self._file_sets, self.store.fabrics.routed, lambda fabric: _files(self._conf, fabric)
        )
        return AgentRegistry(
            self.store,
            self._agents,
            served,
            seconds=options.agent_lease_seconds,
            wake=wake,
            now=self.clock,
            fault_mode=Mode(self._conf.faults.mode),
        )

    @cached_property
    def fabric_leases(self) -> FabricLeases:
        options = self._conf.worker
        return FabricLeases(
            self.store,
            SqlLeases(self._engine, gone=process_names.is_gone, longest=2 * options.lease_seconds),
            self._converger,
            owner=process_names.new_name(),
            seconds=options.lease_seconds,
            reconcile_interval=options.reconcile_interval,
            drift_interval=options.drift_interval,
            watchdog=self.watchdog,
            clock=time.monotonic,
        )

    def _converger(self, store: Store, fabric: str, before_effect: Callable[[], None]) -> Converger:
        options, manager = self._conf.worker, self.subnet_manager
        marks = manager if isinstance(manager, UfmSubnetManager) else None
        rules = WorkerRules(
            pace=Pace(options.retry_first, options.retry_last, options.apply_timeout),
            repair=options.repair,
            repair_links=options.repair_links,
            park_after=options.park_after,
            move_window=options.move_window,
            live_ports=self._conf.compute.live_ports,
            limits_interval=self._conf.sharing.interval,
            looks=host_rules(self._conf.compute),
            faults=fault_rules(self._conf.faults),
            counters=CounterMode(self._conf.faults.counters),
            counter_rules=counter_rules(self._conf.faults),
        )
        hooks = Hooks(
            now=self.clock,
            chance=SystemRandom(),
            clock=time.monotonic,
            at=self._at,
            before_effect=before_effect,
            acting_for=acting_for,
            again=self._wake_after,
        )
        ports = Ports(self.compute, manager, self.limits, marks)
        return Converger(store, ports, rules, hooks, fabric)

    def _wake_after(self, seconds: float) -> None:
        timer = threading.Timer(seconds, self.worker.wake)
        timer.daemon = True
        timer.start()

    def _port_events(self, wake: Callable[[], None]) -> list[Loop]:
        """The loop that wakes another one after changes of ports, if this process reads them."""
        opensm = _opensm(self._conf)
        if opensm is None or not (opensm.links_command and opensm.log_file):
            return []
        return [PortEvents(LinkEvents(opensm).happened, wake)]

    @cached_property
    def worker(self) -> Worker:
        counter_rules(self._conf.faults)  # a wrong threshold is refused at the start
        room_rules(self._conf.queue)  # and so is a wrong window
        worker = Worker(self.fabric_leases, self._serve, self._conf.worker.poll_interval)
        worker.busy = self.collector.busy
        return worker

    def _serve(self) -> int:
        """Serve all queues, if the tables are those of this release. ``Unavailable``."""
        self.store.check()
        return self.admission_queue.serve_all() + self.queue_moves.serve_all()

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
            SqlOutbox(self._engine),
            messaging.publisher(self._conf),
            clock=self.clock,
            interval=self._conf.worker.poll_interval,
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
        renewal = Renewal(self.fabric_leases, self._conf.worker.lease_seconds, self.worker.wake)
        listener = self.bus.listener(lambda: _wake(loops)) if self.bus else None
        watching = [renewal, self.housekeeper, *self._port_events(self.worker.wake)]
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

    @cached_property
    def opensm_agent(self) -> OpenSmAgent:
        """Looks after the OpenSM of this machine; reaches the service over REST alone.

        Raises:
            InvalidInput: also if no option says how tables are read back.
            Unavailable: the fabric is not named, and the service does not answer.
        """
        options = self._conf.opensm
        opensm = _opensm(self._conf)
        beside_ufm = options.reached_by == "ufm"
        if beside_ufm:
            opensm = opensm or OpenSm(timeout=options.timeout)
            _check_reads_nothing(options)
        elif opensm is None or not (opensm.dump_command or opensm.dump_file):
            raise InvalidInput(
                "[opensm] dump_command", [], "an agent needs it, or dump_file, to read tables back"
            )
        service = service_rest.ServiceRest(
            service_rest.connect(self._conf),
            options.agent_name,
            options.agent_fabric,
            now=opensm.now,
        )
        supervisor = Supervisor(
            Path(options.directory),
            service.fabric,
            opensm,
            keep=options.keep,
            timeout=self._conf.worker.apply_timeout,
            enforcement=options.enforcement if beside_ufm else "file",
            reads_back=not beside_ufm,
        )
        agent = OpenSmAgent(service, supervisor, interval=options.agent_poll_interval)
        agent.busy = self.collector.busy
        return agent

    @contextmanager
    def running_agent(self) -> Iterator[OpenSmAgent]:
        """Runs the agent in a thread of this process until the end of the block."""
        agent = self.opensm_agent
        listener = self.bus.listener(agent.wake) if self.bus else None
        watching = self._port_events(agent.wake)
        for loop in (agent, *watching):
            loop.start()
        if listener:
            listener.start()
        try:
            yield agent
        finally:
            if listener:
                listener.stop(timeout=1)
            for loop in watching:
                loop.stop(timeout=1)
            agent.stop()

    @cached_property
    def admission_queue(self) -> AdmissionQueue:
        policies = {name: policy() for name, policy in POLICIES.items()}
        return AdmissionQueue(
            self.store, policies, queue_discipline(self._conf.queue), clock=self.clock
        )

    @cached_property
    def queue_moves(self) -> QueueMoves:
        """Makes room for the heads of queues. Raises: InvalidInput."""
        options = self._conf.limits
        quotas = Quotas(
            self.store,
            self.compute,
            limits=limits(options),
            unmoved=frozenset(options.unmoved_projects),
        )
        return QueueMoves(
            self.store,
            self.admission_queue,
            quotas,
            room_rules(self._conf.queue),
            POLICIES[self._conf.api.default_policy](),
            clock=self.clock,
            live_ports=self._conf.compute.live_ports,
        )

    @property
    def _unshared(self) -> str:
        """Why hosts are not shared; empty if they are."""
        if why := UNSHARED.get(self._conf.compute.kind):
            return why
        return "" if self._conf.sharing.access == "together" else NOT_TOGETHER

    def use_cases(self, wake: Callable[[], None]) -> UseCases:
        """The use cases; ``wake`` is called when there is something to converge."""
        options, compute = self._conf.api, self._conf.compute
        switches: Switches = (
            self.subnet_manager
            if self._conf.opensm.reached_by == "agent"
            else RecordedSwitches(self.store.observations)  # OpenSM may be on another machine
        )
        made = UseCases(
            self.store,
            self.compute,
            {"ufm" if self._conf.opensm.reached_by == "ufm" else "opensm": switches},
            ServicePolicy(
                policies={name: POLICIES[name]() for name in _known(options.enabled_policies)},
                default_policy=options.default_policy,
                default_fabric=options.default_fabric,
                contention_free=(
                    ContentionFree(options.contention_free) if options.contention_free else None
                ),
                one_per_project=compute.kind == "nova" and compute.one_allocation_per_project,
                waiters=options.max_waiters,
                queue=queue_discipline(self._conf.queue),
                limits=limits(self._conf.limits),
                unmoved=frozenset(self._conf.limits.unmoved_projects),
                unshared=self._unshared,
                search_budget=options.search_budget,
                repair_links=self._conf.worker.repair_links,
                fault_mode=Mode(self._conf.faults.mode),
                live_ports=compute.live_ports,
            ),
            clock=utc_now,
            sleep=self.collector.sleep,
            wake=wake,
            new_id=lambda: str(uuid.uuid4()),
            registry=self._agent_registry(wake),
            projects=self.projects,
            ahead=in_background,
        )
        self._use_cases.append(made)
        return made


NOT_TOGETHER = (
    "those who share hosts would reach each other, as the keys of a port are those of all servers "
    "behind it; [sharing] access = together accepts that"
)
"""Why hosts are not shared unless an operator says so."""

UNSHARED = {
    "ironic": "[compute] kind = ironic: a bare-metal node has one owner",
}
"""By kind of compute, why hosts cannot be shared."""


def set_defaults() -> None:
    """For ``oslo-config-generator``: our defaults of other libraries' options."""
    conf.set_defaults()
    messaging.set_defaults()


def _wake(loops: list[Loop]) -> None:
    for loop in loops:
        loop.wake()


def _polled() -> None:
    """Without a bus, workers find new work at their next poll."""


def _known(names: list[str]) -> list[str]:
    for name in names:
        if name not in POLICIES:
            raise InvalidInput(
                "[api] enabled_policies", name, f"choose among {', '.join(sorted(POLICIES))}"
            )
    return names


def queue_discipline(options: cfg.ConfigOpts.GroupAttr) -> Discipline:
    """The discipline that [queue] configures."""
    return Discipline(
        options.discipline, options.window, Shadow(options.shadow), Order(options.order)
    )


def room_rules(options: cfg.ConfigOpts.GroupAttr) -> RoomRules:
    """How [queue] makes room for the head. Raises: InvalidInput."""
    return RoomRules(
        RoomMode(options.make_room),
        Permission(options.make_room_moves, options.make_room_max_cost),
        options.make_room_gain,
        options.make_room_interval,
        _window(options.make_room_window),
        options.make_room_hosts,
    )


def _window(text: str) -> tuple[Time, Time] | None:
    """The time of day that [queue] make_room_window gives. Raises: InvalidInput."""
    if not text:
        return None
    try:
        first, last = map(Time.fromisoformat, text.split("-"))
    except ValueError:
        first = last = Time()
    if first == last:
        fix = "give HH:MM-HH:MM in UTC, such as 22:00-04:00"
        raise InvalidInput("[queue] make_room_window", text, fix)
    return first, last


def fault_rules(options: cfg.ConfigOpts.GroupAttr) -> Rules:
    """The rules that [faults] configures."""
    return Rules(
        mode=Mode(options.mode),
        hold_down=options.hold_down,
        flaps=options.flaps,
        flap_window=options.flap_window,
        quarantine=options.quarantine,
        breaker_switches=options.breaker_switches,
        breaker_share=options.breaker_share,
        breaker_window=options.breaker_window,
        reading_lifetime=options.reading_lifetime,
    )


def host_rules(options: cfg.ConfigOpts.GroupAttr) -> LookRules:
    """How [compute] has hosts observed."""
    withholding = HostRules(options.hold_down, options.outage_share, options.reap_interval)
    if options.kind == "ironic":
        withholding = replace(withholding, unknown=MISSING, away="Ironic did not know its node")
    return LookRules(options.state_interval, options.stop_strangers, withholding)


def counter_rules(options: cfg.ConfigOpts.GroupAttr) -> CounterRules:
    """The rules of port counters that [faults] configures. Raises: InvalidInput."""
    return CounterRules(
        thresholds_from(options.error_thresholds, options.wait_tick),
        options.bit_error_rate,
        Tolerance(options.audit_bytes_per_second, options.audit_share),
    )


def limits(options: cfg.ConfigOpts.GroupAttr) -> Limits:
    """The limits that [limits] gives every project."""
    return Limits(
        hosts=None if options.hosts < 0 else options.hosts,
        allocations=None if options.allocations < 0 else options.allocations,
        moves=None if options.moves < 0 else options.moves,
        slots=None if options.slots < 0 else options.slots,
    )


def tenant_pkeys(text: str) -> range:
    """The partition keys that [opensm] pkeys names. Raises: InvalidInput."""
    try:
        first, last = (int(end, 16) for end in text.split("-"))
    except ValueError:
        first, last = 0, 0
    if not PKEYS[0] <= first <= last <= PKEYS[-1]:
        fix = "give FIRST-LAST within 0x0001-0x7ffe, such as 0x0001-0x3fff"
        raise InvalidInput("[opensm] pkeys", text, fix)
    return range(first, last + 1)


def _guid(text: str, option: str = "services", group: str = "opensm") -> int:
    try:
        return int(text, 16)
    except ValueError as error:
        raise InvalidInput(f"[{group}] {option}", text, "give GUIDs such as 0x1b") from error


def shared_level(conf: cfg.ConfigOpts) -> int:
    """The service level of shared hosts; 0 if it is that of all others."""
    return int(conf.sharing.service_level) if conf.sharing.access == "together" else 0


def _files(conf: cfg.ConfigOpts, fabric: str) -> render.Settings:
    """Settings of files for an agent's OpenSM; the agent keeps them in the same directory."""
    options = conf.opensm
    return render.Settings(
        str(Path(options.directory).absolute() / fabric / "current"),
        options.enforcement,
        multicast=options.multicast,
        services=tuple(sorted(_guid(text) for text in options.services)),
        one_rule_per_group=options.one_rule_per_group,
        virtual_ports=options.virtual_ports,
        level=shared_level(conf),
    )


def _ufm_rules(conf: cfg.ConfigOpts) -> UfmRules:
    """What is the service's own in UFM. Raises: InvalidInput."""
    options = conf.opensm
    if not conf.ufm.fabric:
        raise InvalidInput("[ufm] fabric", conf.ufm.fabric, "name the fabric that UFM manages")
    place = conf.get_location("pkeys", "opensm")
    if place is None or place.location in _DEFAULTS:
        fix = "UFM has other writers: name the range of keys that is this service's alone"
        raise InvalidInput("[opensm] pkeys", options.pkeys, fix)
    if _opensm(conf) is not None:
        fix = "leave the files and commands of OpenSM unset: UFM reaches its own subnet manager"
        raise InvalidInput("[opensm] reached_by", options.reached_by, fix)
    return UfmRules(
        conf.ufm.fabric,
        tenant_pkeys(options.pkeys),
        options.virtual_ports,
        options.multicast,
        conf.ufm.ports_interval,
        conf.ufm.mark_unhealthy,
        options.enforcement == "chains",
    )


def _check_reads_nothing(options: cfg.ConfigOpts.GroupAttr) -> None:
    """Return if an agent beside UFM would read nothing from switches. Raises: InvalidInput."""
    readers = ("dump_command", "blocks_command", "links_command", "keys_command", "dump_file")
    for name in (*readers, "counters_command", "log_file"):
        if options[name]:
            fix = "leave it unset beside UFM: its manager computes tables that no set has"
            raise InvalidInput(f"[opensm] {name}", str(options[name]), fix)


_DEFAULTS = (cfg.Locations.opt_default, cfg.Locations.set_default)
"""Where an option has its value from if no configuration names it."""


def _names_a_reader(conf: cfg.ConfigOpts) -> bool:
    """Whether the configuration says where or how a subnet manager reads the files."""
    places = (conf.get_location(name, "opensm") for name in ("directory", "enforcement"))
    return any(place is not None and place.location not in _DEFAULTS for place in places)


def _site(conf: cfg.ConfigOpts) -> SiteSettings | None:
    """What [opensm_site] sets; None if it sets nothing. Raises: InvalidInput."""
    options = conf.opensm_site
    values: dict[str, Any] = {option.dest: options[option.dest] for option in opensm_site.OPTIONS}
    directory = Path(conf.opensm.directory).absolute()
    for name in ("m_key_file", "sm_key_file", "sa_key_file"):
        values[name] = _path(values[name])
        if values[name] is not None:
            read_key(values[name], f"[{opensm_site.GROUP}] {name}")
    guids = (
        _guid(text, "allowed_sm_guids", opensm_site.GROUP) for text in options.allowed_sm_guids
    )
    values["allowed_sm_guids"] = tuple(guids)
    site = SiteSettings(directory, **values)
    return None if site == SiteSettings(directory) else site


def _opensm(conf: cfg.ConfigOpts, *, now: Callable[[], float] = steady_time) -> OpenSm | None:
    """How to reach OpenSM; None if no option says so, and only files are written.

    ``now`` is the clock by which the ages of its readings are judged.
    """
    options, site = conf.opensm, _site(conf)
    if site is not None and site.m_key_per_port:
        for name in ("dump_command", "blocks_command", "links_command", "keys_command"):
            if options[name]:
                fix = "one M_Key does not open all ports: use dump_file, or no m_key_per_port"
                raise InvalidInput(f"[opensm] {name}", ",".join(options[name]), fix)
    opensm = OpenSm(
        pid_file=_path(options.pid_file),
        reload_command=tuple(options.reload_command),
        dump_command=tuple(options.dump_command),
        dump_file=_path(options.dump_file),
        blocks_command=tuple(options.blocks_command),
        links_command=tuple(options.links_command),
        keys_command=tuple(options.keys_command),
        pkeys=tenant_pkeys(options.pkeys),
        managers=frozenset(_guid(text, "managers") for text in options.managers),
        links_interval=options.links_interval,
        counters_command=tuple(options.counters_command),
        counters_rate=options.counters_rate,
        log_file=_path(options.log_file),
        cache_directory=_path(options.cache_directory),
        timeout=options.timeout,
        site=site,
        now=now,
    )
    unset = OpenSm(
        timeout=options.timeout,
        links_interval=options.links_interval,
        counters_rate=options.counters_rate,
        pkeys=opensm.pkeys,
        managers=opensm.managers,
        site=site,
    )
    return None if opensm == unset else opensm


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None

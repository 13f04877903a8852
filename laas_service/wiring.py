# SPDX-License-Identifier: Apache-2.0

"""The composition root: makes adapters and use cases as a configuration says."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from functools import cached_property, partial
from pathlib import Path
from random import SystemRandom

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
from laas_service.app.ports.subnet_manager import ReadBack, RecordedSwitches, SubnetManager
from laas_service.app.queue_moves import QueueMoves
from laas_service.app.quotas import Quotas
from laas_service.app.requests import Runtime, ServicePolicy
from laas_service.app.use_cases import UseCases, in_background
from laas_service.app.worker.converger import Converger
from laas_service.app.worker.fabric_leases import FabricLeases, Intervals, Renewal
from laas_service.app.worker.housekeeper import BATCH, Housekeeper
from laas_service.app.worker.loop import Loop
from laas_service.app.worker.notifier import Notifier
from laas_service.app.worker.perform import Hooks, Ports
from laas_service.app.worker.port_events import PortEvents
from laas_service.app.worker.round import CounterMode, LookRules, Pace, WorkerRules
from laas_service.app.worker.watchdog import Watchdog
from laas_service.app.worker.worker import Worker
from laas_service.conf.api import ApiOptions
from laas_service.conf.compute import ComputeOptions
from laas_service.conf.database import connection, engine_options
from laas_service.conf.faults import FaultOptions
from laas_service.conf.limits import LimitOptions
from laas_service.conf.opensm import (
    OpenSmOptions,
    check_reads_nothing,
    found_tools,
    looks_for_tools,
    opensm,
    reaches_opensm,
)
from laas_service.conf.opensm_site import site
from laas_service.conf.queue import QueueOptions
from laas_service.conf.sharing import SharingOptions
from laas_service.conf.ufm import UfmOptions
from laas_service.conf.worker import WorkerOptions
from laas_service.domain.errors import InvalidInput
from laas_service.domain.policies import POLICIES
from laas_service.garbage import Collector
from laas_service.version import user_agent
from opensm_writer.fileset import published_generation
from opensm_writer.local import LocalSubnetManager
from opensm_writer.observer import LinkEvents
from opensm_writer.opensm import OpenSm
from opensm_writer.serve import WITH_GUIDS, ServedSets
from opensm_writer.supervisor import Supervisor
from opensm_writer.tools import Tools


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
        options, queue = WorkerOptions.of(self._conf), QueueOptions.of(self._conf)
        projects = LimitOptions.of(self._conf)
        for use_cases in self._use_cases:
            use_cases.reload(queue.discipline, projects.limits, projects.unmoved)
        made = vars(self)
        if "admission_queue" in made:
            self.admission_queue.reload(queue.discipline)
        if "queue_moves" in made:
            self.queue_moves.reload(queue.room, projects.limits, projects.unmoved)
        if "fabric_leases" in made:
            self.fabric_leases.reload(_intervals(options))
        if "housekeeper" in made:
            self.housekeeper.reload(self._conf.retention.released_days)
        for name in {"worker", "notifier"} & made.keys():
            if loop := made[name]:
                loop.every(options.poll_interval)

    @property
    def default_fabric(self) -> str | None:
        """The configured id of the fabric that is meant if none is named."""
        return ApiOptions.of(self._conf).default_fabric

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
        roots = (OpenSmOptions.of(self._conf).directory, served, served / WITH_GUIDS)

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
        )

    @cached_property
    def quotas(self) -> SqlQuotas:
        return SqlQuotas(self._engine, self.clock)

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
        return DirectoryCompute(options.directory, pool=options.pool, sentinel=options.sentinel)

    @cached_property
    def limits(self) -> SendingLimits | None:
        """What limits the servers of class ``shared``; None: nothing. Raises: InvalidInput."""
        options = SharingOptions.of(self._conf)
        if options.enforcement == "none":
            return None
        if options.enforcement == "directory":
            return DirectoryLimits(options.directory)
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
        return frozenset(OpenSmOptions.of(self._conf).services)

    @property
    def virtual_ports(self) -> bool:
        """Whether partitions list virtual ports."""
        return OpenSmOptions.of(self._conf).virtual_ports

    @property
    def one_rule_per_group(self) -> bool:
        """Whether port groups of routing chains have one rule each."""
        return OpenSmOptions.of(self._conf).one_rule_per_group

    @property
    def pkeys(self) -> range:
        """The partition keys that new allocations may get. Raises: InvalidInput."""
        return OpenSmOptions.of(self._conf).pkeys

    @cached_property
    def subnet_manager(self) -> AgentSubnetManager | LocalSubnetManager | UfmSubnetManager:
        options = OpenSmOptions.of(self._conf)
        if options.reached_by == "agent":
            return self._agent_switches
        if options.reached_by == "ufm":
            files: SubnetManager | None = None
            if UfmOptions.of(self._conf).agent:
                files = self._agent_switches
            elif options.attended:
                files = self._files_and_opensm
            memory = SqlUfmMemory(self._engine)
            return UfmSubnetManager(self.ufm, self._ufm_rules, self.store, memory, files)
        return self._files_and_opensm

    @property
    def _ufm_rules(self) -> UfmRules:
        """What is the service's own in UFM. Raises: InvalidInput."""
        options, ufm = OpenSmOptions.of(self._conf), UfmOptions.of(self._conf)
        fabric = ufm.managed
        if not options.pkeys_named:
            fix = "UFM has other writers: name the range of keys that is this service's alone"
            raise InvalidInput("[opensm] pkeys", self._conf.opensm.pkeys, fix)
        if reaches_opensm(self._conf):
            fix = "leave the files and commands of OpenSM unset: UFM reaches its own subnet manager"
            raise InvalidInput("[opensm] reached_by", options.reached_by, fix)
        return UfmRules(
            fabric,
            options.pkeys,
            options.virtual_ports,
            options.multicast,
            ufm.ports_interval,
            ufm.mark_unhealthy,
            options.enforcement == "chains",
        )

    @property
    def _agent_switches(self) -> AgentSubnetManager:
        options = OpenSmOptions.of(self._conf)
        return AgentSubnetManager(
            self._agents,
            seconds=options.agent_lease_seconds,
            patience=options.patience,
            wake=lambda: self.waker(),
        )

    @cached_property
    def ufm(self) -> UfmRest:
        """UFM's REST interface, as [ufm] says. Raises: InvalidInput."""
        options = UfmOptions.of(self._conf)
        return UfmRest(
            UfmSettings(
                options.url,
                token_file=options.token_file,
                cert_file=options.cert_file,
                key_file=options.key_file,
                ca_file=options.ca_file,
                job_timeout=options.job_timeout,
            )
        )

    @property
    def ufm_fabric(self) -> str | None:
        """The id of the fabric that UFM manages, as configured."""
        return UfmOptions.of(self._conf).fabric

    @cached_property
    def _tools(self) -> Tools:
        """What reads the switches from the machine of a worker, and was not configured."""
        return found_tools(self._conf) if looks_for_tools(self._conf) else Tools()

    @cached_property
    def _opensm(self) -> OpenSm | None:
        """The OpenSM beside a worker; None if only files are written."""
        return opensm(self._conf, self._tools, now=lambda: self.clock().timestamp())

    @property
    def _files_and_opensm(self) -> LocalSubnetManager:
        options = OpenSmOptions.of(self._conf)
        return LocalSubnetManager(
            options.files(options.directory.absolute(), SharingOptions.of(self._conf).level),
            self._opensm,
            keep=options.keep,
            site=site(self._conf),
            attended=options.attended,
            patience=options.patience,
        )

    @cached_property
    def projects(self) -> Projects:
        """Keystone, where the login of [nova] or [ironic] comes from a Keystone with a catalog."""
        group = ComputeOptions.of(self._conf).kind
        if group not in ("nova", "ironic"):
            return NoProjects()
        auth = loading.load_auth_from_conf_options(self._conf, group)
        if not isinstance(auth, BaseIdentityPlugin):
            return NoProjects()
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
            f"{by.value}, whatever the switches run; "
            f"{self._tools.problem or 'no option of [opensm] says that OpenSM reads the files'}: "
            "see [opensm] tools, or set reached_by = agent"
        )

    @cached_property
    def _agents(self) -> SqlAgents:
        return SqlAgents(self._engine)

    @property
    def _file_sets(self) -> Path:
        """The directory of the file sets that agents fetch."""
        return Path(self._conf.state_dir) / "file-sets"

    def _agent_registry(self, wake: Callable[[], None]) -> AgentRegistry | None:
        options = OpenSmOptions.of(self._conf)
        beside_ufm = options.reached_by == "ufm" and UfmOptions.of(self._conf).agent
        if options.reached_by != "agent" and not beside_ufm:
            return None
        if options.enforcement != "file" and not beside_ufm:
            raise InvalidInput(
                "[opensm] enforcement", options.enforcement, "agents read back; that needs 'file'"
            )
        level = SharingOptions.of(self._conf).level
        served = ServedSets(
            self._file_sets,
            self.store.fabrics.routed,
            lambda fabric: options.files(
                options.directory.absolute() / fabric / "current",  # where agents keep them
                level,
            ),
        )
        return AgentRegistry(
            self.store,
            self._agents,
            served,
            seconds=options.agent_lease_seconds,
            wake=wake,
            now=self.clock,
            fault_mode=FaultOptions.of(self._conf).rules.mode,
        )

    @cached_property
    def fabric_leases(self) -> FabricLeases:
        options = WorkerOptions.of(self._conf)
        return FabricLeases(
            self.store,
            SqlLeases(self._engine, gone=process_names.is_gone, longest=2 * options.lease_seconds),
            self._converger,
            owner=process_names.new_name(),
            seconds=options.lease_seconds,
            intervals=_intervals(options),
            watchdog=self.watchdog,
            clock=time.monotonic,
        )

    def _converger(self, store: Store, fabric: str, before_effect: Callable[[], None]) -> Converger:
        options, manager = WorkerOptions.of(self._conf), self.subnet_manager
        compute, faults = ComputeOptions.of(self._conf), FaultOptions.of(self._conf)
        marks = manager if isinstance(manager, UfmSubnetManager) else None
        rules = WorkerRules(
            pace=Pace(options.retry_first, options.retry_last, options.apply_timeout),
            repair=options.repair,
            repair_links=options.repair_links,
            move_window=options.move_window,
            live_ports=compute.live_ports,
            looks=LookRules(compute.state_interval, compute.stop_strangers, compute.withholding),
            faults=faults.rules,
            counters=CounterMode(faults.counters),
            counter_rules=faults.counter_rules,
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

    def _port_events(self, wake: Callable[[], None], beside: OpenSm | None) -> list[Loop]:
        """The loop that wakes another one after changes of ports, if this process reads them."""
        if beside is None or not beside.links_command or not beside.may_have_a_log:
            return []
        return [PortEvents(LinkEvents(beside).happened, wake)]

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
            SqlOutbox(self._engine),
            messaging.publisher(self._conf).publish,
            clock=self.clock,
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
        beside = self._opensm if OpenSmOptions.of(self._conf).reached_by == "worker" else None
        watching = [renewal, self.housekeeper, *self._port_events(self.worker.wake, beside)]
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
    def _agents_opensm(self) -> OpenSm:
        """The OpenSM beside an agent. Raises: InvalidInput: nothing reads its tables back."""
        if OpenSmOptions.of(self._conf).reached_by == "ufm":
            check_reads_nothing(self._conf)
            return opensm(self._conf, Tools()) or OpenSm()
        found = found_tools(self._conf)
        beside = opensm(self._conf, found)
        if beside is None or not (beside.dump_command or beside.dump_file):
            why = found.problem or "it says that none is to be used"
            fix = f"an agent reads tables back: {why}; mend that, or set dump_command or dump_file"
            raise InvalidInput("[opensm] tools", self._conf.opensm.tools, fix)
        return beside

    @cached_property
    def opensm_agent(self) -> OpenSmAgent:
        """Looks after the OpenSM of this machine; reaches the service over REST alone.

        Raises:
            InvalidInput: also if no option says how tables are read back.
            Unavailable: the fabric is not named, and the service does not answer.
        """
        options = OpenSmOptions.of(self._conf)
        beside_ufm = options.reached_by == "ufm"
        beside = self._agents_opensm
        service = service_rest.ServiceRest(
            service_rest.connect(self._conf),
            options.agent_name,
            options.agent_fabric,
            now=beside.now,
        )
        supervisor = Supervisor(
            options.directory,
            service.fabric,
            beside,
            keep=options.keep,
            timeout=WorkerOptions.of(self._conf).apply_timeout,
            enforcement=options.enforcement if beside_ufm else "file",
            reads_back=not beside_ufm,
        )
        interval, fetch = options.agent_poll_interval, partial(supervisor.fetch_set, service)
        agent = OpenSmAgent(service.report, fetch, supervisor, interval=interval)
        agent.busy = self.collector.busy
        return agent

    @contextmanager
    def running_agent(self) -> Iterator[OpenSmAgent]:
        """Runs the agent in a thread of this process until the end of the block."""
        agent = self.opensm_agent
        listener = self.bus.listener(agent.wake) if self.bus else None
        watching = self._port_events(agent.wake, self._agents_opensm)
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
        discipline = QueueOptions.of(self._conf).discipline
        return AdmissionQueue(self.store, policies, discipline, clock=self.clock)

    @cached_property
    def queue_moves(self) -> QueueMoves:
        """Makes room for the heads of queues. Raises: InvalidInput."""
        options = LimitOptions.of(self._conf)
        quotas = Quotas(self.store, self.compute, limits=options.limits, unmoved=options.unmoved)
        return QueueMoves(
            self.store,
            self.admission_queue,
            quotas,
            QueueOptions.of(self._conf).room,
            POLICIES[ApiOptions.of(self._conf).default_policy](),
            clock=self.clock,
            live_ports=ComputeOptions.of(self._conf).live_ports,
        )

    def use_cases(self, wake: Callable[[], None]) -> UseCases:
        """The use cases; ``wake`` is called when there is something to converge."""
        options, compute = ApiOptions.of(self._conf), ComputeOptions.of(self._conf)
        projects = LimitOptions.of(self._conf)
        reached_by = OpenSmOptions.of(self._conf).reached_by
        read_back: ReadBack = (
            self.subnet_manager.applied
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
                one_per_project=compute.one_per_project,
                waiters=options.waiters,
                queue=QueueOptions.of(self._conf).discipline,
                limits=projects.limits,
                unmoved=projects.unmoved,
                unshared=SharingOptions.of(self._conf).unshared,
                search_budget=options.search_budget,
                repair_links=WorkerOptions.of(self._conf).repair_links,
                fault_mode=FaultOptions.of(self._conf).rules.mode,
                live_ports=compute.live_ports,
            ),
            Runtime(utc_now, self.collector.sleep, wake, lambda: str(uuid.uuid4())),
            registry=self._agent_registry(wake),
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

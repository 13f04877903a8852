# SPDX-License-Identifier: Apache-2.0


"""The only place where ports meet adapters: what a configuration makes of them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from random import SystemRandom

from oslo_config import cfg
from sqlalchemy import Engine

from laas_service import conf
from laas_service.adapters import messaging, nova, process_names, service_rest
from laas_service.adapters.agent_switches import AgentSubnetManager
from laas_service.adapters.compute_directory import DirectoryCompute
from laas_service.adapters.db import backup, restore, schema, soundness
from laas_service.adapters.db.agents import SqlAgents
from laas_service.adapters.db.engine import connect, still, translated
from laas_service.adapters.db.leases import SqlLeases
from laas_service.adapters.db.outbox import SqlOutbox
from laas_service.adapters.db.quotas import SqlQuotas
from laas_service.adapters.db.store import SqlStore
from laas_service.adapters.db.transactions import nowhere, utc_now
from laas_service.adapters.log_context import acting_for
from laas_service.app.admission_queue import AdmissionQueue
from laas_service.app.agent_registry import Agency
from laas_service.app.allocations import Service
from laas_service.app.opensm_agent import OpenSmAgent
from laas_service.app.ports.compute import Compute
from laas_service.app.ports.subnet_manager import RecordedSwitches, SubnetManager, Switches
from laas_service.app.records import Limits
from laas_service.app.requests import ServicePolicy
from laas_service.app.worker.converger import Converger, ConvergerStore, Pace
from laas_service.app.worker.fabric_leases import FabricLeases, Renewal
from laas_service.app.worker.loop import Loop
from laas_service.app.worker.notifier import Notifier
from laas_service.app.worker.watchdog import Watchdog
from laas_service.app.worker.worker import Worker
from laas_service.conf.database import engine_options
from laas_service.domain.admission import queue
from laas_service.domain.errors import InvalidInput
from laas_service.domain.policies import POLICIES
from opensm_writer import render
from opensm_writer.fileset import published_generation
from opensm_writer.local import LocalSubnetManager
from opensm_writer.opensm import OpenSm
from opensm_writer.serve import ServedSets
from opensm_writer.supervisor import Supervisor


class Parts:
    """The parts of one process, each made when it is first asked for and then kept.

    ``at`` is called with a step's name around every effect (for fault injection).

    Raises (of every part):
        InvalidInput: an option is wrong; names it.
        Unavailable: the database does not answer.
    """

    def __init__(self, conf: cfg.ConfigOpts, *, at: Callable[[str], None] = nowhere) -> None:
        self._conf = conf
        self._at = at
        self._services: list[Service] = []

    def adopt(self) -> None:
        """The parts there are take over the options that may change in a running process."""
        options = self._conf.worker
        rules, most = discipline(self._conf.queue), limits(self._conf.limits)
        for service in self._services:
            service.adopt(rules, most)
        made = vars(self)
        if "line" in made:
            self.line.adopt(rules)
        if "tenure" in made:
            self.tenure.adopt(
                reconcile_interval=options.reconcile_interval,
                drift_interval=options.drift_interval,
            )
        for name in {"worker", "relay"} & made.keys():
            if loop := made[name]:
                loop.every(options.poll_interval)

    def upgrade_database(self) -> None:
        """Bring the tables up to what this release needs; safe to repeat."""
        schema.upgrade(self._engine)

    def database_revisions(self) -> tuple[str | None, str]:
        """Where the tables are (None: there are none) and where this release needs them."""
        with translated(), self._engine.connect() as connection:
            return schema.current(connection), schema.head()

    def back_up_database(self, path: Path) -> int:
        """Write all that has to outlive the database; how many rows. See ``backup.write``."""
        return backup.write(self._engine, path, utc_now())

    def restore_database(self, path: Path, above: int = 0) -> backup.Header:
        """Make a backup the database, which has to be empty. See ``restore.restore``.

        Generations go on beyond those published on this machine, and beyond ``above``.
        """
        roots = (Path(self._conf.opensm.directory), self._file_sets)

        def seen(fabric: str) -> int:
            return max(above, *(published_generation(root, fabric) for root in roots))

        return restore.restore(self._engine, path, seen=seen, now=utc_now())

    def database_findings(self) -> list[str]:
        """What does not agree in the database, a sentence each."""
        self.store.check()
        with still(self._engine) as connection:
            return soundness.findings(connection)

    @cached_property
    def _engine(self) -> Engine:
        return connect(self._conf.database.connection, **engine_options(self._conf))

    @cached_property
    def store(self) -> SqlStore:
        return SqlStore(self._engine, at=self._at, announce=messaging.announces(self._conf))

    @cached_property
    def quotas(self) -> SqlQuotas:
        return SqlQuotas(self._engine)

    @cached_property
    def pulse(self) -> Watchdog:
        return Watchdog(time.monotonic, self._conf.worker.step_timeout)

    @cached_property
    def compute(self) -> Compute:
        options = self._conf.compute
        if options.kind == "nova":
            return nova.connect(self._conf, self.pulse.beat)
        return DirectoryCompute(
            Path(options.directory), pool=options.pool, sentinel=options.sentinel
        )

    @cached_property
    def subnet_manager(self) -> SubnetManager:
        options = self._conf.opensm
        if options.reached_by == "agent":
            return AgentSubnetManager(
                self._agents,
                seconds=options.agent_lease_seconds,
                patience=options.patience,
                tell=lambda: self.waker(),
            )
        return LocalSubnetManager(
            Path(options.directory),
            _opensm(options),
            enforcement=options.enforcement,
            multicast=options.multicast,
            services=[_guid(text) for text in options.services],
            one_rule_per_group=options.one_rule_per_group,
            keep=options.keep,
            patience=options.patience,
        )

    @cached_property
    def _switches(self) -> Switches:
        """What is seen in them, wherever that is: OpenSM need not be on this machine."""
        return (
            self.subnet_manager
            if self._conf.opensm.reached_by == "agent"
            else RecordedSwitches(self.store)
        )

    @cached_property
    def _agents(self) -> SqlAgents:
        return SqlAgents(self._engine)

    @property
    def _file_sets(self) -> Path:
        """Where sets are rendered that agents fetch."""
        return Path(self._conf.state_dir) / "file-sets"

    def _agency(self, wake: Callable[[], None]) -> Agency | None:
        options = self._conf.opensm
        if options.reached_by != "agent":
            return None
        if options.enforcement != "file":
            raise InvalidInput(
                "[opensm] enforcement", options.enforcement, "agents read back; that needs 'file'"
            )
        served = ServedSets(
            self._file_sets, self.store.routed, lambda fabric: _files(options, fabric)
        )
        return Agency(
            self.store, self._agents, served, seconds=options.agent_lease_seconds, wake=wake
        )

    @cached_property
    def tenure(self) -> FabricLeases:
        options = self._conf.worker
        return FabricLeases(
            self.store,
            SqlLeases(self._engine, gone=process_names.is_gone),
            self._converger,
            owner=process_names.new_name(),
            seconds=options.lease_seconds,
            reconcile_interval=options.reconcile_interval,
            drift_interval=options.drift_interval,
            pulse=self.pulse,
            clock=time.monotonic,
        )

    def _converger(self, store: ConvergerStore, fabric: str, hold: Callable[[], None]) -> Converger:
        options = self._conf.worker
        return Converger(
            store,
            self.compute,
            self.subnet_manager,
            now=utc_now,
            chance=SystemRandom(),
            pace=Pace(options.retry_first, options.retry_last, options.apply_timeout),
            repair=options.repair,
            repair_links=options.repair_links,
            park_after=options.park_after,
            at=self._at,
            fabric=fabric,
            hold=hold,
            acting_for=acting_for,
        )

    @cached_property
    def worker(self) -> Worker:
        return Worker(self.tenure, self._serve, self._conf.worker.poll_interval)

    def _serve(self) -> int:
        """Give room to who waits, if the tables are those of this release. ``Unavailable``."""
        self.store.check()
        return self.line.serve_all()

    @cached_property
    def bus(self) -> messaging.Bus | None:
        """What processes tell each other over; None where there is but the database."""
        return messaging.connect(self._conf)

    @cached_property
    def waker(self) -> Callable[[], None]:
        """Wakes workers in other processes; takes no time, whatever the bus does."""
        return self.bus.waker() if self.bus else _polled

    @cached_property
    def relay(self) -> Notifier | None:
        """Tells others what happened; None where nobody is to be told."""
        if not messaging.announces(self._conf):
            return None
        return Notifier(
            SqlOutbox(self._engine),
            messaging.publisher(self._conf),
            clock=utc_now,
            interval=self._conf.worker.poll_interval,
        )

    @contextmanager
    def working(self, patience: float | None = None) -> Iterator[Worker]:
        """The worker runs in threads of this process; they end with the block.

        The step at hand is finished first, within ``patience`` seconds if they are given.
        """
        loops: list[Loop] = [self.worker, *([self.relay] if self.relay else [])]
        renewal = Renewal(self.tenure, self._conf.worker.lease_seconds, self.worker.wake)
        listener = self.bus.listener(lambda: _wake(loops)) if self.bus else None
        for loop in (*loops, renewal):
            loop.start()
        if listener:
            listener.start()
        try:
            yield self.worker
        finally:
            if listener:
                listener.stop(timeout=1)
            self.worker.stop(patience)
            renewal.stop(timeout=1)
            if self.relay:
                self.relay.stop(timeout=1)  # it may wait for the broker for ever

    @cached_property
    def agent(self) -> OpenSmAgent:
        """Looks after the OpenSM of this machine, and knows the service by REST alone.

        Raises:
            InvalidInput: also where nothing says how tables are read back.
            Unavailable: the fabric is not named, and the service does not answer.
        """
        options = self._conf.opensm
        opensm = _opensm(options)
        if opensm is None or not (opensm.dump_command or opensm.dump_file):
            raise InvalidInput(
                "[opensm] dump_command", [], "an agent needs it, or dump_file, to read tables back"
            )
        service = service_rest.ServiceRest(
            service_rest.connect(self._conf), options.agent_name, options.agent_fabric
        )
        managed = Supervisor(
            Path(options.directory),
            service.fabric,
            opensm,
            keep=options.keep,
            timeout=self._conf.worker.apply_timeout,
        )
        return OpenSmAgent(service, managed, interval=options.agent_poll_interval)

    @contextmanager
    def attending(self) -> Iterator[OpenSmAgent]:
        """The agent runs in a thread of this process, and ends with the block."""
        agent = self.agent
        listener = self.bus.listener(agent.wake) if self.bus else None
        agent.start()
        if listener:
            listener.start()
        try:
            yield agent
        finally:
            if listener:
                listener.stop(timeout=1)
            agent.stop()

    @cached_property
    def line(self) -> AdmissionQueue:
        policies = {name: policy() for name, policy in POLICIES.items()}
        return AdmissionQueue(self.store, policies, discipline(self._conf.queue), clock=utc_now)

    def service(self, wake: Callable[[], None]) -> Service:
        """The use cases; ``wake`` is called when there is something to converge."""
        options, compute = self._conf.api, self._conf.compute
        made = Service(
            self.store,
            self.compute,
            {"opensm": self._switches},
            ServicePolicy(
                policies={name: POLICIES[name]() for name in _known(options.enabled_policies)},
                default_policy=options.default_policy,
                default_fabric=options.default_fabric,
                one_per_project=compute.kind == "nova" and compute.one_allocation_per_project,
                waiters=options.max_waiters,
                queue=discipline(self._conf.queue),
                limits=limits(self._conf.limits),
                search_budget=options.search_budget,
            ),
            clock=utc_now,
            sleep=time.sleep,
            wake=wake,
            new_id=lambda: str(uuid.uuid4()),
            agency=self._agency(wake),
        )
        self._services.append(made)
        return made


def set_defaults() -> None:
    """For ``oslo-config-generator``: our defaults of other libraries' options."""
    conf.set_defaults()
    messaging.set_defaults()


def _wake(loops: list[Loop]) -> None:
    for loop in loops:
        loop.wake()


def _polled() -> None:
    """A worker elsewhere finds new work at its next look."""


def _known(names: list[str]) -> list[str]:
    for name in names:
        if name not in POLICIES:
            raise InvalidInput(
                "[api] enabled_policies", name, f"choose among {', '.join(sorted(POLICIES))}"
            )
    return names


def discipline(options: cfg.ConfigOpts.GroupAttr) -> queue.QueueSettings:
    """How [queue] says that those who wait are served."""
    return queue.QueueSettings(
        queue.Discipline(options.discipline),
        options.window,
        queue.Shadow(options.shadow),
        queue.Order(options.order),
    )


def limits(options: cfg.ConfigOpts.GroupAttr) -> Limits:
    """What [limits] says that every project may have."""
    return Limits(
        hosts=None if options.hosts < 0 else options.hosts,
        allocations=None if options.allocations < 0 else options.allocations,
    )


def _guid(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError as error:
        raise InvalidInput("[opensm] services", text, "give GUIDs such as 0x1b") from error


def _files(options: cfg.ConfigOpts.GroupAttr, fabric: str) -> render.Settings:
    """What the files for an OpenSM elsewhere depend on; its agent puts them at the same place."""
    return render.Settings(
        str(Path(options.directory).absolute() / fabric / "current"),
        multicast=options.multicast,
        services=tuple(sorted(_guid(text) for text in options.services)),
        one_rule_per_group=options.one_rule_per_group,
    )


def _opensm(options: cfg.ConfigOpts.GroupAttr) -> OpenSm | None:
    """How to reach OpenSM; None where nothing is said about it, and files are all there is."""
    found = OpenSm(
        pid_file=_path(options.pid_file),
        reload_command=tuple(options.reload_command),
        dump_command=tuple(options.dump_command),
        dump_file=_path(options.dump_file),
        log_file=_path(options.log_file),
        cache_directory=_path(options.cache_directory),
        timeout=options.timeout,
    )
    return None if found == OpenSm(timeout=options.timeout) else found


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None

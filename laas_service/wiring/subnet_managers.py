# SPDX-License-Identifier: Apache-2.0

"""The subnet managers of one process: OpenSM beside it, agents, UFM."""

from collections.abc import Callable
from functools import cached_property

from oslo_config import cfg

from laas_service.adapters.agent_switches import AgentSubnetManager
from laas_service.adapters.db.agents import SqlAgents
from laas_service.adapters.db.ufm_memory import SqlUfmMemory
from laas_service.adapters.ufm.manager import UfmRules, UfmSubnetManager
from laas_service.adapters.ufm.rest import UfmRest, UfmSettings
from laas_service.app.agent_registry import AgentRegistry
from laas_service.app.ports.subnet_manager import SubnetManager
from laas_service.conf.faults import FaultOptions
from laas_service.conf.opensm import (
    OpenSmOptions,
    attended,
    found_tools,
    looks_for_tools,
    named,
    opensm,
    reaches_opensm,
)
from laas_service.conf.opensm_site import site
from laas_service.conf.sharing import SharingOptions
from laas_service.conf.ufm import UfmOptions
from laas_service.domain.errors import InvalidInput
from laas_service.wiring import evidence
from laas_service.wiring.database import Database, file_sets
from opensm_writer.local import LocalSubnetManager
from opensm_writer.opensm import OpenSm
from opensm_writer.serve import ServedSets
from opensm_writer.tools import Tools


class SubnetManagers:
    """What reaches a subnet manager; each part is made on first use and kept.

    ``wake`` gives what wakes workers. Raises (of every part): as ``Composition``.
    """

    def __init__(
        self, conf: cfg.ConfigOpts, database: Database, wake: Callable[[], Callable[[], None]]
    ) -> None:
        self._conf = conf
        self._database = database
        self._wake = wake

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
    def of_worker(self) -> AgentSubnetManager | LocalSubnetManager | UfmSubnetManager:
        options = OpenSmOptions.of(self._conf)
        if options.reached_by == "agent":
            return self._agent_switches
        if options.reached_by == "ufm":
            files: SubnetManager | None = None
            if UfmOptions.of(self._conf).agent:
                files = self._agent_switches
            elif attended(self._conf):
                files = self._files_and_opensm
            memory = SqlUfmMemory(self._database.engine)
            return UfmSubnetManager(self.ufm, self._ufm_rules, self._database.store, memory, files)
        return self._files_and_opensm

    @property
    def _ufm_rules(self) -> UfmRules:
        """What is the service's own in UFM. Raises: InvalidInput."""
        options, ufm = OpenSmOptions.of(self._conf), UfmOptions.of(self._conf)
        fabric = ufm.managed
        if not named(self._conf, "pkeys"):
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
            wake=lambda: self._wake()(),
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
    def opensm(self) -> OpenSm | None:
        """The OpenSM beside a worker; None if only files are written."""
        return opensm(self._conf, self._tools, now=lambda: self._database.clock().timestamp())

    @property
    def _files_and_opensm(self) -> LocalSubnetManager:
        options = OpenSmOptions.of(self._conf)
        return LocalSubnetManager(
            options.files(options.directory.absolute(), SharingOptions.of(self._conf).level),
            self.opensm,
            keep=options.keep,
            site=site(self._conf),
            attended=attended(self._conf),
            patience=options.patience,
        )

    def unread_switches(self) -> str | None:
        """Why no allocation is confirmed by the switches or an agent; None if they are."""
        by = self.of_worker.confirmed_by
        if by.was_read:
            return None
        held = "held until an operator says that the switches run the new routes"
        if evidence.frees_unread(self._conf, by):
            held = "free as soon as the files are written"
        return (
            f"nobody reads the switches back: hosts and links that tenants give up are {held}; "
            f"allocations become active with confirmed_by = "
            f"{by.value}, whatever the switches run; "
            f"{self._tools.problem or 'no option of [opensm] says that OpenSM reads the files'}: "
            "see [opensm] tools, or set reached_by = agent"
        )

    @cached_property
    def _agents(self) -> SqlAgents:
        return SqlAgents(self._database.engine)

    def registry(self, wake: Callable[[], None]) -> AgentRegistry | None:
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
            file_sets(self._conf),
            self._database.store.fabrics.routed,
            lambda fabric: options.files(
                options.directory.absolute() / fabric / "current",  # where agents keep them
                level,
            ),
        )
        return AgentRegistry(
            self._database.store,
            self._agents,
            served,
            seconds=options.agent_lease_seconds,
            wake=wake,
            now=self._database.clock,
            fault_mode=FaultOptions.of(self._conf).mode,
        )

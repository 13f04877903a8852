# SPDX-License-Identifier: Apache-2.0

"""Compute port on Ironic without Nova: ``lessee`` of nodes, and a mark among their properties.

Ironic lets a project deploy a node if it is the node's ``lessee`` (or owner). A free node has a
lessee that is no project. Ironic sets a lessee by itself only where none is set. The mark tells
whose the node is. It stands in ``properties``, which a lessee may not change, and one request
writes it together with the lessee (doc/source/install/ironic.rst).

Every method starts from Ironic's present state, so it may be repeated at any time, even after a
lost answer. Ironic refuses changes of a node that is being deployed or cleaned; such a node is
changed at a later call.
"""

import json
import logging
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

from keystoneauth1 import exceptions as keystone_errors
from keystoneauth1 import loading
from keystoneauth1.adapter import Adapter
from oslo_config import cfg
from requests import Response
from tenacity import wait_exponential

from laas_service.app.ports.compute import (
    ComputeHost,
    Handover,
    MoveProgress,
    Observed,
    Occupant,
    ServerLoad,
    ServerMoves,
)
from laas_service.app.retries import retrying
from laas_service.domain.errors import (
    Conflict,
    Forbidden,
    HostsBusy,
    InvalidInput,
    LaasError,
    LimitExceeded,
    NotFound,
    Unavailable,
)
from laas_service.domain.wording import listed

LOG = logging.getLogger(__name__)

GROUP = "ironic"

VERSION = "1.65"
"""First version with ``lessee`` (Ironic 16, Wallaby)."""

PAGE = 1000
"""Nodes or ports that one request lists; Ironic lists no more by default."""

MARK = "laas"
"""The property with the mark."""

FIELDS = (
    "automated_clean",
    "instance_uuid",
    "last_error",
    "lessee",
    "maintenance",
    "maintenance_reason",
    "name",
    "power_state",
    "properties",
    "protected",
    "provision_state",
    "target_provision_state",
    "uuid",
)

AVAILABLE = "available"
CLEANING = frozenset({"deleting", "cleaning", "clean wait", "clean hold"})
"""The states from the end of an instance until its node is clean."""

UNDEPLOYED = frozenset(
    {
        AVAILABLE,
        "clean failed",
        "enroll",
        "inspect failed",
        "inspect wait",
        "inspecting",
        "manageable",
        "verifying",
    }
)
"""The states of a node without an instance, except those in ``CLEANING``."""

CHANGEABLE = frozenset(
    {
        "adopt failed",
        "clean failed",
        "deploy failed",
        "error",
        "inspect failed",
        "inspect wait",
        "inspecting",
        "rescue failed",
        "service failed",
        "service hold",
        "servicing",
        "unrescue failed",
        "verifying",
    }
)
"""The states in which Ironic lets a node be changed although a transition is under way."""

POWER = frozenset({"power on", "power off", "rebooting"})

READ_PAUSE = 0.1
"""Seconds before the first retry of a read; doubled before the second."""

NODES = "see all nodes (role service in Ironic's service project, or reader of the system)"
CHANGES = "change all nodes (role service in Ironic's service project, or member of the system)"

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class _Mark:
    """Whose a node is; without ``allocation`` it is free.

    ``leaving``: it has an instance that its project has to delete, and takes no other one.
    """

    allocation: str | None = None
    project: str | None = None
    leaving: bool = False

    def document(self) -> dict[str, Any]:
        """As it stands among the properties."""
        if self.allocation is None:
            return {"pool": True}
        leaving = {"leaving": True} if self.leaving else {}
        return {"allocation": self.allocation, "project": self.project, **leaving}


FREE = _Mark()


@dataclass(frozen=True, slots=True)
class _Node:
    """A node as Ironic shows it. ``mark`` is None if the node was never in the pool."""

    uuid: str
    name: str
    lessee: str | None
    state: str
    changing: bool
    """A transition is under way, during which Ironic refuses changes in most states."""

    problem: str
    """Why Ironic would not deploy it, apart from its state; or empty."""

    last_error: str
    instance: str | None
    protected: bool
    mark: _Mark | None

    @property
    def deployed(self) -> bool:
        """Whether it has an instance, or gets one, or is reserved for one."""
        if self.state in CLEANING:
            return False
        return self.state not in UNDEPLOYED or self.instance is not None

    @property
    def clean(self) -> bool:
        """Whether nothing of an earlier owner is on its way: no instance, no cleaning."""
        return not self.deployed and self.state not in CLEANING

    @property
    def unfit(self) -> str:
        """Why nobody may get it now; empty if it may be handed over."""
        if self.problem:
            return self.problem
        if self.state != AVAILABLE:
            return f"{self.state}{': ' if self.last_error else ''}{self.last_error}"
        if self.instance is not None:
            return f"reserved for instance {self.instance}"
        return ""


class Cloud:
    """Calls to Ironic, with their errors translated.

    Reads are tried up to three times, writes once. Each call starts with ``beat``, which gets its
    name, and whose exceptions abort the operation.

    Errors of all methods:
        Unavailable: time-out, broken connection, 5xx, or an invalid answer; a write may
            have been carried out.
        Forbidden: the service's user lacks the permission that the message names.
        LimitExceeded: the rate of requests is limited.
    """

    def __init__(
        self,
        ironic: Adapter,
        beat: Callable[[str], None] = lambda action: None,
        *,
        page: int = PAGE,
    ) -> None:
        self._ironic = ironic
        self._beat = beat
        self._page = page
        self._prefix: str | None = None

    def nodes(self) -> list[_Node]:
        """All nodes that the service's user may see."""
        return self._pages("nodes", ",".join(FIELDS), _node)

    def guids(self) -> dict[int, str]:
        """The node of each port GUID that an InfiniBand port has in ``extra.client-id``."""
        ports = self._pages("ports", "uuid,node_uuid,extra", lambda port: port)
        known = ((_guid(port["extra"].get("client-id")), str(port["node_uuid"])) for port in ports)
        return {guid: node for guid, node in known if guid is not None}

    def change(self, node: _Node, lessee: str | None, mark: _Mark) -> "_Node | str":
        """Set lessee and mark; the node as it is then, or the text of a refusal."""
        changes: list[dict[str, Any]] = [
            {"op": "replace", "path": "/lessee", "value": lessee},
            {"op": "add", "path": f"/properties/{MARK}", "value": mark.document()},
        ]
        return self._patch(node, f"set the lessee of node {node.name}", changes)

    def unprotect(self, node: _Node) -> "_Node | str":
        """Let the node be undeployed; its lessee may have protected it."""
        changes = [{"op": "replace", "path": "/protected", "value": False}]
        return self._patch(node, f"unprotect node {node.name}", changes)

    def undeploy(self, node: _Node) -> str | None:
        """Ask for the end of the node's instance; Ironic cleans the node then."""
        path, body = f"/nodes/{node.uuid}/states/provision", {"target": "deleted"}
        return self._write(
            f"undeploy node {node.name}",
            CHANGES,
            lambda: self._request("PUT", path, json=body),
            lambda _: None,
        )

    def power_off(self, node: _Node) -> str | None:
        """Ask for the node to be powered off."""
        path, body = f"/nodes/{node.uuid}/states/power", {"target": "power off"}
        return self._write(
            f"power off node {node.name}",
            CHANGES,
            lambda: self._request("PUT", path, json=body),
            lambda _: None,
        )

    def _patch(self, node: _Node, action: str, changes: list[dict[str, Any]]) -> "_Node | str":
        return self._write(
            action,
            CHANGES,
            lambda: self._request("PATCH", f"/nodes/{node.uuid}", json=changes),
            lambda answer: _node(answer.json()),
        )

    def _pages(self, kind: str, fields: str, parse: Callable[[Mapping[str, Any]], T]) -> list[T]:
        """All items of a list, by page."""

        def read() -> list[T]:
            found: list[T] = []
            marker = ""
            while True:
                path = f"/{kind}?fields={fields}&limit={self._page}{marker}"
                answer = self._request("GET", path).json()
                found += map(parse, answer[kind])
                if not answer.get("next"):
                    return found
                marker = f"&marker={answer[kind][-1]['uuid']}"

        return self._read(f"list {kind}", NODES, read)

    def _request(self, method: str, path: str, **options: Any) -> Response:
        if self._prefix is None:
            endpoint = (self._ironic.get_endpoint() or "").rstrip("/")
            self._prefix = "" if endpoint.endswith("/v1") else "/v1"
        return self._ironic.request(
            f"{self._prefix}{path}", method, microversion=VERSION, **options
        )

    def _read(self, action: str, rule: str, call: Callable[[], T]) -> T:
        self._beat(action)

        def attempt() -> T:
            try:
                return call()
            except Exception as error:
                raise _translated(action, rule, error) from error

        pause = wait_exponential(multiplier=READ_PAUSE)
        return retrying(Unavailable, attempts=3, wait=pause)(attempt)

    def _write(
        self, action: str, rule: str, call: Callable[[], Response], parse: Callable[[Response], R]
    ) -> R | str:
        """Make a call that writes, once; what it answers, or the text of a refusal."""
        self._beat(action)
        try:
            return parse(call())
        except Exception as error:
            if isinstance(error, keystone_errors.HttpError) and error.http_status in (
                400,
                404,
                409,
            ):
                return _reason(error)
            raise _translated(action, rule, error) from error


class _Reading(threading.local):
    """The nodes as one thread read them, by host name; None if they have to be read.

    ``comparing``: whether the methods of the port share them.
    """

    nodes: dict[str, _Node] | None = None
    comparing = False


class IronicCompute:
    """The ``Compute`` port on Ironic; one writer at a time in this process.

    A host is the node of its name, or the one that has a port with a GUID of the host;
    ``guids`` gives the port GUIDs of every host. ``sentinel`` is the lessee of free nodes, which
    is no project. A node that Ironic does not know counts as empty, so it does not block a
    release; pooling it or handing it over raises ``NotFound``.

    Errors beyond those of the port: ``Conflict`` for nodes that are leased to others, and for
    nodes that cannot be handed over in their state; ``InvalidInput`` for a project that cannot
    be a lessee.
    """

    scripted: ClassVar[bool] = False

    def __init__(
        self,
        cloud: Cloud,
        guids: Callable[[], Mapping[str, Collection[int]]] = dict,
        *,
        sentinel: str,
    ) -> None:
        self._cloud = cloud
        self._guids = guids
        self._sentinel = sentinel
        self._writing = threading.Lock()
        self._reading = _Reading()
        self._known: dict[str, str] = {}  # node of each host that was found by GUID

    # -- the port ---------------------------------------------------------------

    @contextmanager
    def comparison(self) -> Iterator[None]:
        """See ``Compute.comparison``. The nodes are listed once."""
        self._reading.nodes, self._reading.comparing = None, True
        try:
            yield
        finally:
            self._reading.comparing = False

    def pool(self, hosts: Collection[str]) -> None:
        """See ``Compute.pool``. Nodes of allocations stay as they are.

        A node that is in the pool already may be in any state: ``look`` tells which are free.
        When an error names nodes that cannot join, all others have joined.
        """
        with self._writing:
            nodes = self._nodes()
            busy, refused = list[str](), list[str]()
            for host in sorted(set(hosts) & nodes.keys()):
                node = nodes[host]
                if node.mark and (node.mark.allocation or node.lessee == self._sentinel):
                    if node.mark == FREE and node.deployed:
                        busy.append(self._shown(host, node))
                elif not node.clean:
                    busy.append(self._shown(host, node))
                elif node.mark is None and node.lessee not in (None, self._sentinel):
                    refused.append(f"{host} is leased to project {node.lessee}")
                else:
                    written = self._changed(host, node, self._sentinel, FREE)
                    if isinstance(written, str):
                        refused.append(f"{host}: {written}")
                    elif written.deployed:
                        busy.append(self._shown(host, written))
        if busy:
            raise HostsBusy(f"free hosts must be empty, but {listed(busy)}")
        if refused:
            raise Conflict(f"nodes cannot join the pool, clear their lessee: {listed(refused)}")
        self._check_known(hosts, nodes)

    def occupants(self, hosts: Collection[str]) -> Sequence[Occupant]:
        """See ``Compute.occupants``; hosts in the order of their names.

        The consumer is the instance, or the node where Ironic knows no instance. Nodes that are
        being cleaned have none. A node that its allocation leaves has one until nobody can
        deploy it any more.
        """
        nodes = self._nodes()
        return [
            occupant
            for host in sorted(set(hosts) & nodes.keys())
            for occupant in self._on(host, nodes[host])
        ]

    def look(self, hosts: Collection[str]) -> Mapping[str, ComputeHost]:
        """See ``Compute.look``. One listing of the nodes.

        A free node is unfit unless it is available; one of an allocation is only while Ironic
        would refuse to deploy or clean it.
        """
        self._reading.nodes = None
        nodes = self._nodes()
        return {
            host: ComputeHost(unfit=self._unfit(nodes[host]), servers=self._on(host, nodes[host]))
            for host in sorted(set(hosts) & nodes.keys())
        }

    def load(self, hosts: Collection[str]) -> ServerLoad:
        """See ``Compute.load``; the service copies no disk of a node."""
        return ServerLoad(len(self.occupants(hosts)))

    def close(self, hosts: Collection[str], closed: Collection[str]) -> None:
        """Nothing: a node has one instance, so one with a stranger's accepts no other."""

    def stop(self, server: str) -> None:
        """See ``Compute.stop``: powers its node off."""
        for node in self._nodes().values():
            if server in (node.instance, node.uuid) and node.deployed:
                self._cloud.power_off(node)

    def hand_over(self, handover: Handover) -> None:
        """See ``Compute.hand_over``. Only nodes that are available join, before they are leased.

        The lease of a node that the allocation has already is corrected, whatever its state. A
        node that leaves the allocation with an instance keeps its lessee, who has to delete
        the instance.
        """
        project = self._checked_project(handover)
        id, hosts = handover.allocation_id, set(handover.hosts)
        mark = _Mark(id, project)
        with self._writing:
            self._begin()
            nodes = self._nodes()
            strays = {h: node for h, node in _marked(nodes, id).items() if h not in hosts}
            staying = filter(None, [self._leave(h, node) for h, node in sorted(strays.items())])
            self._check_known(hosts, nodes)
            joining = {h: nodes[h] for h in hosts if not _belongs(nodes[h], id)}
            self._check_joining(joining)
            for host in sorted(hosts):
                node = nodes[host]
                if node.mark != mark or node.lessee != project:
                    written = self._written(host, node, project, mark)
                    if host in joining and written.unfit:
                        self._written(host, written, self._sentinel, FREE)
                        raise HostsBusy(f"hosts cannot be handed over: {host} is {written.unfit}")
        if left := [*staying]:
            raise HostsBusy(f"hosts cannot be taken back: {listed(left)}")

    def move_servers(self, moves: ServerMoves) -> MoveProgress:
        """See ``Compute.move_servers``: always ``Forbidden``, as an instance stays on its node."""
        raise Forbidden(
            "instances on bare metal do not move: deploy on new nodes, and undeploy the old ones"
        )

    def fence(self, allocation_id: str) -> None:
        """See ``Compute.fence``. Nodes without an instance are leased to nobody from now on.

        The lessee keeps a node with an instance, to delete it. A node in a transition is left
        to ``take_back``, because Ironic refuses to change it.
        """
        with self._writing:
            self._begin()
            for host, node in _marked(self._nodes(), allocation_id).items():
                self._fence(host, node)

    def take_back(self, handover: Handover, *, force: bool = False) -> None:
        """See ``Compute.take_back``. A node is free once it is clean.

        ``HostsBusy`` until the nodes are cleaned. With ``force`` their instances are deleted.
        """
        with self._writing:
            self._begin()
            nodes = self._nodes()
            ours = _marked(nodes, handover.allocation_id)
            ours |= {
                host: nodes[host]
                for host in handover.hosts
                if host in nodes and nodes[host].lessee == handover.project_id
            }
            left = list[str]()
            for host, node in sorted(ours.items()):
                refusal = self._tear_down(host, node) if force and node.deployed else None
                if refusal:
                    left.append(f"{host} cannot be undeployed: {refusal}")
                elif force and node.deployed:
                    left.append(f"{host} is being undeployed and cleaned")
                elif not node.clean:
                    left.append(self._shown(host, node))
                elif node.mark != FREE or node.lessee != self._sentinel:
                    written = self._changed(host, node, self._sentinel, FREE)
                    if isinstance(written, str):
                        left.append(f"{host}: {written}")
                    elif not written.clean:
                        left.append(self._shown(host, written))
        if left:
            raise HostsBusy(f"hosts cannot be taken back: {listed(left)}")

    def _tear_down(self, host: str, node: _Node) -> str | None:
        """Take the node from its lessee, and delete the instance; why that is refused."""
        if not node.changing and node.lessee != self._sentinel:
            mark = node.mark or FREE
            closed = _Mark(mark.allocation, mark.project, leaving=mark.allocation is not None)
            written = self._changed(host, node, self._sentinel, closed)
            if isinstance(written, str):
                return written
        if node.protected:
            unprotected = self._cloud.unprotect(node)
            if isinstance(unprotected, str):
                return unprotected
        self._reading.nodes = None
        return self._cloud.undeploy(node)

    def handed_over(self) -> Mapping[str, Handover]:
        """See ``Compute.handed_over``; the project of a fenced allocation is the sentinel.

        The projects are those that can deploy the nodes, by commas. Nodes that an allocation
        leaves are missing.
        """
        self._begin()
        return self._handed_over(self._nodes())

    def _handed_over(self, nodes: Mapping[str, _Node]) -> Mapping[str, Handover]:
        found: dict[str, dict[str, _Node]] = {}
        for host, node in nodes.items():
            if node.mark and node.mark.allocation:
                found.setdefault(node.mark.allocation, {})[host] = node
        return {id: self._observed_handover(id, members) for id, members in found.items()}

    def _observed_handover(self, id: str, members: Mapping[str, _Node]) -> Handover:
        staying = {h: n for h, n in members.items() if not (n.mark and n.mark.leaving)}
        if not staying:
            return Handover(id, self._sentinel, tuple(sorted(members)))
        lessees = sorted({node.lessee or "" for node in staying.values()})
        return Handover(id, ",".join(lessees), tuple(sorted(staying)))

    def observed(self) -> Observed:
        """See ``Compute.observed``. One listing of the nodes."""
        self._begin()
        nodes = self._nodes()
        handed_over = self._handed_over(nodes)
        return Observed(
            handed_over,
            frozenset(
                host
                for host, node in nodes.items()
                if node.mark and (node.mark.allocation or node.lessee == self._sentinel)
            ),
            {},
            fenced=frozenset(
                id for id, found in handed_over.items() if found.project_id == self._sentinel
            ),
        )

    def server_limit(self, project_id: str) -> int | None:
        """Always None: Ironic has no quota of instances."""
        return None

    # -- checks -------------------------------------------------------------------

    def _checked_project(self, handover: Handover) -> str:
        """Raises: InvalidInput."""
        project = handover.project_id
        if not project.strip() or len(project) > 255 or "," in project:
            raise InvalidInput("project_id", project, "name one project, up to 255 characters")
        if project == self._sentinel:
            raise InvalidInput("project_id", project, "this id stands for no project")
        return project

    def _check_known(self, hosts: Collection[str], nodes: Mapping[str, _Node]) -> None:
        if unknown := set(hosts) - nodes.keys():
            fix = f"enroll it, and give the service's user a role to {NODES}"
            raise NotFound("bare-metal node", listed(sorted(unknown)), fix)

    def _check_joining(self, nodes: Mapping[str, _Node]) -> None:
        """Raise unless these nodes may be handed over."""
        if foreign := [
            f"{host} is leased to project {node.lessee}"
            for host, node in sorted(nodes.items())
            if node.mark is None and node.lessee not in (None, self._sentinel)
        ]:
            raise Conflict(f"hosts cannot be handed over: {listed(foreign)}")
        if owned := [
            f"{host} belongs to allocation {node.mark.allocation}"
            for host, node in sorted(nodes.items())
            if node.mark and node.mark.allocation
        ]:
            raise Conflict(f"hosts cannot be handed over: {listed(owned)}")
        if unfit := [f"{host} is {n.unfit}" for host, n in sorted(nodes.items()) if n.unfit]:
            raise HostsBusy(f"hosts cannot be handed over: {listed(unfit)}")

    def _unfit(self, node: _Node) -> str:
        if node.mark and node.mark.allocation:
            return node.problem
        if node.deployed:
            return ""  # ``servers`` tells
        return node.unfit

    def _on(self, host: str, node: _Node) -> tuple[Occupant, ...]:
        leaving = bool(node.mark and node.mark.leaving and node.lessee != self._sentinel)
        if not (node.deployed or leaving):
            return ()
        project = node.lessee if node.lessee != self._sentinel else None
        if project is None and node.mark:
            project = node.mark.project
        return (Occupant(host, node.instance or node.uuid, project),)

    def _shown(self, host: str, node: _Node) -> str:
        error = f" ({node.last_error})" if node.last_error else ""
        lessee = node.lessee if node.lessee != self._sentinel else None
        project = lessee or (node.mark.project if node.mark else None)
        of = f" for project {project}" if project else ""
        return (
            f"{host} is {node.state}{of}{error}"
            if node.state != AVAILABLE
            else (f"{host} is reserved for instance {node.instance}")
        )

    # -- what Ironic has ------------------------------------------------------------

    def _begin(self) -> None:
        """Read the nodes anew where they are needed, unless this is a comparison."""
        if not self._reading.comparing:
            self._reading.nodes = None

    def _nodes(self) -> dict[str, _Node]:
        """All nodes by name of their host; those of no host by their own name."""
        if not self._reading.comparing:
            self._reading.nodes = None
        if self._reading.nodes is None:
            self._reading.nodes = self._by_host(self._cloud.nodes())
        return self._reading.nodes

    def _by_host(self, nodes: Iterable[_Node]) -> dict[str, _Node]:
        by_name = {node.name: node for node in nodes}
        by_uuid = {node.uuid: node for node in by_name.values()}
        unnamed = {h: set(guids) for h, guids in self._guids().items() if h not in by_name}
        if any(self._known.get(host) not in by_uuid for host in unnamed):
            self._known = _by_guid(unnamed, self._cloud.guids())
        found = {
            host: by_uuid[self._known[host]] for host in unnamed if self._known.get(host) in by_uuid
        }
        mapped = {node.uuid for node in found.values()}
        return found | {name: n for name, n in by_name.items() if n.uuid not in mapped}

    # -- changes ------------------------------------------------------------------

    def _changed(self, host: str, node: _Node, lessee: str | None, mark: _Mark) -> "_Node | str":
        """Set lessee and mark; the node as it is then, or why Ironic refuses that now."""
        try:
            written = self._cloud.change(node, lessee, mark)
        except LaasError:
            self._reading.nodes = None
            raise
        if isinstance(written, str):
            self._reading.nodes = None
        elif self._reading.nodes is not None:
            self._reading.nodes[host] = written
        return written

    def _written(self, host: str, node: _Node, lessee: str, mark: _Mark) -> _Node:
        written = self._changed(host, node, lessee, mark)
        if isinstance(written, str):
            raise Conflict(f"node {host} cannot be leased to {lessee} now: {written}")
        return written

    def _fence(self, host: str, node: _Node) -> None:
        """Let nobody deploy a node of an allocation; with an instance once that is gone."""
        assert node.mark is not None
        lessee = node.lessee if node.deployed else self._sentinel
        closed = replace(node.mark, leaving=True)
        if not node.changing and (node.lessee, node.mark) != (lessee, closed):
            self._changed(host, node, lessee, closed)

    def _leave(self, host: str, node: _Node) -> str | None:
        """Free a node that leaves an allocation; why that is not possible yet.

        With an instance it is marked, so that ``occupants`` shows it until it is free.
        """
        if node.changing:
            return self._shown(host, node)
        if node.deployed:
            self._fence(host, node)
            return None
        written = self._changed(host, node, self._sentinel, FREE)
        return f"{host}: {written}" if isinstance(written, str) else None


def connect(
    conf: cfg.ConfigOpts,
    guids: Callable[[], Mapping[str, Collection[int]]],
    beat: Callable[[str], None] = lambda action: None,
) -> IronicCompute:
    """The port as [compute] and [ironic] configure it; it does not call Ironic yet.

    ``guids`` as in ``IronicCompute``, ``beat`` as in ``Cloud``.

    Raises:
        InvalidInput: the options give no login.
    """
    try:
        auth = loading.load_auth_from_conf_options(conf, GROUP)
        session = loading.load_session_from_conf_options(conf, GROUP)
        adapter = loading.load_adapter_from_conf_options(conf, GROUP, session=session, auth=auth)
    except keystone_errors.ClientException as error:
        raise InvalidInput("[ironic]", "login", str(error)) from error
    if auth is None:
        raise InvalidInput("[ironic] auth_type", None, "set it, for example to password")
    return IronicCompute(Cloud(adapter, beat), guids, sentinel=conf.compute.sentinel)


def _belongs(node: _Node, allocation_id: str) -> bool:
    return node.mark is not None and node.mark.allocation == allocation_id


def _marked(nodes: Mapping[str, _Node], allocation_id: str) -> dict[str, _Node]:
    return {host: node for host, node in nodes.items() if _belongs(node, allocation_id)}


def _by_guid(hosts: Mapping[str, Collection[int]], nodes: Mapping[int, str]) -> dict[str, str]:
    """The node of each host that has one of its GUIDs; none if several nodes have some."""
    found = {}
    for host, guids in hosts.items():
        owners = {nodes[guid] for guid in guids if guid in nodes}
        if len(owners) > 1:
            LOG.warning("host %s has GUIDs of several nodes: %s", host, listed(sorted(owners)))
        elif owners:
            found[host] = owners.pop()
    return found


def _guid(client_id: object) -> int | None:
    """The port GUID at the end of a DHCP client id; None if it has another form."""
    octets = str(client_id or "").replace(":", "")
    return int(octets[-16:], 16) if re.fullmatch("[0-9A-Fa-f]{40}", octets) else None


def _node(document: Mapping[str, Any]) -> _Node:
    """The node in a document. Raises: KeyError, TypeError, AttributeError."""
    state = str(document["provision_state"] or AVAILABLE)
    changing = document["target_provision_state"] and state not in CHANGEABLE
    instance = document["instance_uuid"]
    lessee = document["lessee"]
    return _Node(
        str(document["uuid"]),
        str(document["name"] or document["uuid"]),
        None if lessee is None else str(lessee),
        state,
        bool(changing),
        _problem(document),
        str(document["last_error"] or ""),
        None if instance is None else str(instance),
        bool(document["protected"]),
        _mark(document["properties"].get(MARK)),
    )


def _problem(document: Mapping[str, Any]) -> str:
    if document["maintenance"]:
        reason = document["maintenance_reason"]
        return f"in maintenance{f': {reason}' if reason else ''}"
    if document["automated_clean"] is False:
        return "not cleaned automatically (automated_clean is False)"
    if document["power_state"] not in POWER:
        return f"in an unknown power state ({document['power_state']})"
    return ""


def _mark(document: object) -> _Mark | None:
    """The mark in a property; None if it is not one of ours."""
    if not isinstance(document, Mapping):
        return None
    if "allocation" not in document:
        return FREE
    project = str(document.get("project", ""))
    return _Mark(str(document["allocation"]), project, bool(document.get("leaving")))


def _reason(error: keystone_errors.HttpError) -> str:
    """The text of a refusal: Ironic wraps a JSON document in another one."""
    if error.response is None:
        return str(error)
    try:
        inner = error.response.json()["error_message"]
        return str(json.loads(inner)["faultstring"] if isinstance(inner, str) else inner)
    except (AttributeError, KeyError, TypeError, ValueError):
        return str(error)


def _translated(action: str, rule: str, error: Exception) -> LaasError:
    """The error of ours for an error of the libraries; its message holds no token or password.

    Any other exception means that the libraries could not parse an answer.
    """
    status = error.http_status if isinstance(error, keystone_errors.HttpError) else None
    if status == 403:
        return Forbidden(f"not allowed to {action}: give the service's user a role to {rule}")
    if status in (413, 429):
        return LimitExceeded(f"cannot {action}: {error}")
    if status == 401:
        return Unavailable(
            f"cannot {action}: Keystone or Ironic does not accept the configured login"
        )
    if isinstance(error, keystone_errors.ClientException):
        return Unavailable(f"cannot {action}: {error}")
    return Unavailable(f"cannot {action}: the answer is invalid ({type(error).__name__}: {error})")

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

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import ClassVar

from oslo_config import cfg

from laas_service.adapters import ironic_nodes
from laas_service.adapters.ironic_nodes import (
    AVAILABLE,
    FREE,
    NODES,
    IronicCalls,
    IronicNode,
    Mark,
    Nodes,
)
from laas_service.app.ports.compute import (
    ComputeHost,
    Handover,
    MoveProgress,
    ObservedAggregates,
    Occupant,
    ServerLoad,
    ServerMoves,
    SlotMoves,
)
from laas_service.domain.errors import (
    Conflict,
    Forbidden,
    HostsBusy,
    InvalidInput,
    LaasError,
    NotFound,
    Unavailable,
)
from laas_service.domain.wording import listed


class _NodesRead(threading.local):
    """The nodes as one thread read them, by host name; None if they have to be read.

    ``comparing``: whether the methods of the port share them.
    """

    nodes: dict[str, IronicNode] | None = None
    comparing = False


class _Listed:
    """All nodes as this thread has read and changed them, by name of their host.

    Those of no host have their own name.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._reading = _NodesRead()

    @contextmanager
    def comparison(self) -> Iterator[None]:
        """Until the end one list serves this thread."""
        self._reading.nodes, self._reading.comparing = None, True
        try:
            yield
        finally:
            self._reading.comparing = False

    def now(self) -> dict[str, IronicNode]:
        """The nodes, read anew unless this is a comparison."""
        if not self._reading.comparing:
            self.forget()
        if self._reading.nodes is None:
            self._reading.nodes = self._nodes.by_host()
        return self._reading.nodes

    def forget(self) -> None:
        """Read the nodes anew where they are needed."""
        self._reading.nodes = None

    def note(self, host: str, written: IronicNode) -> None:
        """Remember a node as a write has left it."""
        if self._reading.nodes is not None:
            self._reading.nodes[host] = written


class _Leases:
    """Changes the lessee of nodes and their mark; ``sentinel`` is the lessee of free nodes."""

    def __init__(self, cloud: IronicCalls, nodes: Nodes, listed: _Listed, sentinel: str) -> None:
        self._cloud = cloud
        self._nodes = nodes
        self._listed = listed
        self._sentinel = sentinel

    def change(
        self, host: str, node: IronicNode, lessee: str | None, mark: Mark
    ) -> "IronicNode | str":
        """Set lessee and mark; the node as it is then, or why Ironic refuses that now."""
        try:
            written = self._cloud.change(node, lessee, mark)
        except LaasError:
            self._listed.forget()
            raise
        if isinstance(written, str):
            self._listed.forget()
        else:
            self._listed.note(host, written)
        return written

    def write(self, host: str, node: IronicNode, lessee: str, mark: Mark) -> IronicNode:
        """As ``change``. Raises: Conflict, if Ironic refuses."""
        written = self.change(host, node, lessee, mark)
        if isinstance(written, str):
            raise Conflict(f"node {host} cannot be leased to {lessee} now: {written}")
        return written

    def free(self, host: str, node: IronicNode) -> "IronicNode | str":
        """As ``change``, to a free node."""
        return self.change(host, node, self._sentinel, FREE)

    def fence(self, host: str, node: IronicNode) -> None:
        """Let nobody deploy a node of an allocation; with an instance once that is gone."""
        assert node.mark is not None
        lessee = node.lessee if node.deployed else self._sentinel
        closed = replace(node.mark, leaving=True)
        if not node.changing and (node.lessee, node.mark) != (lessee, closed):
            self.change(host, node, lessee, closed)

    def leave(self, host: str, node: IronicNode) -> str | None:
        """Free a node that leaves an allocation; why that is not possible yet.

        With an instance it is marked, so that ``occupants`` shows it until it is free.
        """
        if node.changing:
            return _shown(host, node, self._sentinel)
        if node.deployed:
            self.fence(host, node)
            return None
        assert node.mark is not None
        assert node.mark.allocation is not None
        if self._nodes.prepares:
            self.fence(host, node)
        if text := self.leaving(host, node, node.mark.allocation):
            return text
        written = self.free(host, node)
        return f"{host}: {written}" if isinstance(written, str) else None

    def leaving(self, host: str, node: IronicNode, allocation_id: str) -> str:
        """See ``Nodes.leaving``."""
        text = self._nodes.leaving(host, node, allocation_id)
        if text:
            self._listed.forget()
        return text

    def tear_down(self, host: str, node: IronicNode) -> str | None:
        """Take the node from its lessee, and delete the instance; why that is refused."""
        if not node.changing and node.lessee != self._sentinel:
            mark = node.mark or FREE
            closed = Mark(mark.allocation, mark.project, leaving=mark.allocation is not None)
            written = self.change(host, node, self._sentinel, closed)
            if isinstance(written, str):
                return written
        if node.protected:
            unprotected = self._cloud.unprotect(node)
            if isinstance(unprotected, str):
                return unprotected
        self._listed.forget()
        return self._cloud.undeploy(node)


class IronicCompute:
    """The ``Compute`` port on Ironic; one writer at a time in this process.

    ``nodes`` tells the node of a host. ``sentinel`` is the lessee of free nodes, which is no
    project. A node that Ironic does not know counts as empty, so it does not block a release;
    pooling it or handing it over raises ``NotFound``.

    Errors beyond those of the port: ``Conflict`` for nodes that are leased to others, and for
    nodes that cannot be handed over in their state; ``InvalidInput`` for a project that cannot
    be a lessee.
    """

    scripted: ClassVar[bool] = False
    claims_slots: ClassVar[bool] = False

    def __init__(
        self,
        cloud: IronicCalls,
        nodes: Nodes,
        *,
        sentinel: str,
    ) -> None:
        self._cloud = cloud
        self.nodes = nodes
        self._sentinel = sentinel
        self._writing = threading.Lock()
        self._listed = _Listed(nodes)
        self._leases = _Leases(cloud, nodes, self._listed, sentinel)

    # -- the port ---------------------------------------------------------------

    def comparison(self) -> AbstractContextManager[None]:
        """See ``Compute.comparison``. The nodes are listed once."""
        return self._listed.comparison()

    def pool(self, hosts: Collection[str]) -> None:
        """See ``Compute.pool``. Nodes of allocations stay as they are.

        A node that is in the pool already may be in any state: ``look`` tells which are free.
        When an error names nodes that cannot join, all others have joined.
        """
        with self._writing:
            nodes = self._listed.now()
            busy, refused = list[str](), list[str]()
            for host in sorted(set(hosts) & nodes.keys()):
                node = nodes[host]
                if node.mark and (node.mark.allocation or node.lessee == self._sentinel):
                    if node.mark == FREE and node.deployed:
                        busy.append(_shown(host, node, self._sentinel))
                    elif node.mark == FREE:
                        self.nodes.settle(host, node)
                elif not node.clean:
                    busy.append(_shown(host, node, self._sentinel))
                elif node.mark is None and node.lessee not in (None, self._sentinel):
                    refused.append(f"{host} is leased to project {node.lessee}")
                else:
                    written = self._leases.free(host, node)
                    if isinstance(written, str):
                        refused.append(f"{host}: {written}")
                    elif written.deployed:
                        busy.append(_shown(host, written, self._sentinel))
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
        nodes = self._listed.now()
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
        self._listed.forget()
        nodes = self._listed.now()
        return {
            host: ComputeHost(
                unfit=self._unfit(host, nodes[host]), servers=self._on(host, nodes[host])
            )
            for host in sorted(set(hosts) & nodes.keys())
        }

    def nearest(self, hosts: Collection[str]) -> Mapping[str, str]:
        """Always empty: a node of another name is found by its GUIDs."""
        return {}

    def load(self, hosts: Collection[str]) -> ServerLoad:
        """See ``Compute.load``; the service copies no disk of a node."""
        return ServerLoad(len(self.occupants(hosts)))

    def close(self, hosts: Collection[str], closed: Collection[str]) -> None:
        """Nothing: a node has one instance, so one with a stranger's accepts no other."""

    def stop(self, server: str) -> None:
        """See ``Compute.stop``: powers its node off."""
        for node in self._listed.now().values():
            if server in (node.instance, node.uuid) and node.deployed:
                self._cloud.power_off(node)

    def hand_over(self, handover: Handover, ready: Collection[str] = ()) -> None:
        """See ``Compute.hand_over``. Only nodes that are available join, before they are leased.

        The lease of a node that the allocation has already is corrected, whatever its state. A
        node that leaves the allocation with an instance keeps its lessee, who has to delete
        the instance.
        """
        project = self._checked_project(handover)
        id, hosts = handover.allocation_id, set(handover.hosts)
        mark = Mark(id, project)
        with self._writing:
            nodes = self._listed.now()
            strays = {h: node for h, node in _marked(nodes, id).items() if h not in hosts}
            staying = filter(
                None, [self._leases.leave(h, node) for h, node in sorted(strays.items())]
            )
            self._check_known(hosts, nodes)
            if unready := {h: nodes[h] for h in hosts.intersection(ready) if nodes[h].problem}:
                problems = [f"{host} is {node.problem}" for host, node in sorted(unready.items())]
                raise Unavailable(f"hosts cannot be handed over now: {listed(problems)}")
            joining = {h: nodes[h] for h in hosts if not _belongs(nodes[h], id)}
            self._check_joining(joining)
            for host in sorted(hosts):
                node = nodes[host]
                if node.mark != mark or node.lessee != project:
                    written = self._leases.write(host, node, project, mark)
                    if host in joining and written.unfit:
                        self._leases.write(host, written, self._sentinel, FREE)
                        raise HostsBusy(f"hosts cannot be handed over: {host} is {written.unfit}")
        if left := [*staying]:
            raise HostsBusy(f"hosts cannot be taken back: {listed(left)}")

    def running(self, moves: ServerMoves) -> MoveProgress:
        """See ``Compute.running``: ``Forbidden``, as ``move_servers``."""
        return self.move_servers(moves)

    def move_servers(self, moves: ServerMoves) -> MoveProgress:
        """See ``Compute.move_servers``: always ``Forbidden``, as an instance stays on its node."""
        raise Forbidden(
            "instances on bare metal do not move: deploy on new nodes, and undeploy the old ones"
        )

    def settle_slots(self, moves: SlotMoves) -> MoveProgress:
        """Nothing: a node has one owner, so nobody has slots."""
        return MoveProgress()

    def slot_holders(self, handover: Handover) -> Sequence[Occupant]:
        """Always empty: nobody has slots."""
        return ()

    def fence(self, allocation_id: str) -> None:
        """See ``Compute.fence``. Nodes without an instance are leased to nobody from now on.

        The lessee keeps a node with an instance, to delete it. A node in a transition is left
        to ``take_back``, because Ironic refuses to change it.
        """
        with self._writing:
            for host, node in _marked(self._listed.now(), allocation_id).items():
                self._leases.fence(host, node)

    def take_back(self, handover: Handover, *, force: bool = False) -> None:
        """See ``Compute.take_back``. A node is free once it is clean.

        ``HostsBusy`` until the nodes are cleaned. With ``force`` their instances are deleted.
        """
        with self._writing:
            nodes = self._listed.now()
            ours = _marked(nodes, handover.allocation_id)
            ours |= {
                host: nodes[host]
                for host in handover.hosts
                if host in nodes and nodes[host].lessee == handover.project_id
            }
            left = list[str]()
            for host, node in sorted(ours.items()):
                refusal = self._leases.tear_down(host, node) if force and node.deployed else None
                if refusal:
                    left.append(f"{host} cannot be undeployed: {refusal}")
                elif force and node.deployed:
                    left.append(f"{host} is being undeployed and cleaned")
                elif not node.clean:
                    left.append(_shown(host, node, self._sentinel))
                elif text := self._leases.leaving(host, node, handover.allocation_id):
                    left.append(text)
                elif node.mark != FREE or node.lessee != self._sentinel:
                    written = self._leases.free(host, node)
                    if isinstance(written, str):
                        left.append(f"{host}: {written}")
                    elif not written.clean:
                        left.append(_shown(host, written, self._sentinel))
        if left:
            raise HostsBusy(f"hosts cannot be taken back: {listed(left)}")

    def handed_over(self) -> Mapping[str, Handover]:
        """See ``Compute.handed_over``; the project of a fenced allocation is the sentinel.

        The projects are those that can deploy the nodes, by commas. Nodes that an allocation
        leaves are missing.
        """
        return self._handed_over(self._listed.now())

    def _handed_over(self, nodes: Mapping[str, IronicNode]) -> Mapping[str, Handover]:
        found: dict[str, dict[str, IronicNode]] = {}
        for host, node in nodes.items():
            if node.mark and node.mark.allocation:
                found.setdefault(node.mark.allocation, {})[host] = node
        return {id: self._observed_handover(id, members) for id, members in found.items()}

    def _observed_handover(self, id: str, members: Mapping[str, IronicNode]) -> Handover:
        staying = {h: n for h, n in members.items() if not (n.mark and n.mark.leaving)}
        if not staying:
            return Handover(id, self._sentinel, tuple(sorted(members)))
        lessees = sorted({node.lessee or "" for node in staying.values()})
        return Handover(id, ",".join(lessees), tuple(sorted(staying)))

    def observed(self) -> ObservedAggregates:
        """See ``Compute.observed``. One listing of the nodes."""
        nodes = self._listed.now()
        handed_over = self._handed_over(nodes)
        return ObservedAggregates(
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

    def _check_known(self, hosts: Collection[str], nodes: Mapping[str, IronicNode]) -> None:
        if unknown := set(hosts) - nodes.keys():
            fix = f"enroll it, and give the service's user a role to {NODES}"
            raise NotFound("bare-metal node", listed(sorted(unknown)), fix)

    def _check_joining(self, nodes: Mapping[str, IronicNode]) -> None:
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
        if changed := [
            f"{host} is {text}"
            for host, node in sorted(nodes.items())
            if (text := self.nodes.changed(host, node))
        ]:
            raise HostsBusy(f"hosts cannot be handed over: {listed(changed)}")

    def _unfit(self, host: str, node: IronicNode) -> str:
        if node.mark and node.mark.allocation:
            return node.problem
        if node.deployed:
            return ""  # ``servers`` tells
        return node.unfit or self.nodes.suspicion(host, node)

    def _on(self, host: str, node: IronicNode) -> tuple[Occupant, ...]:
        leaving = bool(node.mark and node.mark.leaving and node.lessee != self._sentinel)
        if not (node.deployed or leaving):
            return ()
        project = node.lessee if node.lessee != self._sentinel else None
        if project is None and node.mark:
            project = node.mark.project
        return (Occupant(host, node.instance or node.uuid, project),)


def connect(
    conf: cfg.ConfigOpts,
    guids: Callable[[], Mapping[str, Collection[int]]],
    beat: Callable[[str], None] = lambda action: None,
) -> IronicCompute:
    """The port as [compute] and [ironic] configure it; it does not call Ironic yet.

    ``guids`` as in ``Nodes``, ``beat`` as in ``IronicCalls``.

    Raises:
        InvalidInput: the options give no login.
    """
    found = ironic_nodes.connect(conf, guids, beat)
    if found is None:
        raise InvalidInput("[ironic] auth_type", None, "set it, for example to password")
    return IronicCompute(*found, sentinel=conf.compute.sentinel)


def _belongs(node: IronicNode, allocation_id: str) -> bool:
    return node.mark is not None and node.mark.allocation == allocation_id


def _marked(nodes: Mapping[str, IronicNode], allocation_id: str) -> dict[str, IronicNode]:
    return {host: node for host, node in nodes.items() if _belongs(node, allocation_id)}


def _shown(host: str, node: IronicNode, sentinel: str) -> str:
    """Why a node is not free, in words."""
    error = f" ({node.last_error})" if node.last_error else ""
    lessee = node.lessee if node.lessee != sentinel else None
    project = lessee or (node.mark.project if node.mark else None)
    of = f" for project {project}" if project else ""
    return (
        f"{host} is {node.state}{of}{error}"
        if node.state != AVAILABLE
        else (f"{host} is reserved for instance {node.instance}")
    )

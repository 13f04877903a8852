# SPDX-License-Identifier: Apache-2.0

"""Ironic's nodes: how they are listed and changed, and which node a host of a fabric is."""

import json
import logging
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from keystoneauth1 import exceptions as keystone_errors
from keystoneauth1 import loading
from keystoneauth1.adapter import Adapter
from oslo_config import cfg
from requests import Response

from laas_service.adapters import ironic_cleaning
from laas_service.adapters.ironic_cleaning import (
    CleaningAction,
    PendingCleaning,
    Steps,
    cleaning_from,
    next_of,
)
from laas_service.adapters.openstack_calls import Calls
from laas_service.domain.errors import InvalidInput
from laas_service.domain.wording import listed
from laas_service.version import user_agent

LOG = logging.getLogger(__name__)

GROUP = "ironic"

VERSION = "1.65"
"""First version with ``lessee`` (Ironic 16, Wallaby)."""

FIRMWARE_VERSION = "1.86"
"""First version that shows the firmware of nodes (Ironic 23, 2023.2)."""

PAGE = 1000
"""Nodes or ports that one request lists; Ironic lists no more by default."""

MARK = "laas"
"""The property with the mark."""

FIELDS = (
    "automated_clean",
    "inspection_finished_at",
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
    "provision_updated_at",
    "resource_class",
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

ON = "power on"
POWER = frozenset({"power on", "power off", "rebooting"})

_FORGIVEN = {"op": "remove", "path": f"/properties/{ironic_cleaning.PROPERTY}"}

NODES = "see all nodes (role service in Ironic's service project, or reader of the system)"
CHANGES = "change all nodes (role service in Ironic's service project, or member of the system)"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Mark:
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


FREE = Mark()


@dataclass(frozen=True, slots=True)
class IronicNode:
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
    mark: Mark | None
    resource: str
    """The resource class of its provider in placement."""

    power: str
    automated_clean: bool | None
    """None: as Ironic's own option says."""

    since: str
    """When it came into its state, as Ironic writes it."""

    inspected: str
    """When it was inspected last, in the same form, or empty."""

    pending: PendingCleaning | None
    """The cleaning steps that it has to run, or has run."""

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
    def condition(self) -> str:
        """Its state, with the last error, or for what it is reserved."""
        if self.state == AVAILABLE and self.instance is not None:
            return f"reserved for instance {self.instance}"
        return f"{self.state}{': ' if self.last_error else ''}{self.last_error}"

    @property
    def unfit(self) -> str:
        """Why nobody may get it now; empty if it may be handed over."""
        if self.problem:
            return self.problem
        return "" if self.state == AVAILABLE and self.instance is None else self.condition


class IronicCalls(Calls):
    """Calls to Ironic; errors as in ``Calls``."""

    service: ClassVar[str] = "Ironic"
    grant: ClassVar[str] = "a role to"

    def __init__(
        self,
        ironic: Adapter,
        beat: Callable[[str], None] = lambda action: None,
        *,
        page: int = PAGE,
    ) -> None:
        super().__init__(beat)
        self._ironic = ironic
        self._page = page
        self._prefix: str | None = None

    def _reason(self, error: Exception) -> str:
        """Ironic wraps a JSON document in another one."""
        if not isinstance(error, keystone_errors.HttpError) or error.response is None:
            return str(error)
        try:
            inner = error.response.json()["error_message"]
            return str(json.loads(inner)["faultstring"] if isinstance(inner, str) else inner)
        except (AttributeError, KeyError, TypeError, ValueError):
            return str(error)

    def nodes(self) -> list[IronicNode]:
        """All nodes that the service's user may see."""
        return self._pages("nodes", ",".join(FIELDS), _node)

    def node(self, uuid: str) -> IronicNode | None:
        """One node; None if there is none that the service's user may see."""

        def read() -> IronicNode | None:
            try:
                fields = ",".join(FIELDS)
                return _node(self._request("GET", f"/nodes/{uuid}?fields={fields}").json())
            except keystone_errors.NotFound:
                return None

        return self._read(f"read node {uuid}", NODES, read)

    def guids(self) -> dict[int, str]:
        """The node of each port GUID that an InfiniBand port has in ``extra.client-id``."""
        ports = self._pages("ports", "uuid,node_uuid,extra", lambda port: port)
        known = ((_guid(port["extra"].get("client-id")), str(port["node_uuid"])) for port in ports)
        return {guid: node for guid, node in known if guid is not None}

    def guids_of(self, node: IronicNode) -> set[int]:
        """The port GUIDs of the InfiniBand ports of a node."""
        ports = self._pages("ports", "uuid,extra", lambda port: port, f"node={node.uuid}&")
        return {guid for port in ports if (guid := _guid(port["extra"].get("client-id")))}

    def firmware_of(self, node: IronicNode) -> dict[str, tuple[str, str]]:
        """By component of a node the version that Ironic saw first, and the present one.

        Nothing from an Ironic that is too old to tell.
        """
        path = f"/nodes/{node.uuid}/firmware"

        def read() -> dict[str, tuple[str, str]]:
            try:
                found = self._request("GET", path, FIRMWARE_VERSION).json()["firmware"]
            except (keystone_errors.NotFound, keystone_errors.NotAcceptable):
                return {}
            return {
                str(one["component"]): (str(one["initial_version"]), str(one["current_version"]))
                for one in found
            }

        return self._read(f"read the firmware of node {node.name}", NODES, read)

    def change(self, node: IronicNode, lessee: str | None, mark: Mark) -> "IronicNode | str":
        """Set lessee and mark; the node as it is then, or the text of a refusal."""
        changes: list[dict[str, Any]] = [
            {"op": "replace", "path": "/lessee", "value": lessee},
            {"op": "add", "path": f"/properties/{MARK}", "value": mark.document()},
        ]
        if node.pending and mark.allocation and not mark.leaving:
            changes.append(_FORGIVEN)
        return self._patch(node, f"set the lessee of node {node.name}", changes)

    def end_lease(self, node: IronicNode) -> "IronicNode | str":
        """Take a node from its lessee."""
        changes = [{"op": "replace", "path": "/lessee", "value": None}]
        return self._patch(node, f"clear the lessee of node {node.name}", changes)

    def record_cleaning(
        self, node: IronicNode, pending: PendingCleaning | None
    ) -> "IronicNode | str":
        """Record the cleaning steps that a node has to run."""
        path = f"/properties/{ironic_cleaning.PROPERTY}"
        change = {"op": "add", "path": path, "value": pending.document()} if pending else _FORGIVEN
        return self._patch(node, f"record the cleaning steps of node {node.name}", [change])

    def clean(self, node: IronicNode, action: CleaningAction, steps: Steps) -> str | None:
        """Ask for what runs cleaning steps on a node, or for what comes before or after that."""
        more = {"clean_steps": steps} if action is CleaningAction.RUN else {}
        return self._ask(
            f"{action.value} node {node.name}", node, "provision", action.value, **more
        )

    def unprotect(self, node: IronicNode) -> "IronicNode | str":
        """Let the node be undeployed; its lessee may have protected it."""
        changes = [{"op": "replace", "path": "/protected", "value": False}]
        return self._patch(node, f"unprotect node {node.name}", changes)

    def undeploy(self, node: IronicNode) -> str | None:
        """Ask for the end of the node's instance; Ironic cleans the node then."""
        return self._ask(f"undeploy node {node.name}", node, "provision", "deleted")

    def power_off(self, node: IronicNode) -> str | None:
        """Ask for the node to be powered off."""
        return self._ask(f"power off node {node.name}", node, "power", "power off")

    def _ask(
        self, action: str, node: IronicNode, state: str, target: str, **more: Any
    ) -> str | None:
        """Ask for another state of a node, which it reaches later."""
        path, body = f"/nodes/{node.uuid}/states/{state}", {"target": target, **more}
        return self._write(
            action, CHANGES, lambda: self._request("PUT", path, json=body), lambda _: None
        )

    def _patch(
        self, node: IronicNode, action: str, changes: list[dict[str, Any]]
    ) -> "IronicNode | str":
        return self._write(
            action,
            CHANGES,
            lambda: self._request("PATCH", f"/nodes/{node.uuid}", json=changes),
            lambda answer: _node(answer.json()),
        )

    def _pages(
        self, kind: str, fields: str, parse: Callable[[Mapping[str, Any]], T], query: str = ""
    ) -> list[T]:
        """All items of a list, by page."""

        def read() -> list[T]:
            found: list[T] = []
            marker = ""
            while True:
                path = f"/{kind}?{query}fields={fields}&limit={self._page}{marker}"
                answer = self._request("GET", path).json()
                found += map(parse, answer[kind])
                if not answer.get("next"):
                    return found
                marker = f"&marker={answer[kind][-1]['uuid']}"

        return self._read(f"list {kind}", NODES, read)

    def _request(self, method: str, path: str, version: str = VERSION, **options: Any) -> Response:
        if self._prefix is None:
            endpoint = (self._ironic.get_endpoint() or "").rstrip("/")
            self._prefix = "" if endpoint.endswith("/v1") else "/v1"
        return self._ironic.request(
            f"{self._prefix}{path}", method, microversion=version, **options
        )


class Nodes:
    """Ironic's nodes by host: the one of its name, or the one with a port of its GUIDs.

    ``guids`` gives the port GUIDs of every host. ``firmware`` are versions that nodes may have
    (component, version) besides those that Ironic saw first. Nodes run the cleaning ``steps``, and
    with ``power_off`` are powered off, before they are free.
    """

    def __init__(
        self,
        cloud: IronicCalls,
        guids: Callable[[], Mapping[str, Collection[int]]] = dict,
        *,
        firmware: Collection[tuple[str, str]] = (),
        power_off: bool = False,
        steps: Steps | None = None,
    ) -> None:
        self._cloud = cloud
        self._guids = guids
        self._steps = steps or []
        self._firmware = frozenset(firmware)
        self._power_off = power_off
        self._known: dict[str, str] = {}  # node of each host that was found by GUID
        self._suspects: set[str] = set()  # hosts whose hardware was not as recorded

    @property
    def prepares(self) -> bool:
        """Whether a node has something to do before it is free."""
        return self._power_off or bool(self._steps)

    def node(self, uuid: str) -> IronicNode | None:
        """One node as it is now; None if Ironic does not have it."""
        return self._cloud.node(uuid)

    def end_lease(self, node: IronicNode) -> str | None:
        """Take a node from its lessee; why that is refused."""
        written = self._cloud.end_lease(node)
        return written if isinstance(written, str) else None

    def findings(self, hosts: Collection[str]) -> tuple[list[str], str]:
        """Problems with the nodes that are these hosts, in sentences; and what is well."""
        nodes = self.by_host()
        found = {host: nodes[host] for host in sorted(set(hosts) & nodes.keys())}
        if not nodes:
            return [
                f"Ironic shows no node: give the service's user {IronicCalls.grant} {NODES}"
            ], ""
        uncleaned = [host for host, node in found.items() if node.automated_clean is False]
        problems = [
            f"nodes are not cleaned automatically, and get no owner: {listed(uncleaned)}"
        ] * bool(uncleaned)
        return problems, (
            f"Ironic shows {len(nodes)} nodes, of which {len(found)} are hosts of fabrics. Its API "
            "does not show whether [conductor] automated_clean is on: check that it is"
        )

    def changed(self, host: str, node: IronicNode) -> str:
        """How the hardware of a node is not as recorded, in words; empty if it is.

        Its earlier owner had root there. Ironic needs an inspection to learn of other GUIDs, and
        learns of other firmware whenever it cleans a node.
        """
        if self.needs_cleaning(node):
            return ironic_cleaning.DUE
        recorded, found = set(self._guids().get(host, ())), self._cloud.guids_of(node)
        texts = []
        if found and (missing := recorded - found):
            texts.append(f"without port GUID {listed([f'{guid:#018x}' for guid in missing])}")
        texts += [
            f"with {component} firmware {now} instead of {first}"
            for component, (first, now) in sorted(self._cloud.firmware_of(node).items())
            if now != first and (component, now) not in self._firmware
        ]
        if texts:
            self._suspects.add(host)
        else:
            self._suspects.discard(host)
        return listed(texts)

    def suspicion(self, host: str, node: IronicNode) -> str:
        """``changed`` again, for a host that was or owes steps; empty for others."""
        return (
            self.changed(host, node) if host in self._suspects or self.needs_cleaning(node) else ""
        )

    def leaving(self, host: str, node: IronicNode, allocation: str) -> str:
        """Why a node may not be free yet, in words; empty if it may.

        Runs the cleaning steps, and then powers it off, as far as that is set. A node whose
        steps cannot run now, or failed, owes them still: it may be free, and is unfit.
        """
        if not node.clean:
            if node.deployed and node.pending:
                self._cloud.record_cleaning(node, None)  # another instance needs the steps anew
            return f"{host} is {node.condition}"
        if self._steps:
            if node.pending is None or node.pending.allocation != allocation:
                recorded = self._cloud.record_cleaning(node, PendingCleaning(allocation))
                if isinstance(recorded, str):
                    return f"{host}: {recorded}"
                node = recorded
            if text := self.settle(host, node):
                return text
        if self._power_off and node.power == ON and not node.problem:
            refusal = self._cloud.power_off(node)
            return f"{host} is being powered off{f': {refusal}' if refusal else ''}"
        return ""

    def settle(self, host: str, node: IronicNode) -> str:
        """Take the next step of what a clean node owes; what is going on then, in words, or empty.

        Nothing happens while the node is in maintenance, because Ironic would refuse.
        """
        if not self._steps or node.pending is None or node.problem or not node.clean:
            return ""
        following = next_of(node.pending, node.state, node.since, node.last_error, node.inspected)
        if following.pending != node.pending:
            recorded = self._cloud.record_cleaning(node, following.pending)
            if isinstance(recorded, str):
                return f"{host}: {recorded}"
        if following.action is None:
            return ""
        refusal = self._cloud.clean(node, following.action, self._steps)
        return f"{host} runs its cleaning steps{f': {refusal}' if refusal else ''}"

    def needs_cleaning(self, node: IronicNode) -> bool:
        """Whether a node is still to run cleaning steps."""
        return bool(self._steps) and node.pending is not None and not node.pending.paid

    def forget_cleaning(self, node: IronicNode) -> None:
        """Forget what a node owed when it left its last allocation; it joins another one."""
        if node.pending:
            self._cloud.record_cleaning(node, None)

    def by_host(self, others: Collection[str] = ()) -> dict[str, IronicNode]:
        """All nodes by name of their host; those of no host by their own name.

        ``others`` are hosts that are no nodes.
        """
        nodes = self._cloud.nodes()
        by_name = {node.name: node for node in nodes}
        by_uuid = {node.uuid: node for node in by_name.values()}
        unnamed = {h: set(guids) for h, guids in self._guids().items() if h not in by_name}
        unnamed = {host: guids for host, guids in unnamed.items() if host not in others}
        if any(self._known.get(host) not in by_uuid for host in unnamed):
            self._known = _by_guid(unnamed, self._cloud.guids())
        found = {
            host: by_uuid[self._known[host]] for host in unnamed if self._known.get(host) in by_uuid
        }
        mapped = {node.uuid for node in found.values()}
        return found | {name: n for name, n in by_name.items() if n.uuid not in mapped}


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


def _node(document: Mapping[str, Any]) -> IronicNode:
    """The node in a document. Raises: KeyError, TypeError, AttributeError."""
    state = str(document["provision_state"] or AVAILABLE)
    changing = document["target_provision_state"] and state not in CHANGEABLE
    instance = document["instance_uuid"]
    lessee = document["lessee"]
    return IronicNode(
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
        "CUSTOM_" + re.sub("[^A-Z0-9_]", "_", str(document["resource_class"] or "").upper()),
        str(document["power_state"]),
        document["automated_clean"],
        str(document["provision_updated_at"]),
        str(document["inspection_finished_at"] or ""),
        cleaning_from(document["properties"].get(ironic_cleaning.PROPERTY)),
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


def _mark(document: object) -> Mark | None:
    """The mark in a property; None if it is not one of ours."""
    if not isinstance(document, Mapping):
        return None
    if "allocation" not in document:
        return FREE
    project = str(document.get("project", ""))
    return Mark(str(document["allocation"]), project, bool(document.get("leaving")))


def connect(
    conf: cfg.ConfigOpts,
    guids: Callable[[], Mapping[str, Collection[int]]],
    beat: Callable[[str], None] = lambda action: None,
) -> tuple[IronicCalls, Nodes] | None:
    """Ironic as [compute] and [ironic] configure it, not called yet; None without a login.

    ``guids`` as in ``Nodes``, ``beat`` as in ``IronicCalls``.

    Raises:
        InvalidInput: the options do not fit together.
    """
    try:
        auth = loading.load_auth_from_conf_options(conf, GROUP)
        if auth is None:
            return None
        session = loading.load_session_from_conf_options(conf, GROUP, user_agent=user_agent())
        adapter = loading.load_adapter_from_conf_options(conf, GROUP, session=session, auth=auth)
    except keystone_errors.ClientException as error:
        raise InvalidInput("[ironic]", "login", str(error)) from error
    cloud = IronicCalls(adapter, beat)
    firmware = [_component(text) for text in conf.compute.firmware]
    steps = ironic_cleaning.read_steps(conf.compute.clean_steps)
    power_off = conf.compute.power_off
    return cloud, Nodes(cloud, guids, firmware=firmware, power_off=power_off, steps=steps)


def _component(text: str) -> tuple[str, str]:
    component, equals, version = text.partition("=")
    if not (component and equals and version):
        raise InvalidInput("[compute] firmware", text, "give COMPONENT=VERSION, such as bios=2.1")
    return component, version

# SPDX-License-Identifier: Apache-2.0

"""An HTTP stand-in for Nova's aggregate and hypervisor calls and placement's reads.

It follows the rules measured on Nova 34 and placement 16, and refuses the same requests;
``tests/nova/test_contract.py`` compares it with the real services. It records which
projects a scheduler would have admitted on each watched host. Requests can be made to fail.
"""

from __future__ import annotations

import copy
import json
import re
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Collection
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

TOKEN = "token-that-no-log-may-show"
EVERYBODY = "everybody"
PATTERN = "hypervisor_hostname_pattern"
EVACUATION = "evacuation"
KEY = re.compile(r"[a-zA-Z0-9-_:. ]{1,255}")


@dataclass
class Aggregate:
    id: int
    name: str
    availability_zone: str | None = None
    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))
    hosts: list[str] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass
class Fault:
    """A failure of ``times`` requests after ``skip`` successful ones.

    ``call`` restricts it to one call. ``kind`` is a status, or: ``refused`` (connection
    closed, nothing done), ``hang`` (no answer, nothing done), ``lost`` (done, connection
    closed), ``late`` (done, no answer), ``garbage`` (done, the answer is not JSON), ``odd``
    (done, JSON of another shape), ``unmirrored`` (done, but placement is not updated).
    """

    kind: int | str
    call: str | None = None
    times: int = 1
    skip: int = 0


@dataclass
class Migration:
    """A cold migration, or a resize (``kind``), whose uuid holds room on the source."""

    server: str
    source: str
    target: str
    kind: str = "migration"
    status: str = "migrating"
    was: str = "ACTIVE"
    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))


@dataclass
class Below:
    """A resource provider below that of a host; ``inventories`` by class."""

    name: str
    parent: str
    generation: int = 0
    inventories: dict[str, dict[str, int]] = field(default_factory=dict)


class Refusal(Exception):
    def __init__(self, status: int, message: str = "") -> None:
        super().__init__(message)
        self.status = status


class Cloud:
    """The state behind the API; ``call`` executes one request."""

    def __init__(self, hosts):
        self.lock = threading.RLock()
        self.providers = {host: str(uuid.uuid4()) for host in hosts}
        self.aggregates: dict[int, Aggregate] = {}
        self.mirror: dict[str, set[str]] = defaultdict(set)  # provider -> aggregate uuids
        self.servers: dict[str, tuple[str, str]] = {}  # consumer -> host, project
        self.ghosts: dict[str, tuple[str, str]] = {}  # servers that placement does not know
        self.on_volumes: set[str] = set()  # servers that boot from a volume
        self.local = {"ephemeral": 5, "swap": 512}  # GB and MB of local disks beside the root
        self.hints: dict[str, dict[str, str]] = {}  # server -> scheduler hints
        self.states: dict[str, tuple[str, str | None]] = {}  # server -> status and task, if unusual
        self.locks: dict[str, str | None] = {}  # locked server -> reason
        self.kept: dict[str, str] = {}  # deleted server that can be restored -> when it was deleted
        self.migrations: list[Migration] = []
        self.held: dict[str, tuple[str, str]] = {}  # migration -> host, project
        self.left_behind: dict[str, tuple[str, str]] = {}  # evacuated server -> host, project
        self.slow = False  # migrations go on only when ``migrated`` is called
        self.broken: set[str] = set()  # servers whose migration ends in an error
        self.disabled: set[str] = set()  # hosts that the scheduler does not choose
        self.dead: set[str] = set()  # hosts whose compute service does not report
        self.forced_down: set[str] = set()  # those that an administrator says are off
        self.classes: set[str] = set()  # resource classes of placement
        self.below: dict[str, Below] = {}  # providers below those of hosts, by their uuid
        self.slot_of: dict[str, str] = {}  # consumer -> the class of the slot that it holds
        self.newest = "2.104"
        self.limits: dict[str, int] = {}  # project -> servers it may run
        self.calls: list[tuple[str, str]] = []
        self.faults: list[Fault] = []
        self.let_in: dict[str, set[str]] = defaultdict(set)
        self.watched: set[str] = set()
        self.busy: set[int] = set()
        self.overlaps: list[str] = []
        self.after = lambda call, about: None
        self.hanging = threading.Event()
        self.next_id = 1
        self.page = 1000  # hypervisors or migrations per page

    # -- for tests --------------------------------------------------------------

    refused: Collection[str] = ()
    """Hosts that may join no aggregate."""

    def copy(self):
        """A copy of the state, without recorded calls and faults."""
        other = Cloud(())
        kept = ["providers", "aggregates", "mirror", "servers", "limits", "next_id", "page"]
        kept += ["classes", "below", "slot_of"]
        for name in (*kept, "states", "migrations", "held", "left_behind", "dead"):
            setattr(other, name, copy.deepcopy(getattr(self, name)))
        return other

    def boot(self, host, project, slot=None):
        """A new server on a host; ``slot`` is the class of the slot that it holds, as Nova asks."""
        consumer = str(uuid.uuid4())
        if slot is not None and not self.free_slots(host, slot):
            raise Refusal(409, f"no slot of {slot} is free on {host}")
        self.servers[consumer] = (host, project)
        if slot is not None:
            self.slot_of[consumer] = slot
        return consumer

    def free_slots(self, host, slot):
        """How many slots of a class are free on a host."""
        total = 0
        for uuid_, child in self.below.items():
            if child.parent == self.providers.get(host) and slot in child.inventories:
                document = child.inventories[slot]
                room = document["total"] - document["reserved"] - len(self._held(uuid_, slot))
                total += max(0, room)
        return total

    def claimable(self):
        """How many slots of each class may be in use on each host."""
        names = {provider: host for host, provider in self.providers.items()}
        return {
            (names[child.parent], name): document["total"] - document["reserved"]
            for child in self.below.values()
            for name, document in child.inventories.items()
            if document["total"] > document["reserved"]
        }

    def _held(self, uuid_, slot):
        """The consumers that hold slots of a class of a provider."""
        hosts = {host for host, id in self.providers.items() if id == self.below[uuid_].parent}
        return [
            id
            for id, host, _ in self._consumers()
            if host in hosts and self.slot_of.get(id) == slot
        ]

    def accepts(self, host):
        """Projects Nova's stock filter admits: the union of all lists, or everybody without one."""
        lists = [
            value
            for aggregate in self.aggregates.values()
            if host in aggregate.hosts
            for key, value in aggregate.metadata.items()
            if key.startswith("filter_tenant_id")
        ]
        return {part.strip() for text in lists for part in text.split(",")} or {EVERYBODY}

    def watch(self, hosts):
        """Record in ``let_in`` each project that could start a server on a host, even briefly."""
        self.watched = set(hosts)
        self.let_in.clear()
        self._look()

    def _look(self):
        for host in self.watched:
            self.let_in[host] |= self.accepts(host)

    def snapshot(self):
        """Aggregates and placement's view of them, without ids that differ between runs."""
        names = {aggregate.uuid: aggregate.name for aggregate in self.aggregates.values()}
        return (
            {a.name: (dict(a.metadata), set(a.hosts)) for a in self.aggregates.values()},
            {
                host: {names[uuid] for uuid in self.mirror[provider] if uuid in names}
                for host, provider in self.providers.items()
            },
        )

    def named(self, name):
        (found,) = [a for a in self.aggregates.values() if a.name == name]
        return found

    # -- requests ---------------------------------------------------------------

    def fault(self, call):
        with self.lock:
            for fault in self.faults:
                if fault.call in (None, call) and fault.times:
                    if fault.skip:
                        fault.skip -= 1
                        continue
                    fault.times -= 1
                    return fault.kind
        return None

    def call(self, name, about, act, kind):
        with self.lock:
            self.calls.append((name, about))
        if isinstance(kind, int):
            raise Refusal(kind, "injected")
        with self.lock:
            found = act()
            self._look()
            self.after(name, about)
        return found

    @contextmanager
    def alone(self, aggregate_id):
        """Record in ``overlaps`` an aggregate that two requests change at the same time."""
        with self.lock:
            if aggregate_id in self.busy:
                self.overlaps.append(self.aggregates[aggregate_id].name)
            self.busy.add(aggregate_id)
        time.sleep(0.002)  # so that another request can overlap with this one
        try:
            yield
        finally:
            with self.lock:
                self.busy.discard(aggregate_id)

    # -- compute ------------------------------------------------------------------

    def _aggregate(self, id):
        if id not in self.aggregates:
            raise Refusal(404, f"Aggregate {id} could not be found.")
        return self.aggregates[id]

    def create(self, name, availability_zone):
        name = name.strip()
        if not 0 < len(name) <= 255:
            raise Refusal(400, "Invalid input for field/attribute name.")
        if any(a.name == name for a in self.aggregates.values()):
            raise Refusal(409, f"Aggregate {name} already exists.")
        aggregate = Aggregate(self.next_id, name, availability_zone)
        self.next_id += 1
        self.aggregates[aggregate.id] = aggregate
        shown = {k: v for k, v in shape(aggregate).items() if k not in ("hosts", "metadata")}
        return {"aggregate": shown}

    def set_metadata(self, id, metadata):
        for key, value in metadata.items():
            if not KEY.fullmatch(key) or (value is not None and len(value) > 255):
                raise Refusal(400, "Invalid input for field/attribute metadata.")
        aggregate = self._aggregate(id)
        for key, value in metadata.items():
            if value is None:
                aggregate.metadata.pop(key, None)
            else:
                aggregate.metadata[key] = value
        return {"aggregate": shape(aggregate)}

    def add_host(self, id, host, mirrored=True):
        aggregate = self._aggregate(id)
        if host not in self.providers:
            raise Refusal(404, f"Compute host {host} could not be found.")
        if host in aggregate.hosts:
            raise Refusal(409, f"Aggregate {id} already has host {host}.")
        if host in self.refused:
            raise Refusal(409, f"Cannot add host {host}: it is in another zone.")
        if aggregate.availability_zone and any(h == host for h, _ in self.servers.values()):
            raise Refusal(409, f"Cannot add host {host}: it runs servers in another zone.")
        aggregate.hosts.append(host)
        if mirrored:
            self.mirror[self.providers[host]].add(aggregate.uuid)
        return {"aggregate": shape(aggregate)}

    def remove_host(self, id, host):
        aggregate = self._aggregate(id)
        if host not in aggregate.hosts or host not in self.providers:
            raise Refusal(404, f"Cannot remove host {host} in aggregate {id}")
        self.mirror[self.providers[host]].discard(aggregate.uuid)
        aggregate.hosts.remove(host)
        return {"aggregate": shape(aggregate)}

    def delete(self, id):
        if self._aggregate(id).hosts:
            raise Refusal(400, "Host aggregate is not empty")
        del self.aggregates[id]
        return None

    def _servers_on(self, host):
        everything = {**self.servers, **self.ghosts}
        return [(id, project) for id, (on, project) in everything.items() if on == host]

    def server_list(self, host, marker, deleted=False):
        hosts = [host] if host else self.providers
        shown = [] if marker else [server for host in hosts for server in self._servers_on(host)]
        shown = [(id, project) for id, project in shown if (id in self.kept) is deleted]
        return {"servers": [self._server(id, project) for id, project in shown]}

    def _server(self, id, project):
        status, task = self.states.get(id, ("ACTIVE", None))
        status = "SOFT_DELETED" if id in self.kept else status
        shown = {
            "id": id,
            "updated": self.kept.get(id, "2026-01-01T00:00:00Z"),
            "tenant_id": project,
            "status": status,
            "OS-EXT-STS:task_state": task,
            "image": "" if id in self.on_volumes else {"id": "image"},
            "flavor": {"vcpus": 1, "ram": 512, "disk": 20, **self.local},
            "scheduler_hints": self.hints.get(id, {}),
            "locked": id in self.locks,
            "locked_reason": self.locks.get(id),
        }
        return shown | ({"fault": {"message": "it broke"}} if status == "ERROR" else {})

    # -- migrations -----------------------------------------------------------------

    def server_action(self, id, body):
        ((verb, arguments),) = body.items()
        if id not in self.servers:
            raise Refusal(404, f"Instance {id} could not be found.")
        acts = {
            "migrate": lambda: self._migrate(id, arguments["host"]),
            "os-migrateLive": lambda: self._migrate(id, arguments["host"], live=True),
            "confirmResize": lambda: self._end(id, back=False),
            "revertResize": lambda: self._end(id, back=True),
            "evacuate": lambda: self._evacuate(id, arguments["host"]),
            "os-stop": lambda: self._turn(id, "ACTIVE", "SHUTOFF"),
            "os-start": lambda: self._turn(id, "SHUTOFF", "ACTIVE"),
            "lock": lambda: self.locks.update({id: (arguments or {}).get("locked_reason")}),
            "unlock": lambda: self.locks.pop(id, None),
        }
        acts[verb]()

    def _turn(self, id, before, after):
        """Stop or start a server; Nova does so after it has answered."""
        status, task = self.states.get(id, ("ACTIVE", None))
        if task or status != before:
            raise Refusal(409, f"Cannot make instance {id} {after} while it is {status}")
        self.states[id] = after, None

    def _migrate(self, id, target, *, live=False):
        source, project = self.servers[id]
        status, task = self.states.get(id, ("ACTIVE", None))
        if task or status not in (("ACTIVE", "PAUSED") if live else ("ACTIVE", "SHUTOFF")):
            raise Refusal(409, f"Cannot 'migrate' instance {id} while it is {status}")
        if target not in self.providers:
            raise Refusal(400, f"Compute host {target} could not be found.")
        if target == source:
            raise Refusal(400, "Unable to migrate server to the same host.")
        made = Migration(id, source, target, "live-migration" if live else "migration")
        self.migrations.append(made)
        closed = not {project, EVERYBODY} & self.accepts(target)
        full = id in self.slot_of and not self.free_slots(target, self.slot_of[id])
        if target in self.disabled or closed or full:
            made.status = "error"
            return None
        if live:
            made.status = "completed"
            self.servers[id] = target, project
            return None
        self.held[made.uuid] = source, project
        if id in self.slot_of:
            self.slot_of[made.uuid] = self.slot_of[id]
        made.was = status
        self.states[id] = "RESIZE", "resize_prep"
        if not self.slow:
            self.migrated(id)
        return None

    def _evacuate(self, id, target):
        source, project = self.servers[id]
        status, task = self.states.get(id, ("ACTIVE", None))
        if task or status not in ("ACTIVE", "SHUTOFF", "ERROR"):
            raise Refusal(409, f"Cannot 'evacuate' instance {id} while it is {status}")
        if not self.down(source):
            raise Refusal(400, f"Compute service of {source} is still in use.")
        if target not in self.providers:
            raise Refusal(400, f"Compute host {target} could not be found.")
        made = Migration(id, source, target, EVACUATION)
        self.migrations.append(made)
        if target in self.disabled or self.down(target) or project not in self.accepts(target):
            made.status = "error"
            self.states[id] = "ERROR", None
            return None
        self.states[id] = "REBUILD", "rebuilding"
        if not self.slow:
            self.migrated(id)
        return None

    def down(self, host):
        """Whether the compute service of a host is down."""
        return host in self.dead | self.forced_down

    def up_again(self, host):
        """Start the compute service of a host; it gives back the room of evacuated servers."""
        self.dead.discard(host)
        self.forced_down.discard(host)
        for one in self.migrations:
            if (one.kind, one.status, one.source) == (EVACUATION, "done", host):
                one.status = "completed"
                del self.left_behind[one.server]

    def compute_services(self, host):
        state = "down" if self.down(host) else "up"
        shown = {"host": host, "state": state, "forced_down": host in self.forced_down}
        return {"services": [shown] if host in self.providers else []}

    def migrated(self, id):
        """End the migration that is under way."""
        (one,) = [m for m in self.migrations if m.server == id and m.status == "migrating"]
        source, project = self.servers[id]
        self.servers[id] = one.target, project
        if one.kind == EVACUATION:
            self.left_behind[id] = source, project
            one.status = "done"
            self.states.pop(id)
            return
        one.status = "error" if id in self.broken else "finished"
        if id in self.broken:
            del self.held[one.uuid]
        self.states[id] = ("ERROR" if id in self.broken else "VERIFY_RESIZE"), None

    def _end(self, id, *, back):
        """Confirm or revert the migration that is finished."""
        finished = [m for m in self.migrations if m.server == id and m.status == "finished"]
        if self.states.get(id) != ("VERIFY_RESIZE", None) or not finished:
            raise Refusal(409, f"Cannot confirm or revert instance {id}")
        (one,) = finished
        del self.held[one.uuid], self.states[id]
        if one.was != "ACTIVE":
            self.states[id] = one.was, None
        one.status = "reverted" if back else "confirmed"
        if back:
            self.servers[id] = one.source, self.servers[id][1]
        return None

    def migrations_of(self, query):
        """The last migrations that match, the newest first."""
        names = {
            "instance_uuid": "server",
            "source_compute": "source",
            "migration_type": "kind",
            "status": "status",
        }
        wanted = {names[name]: values[0] for name, values in query.items() if name in names}
        found = [
            one
            for one in reversed(self.migrations)
            if all(getattr(one, name) == value for name, value in wanted.items())
        ]
        if "marker" in query:
            found = found[[one.uuid for one in found].index(query["marker"][0]) + 1 :]
        found = found[: min(self.page, int(query.get("limit", ["1000"])[0]))]
        return {
            "migrations": [
                {
                    "id": 1,
                    "uuid": m.uuid,
                    "instance_uuid": m.server,
                    "migration_type": m.kind,
                    "status": m.status,
                    "source_compute": m.source,
                    "dest_compute": m.target,
                }
                for m in found
            ]
        }

    def hypervisors(self, marker):
        ids = list(self.providers.values())
        if marker is not None and marker not in ids:
            raise Refusal(400, f"marker [{marker}] not found")
        start = ids.index(marker) + 1 if marker else 0
        shown = list(self.providers.items())[start : start + self.page]
        return {
            "hypervisors": [
                {
                    "id": provider,
                    "hypervisor_hostname": f"{host}.example.org",
                    "state": "down" if self.down(host) else "up",
                    "status": "disabled" if host in self.disabled else "enabled",
                    "hypervisor_type": "QEMU",
                    "service": {"host": host, "id": provider, "disabled_reason": None},
                    "servers": [{"name": "server", "uuid": id} for id, _ in self._servers_on(host)],
                }
                for host, provider in shown
            ]
        }

    def hypervisors_named(self, part):
        page, self.page = self.page, len(self.providers)
        everything = self.hypervisors(None)["hypervisors"]
        self.page = page
        found = [item for item in everything if part in item["hypervisor_hostname"]]
        if not found:
            raise Refusal(404, f"No hypervisor matching '{part}' could be found.")
        return {"hypervisors": found}

    def quota(self, project):
        return {"quota_set": {"id": project, "instances": self.limits.get(project, 10)}}

    # -- placement ------------------------------------------------------------------

    def _host(self, provider):
        for host, found in self.providers.items():
            if found == provider:
                return host
        raise Refusal(404, f"No resource provider with uuid {provider} found")

    def _consumers(self):
        """Every consumer with a host and the project; evacuated servers have two hosts."""
        everything = (self.servers, self.held, self.left_behind)
        return [(id, *place) for some in everything for id, place in some.items()]

    def members(self, aggregate):
        found = [provider for provider, uuids in self.mirror.items() if aggregate in uuids]
        shown = [{"uuid": uuid, "generation": 1} for uuid in sorted(found)]
        return {"resource_providers": shown}

    def candidates(self, restriction):
        wanted, _, uuids = restriction.rpartition("in:")
        named = set(uuids.split(","))
        inside = {provider for provider, uuids in self.mirror.items() if uuids & named}
        found = set(self.providers.values()) - inside if wanted == "!" else inside
        busy = {self.providers.get(host) for _, host, _ in self._consumers()}
        return {
            "provider_summaries": {
                provider: {"resources": {"VCPU": {"capacity": 8, "used": int(provider in busy)}}}
                for provider in found
            }
        }

    def ensure_class(self, name):
        if not re.fullmatch("CUSTOM_[A-Z0-9_]+", name):
            raise Refusal(400, "JSON does not validate")
        self.classes.add(name)
        return ""

    def drop_class(self, name):
        if name not in self.classes:
            raise Refusal(404, f"No such resource class {name}")
        if any(name in child.inventories for child in self.below.values()):
            raise Refusal(409, f"Cannot delete in-use resource class {name}")
        self.classes.remove(name)
        return ""

    def resource_class(self, name):
        if name not in self.classes:
            raise Refusal(404, f"No such resource class {name}")
        return {"name": name, "links": []}

    def add_provider(self, document):
        if document["uuid"] in self.below:
            raise Refusal(409, f"Conflicting resource provider {document['name']} already exists.")
        self._host(document["parent_provider_uuid"])
        self.below[document["uuid"]] = Below(document["name"], document["parent_provider_uuid"])
        return {"uuid": document["uuid"], "name": document["name"], "generation": 0}

    def _below(self, provider):
        if provider not in self.below:
            raise Refusal(404, f"No resource provider with uuid {provider} found")
        return self.below[provider]

    def drop_provider(self, provider):
        child = self._below(provider)
        if any(self._held(provider, name) for name in child.inventories):
            raise Refusal(409, "Unable to delete resource provider: it has allocations")
        del self.below[provider]
        return ""

    def inventories(self, provider):
        child = self._below(provider)
        shown = copy.deepcopy(child.inventories)
        return {"inventories": shown, "resource_provider_generation": child.generation}

    def set_inventories(self, provider, document):
        child = self._below(provider)
        if document["resource_provider_generation"] != child.generation:
            raise Refusal(409, "resource provider generation conflict")
        for name in document["inventories"]:
            if name not in self.classes:
                raise Refusal(400, f"Unknown resource class {name}")
        gone = child.inventories.keys() - document["inventories"].keys()
        for name in gone:
            if self._held(provider, name):
                raise Refusal(409, f"Inventory for '{name}' on {provider} in use.")
        child.inventories = copy.deepcopy(document["inventories"])
        child.generation += 1
        return self.inventories(provider)

    def slot_holders(self, provider):
        child = self._below(provider)
        found = {
            id: {"resources": {n: 1}} for n in child.inventories for id in self._held(provider, n)
        }
        return {"allocations": found, "resource_provider_generation": child.generation}

    def consumers(self, provider):
        if provider in self.below:
            return self.slot_holders(provider)
        host = self._host(provider)
        held = {"resources": {"VCPU": 1}}
        found = {consumer: held for consumer, on, _ in self._consumers() if on == host}
        return {"allocations": found, "resource_provider_generation": 1}

    def consumer(self, consumer):
        found = [(host, project) for id, host, project in self._consumers() if id == consumer]
        if not found:
            return {"allocations": {}}
        project = found[0][1]
        room = {"generation": 1, "resources": {"VCPU": 1}}
        return {
            "allocations": {self.providers[host]: room for host, _ in found},
            "project_id": project,
            "user_id": "user",
            "consumer_generation": 1,
        }


def shape(aggregate):
    zone = {"availability_zone": aggregate.availability_zone} if aggregate.availability_zone else {}
    return {
        "id": aggregate.id,
        "uuid": aggregate.uuid,
        "name": aggregate.name,
        "availability_zone": aggregate.availability_zone,
        "hosts": list(aggregate.hosts),
        "metadata": aggregate.metadata | zone,
        "created_at": "2026-01-01T00:00:00.000000",
        "updated_at": None,
        "deleted_at": None,
        "deleted": False,
    }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise small answers wait 40 ms for an acknowledgement
    server: Server

    def do_GET(self):
        self._serve()

    def do_POST(self):
        self._serve()

    def do_DELETE(self):
        self._serve()

    def do_PUT(self):
        self._serve()

    def log_message(self, *args):
        pass

    def _serve(self):
        cloud = self.server.cloud
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        try:
            self._check_headers()
            call, about, act, writes = self._route(cloud, body)
        except Refusal as refusal:
            return self._answer(refusal.status, {"forbidden": {"message": str(refusal)}})
        kind = cloud.fault(call)
        if kind == "hang":
            return self._hang(cloud)
        if kind == "refused":
            return self._close()
        if kind == "unmirrored":
            unmirrored, act = act, lambda: unmirrored(mirrored=False)
        try:
            with cloud.alone(writes) if writes else _nothing():
                found = cloud.call(call, about, act, kind)
        except Refusal as refusal:
            reply = {"error": {"code": refusal.status, "message": str(refusal)}}
            return self._answer(refusal.status, reply)
        if kind == "lost":
            return self._close()
        if kind == "late":
            return self._hang(cloud)
        if kind == "garbage":
            return self._answer(200, "<html>Welcome to the proxy</html>")
        if kind == "odd":
            return self._answer(200, {"aggregates": [7], "hypervisors": {"a": 1}, "allocations": 3})
        return self._answer(200, found)

    def _check_headers(self):
        if not self.server.knows(self.headers.get("X-Auth-Token")):
            raise Refusal(401, "The request you have made requires authentication.")
        services = ["compute 2.87", "compute 2.100"]
        if self.path.startswith("/placement"):
            asked = "1.36" if "allocation_candidates" in self.path else "1.28"
            services = [f"placement {asked}"]
        if self.headers.get("OpenStack-API-Version") not in services:
            raise Refusal(406, f"expected {services}")

    def _route(self, cloud, body):
        """Name of the call, its subject, its action, and the aggregate it writes (or None)."""
        url = urlsplit(self.path)
        match self.command, url.path.strip("/").split("/"):
            case "GET", ["compute", "os-aggregates"]:
                found = lambda: {"aggregates": [shape(a) for a in cloud.aggregates.values()]}  # noqa: E731
                return "list", "", found, None
            case "POST", ["compute", "os-aggregates"]:
                wanted = body["aggregate"]
                return "create", wanted["name"], lambda: cloud.create(**wanted), None
            case "POST", ["compute", "os-aggregates", number, "action"]:
                ((verb, arguments),) = body.items()
                assert verb in ("add_host", "remove_host", "set_metadata")
                about = next(iter(arguments.values())) if "host" in arguments else number
                act = getattr(cloud, verb)
                return verb, about, lambda **how: act(int(number), **arguments, **how), int(number)
            case "DELETE", ["compute", "os-aggregates", number]:
                return "delete", number, lambda: cloud.delete(int(number)), int(number)
            case "GET", ["compute", "os-hypervisors", "detail"]:
                query = parse_qs(url.query)
                marker, part = (query.get(n, [None])[0] for n in ("marker", PATTERN))
                if part:
                    return "search", part, lambda: cloud.hypervisors_named(part), None
                return "hypervisors", marker or "", lambda: cloud.hypervisors(marker), None
            case "GET", ["compute"]:
                return "version", "", lambda: {"version": {"version": cloud.newest}}, None
            case "GET", ["compute", "servers", "detail"]:
                query = parse_qs(url.query)
                host, last = query.get("host", [None])[0], query.get("marker")
                deleted = query.get("deleted") == ["True"]
                return "servers", host, lambda: cloud.server_list(host, last, deleted), None
            case "POST", ["compute", "servers", server, "action"]:
                (verb,) = body
                return verb, server, lambda: cloud.server_action(server, body), None
            case "GET", ["compute", "os-migrations"]:
                query = parse_qs(url.query)
                about = [*query.get("instance_uuid", []), *query.get("source_compute", [])][0]
                return "migrations", about, lambda: cloud.migrations_of(query), None
            case "GET", ["compute", "os-services"]:
                [host] = parse_qs(url.query)["host"]
                return "services", host, lambda: cloud.compute_services(host), None
            case "GET", ["compute", "os-quota-sets", project]:
                return "quota", project, lambda: cloud.quota(project), None
            case "GET", ["placement", "resource_providers"]:
                [aggregate] = parse_qs(url.query)["member_of"]
                return "members", aggregate, lambda: cloud.members(aggregate), None
            case "GET", ["placement", "allocation_candidates"]:
                [restriction] = parse_qs(url.query)["member_of"]
                return "candidates", "", lambda: cloud.candidates(restriction), None
            case "GET", ["placement", "resource_providers", provider, "allocations"]:
                return "consumers", provider, lambda: cloud.consumers(provider), None
            case "PUT", ["placement", "resource_classes", name]:
                return "ensure_class", name, lambda: cloud.ensure_class(name), None
            case "GET", ["placement", "resource_classes", name]:
                return "class", name, lambda: cloud.resource_class(name), None
            case "DELETE", ["placement", "resource_classes", name]:
                return "drop_class", name, lambda: cloud.drop_class(name), None
            case "POST", ["placement", "resource_providers"]:
                return "add_provider", body["uuid"], lambda: cloud.add_provider(body), None
            case "DELETE", ["placement", "resource_providers", provider]:
                return "drop_provider", provider, lambda: cloud.drop_provider(provider), None
            case "GET", ["placement", "resource_providers", provider, "inventories"]:
                return "inventories", provider, lambda: cloud.inventories(provider), None
            case "PUT", ["placement", "resource_providers", provider, "inventories"]:
                return "set_slots", provider, lambda: cloud.set_inventories(provider, body), None
            case "GET", ["placement", "allocations", consumer]:
                return "consumer", consumer, lambda: cloud.consumer(consumer), None
        raise Refusal(404, f"no such call: {self.command} {self.path}")

    def _answer(self, status, found):
        text = found if isinstance(found, str) else json.dumps(found) if found is not None else ""
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _close(self):
        self.close_connection = True

    def _hang(self, cloud):
        cloud.hanging.wait(600)
        self._close()


@contextmanager
def _nothing():
    yield


class Server(ThreadingHTTPServer):
    """``with Server() as server``: serves ``server.cloud`` at ``server.url``.

    ``knows`` says whether a token is valid.
    """

    daemon_threads = True
    block_on_close = False
    cloud: Cloud

    def __init__(self, knows=TOKEN.__eq__):
        self.knows = knows
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exc):
        self.shutdown()
        self.server_close()

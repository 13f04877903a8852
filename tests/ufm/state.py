# SPDX-License-Identifier: Apache-2.0

"""What a UFM knows: partitions, jobs, tokens, unhealthy ports."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from laas_service.adapters.fabric_import.ibnetdiscover import DumpContent
from tests.ufm.cabling import Fabric, text

DEFAULT = "0x7fff"
"""The predefined partition: read only [guide]."""

QOS = {"mtu_limit": 2, "service_level": 0, "rate_limit": 2.5}
"""Rate 2 stands for 2.5, and is shown as 2.5 [nico]."""

_GUID = re.compile(r"(0x)?[0-9a-fA-F]{16}")


class Refusal(Exception):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass
class Member:
    index0: bool = True
    membership: str = "full"


@dataclass
class Partition:
    name: str
    ip_over_ib: bool = True
    qos: dict[str, float] = field(default_factory=lambda: dict(QOS))
    members: dict[str, Member] = field(default_factory=dict)


@dataclass
class Job:
    """An asynchronous change; carried out after ``left`` further requests."""

    id: str
    change: Callable[[], None]
    left: int
    status: str = "Running"
    summary: str = ""


class Ufm:
    """The state of one UFM; all methods hold its lock.

    ``release`` is its version. ``asynchronous`` says that changes of partitions are jobs, which
    end after ``slowness`` further requests: the guide 6.24.1 says so of CloudX, since OpenSM's
    files are rewritten; the clients that were read expect 200 [k8s, nico]. ``offset`` is that
    of the server's clock from UTC, in hours: its times are local and name no zone [fork].
    ``unknown`` is the answer with 200 where an object does not exist: ``{}`` [nico], or ``[]``
    [guide, of jobs and systems]; None stands for 404.
    """

    def __init__(
        self,
        fabric: Fabric | None = None,
        *,
        release=(6, 23, 1),
        asynchronous=False,
        slowness=2,
        offset=0,
        default_membership="limited",
    ):
        self.lock = threading.RLock()
        self.fabric = fabric or Fabric(DumpContent("nothing", {}, ()))
        self.release = release
        self.asynchronous = asynchronous
        self.slowness = slowness
        self.offset = offset
        self.unknown: Any = {}
        self.default_membership = default_membership
        self.flag: Callable[[bool], Any] = bool  # how booleans of members are shown
        self.passwords = {"admin": "123456"}
        self.tokens: dict[str, str] = {}  # token -> user; revoked ones are gone
        self.sessions: dict[str, str] = {}  # cookie -> user
        self.partitions = {DEFAULT: Partition("management", qos=dict(QOS))}
        self.jobs: dict[str, Job] = {}
        self.failing_jobs = 0  # so many of the next jobs fail
        self.unhealthy: dict[str, tuple[str, str]] = {}  # <guid>_<port> -> Condition, StatusTime
        self.listed_conditions = False  # whether an answer has lists of conditions
        self.report: dict[str, Any] = {}  # the last comparison of topologies
        self.changes: list[tuple[str, str, frozenset[str]]] = []  # verb, key, GUIDs
        self.calls: list[tuple[str, str]] = []  # method and path, without the prefix

    # -- time ---------------------------------------------------------------------

    def local_time(self):
        """The server's local time, without a zone [fork]."""
        now = datetime.now(UTC) + timedelta(hours=self.offset)
        return now.strftime("%Y-%m-%d %H:%M:%S")

    def tick(self):
        """Another request has come: jobs go on, the oldest first."""
        with self.lock:
            for job in self.jobs.values():
                if job.status == "Running":
                    job.left -= 1
                    if job.left < 0:
                        self._end(job)

    def _end(self, job):
        if self.failing_jobs:
            self.failing_jobs -= 1
            job.status, job.summary = "Completed With Errors", "internal error"
            return
        try:
            job.change()
            job.status = "Completed"
        except Refusal as error:
            job.status, job.summary = "Completed With Errors", str(error)

    def finish_jobs(self):
        """End every job that is running."""
        with self.lock:
            for job in self.jobs.values():
                if job.status == "Running":
                    self._end(job)

    def start(self, change):
        with self.lock:
            job = Job(str(len(self.jobs) + 1), change, self.slowness)
            self.jobs[job.id] = job
            return job.id

    def change(self, change):
        """Carry out a change, or begin to: the id of its job, None if it is done."""
        with self.lock:
            if self.asynchronous:
                return self.start(change)
            change()
            return None

    # -- partitions -------------------------------------------------------------------

    def key(self, pkey, *, writing=True):
        """The key as UFM writes it: ``0x`` and no leading zeros [nico]."""
        try:
            number = int(str(pkey), 16)
        except ValueError:
            raise Refusal(400, f"invalid pkey {pkey!r}") from None
        if not 0 < number <= 0x7FFF:
            raise Refusal(400, f"pkey {pkey!r} is not between 0x0 and 0x7fff")
        if writing and number == 0x7FFF:
            raise Refusal(403, "the default partition cannot be changed")
        return f"{number:#x}"

    def guids(self, given):
        """The GUIDs of a request as UFM keeps them: 16 digits without ``0x`` [guide 6.21]."""
        if not isinstance(given, list) or not given:
            raise Refusal(400, "guids are missing")
        for guid in given:
            if not isinstance(guid, str) or not _GUID.fullmatch(guid):
                raise Refusal(400, f"invalid guid {guid!r}")
        return [guid.lower().removeprefix("0x") for guid in given]

    def make(self, body):
        """``POST /resources/pkeys/add`` [guide]: an empty partition.

        ``partition_name`` is read from 6.22.1 on; the guide 6.20.2 does not have it.
        """
        key = self.key(body.get("pkey"))

        def make():
            if key not in self.partitions:
                name = f"api_pkey_{key}"
                if self.release >= (6, 22, 1):
                    name = body.get("partition_name") or name
                self.partitions[key] = Partition(name, bool(body.get("ip_over_ib", True)))

        return self.change(make)

    def add(self, body, *, replace=False):
        """``POST /resources/pkeys``, and ``PUT``, which replaces the members [guide].

        The partition is made if there is none: clients add to keys that nobody made [k8s].
        """
        key, guids = self.key(body.get("pkey")), self.guids(body.get("guids"))
        memberships = body.get("memberships") or [body.get("membership", "full")] * len(guids)
        if len(memberships) != len(guids) or set(memberships) - {"full", "limited"}:
            raise Refusal(400, "memberships: full or limited, one for each guid")
        index0, ip_over_ib = bool(body.get("index0", False)), bool(body.get("ip_over_ib", True))

        def add():
            partition = self.partitions.setdefault(key, Partition(f"api_pkey_{key}", ip_over_ib))
            if replace:
                partition.members.clear()
            for guid, membership in zip(guids, memberships, strict=True):
                partition.members[guid] = Member(index0, membership)
            self.changes.append(("add", key, frozenset(guids)))

        return self.change(add)

    def remove(self, pkey, given):
        """Members leave; the partition goes with the last of them [guide]."""
        key, guids = self.key(pkey), self.guids(given)
        with self.lock:
            if key not in self.partitions and not self.asynchronous:
                raise Refusal(404, f"no pkey {key}")

        def remove():
            partition = self.partitions.get(key)
            if partition is None:
                raise Refusal(404, f"no pkey {key}")
            for guid in guids:
                partition.members.pop(guid, None)
            if not partition.members:
                del self.partitions[key]
            self.changes.append(("remove", key, frozenset(guids)))

        return self.change(remove)

    def delete(self, pkey):
        key = self.key(pkey)
        with self.lock:
            if key not in self.partitions and not self.asynchronous:
                raise Refusal(404, f"no pkey {key}")
        return self.change(lambda: self.partitions.pop(key, None))

    def set_qos(self, body):
        key = self.key(body.get("pkey"))
        with self.lock:
            if key not in self.partitions:
                raise Refusal(404, f"no pkey {key}")
            rate = body.get("rate_limit", 2.5)
            self.partitions[key].qos = {
                "mtu_limit": body.get("mtu_limit", 2),
                "service_level": body.get("service_level", 0),
                "rate_limit": 2.5 if rate == 2 else rate,
            }

    def shown(self, key, *, guids, qos):
        """One partition with options.

        The membership of the default partition is told from 6.19 on, with the GUIDs [nico].
        """
        partition = self.partitions[key]
        row = {"partition": partition.name, "ip_over_ib": partition.ip_over_ib}
        if guids:
            row["guids"] = [
                {
                    "guid": guid,
                    "index0": self.flag(member.index0),
                    "membership": member.membership,
                }
                for guid, member in partition.members.items()
            ]
            if key == DEFAULT and self.release >= (6, 19):
                row |= {"index0": self.flag(False), "membership": self.default_membership}
        if qos:
            row["qos_conf"] = dict(partition.qos)
        return row

    def members(self):
        """The GUIDs of each partition but the default one, for judges."""
        with self.lock:
            return {
                int(key, 16): {int(guid, 16) for guid in partition.members}
                for key, partition in self.partitions.items()
                if key != DEFAULT
            }

    # -- ports --------------------------------------------------------------------------

    def set_policy(self, body):
        """``PUT /app/unhealthy_ports`` [guide, sdk]: takes effect later, as a change of OpenSM.

        A port is ``<node GUID>_<number>``, or ``ALL`` to make all healthy [sdk]. Marking a port
        that is marked changes nothing [chosen].
        """
        ports, policy = body.get("ports"), body.get("ports_policy")
        if policy not in ("HEALTHY", "UNHEALTHY") or not isinstance(ports, list):
            raise Refusal(400, "ports and ports_policy")
        if policy == "UNHEALTHY" and body.get("action") not in ("isolate", "no_discover"):
            raise Refusal(400, "action: isolate or no_discover")

        def change():
            for port in list(self.unhealthy) if "ALL" in ports else ports:
                if policy == "HEALTHY":
                    self.hold_healthy(port)
                else:
                    self.hold_unhealthy(port)

        self.start(change)

    def hold_unhealthy(self, port, condition="MANUAL"):
        """The subnet manager finds a port unhealthy, or is told to, and isolates it [um 6.11]."""
        with self.lock:
            self.unhealthy.setdefault(port, (condition, self.local_time()))
            self.fabric.isolated.add(_place(port))

    def hold_healthy(self, port):
        with self.lock:
            self.unhealthy.pop(port, None)
            self.fabric.isolated.discard(_place(port))

    def compare(self):
        """``POST /reports/Topology_Compare`` [guide]: a job that makes the report."""

        def change():
            self.report = self.fabric.comparison()

        return self.start(change)

    def unhealthy_ports(self):
        """``GET /app/unhealthy_ports`` [guide 6.15 to 6.22]; ``UnhealthyPort`` is a name.

        The condition is a word, or a list of words as in the guide's answer for one port.
        """
        rows = []
        for port, (condition, since) in self.unhealthy.items():
            guid, number = port.split("_")
            rows.append(
                {
                    "UnhealthyGUID": guid,
                    "UnhealthyPortNumber": int(number),
                    "UnhealthyPort": f"{self.fabric.name_of(int(guid, 16))}/{number}",
                    "UnhealthyPortDname": number,
                    "UnhealthyNode": self.fabric.name_of(int(guid, 16)),
                    "Condition": [condition] if self.listed_conditions else condition,
                    "State": "Info",
                    "StatusTime": since,
                }
            )
        return rows

    def isolate_device(self, body):
        """``POST /actions`` ``mark_device_unhealthy`` [sdk]: a job."""
        systems = [str(id) for id in body.get("object_ids", [])]
        healthy = body.get("params", {}).get("device_policy") == "HEALTHY"

        def change():
            for node in self.fabric.cabling.nodes.values():
                for number in range(1, node.ports + 1) if text(node.guid) in systems else ():
                    name = self.fabric.port_name(node, number)
                    if healthy:
                        self.hold_healthy(name)
                    else:
                        self.hold_unhealthy(name)

        return self.start(change)


def _place(port: str) -> tuple[int, int]:
    guid, number = port.split("_")
    return int(guid, 16), int(number)

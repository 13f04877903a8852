# SPDX-License-Identifier: Apache-2.0

"""Limits of what servers send, as QoS policies of Neutron on their ports.

An allocation has a policy for each number of ports that its servers have: with k ports each of them
sends at most 1/k of what is promised, so that the server does. The policies belong to the service's
own project and are not shared: Neutron then lets no tenant take one off its port. What a port
receives is not limited.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar
from urllib.parse import urlsplit

from keystoneauth1 import exceptions as keystone_errors
from keystoneauth1 import loading
from keystoneauth1.adapter import Adapter
from oslo_config import cfg

from laas_service.adapters.openstack_calls import Calls
from laas_service.app.ports.rate_limits import Limited
from laas_service.domain.errors import Conflict, InvalidInput
from laas_service.version import user_agent

SEVERAL = 50
"""Servers whose ports one request lists, so that its length stays below the limits of web servers.
"""

ADMIN = "create_policy, update_policy_bandwidth_limit_rule and update_port:qos_policy_id"


def policy_name(id: str, ports: int) -> str:
    """The name of the policy of servers with so many ports."""
    return f"laas-{id}-{ports}"


def kilobits(bandwidth: float, ports: int) -> int:
    """What each of the ports of a server sends at most, in kb/s; rounded down."""
    return max(1, int(bandwidth * 1_000_000 / ports))


class NeutronRateLimits(Calls):
    """The ``RateLimits`` port on Neutron's API.

    Errors beyond those of the port: ``Conflict`` if Neutron refuses.
    """

    service: ClassVar[str] = "Neutron"
    grant: ClassVar[str] = "the role admin, or a role with"
    name: ClassVar[str] = "neutron"

    def __init__(self, neutron: Adapter, beat: Callable[[str], None] = lambda action: None) -> None:
        super().__init__(beat)
        self._neutron = neutron
        self._limited: dict[str, dict[str, str]] = {}
        """By allocation, the policy that this process last saw or set on each port."""
        self._asked: dict[str, int] = {}
        """The limit that this process last set, by the name of the policy."""

    def limit(
        self, id: str, project_id: str, bandwidth: float, servers: Collection[str]
    ) -> Limited:
        """See ``RateLimits.limit``."""
        by_server: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for port in self._ports(servers):
            by_server[str(port["device_id"])].append(port)
        changed: list[str] = []
        policies = {
            number: self._policy(id, bandwidth, number, changed)
            for number in sorted({1, *(len(ports) for ports in by_server.values())})
        }
        before, after = self._limited.get(id, {}), dict[str, str]()
        for server, ports in sorted(by_server.items()):
            wanted = policies[len(ports)]
            for port in ports:
                key, present = str(port["id"]), port.get("qos_policy_id")
                if present != wanted:
                    known = before.get(key) in policies.values()
                    if present not in (None, *policies.values()) or (known and present is None):
                        text = "another policy" if present else "no policy"
                        changed.append(f"port {key} of server {server} had {text}")
                    self._attach(key, wanted)
                after[key] = wanted
        self._limited[id] = after
        without = sorted(set(servers) - by_server.keys())
        return Limited(tuple(changed), tuple(f"server {server} has no port" for server in without))

    def forget_limits(self, id: str) -> None:
        """See ``RateLimits.forget_limits``. Ports that are still there lose the policy."""
        self._limited.pop(id, None)
        mine = [policy for policy in self._policies() if self._is_of(policy, id)]
        ids = {policy["id"] for policy in mine}
        # Neutron does not filter ports by their policy.
        ports = self._list("ports", "fields=id&fields=qos_policy_id") if mine else []
        for port in ports:
            if port["qos_policy_id"] in ids:
                self._attach(str(port["id"]), None)
        for policy in mine:
            refusal = self._delete(policy)
            if refusal and any(found["id"] == policy["id"] for found in self._policies()):
                raise Conflict(f"QoS policy {policy['name']} cannot be deleted: {refusal}")

    @staticmethod
    def _is_of(policy: Mapping[str, Any], id: str) -> bool:
        head, _, ports = str(policy["name"]).rpartition("-")
        return head == f"laas-{id}" and ports.isdecimal()

    def _policy(self, id: str, bandwidth: float, ports: int, changed: list[str]) -> str:
        """The id of the policy of servers with so many ports, with its one rule as it has to be."""
        name = policy_name(id, ports)
        found = [policy for policy in self._policies() if policy["name"] == name]
        if not found:
            self._make(name)
            found = [policy for policy in self._policies() if policy["name"] == name]
            if not found:
                raise Conflict(
                    f"Neutron does not list QoS policy {name}, which was just created: give the "
                    f"service's user {self.grant} {ADMIN}"
                )
        for double in found[1:]:  # two processes made it, after a lease was lost
            self._delete(double)
        policy = found[0]
        self._set_rule(policy, kilobits(bandwidth, ports), changed)
        return str(policy["id"])

    def _delete(self, policy: Mapping[str, Any]) -> str | None:
        path = f"/v2.0/qos/policies/{policy['id']}"
        return self._change(path, lambda: self._neutron.delete(path))

    def _make(self, name: str) -> None:
        body = {"policy": {"name": name, "shared": False, "description": "made by LaaS"}}
        path = "/v2.0/qos/policies"
        refusal = self._change(path, lambda: self._neutron.post(path, json=body))
        if refusal:
            raise Conflict(f"QoS policy {name} cannot be created: {refusal}")

    def _set_rule(self, policy: Mapping[str, Any], limit: int, changed: list[str]) -> None:
        """Have one rule for what is sent, with this limit.

        Somebody else removed the rule, or changed it, if it is not as this process last set it.
        """
        path = f"/v2.0/qos/policies/{policy['id']}/bandwidth_limit_rules"
        rules = [rule for rule in policy["rules"] if rule["type"] == "bandwidth_limit"]
        sending = [rule for rule in rules if rule["direction"] == "egress"]
        rule = {"max_kbps": limit, "max_burst_kbps": 0, "direction": "egress"}
        body = {"bandwidth_limit_rule": rule}
        known = self._asked.get(policy["name"])
        if not sending:
            if known is not None:
                changed.append(f"policy {policy['name']} had no limit")
            refusal = self._change(path, lambda: self._neutron.post(path, json=body))
        elif (present := sending[0])["max_kbps"] != limit or present["max_burst_kbps"] != 0:
            if known is not None and present["max_kbps"] != known:
                changed.append(f"policy {policy['name']} had {present['max_kbps']} kb/s")
            own = f"{path}/{present['id']}"
            refusal = self._change(own, lambda: self._neutron.put(own, json=body))
        else:
            refusal = None
        if refusal:
            raise Conflict(f"QoS policy {policy['name']} cannot be changed: {refusal}")
        self._asked[policy["name"]] = limit

    def _attach(self, port: str, policy: str | None) -> None:
        path, body = f"/v2.0/ports/{port}", {"port": {"qos_policy_id": policy}}
        refusal = self._change(path, lambda: self._neutron.put(path, json=body))
        if refusal and self._list("ports", f"id={port}"):
            raise Conflict(f"port {port} does not get its QoS policy: {refusal}")

    def _policies(self) -> list[dict[str, Any]]:
        return self._list("qos/policies", "shared=False")

    def _ports(self, servers: Collection[str]) -> list[dict[str, Any]]:
        asked = sorted(servers)
        found: list[dict[str, Any]] = []
        for start in range(0, len(asked), SEVERAL):
            some = asked[start : start + SEVERAL]
            found += self._list("ports", "&".join(f"device_id={server}" for server in some))
        return found

    def _list(self, what: str, query: str) -> list[dict[str, Any]]:
        """All pages: Neutron may have a ``pagination_max_limit``."""
        key = what.rpartition("/")[2]

        def read() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = []
            page: str | None = query
            while page is not None:
                answer = self._neutron.get(f"/v2.0/{what}?{page}").json()
                found += answer[key]
                links = answer.get(f"{key}_links", ())
                following = [str(link["href"]) for link in links if link["rel"] == "next"]
                page = urlsplit(following[0]).query if following else None
            return found

        return self._read(f"list the {key} of Neutron", ADMIN, read)

    def _change(self, path: str, call: Callable[[], Any]) -> str | None:
        return self._write(f"write {path} of Neutron", ADMIN, call, lambda _: None)


def connect(
    conf: cfg.ConfigOpts, beat: Callable[[str], None] = lambda action: None
) -> NeutronRateLimits:
    """The port as [neutron] configures it, with the login of [nova] unless it has its own.

    Raises:
        InvalidInput: the options give no login.
    """
    try:
        own = loading.load_auth_from_conf_options(conf, "neutron")
        auth = own or loading.load_auth_from_conf_options(conf, "nova")
        session = loading.load_session_from_conf_options(conf, "neutron", user_agent=user_agent())
        adapter = loading.load_adapter_from_conf_options(
            conf, "neutron", session=session, auth=auth
        )
    except keystone_errors.ClientException as error:
        raise InvalidInput("[neutron]", "login", str(error)) from error
    if auth is None:
        raise InvalidInput("[neutron] auth_type", None, "set it, or that of [nova]")
    return NeutronRateLimits(adapter, beat)

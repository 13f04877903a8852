# SPDX-License-Identifier: Apache-2.0

"""Scenarios of the matrix: a request, its initial state, and the expected end state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from laas_service.domain.topology import SpineLink, link_name
from tests.matrix.judge import Seen
from tests.matrix.site import FABRIC, Site


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    body: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Scenario:
    """A request, made while something fails.

    ``base`` names the scenario whose end is the initial state; None starts from an empty
    fabric. ``state`` is the expected final state of the allocation. ``prepare`` changes the cloud
    before the request. With ``apart`` links have failed before, so that no free ones join the
    leaf of allocation ``a`` to another leaf with free hosts. A scenario that is not ``listed`` is
    not on the page; it runs if named.
    """

    name: str
    title: str
    base: str | None
    ask: Callable[[Seen], Request]
    state: str
    repair_links: bool = True
    listed: bool = True
    apart: bool = False
    prepare: Callable[[Site, Seen], None] = lambda site, seen: None


def _allocate(name: str, hosts: int, project: str) -> Callable[[Seen], Request]:
    body = {"name": name, "hosts": hosts, "project_id": project}
    request = Request("POST", "/v1/allocations", body, {"Idempotency-Key": f"{name}-key"})
    return lambda seen: request


def _release(query: str) -> Callable[[Seen], Request]:
    def ask(seen: Seen) -> Request:
        (record,) = seen.named("a")
        return Request("DELETE", f"/v1/allocations/{record['id']}{query}")

    return ask


def _fail_link(seen: Seen) -> Request:
    """Fail a spine link that is the only one of the allocation in its pod."""
    (record,) = seen.named("a")
    held = [row["what"] for row in seen.links if row["allocation"] == record["id"]]
    links = [FABRIC.topology.tree.link_at(number) for number in sorted(held)]
    up = [link for link in links if isinstance(link, SpineLink)]
    pods = Counter(link.pod for link in up)
    failed = next(link for link in up if pods[link.pod] == 1)
    return Request("PATCH", f"/v1/fabrics/f/links/{link_name(failed)}", {"state": "failed"})


def _repair(seen: Seen) -> Request:
    (record,) = seen.named("a")
    return Request("POST", f"/v1/allocations/{record['id']}/repair")


def _consent(seen: Seen) -> Request:
    (record,) = seen.named("a")
    return Request("PATCH", f"/v1/allocations/{record['id']}", {"movable": "restart"})


def _first_host(seen: Seen) -> str:
    (record,) = seen.named("a")
    host = min(row["what"] for row in seen.hosts if row["allocation"] == record["id"])
    return str(FABRIC.inventory.host_names[host])


def _boot(site: Site, seen: Seen) -> None:
    """Start a server of the tenant on its first host."""
    (record,) = seen.named("a")
    site.cloud.boot(_first_host(seen), record["project_id"])


def _die(site: Site, seen: Seen) -> None:
    """Start a server of the tenant on its first host; the host dies, an administrator says so."""
    _boot(site, seen)
    cloud, dead = site.cloud, _first_host(seen)
    cloud.on_volumes.update(cloud.servers)
    cloud.local = {"ephemeral": 0, "swap": 0}
    cloud.dead.add(dead)
    cloud.forced_down.add(dead)


def _evacuate(seen: Seen) -> Request:
    return Request("POST", "/v1/fabrics/f/evacuate", {"hosts": [_first_host(seen)]})


def _replace_host(seen: Seen) -> Request:
    (record,) = seen.named("a")
    body = {"hosts": [_first_host(seen)]}
    return Request("POST", f"/v1/allocations/{record['id']}/replace-hosts", body)


def _replace_all(seen: Seen) -> Request:
    (record,) = seen.named("a")
    own = sorted(row["what"] for row in seen.hosts if row["allocation"] == record["id"])
    body = {"hosts": [FABRIC.inventory.host_names[host] for host in own]}
    return Request("POST", f"/v1/allocations/{record['id']}/replace-hosts", body)


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("alone", "", None, _allocate("b", 3, "red"), "active", listed=False),
        Scenario("allocate", "Allocate", "alone", _allocate("a", 5, "blue"), "active"),
        Scenario("release", "Release", "allocate", _release(""), "released"),
        Scenario("force", "Release by force", "allocate", _release("?force=true"), "released"),
        Scenario("repair", "A link fails and is repaired", "allocate", _fail_link, "active"),
        Scenario("hurt", "", "allocate", _fail_link, "active", repair_links=False, listed=False),
        Scenario(
            "change", "A new placement, asked for", "hurt", _repair, "active", repair_links=False
        ),
        Scenario("replace", "Another host, asked for", "allocate", _replace_host, "active"),
        Scenario("consents", "", "allocate", _consent, "active", listed=False),
        Scenario(
            "evacuate",
            "A host with a server is evacuated",
            "consents",
            _evacuate,
            "active",
            prepare=_boot,
        ),
        Scenario(
            "rescue",
            "A dead host with a server gets another",
            "consents",
            _replace_host,
            "active",
            prepare=_die,
        ),
        Scenario("leaf", "", "alone", _allocate("a", 2, "blue"), "active", listed=False),
        Scenario("yields", "", "leaf", _consent, "active", listed=False),
        Scenario(
            "stopped",
            "Servers stop before they move, as no links join the hosts",
            "yields",
            _replace_all,
            "active",
            apart=True,
            prepare=_boot,
        ),
    )
}
LISTED = [scenario for scenario in SCENARIOS.values() if scenario.listed]

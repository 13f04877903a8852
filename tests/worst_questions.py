# SPDX-License-Identifier: Apache-2.0

"""The dearest questions that a tenant may ask: they change nothing and cost the service most.

``worst_questions`` has those about a fabric, and with ``parent`` about the shared hosts there.
Benchmarks and storms ask them beside other requests.
"""

from __future__ import annotations

from typing import Any, NamedTuple

MOST = 4096
"""The most demands that a list has."""

RISKS = "0.0005,0.001,0.005,0.01,0.02,0.1,0.2,0.4"
"""As many as a question may name."""


class Question(NamedTuple):
    """A request that changes nothing."""

    name: str
    """For reports."""
    method: str
    path: str
    """With its query."""
    body: dict[str, Any] | None = None


def worst_questions(fabric: str, hosts: int, parent: str | None = None) -> list[Question]:
    """Questions about a fabric of so many hosts, and about the shared hosts of ``parent``.

    Each is valid. The answer is 200, or 409 where nothing fits.
    """
    at = f"/v1/fabrics/{fabric}"
    odd = max(1, hosts * 7 // 10 - 1)
    dry = {"name": "worst", "dry_run": True, "fabric": fabric}
    spread = {"spread": 2, "contention_free": "require"}
    found = [
        Question("fit of hosts", "GET", f"{at}/fit?hosts={odd}"),
        Question(
            "fit without contention",
            "GET",
            f"{at}/fit?hosts={odd}&spread=2&contention_free=require&cheapest=true",
        ),
        Question("map of hosts", "GET", f"{at}/map?hosts={odd}"),
        Question("dry run of hosts", "POST", "/v1/allocations", {**dry, "hosts": odd}),
        Question(
            "dry run without contention",
            "POST",
            "/v1/allocations",
            {**dry, "hosts": odd, "constraints": spread},
        ),
    ]
    return found + (_on_shared_hosts(at, hosts, parent) if parent is not None else [])


def _on_shared_hosts(at: str, hosts: int, parent: str) -> list[Question]:
    inside, many = f"parent={parent}", min(MOST, 4 * hosts)
    few = max(2, hosts // 4)
    each = [round(0.5 + number % 97 / 50, 2) for number in range(many)]
    amounts = ",".join(map(str, each))
    dry = {"name": "worst", "dry_run": True, "class": "shared", "parent": parent}
    alike = {"bandwidth": 1.0, "deviation": 0.7}
    return [
        Question(
            "fit at 8 risks",
            "GET",
            f"{at}/fit?slots={few}&bandwidth=0.3&deviation=0.2&risks={RISKS}&{inside}",
        ),
        Question(
            "map at 8 risks",
            "GET",
            f"{at}/map?slots={few}&bandwidth=0.3&deviation=0.2&risks={RISKS}&{inside}",
        ),
        Question(
            "fit of demands that differ",
            "GET",
            f"{at}/fit?slots={many}&bandwidth={amounts}&risks={RISKS}&{inside}",
        ),
        Question("fit of many slots", "GET", f"{at}/fit?slots={many}&bandwidth=40&{inside}"),
        Question(
            "dry run of demands that differ",
            "POST",
            "/v1/allocations",
            {**dry, "slots": many, "bandwidth": each, "deviation": [x / 2 for x in each]},
        ),
        Question(
            "dry run of many slots", "POST", "/v1/allocations", {**dry, "slots": many, **alike}
        ),
    ]


def small_question(fabric: str, parent: str | None = None) -> Question:
    """A dry run for one slot of shared hosts, or for one host."""
    asked: dict[str, Any] = {"name": "small", "dry_run": True}
    if parent is None:
        asked |= {"hosts": 1, "fabric": fabric}
    else:
        asked |= {"class": "shared", "parent": parent, "slots": 1, "bandwidth": 0.1}
    return Question("small dry run", "POST", "/v1/allocations", asked)

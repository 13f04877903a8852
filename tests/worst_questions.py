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
    inside, at_risks = f"parent={parent}", f"risks={RISKS}&parent={parent}"
    most = min(MOST, 4 * hosts)
    dry = {"name": "worst", "dry_run": True, "class": "shared", "parent": parent}
    found = [
        Question(
            f"fit of {size} that differ at 8 risks",
            "GET",
            f"{at}/fit?slots={size}&bandwidth={_listed(size)}&deviation=0.3&{at_risks}",
        )
        for size in sorted({most, 3 * hosts // 4, 96, 17} - {0}, reverse=True)
        if size <= most
    ]
    few = max(2, hosts // 16)
    found += [
        Question(
            f"{what} of {size} alike at 8 risks",
            "GET",
            f"{at}/{what}?slots={size}&bandwidth=0.3&deviation=0.2&{at_risks}",
        )
        for what, size in (("fit", most), ("fit", few), ("map", few))
    ]
    each = [round(2 * amount, 2) for amount in _amounts(most)]
    return [
        *found,
        Question("fit of many slots", "GET", f"{at}/fit?slots={most}&bandwidth=40&{inside}"),
        Question(
            "dry run of demands that differ",
            "POST",
            "/v1/allocations",
            {**dry, "slots": most, "bandwidth": each, "deviation": each},
        ),
        Question(
            "dry run of many slots",
            "POST",
            "/v1/allocations",
            {**dry, "slots": most, "bandwidth": 1.0, "deviation": 0.7},
        ),
    ]


def _amounts(size: int) -> list[float]:
    """Gb/s of so many virtual machines, nearly all of them different."""
    return [round(0.15 + number % 97 / 300, 3) for number in range(size)]


def _listed(size: int) -> str:
    return ",".join(map(str, _amounts(size)))


def small_question(fabric: str, parent: str | None = None) -> Question:
    """A dry run for one slot of shared hosts, or for one host."""
    asked: dict[str, Any] = {"name": "small", "dry_run": True}
    if parent is None:
        asked |= {"hosts": 1, "fabric": fabric}
    else:
        asked |= {"class": "shared", "parent": parent, "slots": 1, "bandwidth": 0.1}
    return Question("small dry run", "POST", "/v1/allocations", asked)

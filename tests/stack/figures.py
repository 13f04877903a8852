# SPDX-License-Identifier: Apache-2.0

"""Measurements on the running stack: times, calls a second, memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tests.stack.people import People
from tests.story.site import Rest

LARGE = 100
"""Hosts of the timed allocation, on a fabric that is large enough."""


def large_allocation(rest: Rest, project: str, hosts: int) -> dict[str, float]:
    """Seconds from POST until an allocation is active, and from DELETE until it is released."""
    begin = time.monotonic()
    body = {"name": "large", "hosts": hosts}
    status, document = rest.call("POST", "/v1/allocations", project, body)
    if status != 202:
        raise RuntimeError(f"{hosts} hosts are refused: {document}")
    answered = time.monotonic() - begin
    document = rest.settled(project, document, "active")
    active = time.monotonic() - begin
    begin = time.monotonic()
    _, document = rest.call("DELETE", f"/v1/allocations/{document['id']}", project)
    rest.settled(project, document, "released")
    return {"answered": answered, "active": active, "released": time.monotonic() - begin}


def aggregate_calls(nova: Any, hosts: list[str]) -> dict[str, float]:
    """Calls a second of one client, in sequence, on an aggregate of its own.

    A failure leaves the aggregate behind, as it ends the stack.
    """
    aggregate = nova.aggregates.create("figures", None)
    rates = {
        "add_host": _rate(lambda host: nova.aggregates.add_host(aggregate, host), hosts),
        "set_metadata": _rate(
            lambda host: nova.aggregates.set_metadata(aggregate, {"figure": host}), hosts
        ),
        "remove_host": _rate(lambda host: nova.aggregates.remove_host(aggregate, host), hosts),
    }
    nova.aggregates.delete(aggregate)
    return rates


def _rate(call: Callable[[str], object], arguments: list[str]) -> float:
    begin = time.monotonic()
    for argument in arguments:
        call(argument)
    return len(arguments) / (time.monotonic() - begin)


def memory(root: int) -> dict[str, int]:
    """Proportional set size of each program below process ``root``, in MiB."""
    found: dict[str, int] = {}
    top = psutil.Process(root)
    for process in (top, *top.children(recursive=True)):
        with suppress(psutil.Error):  # the process has ended meanwhile
            name, size = _name(process.cmdline()), process.memory_full_info().pss
            found[name] = found.get(name, 0) + size
    return {name: size >> 20 for name, size in sorted(found.items()) if size >= 1 << 20}


_PROGRAMS = {
    "keystone.wsgi.api": "Keystone",
    "placement.wsgi.api": "placement",
    "nova.wsgi.osapi_compute": "nova-api",
    "tests.stack.stubs": "stubs of Glance and Neutron",
    "tests.stack.computes": "nova-compute, all hosts",
    "laas_service.cmd.wsgi": "laas-api",
    "laas_service.cmd.worker": "laas-worker",
    "laas_service.cmd.opensm_agent": "laas-opensm-agent",
    "tests.stack": "the story itself",
}


def _name(words: list[str]) -> str:
    """Name of a program by its command line, which Nova's services replace by a title."""
    for word in words:
        if word in _PROGRAMS:
            return _PROGRAMS[word]
    if words[0].startswith("nova-"):
        return words[0].split(":")[0]
    scripts = [Path(word).name for word in words[:2]]
    return next((name for name in scripts if name.startswith("nova-")), scripts[0])


def timed(people: People, hosts: list[str]) -> dict[str, Any]:
    """All times; memory is measured separately."""
    large = min(LARGE, len(hosts) * 4 // 5)
    return {
        f"{large} hosts, s": large_allocation(people.rest(), people.projects[0], large),
        "aggregate calls, 1/s": aggregate_calls(people.admin, hosts),
    }

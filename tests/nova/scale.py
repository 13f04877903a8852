# SPDX-License-Identifier: Apache-2.0

"""A cloud of thousands of hosts on the real Nova.

``python -m tests.nova.scale [STAGE] [HOSTS...]``. Most hosts are written into the databases
(``tests.nova.many``); a dozen ordinary ones and four of an owner have a nova-compute. Nine of ten
belong to allocations of thirty. Figures are processor time of Nova, placement and our adapter in
one process with SQLite; they are reported, never asserted. Asserted is what a user sees: an
ordinary project and an owner each start a server at the first try with a default flavor, and no GET
to placement exceeds what uWSGI accepts.

Without a stage all run, each in a cloud of its own. A list of all hypervisors takes most of the
time: only the stage ``look`` makes it, and the others are told what it would say.
"""

# ruff: noqa: E402 - Nova has to be patched before any other module of it is imported

from __future__ import annotations

import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("OS_NOVA_DISABLE_EVENTLET_PATCHING", "true")

from nova import monkey_patch

monkey_patch.patch(backend="threading")

import fixtures
from nova import context, objects
from nova.scheduler import filters
from nova.scheduler.client.report import SchedulerReportClient

from laas_service.adapters.nova import NovaCompute
from laas_service.adapters.nova.hosts import Listing
from laas_service.adapters.nova.hypervisors import Hypervisor
from laas_service.adapters.nova.pool import PART, PARTS
from laas_service.app.ports.compute import Handover
from nova_filters.laas import LaasTenantFilter, hide_pool
from tests.nova import cloud, many
from tests.story import site

ORDINARY = [f"plain{number:02d}" for number in range(12)]
OWNED = [f"own{number}" for number in range(4)]
OWNER, STRANGER = "a" * 32, "b" * 32
EACH = 30
"""Hosts of an allocation."""

LAST = 200
"""Hosts of the pool that join it through Nova's API; the others are written."""

CONF_RESULTS = 1000
"""Nova's default of ``[scheduler] max_placement_results``."""

URL_LIMIT = 4096 - 1024
"""Bytes of a GET that uWSGI accepts by default, less what its headers take."""

Lap = Callable[[str, Callable[[], object]], float]
"""Does something and returns its processor time in seconds."""

DEPTHS = range(0, 40, 5)
"""Further calls on the stack above a read that is repeated."""


def main() -> None:
    words = sys.argv[1:]
    stages = [words.pop(0)] if words and words[0] in STAGES else list(STAGES)
    for hosts in map(int, words or ["1000", "10000"]):
        for stage in stages:
            print(f"{hosts} hosts: {stage}", flush=True)
            run(hosts, stage, lap)


def lap(what: str, act: Callable[[], object]) -> float:
    """Do it, print its processor time, and return that in seconds."""
    spent = time.process_time()
    act()
    spent = time.process_time() - spent
    print(f"  {what:<56} {spent * 1000:12.1f} ms", flush=True)
    return spent


def median(what: str, act: Callable[[], object], lap: Lap) -> None:
    """Do it at each of ``DEPTHS``; print the median, least and most processor time."""

    def below(depth: int) -> None:
        if depth:
            below(depth - 1)
        else:
            act()

    laps = sorted(lap(f"{what}, {depth} calls below", partial(below, depth)) for depth in DEPTHS)
    middle, least, most = (1000 * each for each in (statistics.median(laps), laps[0], laps[-1]))
    print(f"  {what:<56} {middle:12.1f} ms ({least:.1f} to {most:.1f})", flush=True)


@dataclass(frozen=True)
class Site:
    """A cloud with its pool, without the ``last`` hosts, and the allocations ``given``."""

    nova: cloud.Nova
    compute: NovaCompute
    spare: Sequence[str]
    last: int
    given: Sequence[Handover]

    @property
    def managed(self) -> list[str]:
        return [*self.spare, *OWNED]

    @property
    def big(self) -> Handover:
        """An allocation of 100 hosts that are free."""
        return Handover("big", "c" * 32, tuple(self.spare[len(self.given) * EACH :][-100:]))


def run(hosts: int, stage: str, lap: Lap, *, results: int = CONF_RESULTS) -> None:
    """Measure at so many hosts, at least 100; placement returns at most ``results`` candidates."""
    with cloud.started([*ORDINARY, *OWNED]) as nova:
        nova.flags(group="scheduler", max_placement_results=results)
        spare = [f"node{number:05d}" for number in range(hosts - len(ORDINARY) - len(OWNED))]
        many.write_hosts(spare, like=ORDINARY[0])
        last = min(LAST, hosts // 5) if stage == "pool" else 0
        at = Site(nova, nova.compute(), spare, last, _write(spare, nova, last))
        if stage == "boot":
            nova.filter_with(cloud.OURS)
        if stage != "look":
            _tell(at)
        gc.collect()
        gc.freeze()
        try:
            STAGES[stage](at, lap)
        finally:
            gc.unfreeze()


def _look(at: Site, lap: Lap) -> None:
    look = partial(at.compute.look, at.spare)
    lap("a look: list of the hypervisors with their servers", look)


def _pool(at: Site, lap: Lap) -> None:
    hosts = len(at.managed) + len(ORDINARY)
    with at.compute.comparison():
        joined = lap(f"{at.last} hosts join the pool", lambda: at.compute.pool(at.managed))
    with at.compute.comparison():
        again = lap("the same again, with no host that joins", lambda: at.compute.pool(at.managed))
    whole = again + (joined - again) * hosts / at.last
    print(f"  {'all of them, beside one look':<56} {whole:12.1f} s", flush=True)


def _hand_over(at: Site, lap: Lap) -> None:
    number = len(at.big.hosts)
    lap(f"{number} hosts handed over", lambda: at.compute.hand_over(at.big))
    lap(f"servers of {number} hosts, as DELETE asks", lambda: at.compute.occupants(at.big.hosts))
    lap(f"{number} hosts taken back", lambda: at.compute.take_back(at.big))


def _compare(at: Site, lap: Lap) -> None:
    """What the worker asks of Nova in a check for drift and in a full comparison."""
    median("a check for drift", at.compute.observed, lap)

    def compare() -> None:
        with at.compute.comparison():
            at.compute.pool(at.spare)
            assert len(at.compute.handed_over()) >= len(at.given)
            for handover in at.given:
                at.compute.hand_over(handover)

    lap(f"a full comparison, {len(at.given)} allocations", compare)


def _tell(at: Site) -> None:
    """Tell the adapter what a list of the hypervisors would: all are up and empty."""
    known = {
        host: Hypervisor((many.node_of(host),), host, True, True, "", frozenset())
        for host in at.spare
    }
    for part in ("plain", "own"):
        known |= at.compute.cloud.hypervisors.named(part)
    at.compute.hosts.listing = Listing(known, time.monotonic() + 3600)


def _write(spare: Sequence[str], nova: cloud.Nova, last: int) -> list[Handover]:
    """Write the pool, without its ``last`` hosts, and allocations of nine tenths of the hosts."""
    size = max(PART, -(-len(spare) // PARTS))
    pool = {"filter_tenant_id": cloud.NOBODY, "laas:pool": "true"}
    pooled = spare[: len(spare) - last]
    parts = [pooled[start : start + size] for start in range(0, len(pooled), size)]
    names = [cloud.POOL, *(f"{cloud.POOL}-{number:02d}" for number in range(1, len(parts)))]
    count = len(spare) * 9 // 10 // EACH
    given = [
        Handover(f"a{number}", f"{number:032x}", tuple(spare[number * EACH :][:EACH]))
        for number in range(count)
    ]
    many.write_aggregates(
        [
            *((name, part, pool) for name, part in zip(names, parts, strict=True)),
            *(
                (
                    f"laas-{handover.allocation_id}",
                    handover.hosts,
                    {
                        "filter_tenant_id": handover.project_id,
                        "laas:allocation": handover.allocation_id,
                    },
                )
                for handover in given
            ),
        ]
    )
    many.mirror_aggregates(nova.admin.aggregates.list())
    return given


def _filter(at: Site, lap: Lap) -> None:
    """A request whose candidates are as many as placement returns, none of them its own."""
    states = [
        SimpleNamespace(host=host, nodename=host, uuid=many.node_of(host), hypervisor_type="QEMU")
        for host in at.spare[:1000]
    ]
    for project in (STRANGER, OWNER):
        spec = objects.RequestSpec(
            context.get_admin_context(),
            project_id=project,
            instance_uuid="83d5f5a4-7c5e-4a7e-a3c5-6d3f9c5bb5a1",
            scheduler_hints={},
        )
        through = filters.HostFilterHandler().get_filtered_objects
        assert not through([LaasTenantFilter()], states, spec)

    def ten() -> None:
        for _ in range(10):
            hide_pool(spec._context, spec)
            through([LaasTenantFilter()], states, spec)

    median("ten requests through both filters, 1,000 candidates", ten, lap)


def _boot(at: Site, lap: Lap) -> None:
    """Start a server of each kind of project; the flavor is one of Nova's defaults."""
    nova = at.nova
    at.compute.hand_over(Handover("mine", OWNER, tuple(OWNED)))
    nova.scheduler_knows()
    longest = 0
    get = SchedulerReportClient.get

    def measured(client: Any, url: str, *args: Any, **more: Any) -> Any:
        nonlocal longest
        longest = max(longest, len(url))
        if longest > URL_LIMIT:
            raise AssertionError(f"a GET to placement has {longest} bytes: {url[:200]}")
        return get(client, url, *args, **more)

    with fixtures.MonkeyPatch("nova.scheduler.client.report.SchedulerReportClient.get", measured):
        for who, project, hosts in (
            ("an ordinary project", STRANGER, ORDINARY),
            ("an owner", OWNER, OWNED),
        ):
            landed: list[str | None] = []

            def boot(project: str = project, landed: list[str | None] = landed) -> None:
                servers = nova.client(project).servers
                made = servers.create("server", cloud.IMAGE, flavor="1", nics="none")
                landed.append(site.landed(nova.admin, made.id))

            lap(f"{who} starts a server", boot)
            print(f"  {who}'s server is on {landed[0]}", flush=True)
            assert landed[0] in hosts
    print(f"  {'longest GET to placement':<56} {longest:12} bytes", flush=True)
    problem, found = at.compute.checks.candidates()
    assert problem is None, problem
    print(f"  {found}", flush=True)


STAGES: dict[str, Callable[[Site, Lap], None]] = {
    "filter": _filter,
    "boot": _boot,
    "compare": _compare,
    "hand-over": _hand_over,
    "pool": _pool,
    "look": _look,
}

if __name__ == "__main__":
    main()

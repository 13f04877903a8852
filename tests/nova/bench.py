# SPDX-License-Identifier: Apache-2.0

"""Times of the real Nova: ``python -m tests.nova.bench [filter] [calls] [active]``.

Without an argument all three run. ``filter`` times a request through our filter at 1,000
hosts and 90 allocations. ``calls`` counts the aggregate calls that Nova answers in a second.
``active`` times an allocation of 100 hosts of 128, from POST to active. The times are
reported, never asserted. Nova runs in one process with its fake driver and SQLite files, so
a real cloud has other times.
"""

# ruff: noqa: E402 - Nova has to be patched before any other module of it is imported

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
import uuid
from pathlib import Path
from types import SimpleNamespace

os.environ.setdefault("OS_NOVA_DISABLE_EVENTLET_PATCHING", "true")

from nova import monkey_patch

monkey_patch.patch(backend="threading")

from nova import context, objects
from nova.scheduler import filters
from nova.scheduler.filters.aggregate_multitenancy_isolation import AggregateMultiTenancyIsolation
from nova.tests import fixtures as nova_fixtures

from laas_service.app.ports.compute import Handover
from nova_filters.laas import LaasTenantFilter
from tests.nova import cloud
from tests.nova.many import write_aggregates
from tests.story.network import network
from tests.story.site import Rest

MANY = [f"node{number:04d}" for number in range(1000)]
ROUNDS = 20


def main() -> None:
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()


def lap(what: str, times: int, act) -> None:
    """Print the mean time of a call of ``act``: wall clock and processor."""
    start, spent = time.monotonic(), time.process_time()
    for _ in range(times):
        act()
    took, spent = time.monotonic() - start, time.process_time() - spent
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        f"{what:<48} {took / times * 1000:10.1f} ms {spent / times * 1000:10.1f} ms cpu"
        f" {times / took:8.1f}/s {memory:5} MB"
    )


def filter_cost() -> None:
    """Time the filter for 1,000 hosts in the pool, 900 of them in 90 allocations of 10."""
    objects.register_all()
    with nova_fixtures.Database(database="api"):
        admin = context.get_admin_context()
        groups = [("pool", MANY, {"filter_tenant_id": "nobody", "laas:pool": "true"})]
        for number in range(90):
            metadata = {"filter_tenant_id": f"{number:032x}", "laas:allocation": str(number)}
            groups.append((f"a{number}", MANY[number * 10 : number * 10 + 10], metadata))
        write_aggregates(groups)
        known = objects.AggregateList.get_all(admin)
        of_host = {host: [a for a in known if host in a.hosts] for host in MANY}
        states = [
            SimpleNamespace(
                host=h, nodename=h, uuid=h, hypervisor_type="QEMU", aggregates=of_host[h]
            )
            for h in MANY
        ]
        spec = objects.RequestSpec(
            admin, project_id=f"{7:032x}", instance_uuid=str(uuid.uuid4()), scheduler_hints={}
        )
        handler = filters.HostFilterHandler()

        def through(one):
            return lambda: handler.get_filtered_objects([one()], states, spec)

        assert len(handler.get_filtered_objects([LaasTenantFilter()], states, spec)) == 10
        lap("one request through LaasTenantFilter", ROUNDS, through(LaasTenantFilter))
        lap("  of it reading the aggregates", ROUNDS, lambda: objects.AggregateList.get_all(admin))
        lap("the same through Nova's own filter", ROUNDS, through(AggregateMultiTenancyIsolation))


def aggregate_calls() -> None:
    """Time aggregate calls of novaclient on 16 hosts, one after the other, in memory."""
    hosts = MANY[:16]
    with cloud.started(hosts) as nova:
        calls = nova.admin.aggregates
        lap("start Nova with 16 hosts", 1, lambda: None)
        numbers = iter(range(ROUNDS))
        lap("create", ROUNDS, lambda: calls.create(f"bench-{next(numbers)}", None))
        made = calls.list()
        lap("set_metadata", ROUNDS, lambda: calls.set_metadata(made[0], {"filter_tenant_id": "x"}))
        pairs = iter([(a, host) for a in made[:4] for host in hosts])
        lap("add_host", 64, lambda: calls.add_host(*next(pairs)))
        lap("list", ROUNDS, calls.list)
        pairs = iter([(a, host) for a in made[:4] for host in hosts])
        lap("remove_host", 64, lambda: calls.remove_host(*next(pairs)))
        compute = nova.compute()
        lap("our adapter: pool of 16 hosts", 1, lambda: compute.pool(hosts))
        handover = Handover("a1", "1" * 32, tuple(hosts))
        lap("our adapter: hand over 16 hosts", 1, lambda: compute.hand_over(handover))
        lap("our adapter: hand over again (reconcile)", 1, lambda: compute.hand_over(handover))
        lap("our adapter: take back", 1, lambda: compute.take_back(handover))


def to_active() -> None:
    """Time an allocation with laas-api, Nova over TCP, and OpenSM on a simulated fabric."""
    from tests.nova.test_story import FULL, laas

    where = Path(tempfile.mkdtemp(prefix="laas-bench-"))
    with (
        cloud.started(FULL.hosts) as nova,
        cloud.served(nova) as url,
        network(FULL.xgft, where) as net,
        laas(url, net, where) as api,
    ):
        rest, project = Rest(api), "1" * 32

        def ask() -> None:
            body = {"name": "bench", "hosts": 100, "project_id": project}
            made.append(rest.call("POST", "/v1/allocations", project, body)[1])

        made: list[dict[str, str]] = []
        lap("POST for 100 of 128 hosts, answered 202", 1, ask)
        lap("until it is active", 1, lambda: rest.settled(project, made[0], "active"))
        path = f"/v1/allocations/{made[0]['id']}"
        rest.call("DELETE", path, project)
        lap("until it is released", 1, lambda: rest.settled(project, made[0], "released"))


PARTS = {"filter": filter_cost, "calls": aggregate_calls, "active": to_active}

if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0

"""Cost of a drift check: ``python -m tests.bench.looks [--hosts H]``.

The policy jigsaw fills a full tree. SQLite has the record, and a stand-in of Nova behind HTTP
has the aggregates. The benchmark times one check of the aggregates and one check of OpenSM. The
latter compares the files with their manifest and reads the tables of all switches from a dump by
``cat``; with real switches, the time of ``dump_lfts`` is added.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from keystoneauth1 import adapter, session, token_endpoint
from novaclient import client as nova_client

from laas_service.adapters.db.engine import connect
from laas_service.adapters.db.schema import upgrade
from laas_service.adapters.db.store import SqlStore
from laas_service.adapters.fabric_import import generator
from laas_service.adapters.nova import NovaCompute
from laas_service.adapters.nova.cloud import NOVA_VERSION, Cloud
from laas_service.app.handovers import handover_of, managed_hosts
from laas_service.app.lifecycle import State
from laas_service.app.ports.compute import Compute
from laas_service.app.records import AllocationRecord
from laas_service.app.requests import AllocationRequest
from laas_service.messages import FabricState
from opensm_writer.local import LocalSubnetManager
from opensm_writer.opensm import OpenSm
from tests import nova_standin
from tests.bench.ledger import filled
from tests.bench.policies import RADIX
from tests.convergers import Convergers
from tests.fakes import FakeSubnetManager


@contextmanager
def measured(hosts: int, what: str) -> Iterator[None]:
    processor, clock = time.process_time(), time.perf_counter()
    yield
    processor, clock = time.process_time() - processor, time.perf_counter() - clock
    print(f"{hosts:6} {what:36}{processor:10.2f}{clock:8.2f}", flush=True)


def made_of(hosts: int) -> generator.Generated:
    half = RADIX[hosts] // 2
    return generator.generate(
        generator.Description(xgft=f"3;{half},{half},{2 * half};1,{half},{half}")
    )


def aggregates(hosts: int, directory: Path) -> None:
    made, engine = made_of(hosts), connect(f"sqlite:///{directory}/laas.sqlite")
    upgrade(engine)
    store = SqlStore(engine)
    fabric = store.fabrics.add("f", made.topology, made.inventory)
    for id, answer in filled(made.topology).allocations.items():
        new = AllocationRequest(
            id=id, fabric="f", name=id, project_id="blue", policy="jigsaw", hosts=answer.size
        )
        record = store.admissions.admit(new, lambda _, answer=answer: answer)  # type: ignore[misc]
        assert isinstance(record, AllocationRecord)
        store.allocations.transition(record, State.ACTIVE, "handed over")
    with nova_standin.Server() as server:
        server.cloud = nova_standin.Cloud(sorted(managed_hosts(fabric)))
        pool = server.cloud.create("laas-pool", None)["aggregate"]["id"]
        closed = {"filter_tenant_id": "laas-nobody", "laas:pool": "true"}
        server.cloud.set_metadata(pool, closed)
        server.cloud.aggregates[pool].hosts += sorted(managed_hosts(fabric))
        records = store.allocations.page(fabric="f", states=[State.ACTIVE])
        for record in records:
            id = server.cloud.create(f"laas-{record.id}", None)["aggregate"]["id"]
            owner = {"filter_tenant_id": "blue", "laas:allocation": record.id}
            server.cloud.set_metadata(id, owner)
            server.cloud.aggregates[id].hosts += handover_of(fabric, record).hosts
        converger = Convergers(
            store,
            nova(server.url),
            FakeSubnetManager(),
            now=lambda: datetime.now(UTC),
            chance=Random(1),
            fabric="f",
        )
        converger.check_drift()
        with measured(hosts, f"aggregates, {len(records)} tenants"):
            assert converger.check_drift() == []
    engine.dispose()


def nova(url: str) -> Compute:
    auth = token_endpoint.Token(f"{url}/compute", nova_standin.TOKEN)
    asked = session.Session(auth=auth)
    client = nova_client.Client(NOVA_VERSION, session=asked, endpoint_override=f"{url}/compute")
    placement = adapter.Adapter(asked, endpoint_override=f"{url}/placement")
    return NovaCompute(Cloud(client, placement), pool="laas-pool", sentinel="laas-nobody")


def routes(hosts: int, directory: Path) -> None:
    made = made_of(hosts)
    lfts = directory / "files" / "f" / "current" / "lfts"
    opensm = OpenSm(dump_command=("cat", str(lfts)), timeout=3600)
    manager = LocalSubnetManager(directory / "files", opensm, patience=0)
    manager.publish(FabricState("f", 1, made.topology, made.inventory, ()))
    for look in ("the first time", "again"):
        with measured(hosts, f"routes, {lfts.stat().st_size >> 20} MiB, {look}"):
            assert manager.applied("f").generation == 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, choices=RADIX, action="append")
    options = parser.parse_args()
    print(" hosts one look at                         processor   clock  seconds")
    for hosts in options.hosts or [1024, 11664]:
        for part in (aggregates, routes):
            with TemporaryDirectory() as directory:
                part(hosts, Path(directory))


if __name__ == "__main__":
    main()

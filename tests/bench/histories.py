# SPDX-License-Identifier: Apache-2.0

"""Growth with time: ``python -m tests.bench.histories [--events N] [--real N]``.

With retention on, one allocation gets events, and others are allocated and released, each through
the store, one after the other (``--real``). The rest of ``--events`` is written in bulk: histories
of allocations that were released, of 1,000 events each, as they stand in the tables after that.
The clock moves on by ten days with each tenth, and what is older than thirty is deleted as a worker
does it. After each tenth: the rows of events, the size of the SQLite database, the memory of the
process, the time of a GET of the allocation and of the newest page of its history (of 300: p50, p99
and the p99 of processor time, which other work on the machine hardly changes), and the longest
deletion (100 allocations). SQLite does not wait for the disk here.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from flask.testing import FlaskClient
from oslo_config import cfg
from sqlalchemy import Engine, event, func, insert, select

from laas_service.adapters.db import models
from laas_service.adapters.db.engine import connect
from laas_service.adapters.db.schema import upgrade
from laas_service.adapters.db.store import SqlStore
from laas_service.app.lifecycle import State
from laas_service.app.requests import AllocationRequest
from laas_service.cmd.api import application
from laas_service.conf import register_opts
from laas_service.wiring.composition import Composition
from tests.unit.adapters.test_store import HOSTS, SMALL, across_pods

KEPT_DAYS = 30
EACH = 1000
"""Events of a history that is written in bulk: as many as are kept."""

KEY = {"project_id": "blue", "request": {"hosts": 2}}
LATER = datetime(2040, 1, 1, tzinfo=UTC)


def admitted(store: SqlStore, id: str, position: int) -> None:
    new = AllocationRequest(
        id=id, fabric="f", name=id, project_id="blue", policy="test", hosts=2, idempotency_key=id
    )
    store.admissions.admit(new, lambda _: across_pods(id, position))


def released(store: SqlStore, id: str) -> None:
    admitted(store, id, 1)
    record = store.allocations.transition(store.allocations.get(id), State.RELEASING, "asked")
    store.allocations.free(store.allocations.hand_back(record), "gone")


def in_bulk(engine: Engine, prefix: str, count: int, at: datetime) -> None:
    """Histories of released allocations, with ``count`` events in sum."""
    table, event = models.AllocationRow, models.EventRow
    with engine.begin() as connection:
        columns = [c for c in table.__table__.c if c.key not in ("sequence", "id")]
        pattern = connection.execute(select(*columns).where(table.id == "a")).mappings().one()
        ids = [f"{prefix}-{number}" for number in range(-(-count // EACH))]
        released = {"state": "released", "handed_back": True, "updated_at": at}
        rows = [{**pattern, **released, "id": id} for id in ids]
        connection.execute(insert(table), rows)
        keys = [{**KEY, "key": id, "allocation": id} for id in ids]
        connection.execute(insert(models.IdempotencyRow), keys)
        for id in ids:
            reasons = (f"waiting for the subnet manager, {number}" for number in range(EACH))
            events = [
                {"allocation": id, "at": at, "state": "releasing", "reason": reason}
                for reason in reasons
            ]
            connection.execute(insert(event), events)


def spread(call: Callable[[], object], times: int = 300) -> str:
    taken, busy = [], []
    for _ in range(times):
        begun, began = time.perf_counter(), time.process_time()
        call()
        busy.append((time.process_time() - began) * 1000)
        taken.append((time.perf_counter() - begun) * 1000)
    p99 = times * 99 // 100
    return f"{sorted(taken)[times // 2]:8.1f}{sorted(taken)[p99]:8.1f}{sorted(busy)[p99]:8.1f}"


def served(url: str, directory: str) -> FlaskClient:
    """A client of the REST interface, in this process."""
    conf = cfg.ConfigOpts()
    register_opts(conf)
    conf([], project="laas", default_config_files=[], default_config_dirs=[])
    conf.set_override("connection", url, group="database")
    conf.set_override("state_dir", directory)
    return application(conf, Composition(conf).use_cases(lambda: None)).test_client()


def get(client: FlaskClient, path: str) -> None:
    assert client.get(path).status_code == 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--real", type=int, default=100_000)
    options = parser.parse_args()
    with TemporaryDirectory() as directory:
        url = f"sqlite:///{directory}/laas.sqlite"
        engine = connect(url)
        event.listen(engine, "connect", lambda c, _: c.execute("PRAGMA synchronous = OFF"))
        upgrade(engine)
        now = [datetime(2026, 1, 1, tzinfo=UTC)]
        store = SqlStore(engine, now=lambda: now[0])
        store.fabrics.add("f", SMALL, HOSTS)
        admitted(store, "a", 0)
        client = served(url, directory)
        print("                 database  memory  GET, ms                  history, ms")
        print("   events   kept      MiB     MiB" + 2 * "     p50     p99 cpu p99")
        for tenth in range(1, 11):
            real = options.real // 10
            for number in range(real - real // 20):
                store.allocations.postpone("a", LATER, f"problem {tenth} {number}")
            for number in range(real // 100):  # five events each
                released(store, f"r{tenth}-{number}")
            in_bulk(engine, f"b{tenth}", options.events // 10 - real, now[0])
            now[0] += timedelta(days=10)
            longest, gone = 0.0, 1
            while gone:
                begun = time.perf_counter()
                gone = store.allocations.forget(timedelta(days=KEPT_DAYS), 100)
                longest = max(longest, time.perf_counter() - begun)
            with engine.connect() as connection:
                kept = connection.scalar(select(func.count()).select_from(models.EventRow))
            size = sum(each.stat().st_size for each in Path(directory).iterdir()) / 2**20
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
            last = store.allocations.get("a").first_event
            shown = spread(lambda: get(client, "/v1/allocations/a"))
            page = f"/v1/allocations/a/history?limit=100&marker={last}"
            paged = spread(lambda page=page: get(client, page))  # type: ignore[misc]
            print(
                f"{options.events // 10 * tenth:9}{kept:7}{size:9.1f}{memory:8.1f}"
                f"{shown}{paged}  deletion {longest:.1f} s",
                flush=True,
            )
        engine.dispose()


if __name__ == "__main__":
    main()

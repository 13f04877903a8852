# SPDX-License-Identifier: Apache-2.0

"""What lies between a question and its answer: ``python -m tests.bench.roads``.

Six roads, in one process without a network: SQLite, 32 hosts, adapters that write to directories.
Each begins in a new service that has read its ledger, as ``laas-api`` does at its start, and has
just checked the tables, as it does once a second. The first journey is observed; it ends after the
worker's first round with nothing left to do. Printed are

* the files of ``laas_service`` and ``opensm_writer`` in which a function starts, and the functions,
  without what an import calls;
* SELECTs; those that are identical, in text and values, to an earlier one of the road; and those
  identical to an earlier one of the same request or the same reading of the worker, which takes
  its steps several times in a round. Three kinds may be repeated, and are counted by themselves:
  the guard of the lease, the clock, and in a transaction that writes the comparison with what the
  decision was made on (the fabric's generation, the allocation around a new one, the last plan);
* transactions, and how many of them write;
* the median of the processor time of further journeys, which nothing observes.

``--repeats`` names the identical statements. ``--idle`` measures a service with nothing to do,
``--house`` counts in the sources (``tests.bench.house``). Reported, never asserted.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import re
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

from oslo_config import cfg
from sqlalchemy import Engine, event

from laas_service.cmd import manage
from laas_service.cmd.api import application
from laas_service.conf import register_opts
from laas_service.wiring.composition import Composition
from tests.bench import house, idling
from tests.storm.journal import table

SMALL = "2;4,8;1,4"
"""32 hosts: 8 leaves of 4 hosts each, 4 spines."""

ROUNDS = 60
"""Rounds of the worker after which a road counts as blocked."""

EXCEPTED = {
    "lease": re.compile(r"SELECT lease\.token, lease\.owner FROM lease WHERE"),
    "swap": re.compile(
        r"SELECT (fabric\.(generation|stamp)(, fabric\.\w+)? FROM fabric WHERE"
        r"|allocation\.id, allocation\.fabric, .* WHERE allocation\.id IN \(\S+\)$"
        r"|max\(move_plan\.serial\))"
    ),
    "clock": re.compile(r"SELECT strftime"),
}
"""SELECTs that may be repeated, by what they are for; ``swap`` in transactions that write."""

UNNAMED = frozenset(("<listcomp>", "<setcomp>", "<dictcomp>"))
"""Code that Python 3.12 makes no function of."""


@dataclass(slots=True)
class Journey:
    """What one journey along a road touched."""

    functions: set[tuple[str, str, int]] = field(default_factory=set)
    """File, name and line."""

    selects: int = 0
    identical: int = 0
    repeated: Counter[str] = field(default_factory=Counter)
    """By statement: identical ones within a request or a reading."""

    excepted: Counter[str] = field(default_factory=Counter)
    transactions: int = 0
    writing: int = 0
    readings: int = 0
    """Requests, and times that the worker takes its steps."""

    fields: int = 0
    """Of the document that answers POST."""

    @property
    def files(self) -> set[str]:
        return {file for file, _, _ in self.functions}


class Observer:
    """Watches the functions and statements of this process during requests and rounds."""

    def __init__(self) -> None:
        self.journey = Journey()
        self._on = False
        self._ever, self._now = set[tuple[str, str]](), set[tuple[str, str]]()
        self._importing = Counter[int]()
        event.listen(Engine, "before_cursor_execute", self._statement)
        event.listen(Engine, "begin", self._transaction)

    def begin(self) -> Journey:
        """Begin another journey."""
        self._ever.clear()
        self._now.clear()
        self.journey = Journey()
        return self.journey

    def read(self) -> None:
        """A request or a reading begins."""
        if self._on:
            self._now.clear()
            self.journey.readings += 1

    @contextmanager
    def step(self) -> Iterator[None]:
        """One request or one round of the worker, in this thread and those that it starts."""
        self._on = True
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
            self._on = False

    def _called(self, frame: FrameType, what: str, _: object) -> None:
        name, thread = frame.f_code.co_name, threading.get_ident()
        if name == "<module>":
            self._importing[thread] += {"call": 1, "return": -1}.get(what, 0)
        elif what == "call" and name not in UNNAMED and not self._importing[thread]:
            file = own(frame.f_code.co_filename)
            if file is not None:
                self.journey.functions.add((file, name, frame.f_code.co_firstlineno))

    def _transaction(self, connection: Any) -> None:
        if self._on:
            self.journey.transactions += 1
            self.journey.writing += writes(connection)

    def _statement(
        self, connection: Any, _: object, text: str, values: object, *__: object
    ) -> None:
        said = " ".join(text.split())
        if not self._on or not said.startswith("SELECT"):
            return
        journey = self.journey
        journey.selects += 1
        for name, pattern in EXCEPTED.items():
            if pattern.match(said) and (name != "swap" or writes(connection)):
                journey.excepted[name] += 1
                return
        asked = (said, repr(values))
        journey.identical += asked in self._ever
        journey.repeated[said] += asked in self._now
        self._ever.add(asked)
        self._now.add(asked)


def writes(connection: Any) -> bool:
    """Whether the transaction of a connection will write."""
    return bool(connection.get_execution_options().get("laas_writes"))


def own(file: str) -> str | None:
    """The path of a file of the product, from its package on."""
    for package in ("laas_service", "opensm_writer"):
        if f"/{package}/" in file:
            return package + file.rpartition(f"/{package}")[2]
    return None


class Stopwatch:
    """Processor time of requests and rounds, with what they begin in other threads."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def read(self) -> None:
        """Nothing."""

    @contextmanager
    def step(self) -> Iterator[None]:
        began = time.process_time()
        yield
        self.seconds += time.process_time() - began


class Service:
    """A service of one process with one fabric, its REST client and its worker.

    ``watch`` is told of the requests and rounds that belong to a road.
    """

    watch: Observer | Stopwatch = Stopwatch()

    def __init__(self, directory: Path, xgft: str) -> None:
        self.directory = directory
        self.config = directory / "laas.conf"
        self.config.write_text(
            f"[DEFAULT]\nstate_dir = {directory}\n"
            f"[database]\nconnection = sqlite:///{directory}/laas.sqlite\n"
            "[sharing]\naccess = together\n"
            "[worker]\npoll_interval = 0.2\nretry_first = 0.01\nretry_last = 0.02\n"
            "reconcile_interval = 3600\ndrift_interval = 3600\n"
        )
        configured, dump = ("--config-file", str(self.config)), str(directory / "dump")
        run_manage("fabric", "generate", xgft, "--output", dump)
        run_manage(*configured, "db", "upgrade")
        run_manage(*configured, "fabric", "import", dump, "--id", "bench")
        conf = cfg.ConfigOpts()
        register_opts(conf)
        files = [str(self.config)]
        conf([], project="laas", default_config_files=files, default_config_dirs=[])
        self.parts = Composition(conf)
        use_cases = self.parts.use_cases(lambda: None)
        self.client = application(conf, use_cases).test_client()
        use_cases.prepare()  # as laas-api does
        self._take_steps = self.parts.fabric_leases.run_once
        self.parts.fabric_leases.run_once = self._read  # type: ignore[method-assign]
        for _ in range(2):  # takes the fabric, compares it, and has nothing to do
            self.round()

    def _read(self) -> int:
        """The worker is about to take its steps; servers have gone where scripts say."""
        compute = self.directory / "compute"
        for script in compute.glob("commands/*-move-*.sh"):
            (compute / "answers" / script.stem).touch()
        self.watch.read()
        return self._take_steps()

    def call(self, method: str, path: str, body: object = None) -> Any:
        """The document of the answer. Raises: SystemExit, if it is an error."""
        answer = self.client.open(f"/v1/{path}", method=method, json=body)
        if answer.status_code >= 300:
            raise SystemExit(f"{method} {path}: {answer.status_code} {answer.text}")
        return answer.json

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """As ``call``, for a request that belongs to the road."""
        with self.watch.step(), all_threads():
            self.watch.read()
            return self.call(method, path, body)

    def round(self) -> None:
        """One round of the worker."""
        with self.watch.step(), all_threads():
            self.parts.worker.round()

    def until(self, done: Callable[[], bool]) -> None:
        """Take rounds until it is done, and another one."""
        for _ in range(ROUNDS):
            self.round()
            if done():
                return self.round()
            time.sleep(0.02)  # what has to wait is due again
        raise SystemExit(f"this takes more than {ROUNDS} rounds of the worker")

    def shown(self, id: str) -> Any:
        return self.call("GET", f"allocations/{id}")

    def post(self, **body: object) -> str:
        made: dict[str, str] = self.ask("POST", "allocations", {"name": "tenant", **body})
        if isinstance(self.watch, Observer):
            self.watch.journey.fields = len(made)
        return made["id"]

    def activate(self, id: str) -> str:
        self.until(lambda: self.shown(id)["state"] == "active")
        return id

    def release(self, id: str) -> None:
        self.call("DELETE", f"allocations/{id}")
        self.until(lambda: self.shown(id)["state"] == "released")


def run_manage(*words: str) -> None:
    """Raises: SystemExit."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        if manage.main(list(words)):
            raise SystemExit(f"laas-manage {' '.join(words)}: {said.getvalue()}")


@contextmanager
def all_threads() -> Iterator[None]:
    """Wait at the end for the threads that the block has started."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        while thread.ident is None:  # it is being started, by another one
            time.sleep(0.001)
        thread.join(60)


class Road:
    """A question and its answer. ``before`` and ``after`` are not observed."""

    name = ""
    shared = False
    """Whether it needs shared hosts."""

    def before(self, service: Service) -> str:
        """Returns what ``travel`` is about."""
        return ""

    def travel(self, service: Service, about: str) -> str:
        """Returns the id of the allocation that ``after`` releases."""
        raise NotImplementedError

    def after(self, service: Service, id: str) -> None:
        service.release(id)


OWNED = {"hosts": 6}
SHARED = {"class": "shared", "slots": 6, "bandwidth": 1.0}


class Post(Road):
    def __init__(self, kind: str, body: dict[str, Any]) -> None:
        self.name, self._body = f"POST {kind}", body
        self.shared = kind == "shared"

    def travel(self, service: Service, about: str) -> str:
        return service.post(**self._body)


class Activation(Road):
    def __init__(self, kind: str, body: dict[str, Any]) -> None:
        self.name, self._body = f"activation {kind}", body
        self.shared = kind == "shared"

    def before(self, service: Service) -> str:
        return service.post(**self._body)

    def travel(self, service: Service, about: str) -> str:
        return service.activate(about)


class CutLink(Road):
    """A link that fails, until the new routes are confirmed and the old links are free."""

    name = "cut link"

    def before(self, service: Service) -> str:
        return service.activate(service.post(**OWNED))

    def travel(self, service: Service, about: str) -> str:
        links = service.shown(about)["links"]
        leaves = Counter(link.rpartition("-")[0] for link in links)
        link = min(links, key=lambda link: leaves[link.rpartition("-")[0]])  # others are free
        service.ask("PATCH", f"fabrics/bench/links/{link}", {"state": "failed"})

        def moved() -> bool:
            shown = service.shown(about)
            return link not in shown["links"] and shown["changing"] is None

        service.until(moved)
        return about

    def after(self, service: Service, id: str) -> None:
        super().after(service, id)
        for link in service.call("GET", "fabrics/bench/links?state=failed")["links"]:
            service.call("PATCH", f"fabrics/bench/links/{link['id']}", {"state": "up"})


class Evacuation(Road):
    """A host is drained, and its server goes to another one."""

    name = "evacuation"

    def before(self, service: Service) -> str:
        id = service.activate(service.post(**OWNED))
        service.call("PATCH", f"allocations/{id}", {"movable": "restart"})
        return id

    def travel(self, service: Service, about: str) -> str:
        host = service.shown(about)["hosts"][0]["name"]
        service.ask("POST", "fabrics/bench/evacuate", {"hosts": [host]})

        def moved() -> bool:
            shown = service.shown(about)
            names = {one["name"] for one in shown["hosts"]}
            return host not in names and (shown["changing"], shown["announced"]) == (None, None)

        service.until(moved)
        return about

    def after(self, service: Service, id: str) -> None:
        super().after(service, id)
        for host in service.call("GET", "fabrics/bench/hosts?state=drained")["hosts"]:
            service.call("PATCH", f"fabrics/bench/hosts/{host['name']}", {"state": "up"})


ROADS = (
    Post("owned", OWNED),
    Post("shared", SHARED),
    Activation("owned", OWNED),
    Activation("shared", SHARED),
    CutLink(),
    Evacuation(),
)


def travel(service: Service, road: Road, watch: Observer | Stopwatch) -> None:
    about = road.before(service)
    service.call("GET", "fabrics")  # checks the tables, for a second
    service.watch = watch
    try:
        id = road.travel(service, about)
    finally:
        del service.watch
    road.after(service, id)


def measure(road: Road, times: int, observer: Observer) -> tuple[Journey, float]:
    """The first journey, and the median of the milliseconds of so many others."""
    with TemporaryDirectory(prefix="laas-roads-") as name:
        service = Service(Path(name), SMALL)
        if road.shared:
            sharing = {"slots": 4, "bandwidth": 100.0}
            service.activate(service.post(hosts=8, sharing=sharing))
        journey = observer.begin()
        travel(service, road, observer)
        watches = [Stopwatch() for _ in range(times)]
        for watch in watches:
            travel(service, road, watch)
    return journey, 1000 * statistics.median(watch.seconds for watch in watches)


HEADER = (
    *("road", "readings", "files", "functions", "SELECTs", "identical", "in a reading", *EXCEPTED),
    *("transactions", "writing", "ms"),
)


def row(road: Road, journey: Journey, spent: float) -> tuple[str, ...]:
    numbers = (
        journey.readings,
        len(journey.files),
        len(journey.functions),
        journey.selects,
        journey.identical,
        journey.repeated.total(),
        *(journey.excepted[name] for name in EXCEPTED),
        journey.transactions,
        journey.writing,
    )
    return (road.name, *map(str, numbers), f"{spent:.1f}")


def repeats(journey: Journey) -> str:
    return "\n".join(f"{count:4}  {said}" for said, count in (+journey.repeated).most_common())


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.roads",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--times", type=int, default=15, help="journeys for the processor time")
    parser.add_argument("--repeats", action="store_true", help="name the identical statements")
    parser.add_argument("--idle", action="store_true", help="a service with nothing to do")
    parser.add_argument("--minutes", type=float, default=2.0, help="of --idle (%(default)s)")
    parser.add_argument("--house", action="store_true", help="count in the sources")
    parser.add_argument(
        "--tree", type=Path, default=house.HERE, help="whose sources --house counts"
    )
    options = parser.parse_args()
    if options.house:
        print(house.report(options.tree))
        return
    logging.disable()
    load = os.getloadavg()[1]
    print(f"SQLite, {os.cpu_count()} cores, load {load:.1f}:\n")
    if options.idle:
        with TemporaryDirectory(prefix="laas-idle-") as name:
            Service(Path(name), idling.XGFT).parts.fabric_leases.leave()
            print(idling.measure(Path(name), options.minutes))
        return
    observer = Observer()
    found = [(road, *measure(road, options.times, observer)) for road in ROADS]
    print(table(HEADER, [row(*one) for one in found]))
    print(f"\nFields of the answer to POST owned: {found[0][1].fields}")
    if options.repeats:
        for road, journey, _ in found:
            print(f"\n{road.name}:\n{repeats(journey)}")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0

"""One process of the service in the storm: ``python -m tests.storm.process KIND NAME HOME ...``.

KIND is ``api`` or ``worker``; further arguments are those of that command. In HOME, ``clock-NAME``
has the seconds by which the clock of this process's machine is wrong, and ``pause-NAME`` asks the
process to stop itself before its next effect outside, after all checks (it leaves ``paused-NAME``).
``LAAS_STORM_WITHOUT`` names a guard of the service that is taken away. A write under a lease that
another worker has is appended to ``unfenced``.

The database's clock is wrong by the number in the table ``storm_clock``, which the storm makes.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Session

from laas_service.adapters.db import leases, ledger_cache, transactions
from laas_service.adapters.db.concurrency.priority_locks import PriorityLocks
from laas_service.adapters.db.types import Clock
from laas_service.domain.errors import LeaseLost
from laas_service.wiring import composition

CLOCKS = {
    "sqlite": (
        "strftime('%Y-%m-%d %H:%M:%f000', 'now', (select shift from storm_clock) || ' seconds')"
    ),
    "postgresql": (
        "((clock_timestamp() + (select shift from storm_clock) * interval '1 second') "
        "AT TIME ZONE 'UTC')"
    ),
    "mysql": "timestampadd(second, (select shift from storm_clock), utc_timestamp(6))",
    "mariadb": "timestampadd(second, (select shift from storm_clock), utc_timestamp(6))",
}


def main() -> int:
    kind, name, home, *arguments = sys.argv[1:]
    _shift_clocks(Path(home, f"clock-{name}"))
    _watch_writes(Path(home, "unfenced"), name)
    without = os.environ.get("LAAS_STORM_WITHOUT")
    if without in GUARDS:
        GUARDS[without]()
    composition.Composition = partial(  # type: ignore[assignment,misc]
        composition.Composition, at=partial(_pause, Path(home), name)
    )
    return int(importlib.import_module(f"laas_service.cmd.{kind}").main(arguments))


# -- clocks and pauses -----------------------------------------------------------------


def _shift_clocks(file: Path) -> None:
    true = time.time

    def wrong() -> float:
        with suppress(OSError, ValueError):
            return true() + float(file.read_text())
        return true()

    time.time = wrong
    for dialect, text in CLOCKS.items():
        compiles(Clock, dialect)(lambda element, compiler, text=text, **options: text)


def _pause(home: Path, name: str, step: str) -> None:
    """Stop this process before an effect outside, if the storm asks for it."""
    if step.startswith("before ") and not step.startswith("before commit"):
        with suppress(FileNotFoundError):
            (home / f"pause-{name}").rename(home / f"paused-{name}")
            # This thread itself takes the signal, and goes no step further. A signal to the process
            # may wait for another thread, while this one begins its effect and takes its locks.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


# -- evidence ------------------------------------------------------------------------------


def _watch_writes(file: Path, name: str) -> None:
    """Compare the token of each writing transaction with that of the lease, by plain SQL."""
    true = transactions.Transactions.writing

    @contextmanager
    def writing(self: transactions.Transactions, step: str) -> Iterator[Session]:
        present, lease = None, self._lease
        with true(self, step) as session:
            yield session
            if lease is not None:
                session.flush()
                query = sa.text("select token from lease where fabric = :fabric")
                present = session.scalar(query, {"fabric": lease.fabric})
        if lease is not None and present != lease.token:
            text = f"{name} wrote '{step}' to {lease.fabric} with token {lease.token}"
            with file.open("a") as said:
                said.write(f"{text}, when the lease had token {present}\n")

    transactions.Transactions.writing = writing  # type: ignore[method-assign]


# -- guards that are taken away ------------------------------------------------------------


def _without_fencing() -> None:
    def renew(self: leases.SqlLeases, *arguments: Any) -> None:
        with suppress(LeaseLost):
            true(self, *arguments)

    true = leases.SqlLeases.renew
    leases.SqlLeases.renew = renew  # type: ignore[method-assign,assignment]
    leases.guard = lambda session, lease: None


class _AnyGeneration(int):
    """Equal to every number."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


def _without_generations() -> None:
    """Commit whatever generation the search was made on."""
    true = PriorityLocks.locked_generation

    def locked(self: PriorityLocks, session: Session, fabric: str) -> tuple[Any, Any, bool]:
        _, _, taken = true(self, session, fabric)
        return _AnyGeneration(), _AnyGeneration(), taken

    PriorityLocks.locked_generation = locked  # type: ignore[assignment, method-assign]


def _without_digest() -> None:
    """Generations of one number are taken for the same one, whatever their stamps."""
    for module in (transactions, *_importers("new_stamp")):
        module.new_stamp = lambda: "0" * 16
    assert not ledger_cache._differ("0" * 16, "0" * 16)


def _importers(name: str) -> list[Any]:
    known = [module for key, module in sys.modules.items() if key.startswith("laas_service.")]
    return [module for module in known if name in vars(module)]


GUARDS: dict[str, Callable[[], None]] = {
    "fencing": _without_fencing,
    "generations": _without_generations,
    "digest": _without_digest,
}
"""The fourth guard, the constraint, is the database's: ``site.drop_constraints``."""


if __name__ == "__main__":
    sys.exit(main())

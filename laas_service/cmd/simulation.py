# SPDX-License-Identifier: Apache-2.0

"""Options, progress and output of commands that run simulations."""

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskProgressColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from laas_service.adapters.fabric_import.generator import parse_xgft
from laas_service.client.options import Argument, argument
from laas_service.domain.errors import InvalidInput
from laas_service.domain.topology import Xgft
from laas_service.simulator.scenario import full_tree
from laas_service.simulator.sections import Section

T = TypeVar("T")
R = TypeVar("R")

# -- commands -----------------------------------------------------------------

EXTENSIONS = "laas_simulate.extensions"
"""Entry points of distributions that extend ``laas-simulate``; each names an ``Extension``."""


class AddCommand(Protocol):
    """Adds a subcommand; ``command``, among the defaults, runs it and returns the exit status."""

    def __call__(
        self,
        name: str,
        help: str,
        arguments: Iterable[Argument],
        description: str | None = None,
        **defaults: Any,
    ) -> None: ...


class Extension(Protocol):
    """A distribution that extends ``laas-simulate``, such as ``laas-research``."""

    SUITES: Mapping[str, Callable[[Path], Sequence[Section]]]
    """Name of a suite -> its sections; the argument is the directory of the trace files."""

    def sections(self) -> Sequence[Section]:
        """The sections whose tables a report shows."""

    def add_commands(self, add: AddCommand) -> None:
        """Add the extension's commands."""


def extensions() -> list[Extension]:
    """The extensions that are installed."""
    return [entry.load() for entry in entry_points(group=EXTENSIONS)]


def commands_of(parser: argparse.ArgumentParser) -> AddCommand:
    """What adds commands to a parser."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(
        name: str,
        help: str,
        arguments: Iterable[Argument],
        description: str | None = None,
        **defaults: Any,
    ) -> None:
        command = commands.add_parser(name, help=help, description=description)
        command.set_defaults(**defaults)
        for add_to in arguments:
            add_to(command)

    return add


# -- options ------------------------------------------------------------------


def positive(text: str) -> int:
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number of at least 1")
    return int(text)


def whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number of at least 0")
    return int(text)


def share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give a share from 0 to 1")
    return share


CHECKPOINT_DIR = argument(
    "--checkpoint",
    metavar="DIR",
    help="keep the results of finished runs in DIR, and take from there those that it has",
)


def tree_of(options: argparse.Namespace) -> Xgft:
    if options.xgft is not None:
        return parse_xgft(options.xgft)
    if options.radix is None:
        raise InvalidInput("radix", None, "give --radix or --xgft")
    return full_tree(options.radix)


# -- runs ---------------------------------------------------------------------


def on_this_machine(
    simulate: Callable[[T], R], trials: Iterable[T], workers: int | None
) -> Iterator[R]:
    """The result of each trial, in the given order, from as many processes as ``workers``."""
    if workers == 1:
        yield from map(simulate, trials)
    else:
        with ProcessPoolExecutor(workers) as pool:
            yield from pool.map(simulate, trials)


# -- output -------------------------------------------------------------------


class _UnitColumn(ProgressColumn):
    """The unit that a progress bar counts, and with ``rate`` the units per second.

    The rate is left out while it is unknown: Rich needs two updates to measure one.
    """

    def __init__(self, unit: str, *, rate: bool) -> None:
        super().__init__()
        self._unit = unit
        self._rate = rate

    def render(self, task: Task) -> Text:
        if not self._rate or task.speed is None:
            return Text(self._unit)
        return Text(f"{self._unit}, {task.speed:.0f}/s")


@contextmanager
def progress(unit: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on standard error, if that is a terminal; call it with (done, total)."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, total: None
        return
    columns = (
        BarColumn(),
        TaskProgressColumn(show_speed=True),
        MofNCompleteColumn(),
        _UnitColumn(unit, rate=unit == "jobs"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(unit, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def sink(path: str) -> Iterator[Callable[[str], None]]:
    """A function that appends text to a file, or to standard output for ``-``."""
    if path == "-":
        yield lambda piece: print(piece, end="", flush=True)
        return
    try:
        with Path(path).open("w", encoding="utf-8") as file:

            def put(piece: str) -> None:
                file.write(piece)
                file.flush()

            yield put
    except OSError as error:
        raise InvalidInput("file", path, f"cannot be written: {error}") from error


def write(path: str, text: str) -> None:
    with sink(path) as put:
        put(text)

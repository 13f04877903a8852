# SPDX-License-Identifier: Apache-2.0

"""The fast unit tests: ``pytest -p tests.quick`` leaves out those that ``tests/slow.txt`` names.

``python -m tests.quick`` measures all of them and writes that file: one line for each test
function (or for a file in which all are slow) with its seconds for all parameters together. The
functions that need the least for one test come first, until ``BUDGET`` is spent; the others are
slow. A function that nobody has measured is fast.

A duration leaves out the time in which the thread waited for a processor, so that it hardly
depends on what else runs.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SLOW = HERE / "slow.txt"

BUDGET = 45.0
"""Seconds of one process for all fast tests together."""


def read(text: str) -> frozenset[str]:
    """The slow functions and files."""
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return frozenset(line.split()[1] for line in lines)


def function(nodeid: str) -> str:
    """The name of a test without its parameters."""
    return nodeid.partition("[")[0]


def slow(seconds: dict[str, float], tests: Counter[str], budget: float = BUDGET) -> str:
    """The lines of ``SLOW`` from the seconds and the number of tests of each function."""
    spent, left_out, kept = 0.0, defaultdict[str, list[str]](list), set[str]()
    for name in sorted(seconds, key=lambda name: (seconds[name] / tests[name], name)):
        spent += seconds[name]
        file = name.partition("::")[0]
        if spent <= budget:
            kept.add(file)
        else:
            left_out[file].append(name)
    lines = list[tuple[str, float]]()
    for file, names in left_out.items():
        if file in kept:
            lines += [(name, seconds[name]) for name in names]
        else:
            lines.append((file, sum(seconds[name] for name in names)))
    head = "# Seconds of the tests that make quick leaves out; python -m tests.quick writes this.\n"
    return head + "".join(f"{duration:.2f} {name}\n" for name, duration in sorted(lines))


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    name = collection_path.relative_to(HERE.parent).as_posix()
    return True if name in read(SLOW.read_text()) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    names = read(SLOW.read_text())
    left_out = [item for item in items if function(item.nodeid) in names]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if function(item.nodeid) not in names]


class Recorder:
    """A plug-in that adds up what each function needs."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.tests: Counter[str] = Counter()
        self._waited = 0.0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self._waited = waited()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        before, self._waited = self._waited, waited()
        name = function(report.nodeid)
        self.seconds[name] += max(0.0, report.duration - (self._waited - before))
        self.tests[name] += report.when == "setup"


def waited() -> float:
    """Seconds in which this thread could have run, but no processor was free."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except OSError:  # no Linux, or without these statistics
        return 0.0


def main() -> int:
    recorder = Recorder()
    status = pytest.main(["-q", str(HERE / "unit")], plugins=[recorder])
    if status == pytest.ExitCode.OK:
        SLOW.write_text(slow(recorder.seconds, recorder.tests))
    return int(status)


if __name__ == "__main__":
    sys.exit(main())

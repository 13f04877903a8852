# SPDX-License-Identifier: Apache-2.0

"""Makes the tables of published and measured figures in the documentation again.

``python -m research_tests.published`` runs the commands that the pages name and replaces the
tables. It takes hours of processor time; killed, it goes on where it was. Names of tables choose
some.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from laas_research.experiments import EXPERIMENTS
from laas_service.cmd import simulate

ROOT = Path(__file__).parents[2]


class Published(NamedTuple):
    """A file of tables, the page that includes it, and the commands as the page names them."""

    file: str
    page: str
    commands: tuple[str, ...]

    @property
    def path(self) -> Path:
        return ROOT / self.file


PUBLISHED = {
    "adaptive-fit": Published(
        "research/doc/consolidation-results.inc",
        "research/doc/consolidation.rst",
        ("laas-simulate adaptive-fit --seed 1",),
    ),
    "svc": Published(
        "research/doc/virtual-clusters-results.inc",
        "research/doc/virtual-clusters.rst",
        ("laas-simulate svc --seed 1",),
    ),
    "starcube": Published(
        "research/doc/stars-results.inc",
        "research/doc/stars.rst",
        ("laas-simulate starcube --seed 1 --runs 1",),
    ),
    "kraken": Published(
        "research/doc/kraken-results.inc",
        "research/doc/virtual-clusters.rst",
        ("laas-simulate kraken --seed 1 --size 0.25",),
    ),
    "svc-routed": Published(
        "research/doc/svc-routed-results.inc",
        "research/doc/virtual-clusters.rst",
        ("laas-simulate svc-routed --seed 1",),
    ),
    "kraken-routed": Published(
        "research/doc/kraken-routed-results.inc",
        "research/doc/virtual-clusters.rst",
        ("laas-simulate kraken-routed --seed 1 --size 0.05",),
    ),
    "chosen-routes": Published(
        "research/doc/chosen-routes-results.inc",
        "research/doc/virtual-clusters.rst",
        ("laas-simulate chosen-routes --seed 1",),
    ),
    "interference": Published(
        "research/doc/isolation-results.inc",
        "research/doc/interference.rst",
        (
            "laas-simulate interference --xgft '3;12,12,12;1,12,12' "
            "--policy random baseline laas jigsaw --messages 1024 32768 1048576",
        ),
    ),
    "papers": Published(
        "research/doc/simulation-results.inc",
        "research/doc/papers.rst",
        (
            "laas-simulate sweep --suite papers --traces DIR --json papers.jsonl",
            "laas-simulate report --format rst papers.jsonl --output simulation-results.inc",
        ),
    ),
}
"""Name of the experiment or suite -> its tables; those that take longest come last."""


def make(name: str, traces: str, work: Path, workers: int) -> int:
    """Run the commands of a table; return their exit status."""
    published = PUBLISHED[name]
    runs = ["--workers", str(workers), "--checkpoint", str(work / name)]
    for command in published.commands:
        _, kind, *options = shlex.split(command)
        if kind == "sweep":
            options += runs
        elif kind != "report":
            options += ["--format", "rst", "--output", str(published.path)]
            options += runs if kind in EXPERIMENTS else []
        places = {
            "DIR": traces,
            "papers.jsonl": str(work / "papers.jsonl"),
            "simulation-results.inc": str(published.path),
        }
        status = simulate.main([kind, *(places.get(option, option) for option in options)])
        if status:
            return status
    return 0


def _work() -> Path:
    """The directory of finished runs, one for each state of the code."""
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    done = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True, check=True)
    return Path(tempfile.gettempdir()) / f"laas-published-{done.stdout.strip()}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m research_tests.published", description=__doc__)
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"of {', '.join(PUBLISHED)}")
    parser.add_argument(
        "--traces",
        default=str(Path(os.environ.get("LAAS_SHARED", "")) / "traces"),
        help="directory of the traces (LAAS_SHARED/traces)",
    )
    parser.add_argument("--workers", type=int, default=1, help="processes (1)")
    parser.add_argument("--work", type=Path, help="directory of the finished runs")
    options = parser.parse_args()
    if unknown := set(options.names) - set(PUBLISHED):
        parser.error(f"no such table: {', '.join(sorted(unknown))}")
    work = options.work or _work()
    work.mkdir(parents=True, exist_ok=True)
    for name in options.names or PUBLISHED:
        print(f"{name}: {PUBLISHED[name].file}, finished runs in {work}", flush=True)
        status = make(name, options.traces, work, options.workers)
        if status:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())

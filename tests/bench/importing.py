# SPDX-License-Identifier: Apache-2.0

"""Import of a dump: ``python -m tests.bench.importing [--hosts H] [--rounds N] [--against TREE]``.

``laas-manage fabric import`` reads the dump of a full tree of K-port switches, with ``--dry-run``
and with a new SQLite database. Reported is the processor time of the process, of the start of
Python and of the report as well: the medians of the rounds, and what was least. With
``--against`` another checkout takes the same dump by turns.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import psutil

from laas_service.adapters.fabric_import import generator, ibnetdiscover
from tests.bench.policies import RADIX
from tests.storm.journal import table

HERE = Path(__file__).parents[2]


def measure(hosts: int, rounds: int, trees: list[Path]) -> str:
    half = RADIX[hosts] // 2
    described = generator.Description(xgft=f"3;{half},{half},{2 * half};1,{half},{half}")
    seen: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    with TemporaryDirectory(prefix="laas-importing-") as name:
        dump = Path(name) / "fabric.txt"
        dump.write_text(ibnetdiscover.render(generator.generate(described).inventory))
        for number in range(rounds):
            for tree in trees:
                place = Path(name) / f"{number}-{trees.index(tree)}"
                place.mkdir()
                config = place / "laas.conf"
                config.write_text(f"[DEFAULT]\nstate_dir = {place}\n")
                _spent(tree, config, "db", "upgrade")
                for what in ("--dry-run", "--id=a"):
                    spent = _spent(tree, config, "fabric", "import", str(dump), what)
                    seen[what, str(tree)].append(spent)
    rows = [
        (what, tree, f"{median(times):.2f}", f"{min(times):.2f}")
        for (what, tree), times in seen.items()
    ]
    return table(("import", "checkout", "CPU s", "least"), rows)


def _spent(tree: Path, config: Path, *words: str) -> float:
    """Processor seconds of one command."""
    command = [sys.executable, "-m", "laas_service.cmd.manage", f"--config-file={config}"]
    before = psutil.Process().cpu_times()
    subprocess.run(
        [*command, *words],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = psutil.Process().cpu_times()
    children = after.children_user - before.children_user
    return float(children + after.children_system - before.children_system)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.importing", description=__doc__)
    parser.add_argument("--hosts", type=int, choices=RADIX, default=11_664)
    parser.add_argument("--rounds", type=int, default=3, help="of each checkout (%(default)s)")
    parser.add_argument("--against", type=Path, metavar="TREE", help="another checkout")
    options = parser.parse_args()
    trees = [HERE, *([options.against] if options.against else [])]
    text = measure(options.hosts, options.rounds, trees)
    load = os.getloadavg()[1]
    print(f"{options.hosts:,} hosts, {os.cpu_count()} cores, load {load:.1f}:\n\n{text}")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0

"""One page of what tests run, from the coverage of several environments.

    python -m tests.coverage DIRECTORY

``make coverage`` leaves the data of its environments in the directory; the page is
``DIRECTORY/html/index.html``. Prints the functions that no test enters, except those for which
``tests/not_entered.txt`` has a decision. Each line there has a pattern of names, the environments
that enter them, and the reason; it holds until all these environments are measured (``-``: always).
The status is 1 if a function has no decision.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from coverage import Coverage

ROOT = Path(__file__).parents[1]
DECIDED = Path(__file__).with_name("not_entered.txt")


def functions(tree: ast.AST, name: str = "") -> Iterator[tuple[str, set[int]]]:
    """The functions of a module, and the lines of each without those of functions inside it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            own = set(range(node.body[0].lineno, (node.end_lineno or 0) + 1))
            for _, inner in functions(node):
                own -= inner
            yield f"{name}{node.name}", own
            yield from functions(node, f"{name}{node.name}.")
        else:
            inside = f"{name}{node.name}." if isinstance(node, ast.ClassDef) else name
            yield from functions(node, inside)


def not_entered(coverage: Coverage) -> Iterator[str]:
    """Functions of which no statement was run."""
    for file in sorted(coverage.get_data().measured_files()):
        path = ROOT / file
        if not path.exists():
            continue
        _, statements, _, missing, _ = coverage.analysis2(str(path))
        for name, lines in functions(ast.parse(path.read_text())):
            own = lines & set(statements)
            if own and own <= set(missing):
                yield f"{path.relative_to(ROOT).as_posix()}::{name}"


def decisions(text: str, measured: Collection[str]) -> list[str]:
    """The patterns of functions that no test of the measured environments has to enter."""
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return [name for name, by, *_ in lines if not set(by.split(",")) <= set(measured)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    measured = [file.suffix[1:] for file in directory.glob(".coverage.*")]
    coverage = Coverage(str(directory / ".coverage"), config_file=str(ROOT / "pyproject.toml"))
    coverage.combine([str(directory)], keep=True)
    coverage.save()
    print(f"{coverage.html_report(directory=str(directory / 'html')):.1f} percent run")
    decided = decisions(DECIDED.read_text(), measured)
    open_ = [
        name
        for name in not_entered(coverage)
        if not any(fnmatchcase(name, pattern) for pattern in decided)
    ]
    print(*open_, f"{len(open_)} functions that no test enters have no decision", sep="\n")
    return int(bool(open_))


if __name__ == "__main__":
    sys.exit(main())

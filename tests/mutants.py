# SPDX-License-Identifier: Apache-2.0

"""Mutants of the domain and the use cases, and the unit tests that notice them.

    python -m tests.mutants [--number 1000] [--seed 41]

Each mutant is one change in one module: another comparison, ``and`` for ``or``, a condition turned
round, another sum, a number one larger. The seed draws the same ones for the same sources. A copy
of the tree gets the change, and the unit tests that name the module run there until one fails.
Prints one line for each mutant, then the number of killed ones. Compare it before and after a
change of tests alone.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
MUTATED = ("laas_service/domain", "laas_service/app")
LIMIT = 600
"""Seconds after which a mutant counts as killed: most of these loop for ever."""

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt},
    **{ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In},
    **{ast.Is: ast.IsNot, ast.IsNot: ast.Is},
}
_SUMS: dict[type[ast.operator], type[ast.operator]] = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult},
    **{ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift},
}


def mutate(node: ast.AST) -> bool:
    """Change the node in place; whether there is a change for a node of its kind."""
    match node:
        case ast.Compare(ops=[first, *_]) if type(first) in _COMPARISONS:
            node.ops[0] = _COMPARISONS[type(first)]()
        case ast.BoolOp():
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case ast.BinOp() if type(node.op) in _SUMS:
            node.op = _SUMS[type(node.op)]()
        case ast.If() | ast.IfExp():
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            node.value = number + 1
        case _:
            return False
    return True


def places(path: Path) -> Iterator[tuple[Path, int]]:
    """The nodes of a module that can be mutated, by their number in ``ast.walk``."""
    for number, node in enumerate(ast.walk(ast.parse(path.read_text()))):
        if mutate(copy.copy(node)):
            yield path.relative_to(ROOT), number


def drawn(number: int, seed: int) -> list[tuple[Path, int]]:
    modules = sorted(path for root in MUTATED for path in (ROOT / root).rglob("*.py"))
    everywhere = [place for path in modules for place in places(path)]
    return random.Random(seed).sample(everywhere, min(number, len(everywhere)))


def mutant(text: str, number: int) -> tuple[str, int]:
    """The changed source, and the line of the change."""
    tree = ast.parse(text)
    node = next(node for at, node in enumerate(ast.walk(tree)) if at == number)
    mutate(node)
    return ast.unparse(ast.fix_missing_locations(tree)), getattr(node, "lineno", 0)


def tests_of(path: Path) -> list[str]:
    """The files of unit tests that name the module or its package, or those of its layer."""
    package = ".".join(path.parent.parts)
    names = (f"{package}.{path.stem}", f"from {package} import", f"import {package}\n")
    files = sorted((ROOT / "tests/unit" / path.parts[1]).rglob("test_*.py"))
    named = [file for file in files if any(name in file.read_text() for name in names)]
    return [str(file.relative_to(ROOT)) for file in named or files]


def killed(tree: Path, path: Path) -> bool:
    pytest = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "CI": "", "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [*pytest, *tests_of(path)],
            cwd=tree,
            env=environment,
            capture_output=True,
            check=False,
            timeout=LIMIT,
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--number", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=41)
    arguments = parser.parse_args()
    dead = 0
    with tempfile.TemporaryDirectory() as directory:
        tree = Path(directory, "tree")
        hidden = shutil.ignore_patterns(".*", "__pycache__", "build", "demo")
        shutil.copytree(ROOT, tree, ignore=hidden)
        for path, number in drawn(arguments.number, arguments.seed):
            text = (ROOT / path).read_text()
            changed, line = mutant(text, number)
            (tree / path).write_text(changed)
            noticed = killed(tree, path)
            (tree / path).write_text(text)
            dead += noticed
            print("killed  " if noticed else "survived", f"{path}:{line}", flush=True)
    print(f"{dead} of {arguments.number} killed")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0

"""Mutants of the domain and the use cases, and the unit tests that notice them.

    python -m tests.mutants map [PYTEST ARGUMENTS]
    python -m tests.mutants run [--number 200] [--seed 41]
    python -m tests.mutants compare BEFORE AFTER

Each mutant is one change in one function: another comparison, ``and`` for ``or``, a condition
turned round, another sum, a number one larger. The seed draws them by a hash of their function's
source, so that a mutant stays the same as long as its function does. ``map`` records which test
runs which line; ``run`` gives each mutant the tests that run its line, until one fails, and writes
one line for it. A run that was ended goes on where it was, and repeats mutants whose test is gone.
``compare`` tells of mutants that only BEFORE killed.

A mutant is killed if a test fails. ``broken`` (it cannot be imported) and ``timeout`` (a test loops
for ever) count apart. Processes that a test starts run the original.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import hashlib
import importlib
import importlib.util
import io
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType

import pytest
from coverage import CoverageData

ROOT = Path(__file__).parents[1]
MUTATED = ("laas_service/domain", "laas_service/app")
WORK = ROOT / ".tox" / "mutants"
"""The map, and the lines of results."""
LIMIT = 300
"""Seconds of one mutant."""
LIBRARIES = (
    *("alembic", "flask", "hypothesis", "jsonschema", "keystonemiddleware", "oslo_config.cfg"),
    *("oslo_messaging", "oslo_policy.policy", "requests", "sqlalchemy.orm", "xdist"),
)
"""Imported once; each mutant gets a copy of the process."""

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


@dataclass(frozen=True)
class Mutant:
    """The place of one change; ``name`` stays the same while its function does."""

    name: str
    path: str
    node: int  # its number in ``ast.walk`` of the module
    line: int

    def source(self) -> ast.Module:
        tree = ast.parse((ROOT / self.path).read_text())
        mutate(next(node for at, node in enumerate(ast.walk(tree)) if at == self.node))
        return ast.fix_missing_locations(tree)


def functions(tree: ast.AST, name: str = "") -> Iterator[tuple[str, ast.AST]]:
    """The outermost functions, by their names in the module."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield f"{name}{node.name}", node
            case ast.ClassDef():
                yield from functions(node, f"{name}{node.name}.")


def mutants() -> Iterator[Mutant]:
    for root in MUTATED:
        for file in sorted((ROOT / root).rglob("*.py")):
            tree, path = ast.parse(file.read_text()), file.relative_to(ROOT).as_posix()
            numbers = {node: number for number, node in enumerate(ast.walk(tree))}
            for name, function in functions(tree):
                text = hashlib.sha256(ast.unparse(function).encode()).hexdigest()[:8]
                for place, node in enumerate(ast.walk(function)):
                    if mutate(copy.copy(node)):
                        line = getattr(node, "lineno", 0)
                        yield Mutant(f"{path}::{name}:{text}:{place}", path, numbers[node], line)


def drawn(number: int, seed: int) -> list[Mutant]:
    def order(mutant: Mutant) -> bytes:
        return hashlib.sha256(f"{seed} {mutant.name}".encode()).digest()

    return sorted(mutants(), key=order)[:number]


def tests_of(data: CoverageData, mutant: Mutant) -> list[str]:
    """The tests that run the line of the mutant, those of the same file together."""
    contexts = data.contexts_by_lineno(mutant.path).get(mutant.line, [])
    return sorted({context.partition("|")[0] for context in contexts} - {""})


class Judge:
    """A plug-in that puts the mutant in the place of its module, and notes a test that fails."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant
        self.module = ".".join(Path(mutant.path).with_suffix("").parts).removesuffix(".__init__")
        self.failed = ""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name != self.module:
            return None
        file = str(ROOT / self.mutant.path)
        return importlib.util.spec_from_file_location(name, file, loader=Loader(name, file, self))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid


class Loader(SourceFileLoader):
    def __init__(self, name: str, file: str, judge: Judge) -> None:
        super().__init__(name, file)
        self.judge = judge

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = compile(self.judge.mutant.source(), self.path, "exec")
        return code


def verdict(mutant: Mutant, tests: list[str]) -> str:
    """What happens to the mutant, and the test that notices it; in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        judge, words = Judge(mutant), "broken"
        with contextlib.suppress(BaseException):
            os.setsid()
            sys.meta_path.insert(0, judge)
            files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
            arguments = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:cov", "-p", "no:xdist"]
            only = Only(tests)
            with contextlib.redirect_stdout(io.StringIO()):
                status = pytest.main([*arguments, *files], plugins=[judge, only])
            words = f"killed {judge.failed}" if judge.failed else "broken"
            if status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
                words = "survived"
        os.write(writing, words.encode())
        os._exit(0)
    os.close(writing)
    signal.signal(signal.SIGALRM, lambda *_: os.killpg(child, signal.SIGKILL))
    signal.alarm(LIMIT)
    with open(reading) as answer:
        words = answer.read()
    signal.alarm(0)
    os.waitpid(child, 0)
    return words or "timeout"


class Only:
    """A plug-in that leaves out all but the named tests."""

    def __init__(self, tests: list[str]) -> None:
        self.tests = frozenset(tests)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self.tests]


def read(path: Path) -> dict[str, str]:
    """Results by the names of mutants."""
    if not path.exists():
        return {}
    lines = (line.partition(" ") for line in path.read_text().splitlines())
    return {name: words for name, _, words in lines}


def run(number: int, seed: int) -> None:
    results = WORK / f"{seed}.txt"
    done = read(results)
    data = CoverageData(str(WORK / "map"))
    data.read()
    for library in LIBRARIES:
        importlib.import_module(library)
    there = {context.partition("|")[0] for context in data.measured_contexts()}
    gone = {name for name, words in done.items() if words.partition(" ")[2] not in {"", *there}}
    chosen = drawn(number, seed)
    with results.open("a") as lines:
        for mutant in chosen:
            if mutant.name not in done or mutant.name in gone:
                tests = tests_of(data, mutant)
                done[mutant.name] = verdict(mutant, tests) if tests else "survived"
                print(mutant.name, done[mutant.name], file=lines, flush=True)
    print(*Counter(done[mutant.name].partition(" ")[0] for mutant in chosen).items())


def record(arguments: list[str]) -> int:
    WORK.mkdir(parents=True, exist_ok=True)
    (WORK / "coveragerc").write_text("[run]\nrelative_files = true\n")
    os.environ["COVERAGE_FILE"] = str(WORK / "map")
    what = [f"--cov={root}" for root in MUTATED] + [f"--cov-config={WORK / 'coveragerc'}"]
    options = ["-q", "-n", "2", *what, "--cov-context=test", "--cov-report="]
    return pytest.main([*options, *(arguments or ["tests/unit"])])


def compare(before: Path, after: Path) -> int:
    """Print what only ``before`` killed, among the mutants that both know."""
    old, new = read(before), read(after)
    both = old.keys() & new.keys()
    lost = [n for n in both if old[n].startswith("killed") and not new[n].startswith("killed")]
    for name in sorted(lost):
        print(name, new[name], "; before:", old[name])
    killed = [sum(words[name].startswith("killed") for name in both) for words in (old, new)]
    print(f"{len(both)} mutants in both; killed before {killed[0]}, after {killed[1]}")
    return int(bool(lost))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("map", help="record which test runs which line")
    running = commands.add_parser("run", help="try mutants")
    running.add_argument("--number", type=int, default=200)
    running.add_argument("--seed", type=int, default=41)
    comparing = commands.add_parser("compare", help="what another run killed and this one did not")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    arguments, rest = parser.parse_known_args()
    if arguments.command == "map":
        return record(rest)
    if arguments.command == "compare":
        return compare(arguments.before, arguments.after)
    run(arguments.number, arguments.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())

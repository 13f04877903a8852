# SPDX-License-Identifier: Apache-2.0

"""Sizes of the sources: ``python -m tests.bench.roads --house [--tree DIR]``.

Counts in the files of any tree, an older release for example; nothing of it is imported. The
product is ``laas_service``, ``opensm_writer``, ``nova_filters`` and ``watcher_plugin``.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.storm.journal import table

HERE = Path(__file__).resolve().parents[2]
PRODUCT = ("laas_service", "opensm_writer", "nova_filters", "watcher_plugin")
OTHERS = ("research/laas_research", "tests", "research/research_tests")

PARAMETERS, LINES, METHODS = 8, 800, 30
"""The most of a function (without ``self``), of a module, and of a class."""

QUESTIONS, REPEATED = 40, 40
"""The most questions for the kind of an allocation, and class names that several modules have."""

COMPARED = ("slots", "sharing")
"""Attributes whose comparison with None asks for the kind of an allocation."""

ASKED = ("encloses", "scripted", "claims_slots")
"""Attributes that say what an allocation or compute is."""

_Function = (ast.FunctionDef, ast.AsyncFunctionDef)
_NO_CODE = frozenset(
    (
        *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
        *(tokenize.ENCODING, tokenize.ENDMARKER),
    )
)


@dataclass(frozen=True)
class Module:
    """A source file, by its path in the tree."""

    path: str
    text: str

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(ast.parse(self.text)))

    @cached_property
    def classes(self) -> tuple[ast.ClassDef, ...]:
        return tuple(node for node in self.nodes if isinstance(node, ast.ClassDef))

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @property
    def package(self) -> str:
        """``laas_service/app`` or ``opensm_writer``; ``laas_service`` for its own modules."""
        first, *others = Path(self.path).parent.parts
        return "/".join((first, *others[:1])) if first in ("laas_service", "research") else first

    @property
    def code_lines(self) -> int:
        """Lines without docstrings, comments and blank lines."""
        lines = set[int]()
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type not in _NO_CODE:
                lines.update(range(token.start[0], token.end[0] + 1))
        for node in self.nodes:
            if isinstance(node, ast.Expr) and _is_text(node.value):
                lines -= set(range(node.lineno, (node.end_lineno or 0) + 1))
        return len(lines)


def modules(tree: Path, *roots: str) -> list[Module]:
    """The modules below directories of a tree, by path."""
    return [
        Module(str(file.relative_to(tree)), file.read_text("utf-8"))
        for root in roots
        for file in sorted((tree / root).rglob("*.py"))
    ]


def protocols(found: Iterable[Module]) -> list[str]:
    """The classes that are a ``Protocol`` themselves."""
    return [
        f"{module.path}: {node.name}"
        for module in found
        for node in module.classes
        if any(_last(base) == "Protocol" for base in node.bases)
    ]


def wide_functions(found: Iterable[Module]) -> list[str]:
    """Functions with more than ``PARAMETERS``."""
    return [
        f"{module.path}: {node.name} {number}"
        for module in found
        for node in module.nodes
        if isinstance(node, _Function) and (number := _parameters(node.args)) > PARAMETERS
    ]


def _parameters(args: ast.arguments) -> int:
    names = [each.arg for each in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
    return len(names) - (bool(names) and names[0] in ("self", "cls"))


def long_modules(found: Iterable[Module]) -> list[str]:
    return [f"{module.path} {module.lines:,}" for module in found if module.lines > LINES]


def tall_classes(found: Iterable[Module]) -> list[str]:
    return [
        f"{module.path}: {node.name} {number}"
        for module in found
        for node in module.classes
        if (number := sum(isinstance(each, _Function) for each in node.body)) > METHODS
    ]


def conditions(found: Iterable[Module]) -> Counter[str]:
    """How often the product asks for a kind, by what it asks."""
    asked: Counter[str] = Counter()
    for module in found:
        for node in module.nodes:
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot):
                if (name := _last(node.left)) in COMPARED:
                    asked[f"{name} is"] += 1
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                asked[node.attr] += node.attr in ASKED
    return +asked


def columns(tree: Path) -> int:
    """Columns of the table ``allocation``."""
    file = tree / "laas_service/adapters/db/models.py"
    model = Module(str(file), file.read_text("utf-8"))
    (node,) = (node for node in model.classes if node.name in ("Allocation", "AllocationRow"))
    return sum(isinstance(each, ast.AnnAssign) for each in node.body)


def options(tree: Path) -> dict[str, int]:
    """Options of the configuration by the file that defines their group."""
    return {
        Path(module.path).stem: number
        for module in modules(tree, "laas_service/conf")
        if (number := sum(_is_option(node) for node in module.nodes))
    }


def _is_option(node: ast.AST) -> bool:
    """Whether it makes an option, or is a field that ``conf.group`` makes one of."""
    return isinstance(node, ast.Call) and _last(node.func).endswith(("Opt", "setting"))


def repeated_names(found: Iterable[Module]) -> dict[str, int]:
    """Names of classes that several modules have, with their number."""
    places = defaultdict[str, set[str]](set)
    for module in found:
        for node in module.classes:
            places[node.name].add(module.path)
    several = {name: len(paths) for name, paths in places.items() if len(paths) > 1}
    return dict(sorted(several.items(), key=lambda one: -one[1]))


def code_lines(found: Iterable[Module]) -> Counter[str]:
    """Lines without docstrings, comments and blank lines, by package."""
    lines: Counter[str] = Counter()
    for module in found:
        lines[module.package] += module.code_lines
    return lines


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _last(node: ast.expr) -> str:
    """The last name of ``a.b`` or ``b[c]``; empty for another expression."""
    if isinstance(node, ast.Subscript):
        return _last(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def report(tree: Path) -> str:
    """All figures of a tree."""
    product = modules(tree, *PRODUCT)
    worker = modules(tree, "laas_service/app/worker")
    asked, names = conditions(product), repeated_names(product)
    groups = options(tree)
    listed = {
        "Protocols in laas_service/app": protocols(modules(tree, "laas_service/app")),
        f"functions with more than {PARAMETERS} parameters": wide_functions(product),
        f"modules of more than {LINES} lines": long_modules(product),
        f"classes of more than {METHODS} methods": tall_classes(product),
    }
    figures = {
        "lines in app/worker": sum(module.lines for module in worker),
        **{what: len(found) for what, found in listed.items()},
        "questions for the kind of an allocation": asked.total(),
        "columns of table allocation": columns(tree),
        "options": sum(groups.values()),
        "class names in several modules": len(names),
    }
    rows = [(what, f"{number:,}") for what, number in figures.items()]
    return "\n\n".join(
        (
            table(("size", "number"), rows),
            *_lists(listed),
            _told("questions for the kind", asked.most_common()),
            _told("options by group", groups.items()),
            _told("class names in several modules", names.items()),
            table(
                ("package", "lines of code"),
                (
                    (package, f"{number:,}")
                    for package, number in code_lines([*product, *modules(tree, *OTHERS)]).items()
                ),
            ),
        )
    )


def _lists(listed: dict[str, list[str]]) -> Iterator[str]:
    for what, found in listed.items():
        if what.startswith("Protocols"):
            continue
        yield "\n  ".join((f"{what}:", *found))


def _told(what: str, numbers: Iterable[tuple[str, int]]) -> str:
    return f"{what}: " + ", ".join(f"{name} {number}" for name, number in numbers)

# SPDX-License-Identifier: Apache-2.0

"""laas-doctor: says what is missing, wrong or unwatched on this machine, with the fix.

Each part of the project that is installed here (service, agent beside OpenSM, Nova's filter,
plug-in of Slurm) brings an examination: an entry point of the group ``laas.doctor``. This module
needs the standard library alone, so that it is there with each of them. Parts may be installed in
environments of their own; those of the Debian packages are asked, too.

Exit status 0: nothing must be mended. 1: something must. 2: the command line was wrong.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import cast

GROUP = "laas.doctor"
"""Entry points: a name of a part, and its ``Examination``."""

ETC = Path("/etc")
ENVIRONMENTS = Path("/opt/venvs")
"""Where the Debian packages have their Python environments."""

LIMIT = 300.0
"""Seconds that the examinations of another environment may take: a service that does not answer
is waited for."""


class Severity(StrEnum):
    """How much harm a finding means, worst first."""

    FAILURE = "failure"
    """It does not work, or tenants are not isolated. It must be mended."""

    WARNING = "warning"
    """It works now. It may fail, or surprise somebody."""

    UNWATCHED = "unwatched"
    """Nothing will say when it goes wrong."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One row of the answer."""

    severity: Severity
    what: str
    """What was examined, such as "OpenSM" or "Nova's filters"."""
    why: str
    """What is missing or wrong there."""
    fix: str
    """What to do about it."""


Examination = Callable[[Path], Iterable[Finding] | None]
"""Takes the directory that stands for ``/etc``. Returns None if the part is not set up there."""


def failure(what: str, why: str, fix: str) -> Finding:
    return Finding(Severity.FAILURE, what, why, fix)


def warning(what: str, why: str, fix: str) -> Finding:
    return Finding(Severity.WARNING, what, why, fix)


def unwatched(what: str, why: str, fix: str) -> Finding:
    return Finding(Severity.UNWATCHED, what, why, fix)


def examined(etc: Path) -> tuple[set[str], list[Finding]]:
    """The parts of this environment that are set up, and what was found."""
    parts, found = set[str](), list[Finding]()
    for point in entry_points(group=GROUP):
        try:
            examine = cast(Examination, point.load())
            findings = examine(etc)
            if findings is None:
                continue
            found += findings
        except Exception as error:  # one part that breaks must not hide the others
            why = f"its examination ended with {type(error).__name__}: {_line(error)}"
            found.append(failure(point.name, why, "install the package of this part again"))
        parts.add(point.name)
    return parts, found


def examined_elsewhere(etc: Path, environments: Path) -> Iterator[tuple[set[str], list[Finding]]]:
    """The same of each other environment, by its own Python."""
    for command in sorted(environments.glob("laas-*/bin/laas-doctor")):
        python = command.with_name("python")
        if python.parents[1] == Path(sys.prefix):
            continue
        words = [str(python), "-m", __name__, "--json", "--here", "--etc", str(etc)]
        name = python.parents[1].name
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, check=False)
            answer = json.loads(done.stdout)
            rows = [Finding(Severity(row.pop("severity")), **row) for row in answer["findings"]]
            yield set(answer["parts"]), rows
        except subprocess.TimeoutExpired:
            why = f"its examination had no end within {LIMIT:g} seconds"
            yield {name}, [failure(name, why, f"run {python} -m {__name__} to see where it waits")]
        except (ValueError, TypeError, KeyError, OSError) as error:
            why = f"its examination has no readable answer: {_line(error)}"
            yield {name}, [failure(name, why, f"install the package {name} again")]


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "laas-doctor", description="What is missing, wrong or unwatched on this machine."
    )
    parser.add_argument("--json", action="store_true", help="a list of objects, one a finding")
    parser.add_argument(
        "--etc", type=Path, default=ETC, metavar="DIRECTORY", help="instead of /etc"
    )
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--version", action="version", version=_version())
    args = parser.parse_args(words)
    parts, found = examined(args.etc)
    if args.here:
        rows = [asdict(finding) for finding in found]
        print(json.dumps({"parts": sorted(parts), "findings": rows}))
        return 0
    for others, more in examined_elsewhere(args.etc, ENVIRONMENTS):
        found += more if not others <= parts else []
        parts |= others
    if not parts:
        fix = f"write {args.etc}/laas/laas.conf (install/install), or that of the agent or of Slurm"
        found.append(failure("Installation", "no part of LaaS is set up here", fix))
    order = list(Severity)
    found = sorted(dict.fromkeys(found), key=lambda finding: order.index(finding.severity))
    if args.json:
        print(json.dumps([asdict(finding) for finding in found], indent=2))
    else:
        print(_text(sorted(parts), found))
    return int(any(finding.severity is Severity.FAILURE for finding in found))


def _text(parts: Sequence[str], found: Sequence[Finding]) -> str:
    """For a person: a paragraph for each finding."""
    rows = [f"{row.severity.upper()}  {row.what}: {row.why}\n    Fix: {row.fix}." for row in found]
    worst = found[0].severity if found else None
    end = "Something must be mended" if worst is Severity.FAILURE else "Nothing must be mended"
    return "\n".join([*rows, f"Examined: {', '.join(parts) or 'nothing'}. {end}."])


def _line(error: Exception) -> str:
    return (str(error).strip() or "no reason given").splitlines()[0]


def _version() -> str:
    for name in ("laas-doctor", "laas-service"):
        try:
            return f"laas-doctor {version(name)}"
        except PackageNotFoundError:
            continue
    return "laas-doctor"

# SPDX-License-Identifier: Apache-2.0

"""Examines what keeps other projects off owned hosts on a machine with nova-scheduler.

Reads ``nova.conf`` as text, and imports the filter in a process of its own, since an import of Nova
changes the process.
"""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from laas_doctor import Finding, failure, warning

FILTER = "nova_filters.laas.LaasTenantFilter"
ISOLATION = "AggregateMultiTenancyIsolation"
WHAT = "Nova's filters"
SECTION = "filter_scheduler"


def examine(etc: Path) -> Iterator[Finding] | None:
    """None where Nova has no configuration. ``etc`` stands for ``/etc``."""
    files = [etc / "nova" / "nova.conf", *sorted((etc / "nova" / "nova.conf.d").glob("*.conf"))]
    present = [path for path in files if path.exists()]
    return _findings(present) if present else None


def _findings(files: list[Path]) -> Iterator[Finding]:
    try:
        values = _values(files)
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        why = f"nova.conf cannot be read: {str(error).splitlines()[0]}"
        yield failure(WHAT, why, "run laas-doctor as root, or mend the file")
        return
    enabled = [name.strip() for name in _last(values, "enabled_filters").split(",") if name.strip()]
    available = {name.strip() for name in values.get((SECTION, "available_filters"), [])}
    if ISOLATION not in enabled:
        why = f"{ISOLATION} is not in [{SECTION}] enabled_filters: servers of any project may land"
        fix = f"add it, as in {_sample()}, and restart nova-scheduler"
        yield failure(WHAT, f"{why} on owned hosts", fix)
    own = FILTER.rpartition(".")[2]
    if own not in enabled:
        why = f"{own} is not in [{SECTION}] enabled_filters: a project with two allocations may mix"
        fix = f"add it as the last one, or set [compute] one_allocation_per_project of {_laas()}"
        yield warning(WHAT, f"{why} them, and shared hosts claim no slots", fix)
    elif FILTER not in available and "nova_filters.laas" not in " ".join(available):
        why = f"{own} is enabled, but [{SECTION}] available_filters does not name {FILTER}"
        yield failure(WHAT, why, f"add the line available_filters = {FILTER}")
    elif enabled[-1] != own:
        why = f"{own} is before {enabled[-1]}: it asks the database for hosts that others refuse"
        yield warning(WHAT, why, "make it the last of enabled_filters")
    limited = values.get(("scheduler", "limit_tenants_to_placement_aggregate"), [""])[-1]
    if limited.strip().lower() not in ("true", "1", "yes", "on"):
        why = "[scheduler] limit_tenants_to_placement_aggregate is not true"
        fix = "set it, so that placement offers a project its own hosts and none of others"
        yield warning(WHAT, why, fix)
    yield from _import(own in enabled)


def _values(files: list[Path]) -> dict[tuple[str, str], list[str]]:
    """All values of each option, in the order of the files. An option may stand several times."""
    values: dict[tuple[str, str], list[str]] = {}
    for path in files:
        section, name = "DEFAULT", ""
        for line in path.read_text(encoding="utf-8").splitlines():
            text = line.strip()
            if not text or text[0] in "#;":
                continue
            if text[0] == "[" and text[-1] == "]":
                section = text[1:-1]
            elif line[0].isspace() and name:
                values[section, name][-1] += f" {text}"
            else:
                name, _, value = (part.strip() for part in text.partition("="))
                values.setdefault((section, name), []).append(value)
    return values


def _last(values: dict[tuple[str, str], list[str]], name: str) -> str:
    return values.get((SECTION, name), [""])[-1]


def _sample() -> str:
    return "links.conf of this package's samples"


def _laas() -> str:
    return "the service's laas.conf"


def _import(needed: bool) -> Iterator[Finding]:
    """Whether the filter fits the Nova of the Python that runs nova-scheduler."""
    code = "import nova_filters.laas"
    for python in _pythons():
        nova = subprocess.run([python, "-c", "import nova"], capture_output=True, check=False)
        if nova.returncode:
            continue
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
        if done.returncode:
            said = (done.stderr.strip() or "no error was printed").splitlines()[-1]
            fix = f"install nova-laas-filters for {python}, in the release that fits this Nova"
            yield failure("Nova's filter", f"it cannot be imported: {said}", fix)
        return
    if needed:
        why = "no Python here has Nova, so whether the filter fits was not seen"
        yield warning("Nova's filter", why, "run laas-doctor by the Python of nova-scheduler")


def _pythons() -> Iterator[str]:
    """This Python, and the one that the command nova-scheduler names."""
    yield sys.executable
    if command := shutil.which("nova-scheduler"):
        with Path(command).open(encoding="utf-8", errors="replace") as script:
            first = script.readline().strip()
        words = first[2:].split() if first.startswith("#!") else []
        if words and words[0] != sys.executable and Path(words[0]).exists():
            yield words[0]

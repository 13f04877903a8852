# SPDX-License-Identifier: Apache-2.0

"""Reads the table of access rights in doc/source/admin/access.rst."""

from __future__ import annotations

import csv
from itertools import takewhile
from pathlib import Path

PAGE = Path(__file__).parents[1] / "doc" / "source" / "admin" / "access.rst"


def table() -> dict[str, dict[str, int]]:
    """Status by request and caller, such as ``["GET /metrics"]["reader"] == 403``.

    Where the table distinguishes cases of one request, the key includes the case:
    ``POST /v1/allocations for another project``.
    """
    return {
        row.pop("Request").replace("``", ""): {c: int(s) for c, s in row.items()}
        for row in rows(PAGE)
    }


def rows(page: Path) -> csv.DictReader[str]:
    """The rows of the first table of comma-separated values on a page."""
    lines = iter(page.read_text().splitlines())
    next(line for line in lines if line.startswith(".. csv-table::"))
    next(line for line in lines if not line)
    found = takewhile(lambda line: line.startswith("   "), lines)
    return csv.DictReader(found, skipinitialspace=True)

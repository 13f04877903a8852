# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

"""The table of who may do what, as the operator reads it in doc/source/keystone.rst."""

from __future__ import annotations

import csv
from pathlib import Path

PAGE = Path(__file__).parents[1] / "doc" / "source" / "keystone.rst"


def table() -> dict[str, dict[str, int]]:
    """Status by request and caller, such as ``["GET /metrics"]["reader"] == 403``.

    A request of which there are several kinds says more: ``POST /v1/allocations for
    another project``.
    """
    lines = iter(PAGE.read_text().splitlines())
    next(line for line in lines if line.startswith(".. csv-table::"))
    next(line for line in lines if not line)
    rows = []
    for line in lines:
        if not line.startswith("   "):
            break
        rows.append(line)
    found = csv.DictReader(rows, skipinitialspace=True)
    return {
        row.pop("Request").replace("``", ""): {c: int(s) for c, s in row.items()} for row in found
    }

# SPDX-License-Identifier: Apache-2.0

"""All benchmarks: ``python -m tests.bench``. Each module also runs by itself."""

from tests.bench import (
    constraints,
    histories,
    importing,
    ledger,
    load,
    looks,
    policies,
    posting,
    rendering,
    roads,
    sharing,
    streams,
)

for part in (
    policies,
    streams,
    constraints,
    ledger,
    rendering,
    looks,
    posting,
    roads,
    sharing,
    load,
    importing,
    histories,
):
    part.main()

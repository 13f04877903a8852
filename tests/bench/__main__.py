# SPDX-License-Identifier: Apache-2.0

"""All figures of this machine: ``python -m tests.bench``; each module also runs by itself."""

from tests.bench import constraints, ledger, load, looks, policies, rendering, stars

for part in (policies, constraints, ledger, rendering, stars, looks, load):
    part.main()

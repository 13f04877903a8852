# SPDX-License-Identifier: Apache-2.0

"""The folder with real traces, fabrics and papers; tests that need it are skipped without it."""

import os
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("LAAS_SHARED", REPO.parent / "shared"))

needs_shared = pytest.mark.skipif(
    not SHARED.is_dir(), reason=f"no folder {SHARED}; set LAAS_SHARED to the third-party data"
)

# SPDX-License-Identifier: Apache-2.0

"""Patches Nova before any test imports another module of it, and shares a report hook."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("OS_NOVA_DISABLE_EVENTLET_PATCHING", "true")

from nova import monkey_patch

if hasattr(monkey_patch, "patch"):  # up to Nova 31 the import itself patches
    monkey_patch.patch()

from tests.marks import pytest_runtest_makereport as pytest_runtest_makereport


@pytest.fixture(scope="session", autouse=True)
def _place_for_files(tmp_path_factory):
    """Create pytest's base directory before Nova's fixtures move and delete TMPDIR."""
    return tmp_path_factory.getbasetemp()

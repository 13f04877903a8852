# SPDX-License-Identifier: Apache-2.0

"""The settings of all tests: no deadlines, the same examples in CI, and no skipped tests there."""

from tests.conftest import logging_as_before as logging_as_before
from tests.conftest import pytest_collection_finish as pytest_collection_finish
from tests.conftest import pytest_runtest_makereport as pytest_runtest_makereport

# SPDX-License-Identifier: Apache-2.0

"""What some tests need of the machine; in CI it is there, or they fail."""

import os

import pytest

from tests import ibsim
from tests.servers import rabbitmq

needs_ibsim = pytest.mark.skipif(
    not ibsim.AVAILABLE,
    reason="needs the packages ibsim-utils, infiniband-diags, opensm and ibutils",
)

needs_rabbitmq = pytest.mark.skipif(
    not rabbitmq.AVAILABLE, reason="needs the package rabbitmq-server"
)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """In CI a skipped test is a failed one; for ``conftest.py`` to import."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped in CI: {call.excinfo.value}"

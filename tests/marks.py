# SPDX-License-Identifier: Apache-2.0

"""Marks of tests that need installed packages; in CI a test that would be skipped fails."""

import os

import pytest

from tests import completion, ibsim
from tests.servers import rabbitmq

needs_ibsim = pytest.mark.skipif(
    not ibsim.AVAILABLE,
    reason="needs the packages ibsim-utils, infiniband-diags, opensm and ibutils",
)

needs_rabbitmq = pytest.mark.skipif(
    not rabbitmq.AVAILABLE, reason="needs the package rabbitmq-server"
)

needs_bash_completion = pytest.mark.skipif(
    not completion.LIBRARY.exists(), reason="needs the package bash-completion"
)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Report skipped tests as failed in CI. ``conftest.py`` imports this hook."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped in CI: {call.excinfo.value}"

# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

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

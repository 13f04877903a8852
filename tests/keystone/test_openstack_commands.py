# SPDX-License-Identifier: Apache-2.0

"""Every command of ``openstack isolated network`` at 60, 80 and 120 columns, piped and on a
terminal, with the service down, with two fabrics, and interrupted.

These are the tests of ``laas``, with the application of ``openstack`` in this process. The service
answers without Keystone.
"""

from __future__ import annotations

import logging
from inspect import getattr_static

import pytest
from openstackclient.common.clientmanager import ClientManager
from openstackclient.shell import OpenStackShell

from laas_service.client import osc
from tests.functional.api.conftest import empty_database as empty_database
from tests.functional.api.test_command_lines import NOWHERE, SAMPLES, SECONDS
from tests.functional.api.test_command_lines import outside as outside
from tests.functional.api.test_command_lines import site as site
from tests.functional.api.test_command_lines import (
    test_a_pipe_gets_the_same_at_any_width as test_a_pipe_gets_the_same_at_any_width,
)
from tests.functional.api.test_command_lines import (
    test_a_service_that_is_down_is_one_line as test_a_service_that_is_down_is_one_line,
)
from tests.functional.api.test_command_lines import (
    test_a_terminal_gets_lines_that_fit as test_a_terminal_gets_lines_that_fit,
)
from tests.functional.api.test_command_lines import (
    test_ctrl_c_is_quiet_and_says_what_was_left as test_ctrl_c_is_quiet_and_says_what_was_left,
)
from tests.functional.api.test_command_lines import (
    test_with_two_fabrics_one_is_named as test_with_two_fabrics_one_is_named,
)


@pytest.fixture(scope="module")
def shell():
    """The application of ``openstack``, which finds its plugins once."""
    return OpenStackShell()


@pytest.fixture
def run(shell, outside, monkeypatch):
    """As that of ``laas``, by ``openstack isolated network``."""

    def ran(name, *more, width=200, terminal=False, adapter=None):
        shell.stdout, shell.stderr = outside(width, terminal)
        words = [word for word in SAMPLES[name] if word != SECONDS]
        login = ["--os-auth-type", "none", "--os-endpoint", NOWHERE]
        command = ["isolated", "network", *name.removeprefix("allocation ").split()]
        with monkeypatch.context() as patch:
            patch.setattr(logging.getLogger(), "handlers", [])  # one more after each run
            patch.setattr(getattr_static(ClientManager, osc.API_NAME), "_handle", None)
            if adapter is not None:
                patch.setattr(osc, "Adapter", lambda *_, **__: adapter)
            status = shell.run([*login, *command, *words, *more])
        return status, shell.stdout.getvalue(), shell.stderr.getvalue()

    return ran


@pytest.fixture
def says():
    """``openstack`` puts nothing before a message."""
    return ""

# SPDX-License-Identifier: Apache-2.0

"""Every command of ``openstack isolated network`` at 60, 80 and 120 columns, piped and on a
terminal, with the service down, with two fabrics, and interrupted.

These are the tests of ``laas``, with the application of ``openstack`` in this process, and as
processes on a real terminal. The service answers without Keystone.
"""

from __future__ import annotations

import logging
import sys
from inspect import getattr_static
from pathlib import Path

import pytest
from openstackclient.common.clientmanager import ClientManager
from openstackclient.shell import OpenStackShell

from laas_service.client import osc
from tests.functional.api.test_command_lines import NOWHERE, SAMPLES, SECONDS, OnTerminal
from tests.functional.api.test_command_lines import held as held
from tests.functional.api.test_command_lines import outside as outside
from tests.functional.api.test_command_lines import site as site
from tests.functional.api.test_command_lines import (
    test_a_pipe_gets_the_same_at_any_width as test_a_pipe_gets_the_same_at_any_width,
)
from tests.functional.api.test_command_lines import (
    test_a_real_terminal as test_a_real_terminal,
)
from tests.functional.api.test_command_lines import (
    test_a_service_that_is_down_is_one_line as test_a_service_that_is_down_is_one_line,
)
from tests.functional.api.test_command_lines import (
    test_a_terminal_gets_lines_that_fit as test_a_terminal_gets_lines_that_fit,
)
from tests.functional.api.test_command_lines import (
    test_ctrl_c_ends_the_view as test_ctrl_c_ends_the_view,
)
from tests.functional.api.test_command_lines import (
    test_ctrl_c_is_quiet_and_says_what_was_left as test_ctrl_c_is_quiet_and_says_what_was_left,
)
from tests.functional.api.test_command_lines import (
    test_ctrl_c_while_an_allocation_is_waited_for as test_ctrl_c_while_an_allocation_is_waited_for,
)
from tests.functional.api.test_command_lines import (
    test_ctrl_c_while_an_answer_is_awaited as test_ctrl_c_while_an_answer_is_awaited,
)
from tests.functional.api.test_command_lines import (
    test_ctrl_c_while_nothing_is_left as test_ctrl_c_while_nothing_is_left,
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


@pytest.fixture
def begin(held):
    """As that of ``laas``, by the ``openstack`` command."""

    def begun(name, *words, columns=80, seconds=None):
        waits = [] if seconds is None else ["--wait", "--timeout", seconds]
        login = ["--os-auth-type", "none", "--os-endpoint", f"http://127.0.0.1:{held.server_port}"]
        command = ["isolated", "network", *name.removeprefix("allocation ").split()]
        program = str(Path(sys.executable).with_name("openstack"))
        return OnTerminal(columns, program, *login, *command, *words, *waits)

    return begun

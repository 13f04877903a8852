"""The commands of ``laas`` in the documentation: ``.. laas-commands::``.

cliff's directive documents the options of an application, or commands by their entry points,
whose names are those of ``openstack``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from cliff.sphinxext import AutoprogramCliffDirective
from docutils import nodes
from sphinx.application import Sphinx

from laas_service.cmd.client import LaasShell


class LaasCommands(AutoprogramCliffDirective):
    """The global options of ``laas``, and all its commands."""

    required_arguments = 0

    def run(self) -> list[nodes.Node]:
        self.env = self.state.document.settings.env
        app = LaasShell()
        known: dict[str, Any] = {
            name: partial(_made, entry.load(), app)
            for name, entry in app.command_manager
            if name not in ("complete", "help")
        }
        return [*self._generate_app_node(app, "laas"), *self._generate_command_nodes(known, "laas")]


def _made(command: Any, app: LaasShell, *_: Any) -> Any:
    """The command of this application; the directive would make it without one."""
    return command(app, None)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("laas-commands", LaasCommands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

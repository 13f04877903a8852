# SPDX-License-Identifier: Apache-2.0

"""``laas``: command line client of the REST interface.

Exit status 0: done. 1: failed otherwise. 2: the command line was wrong. 3: refused. 4: not found.
5: a wait has ended. 6: the service cannot be reached. 7: not allowed. 130: interrupted.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import sys
from collections.abc import Sequence
from functools import cached_property
from importlib.metadata import entry_points
from typing import Any

from cliff.app import App
from cliff.commandmanager import CommandManager

from laas_service.client.options import DEFAULT_TIMEOUT, argument
from laas_service.client.rest import SERVICE_TYPE, Rest, Unreachable
from laas_service.client.usage import Parser, did_you_mean, duration
from laas_service.version import ShowVersion, user_agent

ENDPOINT = "http://127.0.0.1:8780"
"""Default address of ``laas-api --all-in-one``."""

GROUP = "openstack.isolated_network.v1"
"""The entry points of the commands, which are those of ``openstack isolated network``."""

HELP = ("-h", "--help")

OLD_NAMES = ("allocation rename", "fabric agents")
"""Commands under their names of the release before; no list shows them."""


class Commands(CommandManager):
    """The commands under the names that they have here, such as ``allocation list``."""

    def load_commands(self, namespace: str) -> None:
        """Add the entry points; stevedore would import all of them now."""
        for entry in entry_points(group=namespace):
            words = entry.name.removeprefix("isolated_network_").split("_")
            own = len(words) == 1 and words[0] not in (
                "apply",
                "status",
                "view",
                "wait",
            )  # ``openstack`` has no noun for these
            self.commands[" ".join(["allocation", *words] if own else words)] = entry

    def below(self, words: Sequence[str]) -> list[str]:
        """The names of the commands that begin with these words, sorted."""
        return sorted(
            name
            for name in self.commands
            if name.split()[: len(words)] == [*words] and name not in OLD_NAMES
        )


class LaasShell(App):
    """The application; its options may stand before and after the command."""

    command_manager: Commands
    NAME = "laas"
    LOG = logging.getLogger(NAME)
    WAIT = (
        argument(
            "--wait",
            type=duration,
            nargs="?",
            const=DEFAULT_TIMEOUT,
            metavar="TIME",
            help="wait at most so long until the change is complete, such as 90 or 10m (default: "
            f"{DEFAULT_TIMEOUT:g} s)",
        ),
    )

    def __init__(self) -> None:
        description = "Command line client of Links as a Service."
        super().__init__(description, None, Commands(GROUP))

    def build_option_parser(
        self, description: str | None, version: str | None, argparse_kwargs: Any = None
    ) -> argparse.ArgumentParser:
        parser = Parser(
            prog=self.NAME,
            usage="%(prog)s [OPTION ...] COMMAND [ARGUMENT ...]",
            description=description,
            add_help=False,
            allow_abbrev=False,
        )
        env = os.environ.get
        parser.add_argument(*HELP, action="store_true", help="show the commands, or one command")
        parser.add_argument("--version", action=ShowVersion)
        parser.add_argument(
            "--endpoint",
            default=env("LAAS_ENDPOINT"),
            help=f"URL of the service; default: LAAS_ENDPOINT, the catalogue, or {ENDPOINT}",
        )
        parser.add_argument(
            "--token",
            default=env("OS_TOKEN"),
            help="Keystone token; default: OS_TOKEN, or a login with OS_AUTH_URL, OS_USERNAME, ...",
        )
        parser.add_argument("--json", action="store_true", help="print the whole answer as JSON")
        parser.add_argument(
            "--debug", action="store_true", help="print requests, and tracebacks of errors"
        )
        return parser

    def configure_logging(self) -> None:
        console = logging.StreamHandler(self.stderr)
        console.setFormatter(logging.Formatter(f"{self.NAME}: %(message)s"))
        self.LOG.handlers[:] = [console]
        self.LOG.propagate = False
        logging.getLogger("keystoneauth").setLevel(logging.ERROR)  # errors are told once
        if self.options.debug:
            logging.getLogger("keystoneauth").setLevel(logging.NOTSET)
            logging.basicConfig(level=logging.DEBUG, stream=self.stderr)

    @cached_property
    def client_manager(self) -> argparse.Namespace:
        """The client, where the commands find it."""
        return argparse.Namespace(isolated_network=Rest(adapter(self.options)))

    def interact(self) -> None:
        """Without a command there is nothing to do; cliff would start a shell."""
        sys.exit(self.run_subcommand([]))

    def run_subcommand(self, argv: list[str]) -> int:
        try:
            self.command_manager.find_command(argv)
        except ValueError:
            return self._incomplete(argv)
        return super().run_subcommand([*argv, HELP[1]] if self.options.help else argv)

    def _incomplete(self, argv: list[str]) -> int:
        """List the commands that begin with these words if help is asked for; else say what fits.

        Raises:
            SystemExit: help is not asked for; status 2.
        """
        below = self.command_manager.below
        names = below(argv)
        if not (self.options.help and names):
            known = next(argv[:size] for size in range(len(argv), -1, -1) if below(argv[:size]))
            words = dict.fromkeys(name.split()[len(known)] for name in below(known))
            given = " ".join(argv[: len(known) + 1])
            unknown = f"no command {given!r}" if argv else "no command"
            near = did_you_mean(argv[len(known)], words) if len(argv) > len(known) else ""
            if known == ["quota"]:
                near += "; quotas are set with 'laas-manage quota set PROJECT'"
            text = f"{unknown}{near}; choose from {', '.join(words)}"
            if self.options.json:
                json.dump({"code": "usage", "detail": text}, self.stdout)
            self.parser.error(text)
        self.parser.print_help(self.stdout)
        width = max(map(len, names))
        self.stdout.write("\ncommands:\n")
        for name in names:
            purpose = (self.command_manager.commands[name].load().__doc__ or "").strip()
            self.stdout.write(f"  {name:{width}}  {purpose}\n")
        return 0


def adapter(args: argparse.Namespace) -> Any:
    """An adapter for the service: with a token, with Keystone's OS_ variables, or with neither."""
    from keystoneauth1 import loading, token_endpoint  # takes longer than ``--help``
    from keystoneauth1.adapter import Adapter
    from keystoneauth1.exceptions import ClientException
    from keystoneauth1.noauth import NoAuth

    if args.endpoint and not re.match(r"https?://[^/]", args.endpoint):
        fix = args.endpoint.rpartition("://")[2] or "127.0.0.1:8780"
        raise Unreachable(f"endpoint {args.endpoint!r}: write http://{fix}, or https://")
    if args.endpoint and (found := re.match(r"(.*?)/v\d+(\.\d+)?/*$", args.endpoint)):
        raise Unreachable(f"endpoint {args.endpoint}: leave out the version: {found[1]}")
    session = loading.session.Session().load_from_options(
        cacert=os.environ.get("OS_CACERT"), user_agent=user_agent()
    )
    auth: Any
    if args.token:
        auth = token_endpoint.Token(args.endpoint or ENDPOINT, args.token)
    elif os.environ.get("OS_AUTH_URL") or os.environ.get("OS_AUTH_TYPE"):
        variables = argparse.ArgumentParser(add_help=False)
        loading.register_auth_argparse_arguments(variables, [], default="password")
        chosen = variables.parse_args([])
        if not getattr(chosen, "os_auth_type", None) or chosen.os_auth_type == "password":
            _need("OS_AUTH_URL", "OS_PASSWORD", ("OS_USERNAME", "OS_USER_ID"))
        try:
            auth = loading.load_auth_from_argparse_arguments(chosen)
        except ClientException as error:
            raise Unreachable(f"cannot log in: {error}") from error
    else:
        auth = NoAuth(args.endpoint or ENDPOINT)
    return Adapter(
        session,
        auth=auth,
        service_type=SERVICE_TYPE,
        interface=os.environ.get("OS_INTERFACE"),
        endpoint_override=args.endpoint,
        region_name=os.environ.get("OS_REGION_NAME"),
        user_agent=user_agent(),
    )


def _need(present: str, *needed: str | tuple[str, ...]) -> None:
    """Return if the environment has all these variables, of a tuple one. Raises: Unreachable."""
    several = [(name,) if isinstance(name, str) else name for name in needed]
    missing = [" or ".join(names) for names in several if not any(map(os.environ.get, names))]
    if missing:
        raise Unreachable(f"{present} is set: set {' and '.join(missing)} too, or unset {present}")


def main(argv: Sequence[str] | None = None) -> int:
    return LaasShell().run(sys.argv[1:] if argv is None else list(argv))


if __name__ == "__main__":
    sys.exit(main())

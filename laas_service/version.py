# SPDX-License-Identifier: Apache-2.0

"""The version of the installed package, for ``--version``."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

PACKAGE = "laas-service"


def version() -> str:
    """The version of the installed package; ``unknown`` if it runs without being installed."""
    from importlib import metadata  # takes longer than the rest of a command line

    try:
        return metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        return "unknown"


class ShowVersion(argparse.Action):
    """Prints the version and exits; unlike ``action="version"`` looks it up only then."""

    def __init__(self, option_strings: Sequence[str], dest: str, **settings: Any) -> None:
        text = "show the version of this command and exit"
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=text)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> NoReturn:
        parser.exit(message=f"{parser.prog} {version()}\n")

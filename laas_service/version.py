# SPDX-License-Identifier: Apache-2.0

"""The version, which ``setup.py`` and all that shows a version read here."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

VERSION = "1.0.0"


def user_agent(program: str = "laas") -> str:
    """The ``User-Agent`` of a program's HTTP requests, such as ``laas/1.0.0``."""
    return f"{program}/{VERSION}"


class ShowVersion(argparse.Action):
    """Prints the version and exits."""

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
        print(f"{parser.prog} {VERSION}")
        parser.exit()

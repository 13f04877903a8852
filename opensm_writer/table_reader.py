# SPDX-License-Identifier: Apache-2.0

"""``laas-opensm-tables``: prints blocks of the forwarding tables of some switches.

Reads the switches themselves, those without a route by directed routes. ``blocks`` describes the
input and parses the output.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TextIO

from laas_service.domain.errors import InvalidFile, LaasError
from laas_service.version import ShowVersion
from opensm_writer import smp
from opensm_writer.blocks import Block
from opensm_writer.key_reader import add_port_arguments, ask_directly, opened
from opensm_writer.smp import Query, SmpPort

_WANTED = re.compile(r"(\d{1,5}) (\d{1,3})")


def read(port: SmpPort, wanted: Iterable[Block], directory: Path | None = None) -> Iterator[str]:
    """A line for each block that is answered.

    Switches to which there is no route are asked over the cables in ``directory``, if it is given.

    Raises:
        InvalidFile, OSError: the set in ``directory`` cannot be read.
        Unavailable: not all answered in time.
    """
    blocks = list(wanted)
    if directory is not None:
        ask_directly(port, directory, {lid for lid, _ in blocks})
    nodes = port.all_answers(Query(lid, smp.NODE_INFO) for lid in {lid for lid, _ in blocks})
    guids = {query.lid: int.from_bytes(data[12:20], "big") for query, data in nodes.items()}
    queries = [Query(lid, smp.FORWARDING_TABLE, n) for lid, n in blocks if lid in guids]
    for query, data in port.answers(queries):
        yield f"{guids[query.lid]:#018x} {query.lid} {query.modifier} {data.hex()}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 0, or 2 if nothing could be read."""
    options = argument_parser().parse_args(arguments)
    try:
        wanted = _wanted(sys.stdin)
        with closing(opened(options)) as port:
            lines = list(read(port, wanted, options.directory))
    except (LaasError, OSError) as error:
        print(f"laas-opensm-tables: {error}", file=sys.stderr)
        return 2
    if port.silent:
        print(f"laas-opensm-tables: {smp.unanswered(port.silent)}", file=sys.stderr)
    sys.stdout.writelines(lines)
    return 0


def _wanted(lines: TextIO) -> list[Block]:
    """Raises: InvalidFile."""
    wanted = []
    for number, line in enumerate(lines, 1):
        match = _WANTED.fullmatch(line.rstrip("\n"))
        if match is None:
            raise InvalidFile("standard input", number, "write a LID and the number of a block")
        wanted.append(Block(int(match[1]), int(match[2])))
    return wanted


def argument_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="laas-opensm-tables",
        description="Print blocks of forwarding tables; reads lines 'LID BLOCK' from its input.",
    )
    parser.add_argument("--version", action=ShowVersion)
    parser.add_argument(
        "directory",
        type=Path,
        nargs="?",
        help="the published set: DIRECTORY/FABRIC/current; finds switches without a route",
    )
    add_port_arguments(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())

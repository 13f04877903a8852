# SPDX-License-Identifier: Apache-2.0

"""Arguments of the commands that all command lines share; ``calls`` reads them."""

from __future__ import annotations

import argparse


def fabric(parser: argparse.ArgumentParser, option: bool = False) -> None:
    help = "needed where there are several"
    if option:
        parser.add_argument("--fabric", help=help)
    else:
        parser.add_argument("fabric", nargs="?", help=help)


def leaf(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("switch", metavar="LEAF", help="its GUID, or its name")
    fabric(parser, option=True)


def constraints(parser: argparse.ArgumentParser) -> None:
    """What hosts must be like and where they may be."""
    add = parser.add_argument_group("constraints").add_argument
    add("--trait", action="append", help="every host has it; may be repeated")
    add("--avoid-host", action="append", metavar="NAME", help="administrators; may be repeated")
    add(
        "--avoid-pod",
        action="append",
        type=int,
        metavar="POD",
        help="administrators; may be repeated",
    )
    add("--within", choices=("leaf", "pod"), help="all hosts in one")
    add("--spread", type=int, metavar="PODS", help="hosts in at least so many pods")
    add("--max-host-cost", type=int, metavar="COST", help="no host is dearer")


def fit(parser: argparse.ArgumentParser) -> None:
    """What the question is about; how many hosts says the caller."""
    parser.add_argument("--policy", help="default the site's")
    parser.add_argument("--parent", metavar="ALLOCATION", help="inside this container")
    constraints(parser)


def plane(parser: argparse.ArgumentParser) -> None:
    """Which links are withheld for shared traffic."""
    parser.add_argument("--l2", type=int, action="append", default=[], metavar="INDEX")
    parser.add_argument("--spines", type=int, action="append", default=[], metavar="INDEX")
    parser.add_argument("--none", action="store_true", help="give everything back")
    parser.add_argument("--dry-run", action="store_true", help="what would it cost?")


def create(parser: argparse.ArgumentParser) -> None:
    """Everything but name, project and how long to wait."""
    parser.add_argument("--hosts", type=int, required=True, help="how many")
    parser.add_argument("--policy", help="default the site's")
    parser.add_argument("--fabric", help="default the site's")
    constraints(parser)
    parser.add_argument(
        "--cheapest",
        action="store_true",
        default=None,
        help="hosts that cost least together, of all legal placements",
    )
    parser.add_argument(
        "--container", action="store_true", help="hold hosts and links for allocations inside"
    )
    parser.add_argument("--parent", metavar="ALLOCATION", help="the container to be inside")
    parser.add_argument("--queue", action="store_true", help="wait in the queue for room")
    parser.add_argument(
        "--duration", type=float, metavar="SECONDS", help="how long it is expected to last"
    )
    parser.add_argument("--dry-run", action="store_true", help="what would be given?")
    parser.add_argument("--key", help="idempotency key; default a fresh one")


def listing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--state", help="default all that are not released")
    parser.add_argument("--fabric", help="default all")


def delete(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--force", action="store_true", help="although servers still run there")

# SPDX-License-Identifier: Apache-2.0

"""``laas``: command line client of the REST interface.

Exit status 0: done. 1: the service refused or could not be reached. 2: the command
line was wrong.
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from keystoneauth1 import loading, token_endpoint
from keystoneauth1.adapter import Adapter
from keystoneauth1.exceptions import ClientException
from keystoneauth1.noauth import NoAuth
from rich.console import Console
from rich.table import Table
from rich.text import Text

from laas_service.client import calls, options
from laas_service.client.formatting import BULKY, COLUMNS, brief, printable
from laas_service.client.options import Command, argument
from laas_service.client.rest import SERVICE_TYPE, Refused, Rest
from laas_service.version import ShowVersion

ENDPOINT = "http://127.0.0.1:8780"
"""Default address of ``laas-api --all-in-one``."""


def show(result: Any, listed: str, console: Console) -> None:
    """Print a list as a table, and one resource as its fields."""
    if isinstance(result, list):
        columns = COLUMNS[listed]
        table = Table(*(column.replace("_", " ") for column in columns), box=None)
        for item in result:
            table.add_row(*(Text(brief(item.get(column))) for column in columns))
    else:
        table = Table("field", "value", box=None, show_header=False)
        hidden = BULKY if "links" in result else ()
        for key, value in result.items():
            if key not in hidden:
                table.add_row(key.replace("_", " "), Text(brief(value)))
    console.print(table)


def _states(noun: str, **effects: str) -> tuple[Command, ...]:
    """A verb for each effect on a host or a link."""
    arguments = {"host": options.HOST, "link": options.LINK}[noun]
    return tuple(
        Command(name, calls.host_state, f"{effect}; an owner keeps the {noun}", arguments)
        for name, effect in effects.items()
    )


ALLOCATION = argument("allocation", help="id or name of the allocation")
WAIT = argument(
    "--wait",
    type=float,
    metavar="SECONDS",
    help="wait at most SECONDS until the change is complete",
)

FABRIC_VERBS = (
    Command("list", calls.fabric_list, "list fabrics", (), "fabrics"),
    Command(
        "show",
        calls.fabric_show,
        "show the shape and the counts of hosts and links",
        options.FABRIC,
    ),
    Command(
        "delete",
        calls.fabric_delete,
        "stop managing a fabric; refused while allocations live there",
        (argument("fabric", help="id of the fabric"),),
    ),
    Command("utilization", calls.fabric_part, "show how much is in use", options.FABRIC),
    Command(
        "routing",
        calls.fabric_part,
        "show the desired generation of the routes, and the one that is confirmed, and by what",
        options.FABRIC,
    ),
    Command(
        "idle",
        calls.fabric_idle,
        "list links and switches that may be powered down",
        options.FABRIC,
    ),
    Command(
        "fit",
        calls.fabric_fit,
        "show whether a number of hosts fits now",
        (argument("hosts", type=int, help="number of hosts"), *options.FIT, *options.FABRIC),
    ),
    Command(
        "map",
        calls.fabric_map,
        "write a page that shows the fabric: who owns which cable, the queue, faults",
        (*options.MAP, *options.FABRIC),
    ),
    Command(
        "make-room",
        calls.fabric_make_room,
        "move tenants who consent so that a number of hosts fits",
        (
            argument("hosts", type=int, metavar="HOSTS", help="number of hosts that should fit"),
            *options.MAKE_ROOM,
            *options.FABRIC_OPTION,
        ),
    ),
    Command(
        "plane",
        calls.fabric_plane,
        "show or change the links withheld from tenants for shared traffic",
        (*options.PLANE, *options.FABRIC_OPTION),
    ),
    Command(
        "hosts",
        calls.fabric_inventory,
        "list hosts with state and owner",
        options.HOSTS,
        "hosts",
    ),
    Command(
        "links",
        calls.fabric_inventory,
        "list links with state and owner",
        options.LINKS,
        "links",
    ),
    Command(
        "observation",
        calls.fabric_observation,
        "show observed faults; choose what observation may change; acknowledge its alarm",
        options.OBSERVATION,
    ),
    Command(
        "agents",
        calls.fabric_agents,
        "list OpenSM agents and their last reports",
        options.FABRIC,
        "agents",
    ),
    Command(
        "switches",
        calls.fabric_inventory,
        "list switches and their positions",
        options.SWITCHES,
        "switches",
    ),
)

ALLOCATION_VERBS = (
    Command(
        "create",
        calls.allocation_create,
        "create an allocation of hosts and links",
        (
            argument("--name", required=True, help="name of the allocation"),
            argument("--project-id", help="id of the owning project (administrators only)"),
            *options.CREATE,
            WAIT,
        ),
    ),
    Command(
        "list",
        calls.allocation_list,
        "list allocations",
        (
            *options.LISTING,
            argument("--project-id", help="list allocations of this project only"),
        ),
        "allocations",
    ),
    Command(
        "show", calls.allocation_show, "show an allocation with its latest history", (ALLOCATION,)
    ),
    Command(
        "draw",
        calls.allocation_draw,
        "write a drawing of an allocation's own tree",
        (ALLOCATION, *options.DRAW),
    ),
    Command(
        "history",
        calls.allocation_history,
        "list the history of an allocation, oldest entry first",
        (ALLOCATION,),
        "history",
    ),
    Command(
        "ranks",
        calls.allocation_ranks,
        "print the order of hosts that the tables are made for, as a file for MPI or NCCL",
        (ALLOCATION, *options.RANKS),
    ),
    Command(
        "rename",
        calls.allocation_rename,
        "rename an allocation",
        (ALLOCATION, argument("name", help="new name")),
    ),
    Command(
        "consent",
        calls.allocation_consent,
        "say whether an allocation may move to make room for others",
        (ALLOCATION, *options.CONSENT),
    ),
    Command(
        "resize",
        calls.allocation_resize,
        "change the number of hosts of an allocation where it is",
        (ALLOCATION, *options.RESIZE, WAIT),
    ),
    Command(
        "replace-hosts",
        calls.allocation_replace_hosts,
        "give an allocation other hosts in place of those that have failed",
        (ALLOCATION, *options.REPLACE_HOSTS, WAIT),
    ),
    Command(
        "repair",
        calls.allocation_step,
        "replace failed links by free ones",
        (ALLOCATION, WAIT),
    ),
    Command(
        "retry",
        calls.allocation_step,
        "retry the next step now, even after an error",
        (ALLOCATION, WAIT),
    ),
    Command(
        "delete",
        calls.allocation_delete,
        "delete an allocation and free its hosts and links",
        (ALLOCATION, *options.DELETE, WAIT),
    ),
)

QUOTA_VERBS = (
    Command(
        "show",
        calls.quota_show,
        "show limits and use",
        (
            argument(
                "--project-id", help="id of another project than your own (administrators only)"
            ),
        ),
    ),
)

HOST_VERBS = (
    Command(
        "drain",
        calls.host_drain,
        "give the host to no new owner; an owner keeps it, or moves with --move",
        (argument("name", help="host to change"), *options.EVACUATE, *options.FABRIC_OPTION),
    ),
    *_states(
        "host",
        fail="mark the host failed",
        repair="mark the host usable",
    ),
    Command(
        "set",
        calls.host_set,
        "set traits and cost of a host; options left out change nothing",
        options.HOST_SET,
    ),
    Command(
        "confirm-empty",
        calls.host_confirm_empty,
        "say that a host in quarantine runs no server",
        options.CONFIRM_EMPTY,
    ),
)

SWITCH_VERBS = (
    Command(
        "show",
        calls.leaf_show,
        "show a switch and the allocations that hold hosts or links there",
        options.SWITCH,
    ),
    Command(
        "drain",
        calls.leaf_drain,
        "drain a leaf: free hosts get no new owner; owners keep their hosts, or move with --move",
        (*options.SWITCH, *options.EVACUATE),
    ),
    Command(
        "maintain",
        calls.leaf_state,
        "put a switch under maintenance: nobody new gets its links, owners move away if they can",
        options.SWITCH,
    ),
    Command(
        "fail",
        calls.leaf_state,
        "mark a switch failed, with its links and, for a leaf, its hosts",
        options.SWITCH,
    ),
    Command(
        "repair",
        calls.leaf_state,
        "take back a fail or a maintenance of the switch; else the drain of a leaf",
        options.SWITCH,
    ),
)

LINK_VERBS = (
    Command("show", calls.link_show, "show a link with its state and owner", options.LINK),
    *_states("link", fail="mark the link failed", repair="mark the link usable"),
)

NOUNS: Mapping[str, tuple[str, Sequence[Command]]] = {
    "fabric": ("show and delete fabrics, show their hosts, links and routes", FABRIC_VERBS),
    "allocation": ("create, show, change and delete allocations", ALLOCATION_VERBS),
    "quota": ("show a project's quota", QUOTA_VERBS),
    "host": ("drain a host, mark it failed or usable, set its traits and cost", HOST_VERBS),
    "switch": ("show, drain, maintain, fail or repair a switch", SWITCH_VERBS),
    "link": ("show a link, mark it failed or usable", LINK_VERBS),
}
"""All commands by noun, and what each noun's commands do."""


VIEW = Command("view", calls.view, "serve the page of a fabric on this machine", options.VIEW)
"""The command without a noun."""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="laas", description="Command line client of Links as a Service."
    )
    top.add_argument("--version", action=ShowVersion)
    _common(top, first=True)
    nouns = top.add_subparsers(dest="noun", required=True, metavar="WHAT")
    for noun, (purpose, commands) in NOUNS.items():
        verbs = nouns.add_parser(noun, help=purpose, description=purpose).add_subparsers(
            dest="verb", required=True, metavar="VERB"
        )
        for verb in commands:
            _command(verbs, verb)
    _command(nouns, VIEW)
    return top


def _command(subparsers: Any, command: Command) -> None:
    made = subparsers.add_parser(command.name, help=command.help, description=command.help)
    made.set_defaults(act=command.run, listed=command.listed)
    _common(made)
    for add in command.arguments:
        add(made)


def _common(parser: argparse.ArgumentParser, first: bool = False) -> None:
    """Options accepted before and after the verb; only those before it have defaults."""
    env = os.environ.get

    def default(value: Any) -> Any:
        return value if first else argparse.SUPPRESS

    parser.add_argument(
        "--endpoint",
        default=default(env("LAAS_ENDPOINT")),
        help=f"URL of the service; default: LAAS_ENDPOINT, the catalogue, or {ENDPOINT}",
    )
    parser.add_argument(
        "--token",
        default=default(env("OS_TOKEN")),
        help="Keystone token; default: OS_TOKEN, or a login with OS_AUTH_URL, OS_USERNAME, ...",
    )
    parser.add_argument(
        "--json", action="store_true", default=default(False), help="print the answer as JSON"
    )


def adapter(args: argparse.Namespace) -> Adapter:
    """An adapter for the service: with a token, with Keystone's OS_ variables, or with neither."""
    session = loading.session.Session().load_from_options(cacert=os.environ.get("OS_CACERT"))
    auth: Any
    if args.token:
        auth = token_endpoint.Token(args.endpoint or ENDPOINT, args.token)
    elif os.environ.get("OS_AUTH_URL") or os.environ.get("OS_AUTH_TYPE"):
        variables = argparse.ArgumentParser(add_help=False)
        loading.register_auth_argparse_arguments(variables, [], default="password")
        auth = loading.load_auth_from_argparse_arguments(variables.parse_args([]))
    else:
        auth = NoAuth(args.endpoint or ENDPOINT)
    return Adapter(
        session,
        auth=auth,
        service_type=SERVICE_TYPE,
        interface=os.environ.get("OS_INTERFACE"),
        endpoint_override=args.endpoint,
        region_name=os.environ.get("OS_REGION_NAME"),
        user_agent="laas",
    )


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    try:
        result = args.act(Rest(adapter(args)), args)
    except (Refused, ClientException) as error:
        print(printable(f"laas: {error}"), file=sys.stderr)
        return 1
    if isinstance(result, str):
        print(printable(result), end="")
    elif args.json:
        print(json.dumps(result, indent=2))
    else:
        show(result, args.listed, Console(width=None if sys.stdout.isatty() else 200))
    return 0


if __name__ == "__main__":
    sys.exit(main())

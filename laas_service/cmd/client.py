# SPDX-License-Identifier: Apache-2.0

"""``laas``: command line client of the REST interface.

Exit status 0: done. 1: the service refused or could not be reached. 2: the command
line was wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keystoneauth1 import loading, token_endpoint
from keystoneauth1.adapter import Adapter
from keystoneauth1.exceptions import ClientException
from keystoneauth1.noauth import NoAuth
from rich.console import Console
from rich.table import Table
from rich.text import Text

from laas_service.client import calls, options
from laas_service.client.formatting import BULKY, COLUMNS, brief
from laas_service.client.rest import SERVICE_TYPE, Refused, Rest

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


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="laas", description="Command line client of Links as a Service."
    )
    _common(top, first=True)
    nouns = top.add_subparsers(dest="noun", required=True, metavar="WHAT")
    _fabric(_noun(nouns, "fabric", "show fabrics, their hosts, links and routes"))
    _allocation(_noun(nouns, "allocation", "create, show, change and delete allocations"))
    quota = _noun(nouns, "quota", "show a project's quota")
    quota_show = _verb(quota, "show", calls.quota_show, "show limits and use")
    quota_show.add_argument(
        "--project-id", help="id of another project than your own (administrators only)"
    )
    host = _noun(nouns, "host", "drain a host, mark it failed or usable, set its traits and cost")
    _state(
        host,
        "host",
        {
            "drain": "give the host to no new owner",
            "fail": "mark the host failed",
            "repair": "mark the host usable",
        },
    )
    _describe(
        _verb(
            host,
            "set",
            calls.host_set,
            "set traits and cost of a host; options left out change nothing",
        )
    )
    switch = _noun(nouns, "switch", "show, drain or undrain a leaf switch")
    for name, act, help in (
        ("show", calls.leaf_show, "show the hosts of a leaf and the allocations on them"),
        (
            "drain",
            calls.leaf_state,
            "drain a leaf: free hosts get no new owner; owners keep their hosts",
        ),
        ("repair", calls.leaf_state, "undrain the hosts that draining the leaf drained"),
    ):
        options.leaf(_verb(switch, name, act, help))
    _state(
        _noun(nouns, "link", "mark a link failed or usable"),
        "link",
        {"fail": "mark the link failed", "repair": "mark the link usable"},
    )
    return top


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


def _noun(nouns: Any, name: str, help: str) -> Any:
    return nouns.add_parser(name, help=help, description=help).add_subparsers(
        dest="verb", required=True, metavar="VERB"
    )


def _verb(
    verbs: Any,
    name: str,
    act: Callable[[Rest, argparse.Namespace], Any],
    help: str,
    listed: str = "",
) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = verbs.add_parser(name, help=help, description=help)
    command.set_defaults(act=act, listed=listed)
    _common(command)
    return command


def _fabric(verbs: Any) -> None:
    _verb(verbs, "list", calls.fabric_list, "list fabrics", "fabrics")
    for name, act, help in (
        ("show", calls.fabric_show, "show the shape and the counts of hosts and links"),
        ("utilization", calls.fabric_utilization, "show how much is in use"),
        (
            "routing",
            calls.fabric_routing,
            "show the desired generation of the routes, and the one that switches run",
        ),
        ("idle", calls.fabric_idle, "list links and switches that may be powered down"),
    ):
        options.fabric(_verb(verbs, name, act, help))
    fit = _verb(verbs, "fit", calls.fabric_fit, "show whether a number of hosts fits now")
    fit.add_argument("hosts", type=int, help="number of hosts")
    options.fit(fit)
    options.fabric(fit)
    plane = _verb(
        verbs,
        "plane",
        calls.fabric_plane,
        "show or change the links withheld from tenants for shared traffic",
    )
    options.plane(plane)
    options.fabric(plane, option=True)
    for name, states in (("hosts", ("up", "drained", "failed")), ("links", ("up", "failed"))):
        help = f"list {name} with state and owner"
        inventory = _verb(verbs, name, calls.fabric_inventory, help, name)
        inventory.add_argument("--state", choices=states, help=f"list {name} in this state only")
        inventory.add_argument(
            "--owner", metavar="ALLOCATION", help=f"list {name} of this allocation only (id)"
        )
        inventory.add_argument(
            "--free", action="store_true", default=None, help=f"list free {name} only"
        )
        options.fabric(inventory)
        if name == "hosts":
            inventory.add_argument("--trait", help="list hosts with this trait only")
        if name == "links":
            inventory.add_argument(
                "--kind", choices=("leaf", "spine"), help="list links of this level only"
            )
    agents = _verb(
        verbs, "agents", calls.fabric_agents, "list OpenSM agents and their last reports", "agents"
    )
    options.fabric(agents)
    switches = _verb(
        verbs, "switches", calls.fabric_inventory, "list switches and their positions", "switches"
    )
    switches.add_argument(
        "--level", type=int, choices=(1, 2, 3), help="list switches of this level only"
    )
    options.fabric(switches)


def _allocation(verbs: Any) -> None:
    create = _verb(
        verbs, "create", calls.allocation_create, "create an allocation of hosts and links"
    )
    create.add_argument("--name", required=True, help="name of the allocation")
    create.add_argument("--project-id", help="id of the owning project (administrators only)")
    options.create(create)
    _wait(create)
    listing = _verb(verbs, "list", calls.allocation_list, "list allocations", "allocations")
    options.listing(listing)
    listing.add_argument("--project-id", help="list allocations of this project only")
    for name, act, help in (
        ("show", calls.allocation_show, "show an allocation with its latest history"),
        (
            "history",
            calls.allocation_history,
            "list the history of an allocation, oldest entry first",
        ),
    ):
        _allocation_argument(_verb(verbs, name, act, help, "history"))
    rename = _verb(verbs, "rename", calls.allocation_rename, "rename an allocation")
    _allocation_argument(rename)
    rename.add_argument("name", help="new name")
    repair = _verb(verbs, "repair", calls.allocation_repair, "replace failed links by free ones")
    _allocation_argument(repair)
    _wait(repair)
    retry = _verb(
        verbs, "retry", calls.allocation_retry, "retry the next step now, even after an error"
    )
    _allocation_argument(retry)
    _wait(retry)
    delete = _verb(
        verbs,
        "delete",
        calls.allocation_delete,
        "delete an allocation and free its hosts and links",
    )
    _allocation_argument(delete)
    options.delete(delete)
    _wait(delete)


def _allocation_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("allocation", help="id or name of the allocation")


def _wait(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wait",
        type=float,
        metavar="SECONDS",
        help="wait at most SECONDS until the change is complete",
    )


def _state(verbs: Any, noun: str, effects: Mapping[str, str]) -> None:
    for name, effect in effects.items():
        command = _verb(verbs, name, calls.host_state, f"{effect}; an owner keeps the {noun}")
        command.add_argument("name", help=f"{noun} to change")
        options.fabric(command, option=True)


def _describe(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", help="host to change")
    traits = command.add_mutually_exclusive_group()
    traits.add_argument(
        "--trait", action="append", help="trait of the host, replacing all others; may be repeated"
    )
    traits.add_argument("--no-traits", action="store_true", help="remove all traits")
    command.add_argument("--cost", type=int, help="cost of the host, a number in any unit")
    options.fabric(command, option=True)


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
        print(f"laas: {error}", file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps(result, indent=2))
    else:
        show(result, args.listed, Console(width=None if sys.stdout.isatty() else 200))
    return 0


if __name__ == "__main__":
    sys.exit(main())

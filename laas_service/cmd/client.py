# SPDX-License-Identifier: Apache-2.0

"""``laas``: the service from a terminal, over REST.

Exit status 0: done. 1: the service refused or could not be reached. 2: the command
line was wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from keystoneauth1 import loading, token_endpoint
from keystoneauth1.adapter import Adapter
from keystoneauth1.exceptions import ClientException
from keystoneauth1.noauth import NoAuth
from rich.console import Console
from rich.table import Table
from rich.text import Text

from laas_service.client import calls, options
from laas_service.client.rest import SERVICE_TYPE, Refused, Rest
from laas_service.client.shown import BULKY, COLUMNS, brief

ENDPOINT = "http://127.0.0.1:8780"
"""Where the embedded service listens."""


def show(result: Any, listed: str, console: Console) -> None:
    """A list as a table, one thing as its fields."""
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
    top = argparse.ArgumentParser(prog="laas", description="Links as a Service from a terminal.")
    _common(top, first=True)
    nouns = top.add_subparsers(dest="noun", required=True, metavar="WHAT")
    _fabric(_noun(nouns, "fabric", "what is managed and how it stands"))
    _allocation(_noun(nouns, "allocation", "a tenant's hosts and links"))
    quota = _noun(nouns, "quota", "what a project may have and has")
    shown = _verb(quota, "show", calls.quota_show, "limits and use")
    shown.add_argument("--project-id", help="another than the own: administrators")
    host = _noun(nouns, "host", "an operator's word on a host")
    _state(host, ("drain", "fail", "repair"))
    _describe(_verb(host, "set", calls.host_set, "say what it is like; what is left out stays"))
    switch = _noun(nouns, "switch", "a leaf as a whole, and who is on it")
    for name, act, help in (
        ("show", calls.leaf_show, "its hosts, and the allocations still there"),
        ("drain", calls.leaf_state, "nothing new on its hosts; owners keep what they have"),
        ("repair", calls.leaf_state, "undrain the hosts that its drain drained"),
    ):
        options.leaf(_verb(switch, name, act, help))
    _state(_noun(nouns, "link", "an operator's word on a link"), ("fail", "repair"))
    return top


def _common(parser: argparse.ArgumentParser, first: bool = False) -> None:
    """Options that may stand before or after the verb; only the first place has defaults."""
    env = os.environ.get

    def default(value: Any) -> Any:
        return value if first else argparse.SUPPRESS

    parser.add_argument(
        "--endpoint",
        default=default(env("LAAS_ENDPOINT")),
        help=f"the service's address; default LAAS_ENDPOINT, the catalogue's, or {ENDPOINT}",
    )
    parser.add_argument(
        "--token",
        default=default(env("OS_TOKEN")),
        help="a token; default OS_TOKEN, or a login with OS_AUTH_URL, OS_USERNAME, ...",
    )
    parser.add_argument(
        "--json", action="store_true", default=default(False), help="the answer as it came"
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
    made: argparse.ArgumentParser = verbs.add_parser(name, help=help, description=help)
    made.set_defaults(act=act, listed=listed)
    _common(made)
    return made


def _fabric(verbs: Any) -> None:
    _verb(verbs, "list", calls.fabric_list, "all fabrics", "fabrics")
    for name, act, help in (
        ("show", calls.fabric_show, "shape and counts"),
        ("utilization", calls.fabric_utilization, "how much is in use"),
        ("routing", calls.fabric_routing, "generation wanted and seen in the switches"),
        ("idle", calls.fabric_idle, "links and switches that may be turned down"),
    ):
        options.fabric(_verb(verbs, name, act, help))
    fit = _verb(verbs, "fit", calls.fabric_fit, "would so many hosts fit now?")
    fit.add_argument("hosts", type=int)
    options.fit(fit)
    options.fabric(fit)
    plane = _verb(
        verbs, "plane", calls.fabric_plane, "links withheld from tenants for shared traffic"
    )
    options.plane(plane)
    options.fabric(plane, option=True)
    for name, states in (("hosts", ("up", "drained", "failed")), ("links", ("up", "failed"))):
        listed = _verb(verbs, name, calls.fabric_inventory, f"{name} with state and owner", name)
        listed.add_argument("--state", choices=states)
        listed.add_argument("--owner", metavar="ALLOCATION")
        listed.add_argument("--free", action="store_true", default=None)
        options.fabric(listed)
        if name == "hosts":
            listed.add_argument("--trait")
        if name == "links":
            listed.add_argument("--kind", choices=("leaf", "spine"))
    agents = _verb(verbs, "agents", calls.fabric_agents, "what agents see of OpenSM", "agents")
    options.fabric(agents)
    switches = _verb(
        verbs, "switches", calls.fabric_inventory, "switches and their places", "switches"
    )
    switches.add_argument("--level", type=int, choices=(1, 2, 3))
    options.fabric(switches)


def _allocation(verbs: Any) -> None:
    create = _verb(verbs, "create", calls.allocation_create, "ask for hosts and links")
    create.add_argument("--name", required=True)
    create.add_argument("--project-id", help="administrators may name any")
    options.create(create)
    _wait(create)
    listed = _verb(verbs, "list", calls.allocation_list, "allocations", "allocations")
    options.listing(listed)
    listed.add_argument("--project-id")
    for name, act, help in (
        ("show", calls.allocation_show, "one with its newest history"),
        ("history", calls.allocation_history, "what happened to one, from the beginning"),
    ):
        shown = _verb(verbs, name, act, help, "history")
        shown.add_argument("allocation", help="an id, or a name")
    rename = _verb(verbs, "rename", calls.allocation_rename, "another name")
    rename.add_argument("allocation")
    rename.add_argument("name")
    repair = _verb(verbs, "repair", calls.allocation_repair, "other links for the failed ones")
    repair.add_argument("allocation", help="an id, or a name")
    _wait(repair)
    retry = _verb(verbs, "retry", calls.allocation_retry, "its next step now, also from error")
    retry.add_argument("allocation", help="an id, or a name")
    _wait(retry)
    delete = _verb(verbs, "delete", calls.allocation_delete, "give everything back")
    delete.add_argument("allocation", help="an id, or a name")
    options.delete(delete)
    _wait(delete)


def _wait(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--wait", type=float, metavar="SECONDS", help="until it is done")


def _state(verbs: Any, names: Sequence[str]) -> None:
    for name in names:
        one = _verb(verbs, name, calls.host_state, f"{name} it; its owner, if any, keeps it")
        one.add_argument("name")
        options.fabric(one, option=True)


def _describe(one: argparse.ArgumentParser) -> None:
    one.add_argument("name")
    traits = one.add_mutually_exclusive_group()
    traits.add_argument(
        "--trait", action="append", help="these it has and no other; may be repeated"
    )
    traits.add_argument("--no-traits", action="store_true", help="it has none any more")
    one.add_argument("--cost", type=int, help="what it costs, in any unit")
    options.fabric(one, option=True)


def adapter(args: argparse.Namespace) -> Adapter:
    """A session to the service: with a token, with Keystone's OS_ variables, or with neither."""
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

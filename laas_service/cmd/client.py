# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

"""``laas``: the service from a terminal, over REST.

Exit status 0: done. 1: the service refused or could not be reached. 2: the command
line was wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

from keystoneauth1 import loading, token_endpoint
from keystoneauth1.adapter import Adapter
from keystoneauth1.exceptions import ClientException
from keystoneauth1.noauth import NoAuth
from rich.console import Console
from rich.table import Table
from rich.text import Text

ENDPOINT = "http://127.0.0.1:8780"
"""Where the embedded service listens."""

MOVING = ("queued", "allocating", "releasing")
"""States that change by themselves."""

LOOK = 0.5
"""Seconds between two looks at an allocation that is waited for."""

Row = Mapping[str, Any]


class Refused(Exception):
    """The service said no, in a sentence."""


class Rest:
    """The service's resources; every answer that is a problem becomes ``Refused``."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        given = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        try:
            answer = self._adapter.request(
                path,
                method,
                params=given,
                json=body,
                headers=dict(headers or {}),
                raise_exc=False,
                connect_retries=2,
            )
        except ClientException as error:
            raise Refused(f"the service could not be asked: {error}") from error
        if answer.status_code >= 400:
            raise Refused(_sentence(answer))
        return answer.json()

    def get(self, path: str, **query: Any) -> Any:
        return self.call("GET", path, query)

    def listed(self, path: str, key: str, **query: Any) -> Iterator[Any]:
        """The items of all pages."""
        while True:
            page = self.get(path, **query)
            yield from page[key]
            if page["next"] is None:
                return
            path, query = _relative(page["next"]), {}

    def fabric(self, named: str | None) -> str:
        """The path of the fabric named, or of the only one."""
        if named is None:
            known = [fabric["id"] for fabric in self.listed("/v1/fabrics", "fabrics")]
            if len(known) != 1:
                raise Refused(f"name one of these with --fabric: {', '.join(known) or 'none'}")
            (named,) = known
        return f"/v1/fabrics/{quote(named, safe='')}"

    def allocation(self, named: str) -> Any:
        """The allocation of this id, or else the only live one of this name."""
        known = list(self.listed("/v1/allocations", "allocations"))
        found = [one for one in known if one["name"] == named]
        if any(one["id"] == named for one in known) or not found:
            return self.get(f"/v1/allocations/{quote(named, safe='')}")
        if len(found) > 1:
            ids = ", ".join(one["id"] for one in found)
            raise Refused(f"several allocations are called {named}; use an id: {ids}")
        return self.get(f"/v1/allocations/{found[0]['id']}")

    def settled(self, allocation: Any, seconds: float) -> Any:
        """The allocation when it has stopped changing.

        Raises:
            Refused: it ended in error, or is not done after ``seconds``.
        """
        until = time.monotonic() + seconds
        while allocation["state"] in MOVING or allocation["changing"]:
            if time.monotonic() >= until:
                doing = "changing" if allocation["changing"] else allocation["state"]
                raise Refused(
                    f"allocation {allocation['id']} is still {doing} after "
                    f"{seconds:g} s{_because(allocation)}; it goes on without you"
                )
            time.sleep(LOOK)
            allocation = self.get(f"/v1/allocations/{allocation['id']}")
        if allocation["state"] == "error":
            raise Refused(f"allocation {allocation['id']} failed{_because(allocation)}")
        return allocation


def _because(allocation: Row) -> str:
    waits = allocation["waits_for"]
    why = allocation["error"] or (waits and waits["detail"])
    return f": {why}" if why else ""


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _relative(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}"


def _sentence(answer: Any) -> str:
    """A problem document as one sentence, or what else came back."""
    try:
        problem = answer.json()
        text = f"{problem['detail']} ({problem['code']})"
    except (ValueError, KeyError, TypeError):
        return f"{answer.url} answered {answer.status_code} {answer.reason}"
    if problem.get("largest_fit"):
        text += f"; the largest that would fit now is {problem['largest_fit']}"
    room = problem.get("room") or {"releases": (), "undrain": ()}
    if room["releases"]:
        text += f"; room would be made by releasing {', '.join(room['releases'])}"
    if room["undrain"]:
        text += f"; room would be made by repairing drained hosts {_brief(room['undrain'])}"
    return text


# -- verbs ------------------------------------------------------------------------


def fabric_list(rest: Rest, args: argparse.Namespace) -> Any:
    return list(rest.listed("/v1/fabrics", "fabrics"))


def fabric_show(rest: Rest, args: argparse.Namespace) -> Any:
    return rest.get(rest.fabric(args.fabric))


def fabric_utilization(rest: Rest, args: argparse.Namespace) -> Any:
    return rest.get(f"{rest.fabric(args.fabric)}/utilization")


def fabric_routing(rest: Rest, args: argparse.Namespace) -> Any:
    return rest.get(f"{rest.fabric(args.fabric)}/routing")


def fabric_idle(rest: Rest, args: argparse.Namespace) -> Any:
    return rest.get(f"{rest.fabric(args.fabric)}/idle")


def fabric_fit(rest: Rest, args: argparse.Namespace) -> Any:
    query = {
        name: ",".join(map(str, value)) if isinstance(value, list) else value
        for name, value in _constraints(args).items()
    }
    path = f"{rest.fabric(args.fabric)}/fit"
    return rest.get(path, hosts=args.hosts, policy=args.policy, **query)


def fabric_inventory(rest: Rest, args: argparse.Namespace) -> Any:
    query = {
        name: getattr(args, name, None)
        for name in ("state", "owner", "free", "trait", "kind", "level")
    }
    return list(rest.listed(f"{rest.fabric(args.fabric)}/{args.verb}", args.verb, **query))


def host_state(rest: Rest, args: argparse.Namespace) -> Any:
    state = {"drain": "drained", "fail": "failed", "repair": "up"}[args.verb]
    path = f"{rest.fabric(args.fabric)}/{args.noun}s/{quote(args.name, safe='')}"
    return rest.call("PATCH", path, body={"state": state})


def host_set(rest: Rest, args: argparse.Namespace) -> Any:
    names = {"traits": [] if args.no_traits else args.trait, "cost": args.cost}
    body = {name: value for name, value in names.items() if value is not None}
    path = f"{rest.fabric(args.fabric)}/hosts/{quote(args.name, safe='')}"
    return rest.call("PATCH", path, body=body)


def _constraints(args: argparse.Namespace) -> dict[str, Any]:
    """What was asked of hosts and place, by the service's names."""
    options = {
        "traits": args.trait,
        "avoid_hosts": args.avoid_host,
        "avoid_pods": args.avoid_pod,
        "within": args.within,
        "spread": args.spread,
        "max_host_cost": args.max_host_cost,
        "cheapest": getattr(args, "cheapest", None),
    }
    return {name: value for name, value in options.items() if value is not None}


def allocation_create(rest: Rest, args: argparse.Namespace) -> Any:
    names = ("name", "hosts", "policy", "fabric", "project_id", "duration")
    body = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    if constraints := _constraints(args):
        body["constraints"] = constraints
    if args.queue:
        body["wait"] = True
    if args.dry_run:
        return rest.call("POST", "/v1/allocations", body={**body, "dry_run": True})
    key = {"Idempotency-Key": args.key or str(uuid.uuid4())}
    made = rest.call("POST", "/v1/allocations", {"wait": args.wait}, body, key)
    return made if args.wait is None else rest.settled(made, args.wait)


def allocation_list(rest: Rest, args: argparse.Namespace) -> Any:
    query = {"state": args.state, "fabric": args.fabric, "project_id": args.project_id}
    return list(rest.listed("/v1/allocations", "allocations", **query))


def allocation_show(rest: Rest, args: argparse.Namespace) -> Any:
    return rest.allocation(args.allocation)


def allocation_rename(rest: Rest, args: argparse.Namespace) -> Any:
    path = f"/v1/allocations/{rest.allocation(args.allocation)['id']}"
    return rest.call("PATCH", path, body={"name": args.name})


def allocation_delete(rest: Rest, args: argparse.Namespace) -> Any:
    path = f"/v1/allocations/{rest.allocation(args.allocation)['id']}"
    gone = rest.call("DELETE", path, {"force": args.force or None, "wait": args.wait})
    return gone if args.wait is None else rest.settled(gone, args.wait)


# -- what is shown ------------------------------------------------------------------


def allocation_repair(rest: Rest, args: argparse.Namespace) -> Any:
    path = f"/v1/allocations/{rest.allocation(args.allocation)['id']}/repair"
    mended = rest.call("POST", path, {"wait": args.wait})
    return mended if args.wait is None else rest.settled(mended, args.wait)


COLUMNS: dict[str, tuple[str, ...]] = {
    "fabrics": ("id", "shape", "generation", "created_at"),
    "hosts": ("index", "name", "state", "owner", "traits", "cost", "ports"),
    "links": ("id", "state", "owner", "lower", "upper"),
    "switches": ("guid", "name", "level", "ports", "lid", "positions"),
    "allocations": (
        "id",
        "name",
        "project_id",
        "state",
        "position",
        "requested",
        "shape",
        "policy",
        "degraded",
        "error",
    ),
}
"""The columns of a list, by what is listed."""


def _brief(value: Any) -> str:
    """A value in a few words; the whole of it is in ``--json``."""
    match value:
        case None:
            return "-"
        case {"text": text}:
            return str(text)
        case {"thin": _, "detail": detail}:
            return str(detail)
        case {"m": m, "w": w, "rails": rails}:
            tree = f"XGFT(3; {','.join(map(str, m))}; {','.join(map(str, w))})"
            return tree if rails == 1 else f"{tree}, {rails} rails"
        case {"guid": guid, "port": port}:
            return f"{guid}/{port}"
        case dict():
            return ", ".join(f"{key} {_brief(item)}" for key, item in value.items())
        case [{"rail": _}, *_]:
            return " ".join(f"{p['pod']}:{p['leaf']}:{p['k']}" for p in value)
        case [{"index": _, "name": _}, *_]:
            return " ".join(host["name"] for host in value)
        case [{"guid": _, "name": _}, *_]:
            return " ".join(switch["name"] for switch in value)
        case [{"at": _}, *_]:
            return "\n".join(f"{e['at']} {e['state']}: {e['reason']}" for e in value)
        case list():
            return " ".join(_brief(item) for item in value) or "-"
        case _:
            return str(value)


def show(result: Any, listed: str, console: Console) -> None:
    """A list as a table, one thing as its fields."""
    if isinstance(result, list):
        columns = COLUMNS[listed]
        table = Table(*(column.replace("_", " ") for column in columns), box=None)
        for item in result:
            table.add_row(*(Text(_brief(item[column])) for column in columns))
    else:
        table = Table("field", "value", box=None, show_header=False)
        hidden = ("leaf_links", "spine_links") if "links" in result else ()
        for key, value in result.items():
            if key not in hidden:
                table.add_row(key.replace("_", " "), Text(_brief(value)))
    console.print(table)


# -- the command line -----------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="laas", description="Links as a Service from a terminal.")
    _common(top, first=True)
    nouns = top.add_subparsers(dest="noun", required=True, metavar="WHAT")
    _fabric(_noun(nouns, "fabric", "what is managed and how it stands"))
    _allocation(_noun(nouns, "allocation", "a tenant's hosts and links"))
    host = _noun(nouns, "host", "an operator's word on a host")
    _state(host, ("drain", "fail", "repair"))
    _describe(_verb(host, "set", host_set, "say what it is like; what is left out stays"))
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
        help="a token; default OS_TOKEN, or what the other OS_ variables say",
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
    _verb(verbs, "list", fabric_list, "all fabrics", "fabrics")
    for name, act, help in (
        ("show", fabric_show, "shape and counts"),
        ("utilization", fabric_utilization, "how much is in use"),
        ("routing", fabric_routing, "generation wanted and seen in the switches"),
        ("idle", fabric_idle, "links and switches that may be turned down"),
    ):
        _named_fabric(_verb(verbs, name, act, help))
    fit = _verb(verbs, "fit", fabric_fit, "would so many hosts fit now?")
    fit.add_argument("hosts", type=int)
    fit.add_argument("--policy")
    _constrain(fit)
    _named_fabric(fit)
    for name, states in (("hosts", ("up", "drained", "failed")), ("links", ("up", "failed"))):
        listed = _verb(verbs, name, fabric_inventory, f"{name} with state and owner", name)
        listed.add_argument("--state", choices=states)
        listed.add_argument("--owner", metavar="ALLOCATION")
        listed.add_argument("--free", action="store_true", default=None)
        _named_fabric(listed)
        if name == "hosts":
            listed.add_argument("--trait")
        if name == "links":
            listed.add_argument("--kind", choices=("leaf", "spine"))
    switches = _verb(verbs, "switches", fabric_inventory, "switches and their places", "switches")
    switches.add_argument("--level", type=int, choices=(1, 2, 3))
    _named_fabric(switches)


def _named_fabric(parser: argparse.ArgumentParser, option: bool = False) -> None:
    help = "needed where there are several"
    if option:
        parser.add_argument("--fabric", help=help)
    else:
        parser.add_argument("fabric", nargs="?", help=help)


def _allocation(verbs: Any) -> None:
    create = _verb(verbs, "create", allocation_create, "ask for hosts and links")
    create.add_argument("--name", required=True)
    create.add_argument("--hosts", type=int, required=True)
    create.add_argument("--policy")
    create.add_argument("--fabric")
    create.add_argument("--project-id", help="administrators may name any")
    _constrain(create)
    create.add_argument(
        "--cheapest",
        action="store_true",
        default=None,
        help="hosts that cost least together, of all legal placements",
    )
    create.add_argument("--queue", action="store_true", help="wait in the queue for room")
    create.add_argument(
        "--duration", type=float, metavar="SECONDS", help="how long it is expected to last"
    )
    create.add_argument("--dry-run", action="store_true", help="what would be given?")
    create.add_argument("--key", help="idempotency key; default a fresh one")
    _wait(create)
    listed = _verb(verbs, "list", allocation_list, "allocations", "allocations")
    listed.add_argument("--state", help="default all that are not released")
    listed.add_argument("--fabric")
    listed.add_argument("--project-id")
    _verb(verbs, "show", allocation_show, "one with its history").add_argument("allocation")
    rename = _verb(verbs, "rename", allocation_rename, "another name")
    rename.add_argument("allocation")
    rename.add_argument("name")
    repair = _verb(verbs, "repair", allocation_repair, "other links for the failed ones")
    repair.add_argument("allocation", help="an id, or a name")
    _wait(repair)
    delete = _verb(verbs, "delete", allocation_delete, "give everything back")
    delete.add_argument("allocation", help="an id, or a name")
    delete.add_argument("--force", action="store_true", help="although servers still run there")
    _wait(delete)


def _constrain(parser: argparse.ArgumentParser) -> None:
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


def _wait(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--wait", type=float, metavar="SECONDS", help="until it is done")


def _state(verbs: Any, names: Sequence[str]) -> None:
    for name in names:
        one = _verb(verbs, name, host_state, f"{name} it; its owner, if any, keeps it")
        one.add_argument("name")
        _named_fabric(one, option=True)


def _describe(one: argparse.ArgumentParser) -> None:
    one.add_argument("name")
    traits = one.add_mutually_exclusive_group()
    traits.add_argument(
        "--trait", action="append", help="these it has and no other; may be repeated"
    )
    traits.add_argument("--no-traits", action="store_true", help="it has none any more")
    one.add_argument("--cost", type=int, help="what it costs, in any unit")
    _named_fabric(one, option=True)


def adapter(args: argparse.Namespace) -> Adapter:
    """A session to the service: with a token, with Keystone's OS_ variables, or with neither."""
    session = loading.session.Session().load_from_options()
    auth: Any
    if args.token:
        auth = token_endpoint.Token(args.endpoint or ENDPOINT, args.token)
    elif os.environ.get("OS_AUTH_URL") or os.environ.get("OS_AUTH_TYPE"):
        options = argparse.ArgumentParser(add_help=False)
        loading.register_auth_argparse_arguments(options, [], default="password")
        auth = loading.load_auth_from_argparse_arguments(options.parse_args([]))
    else:
        auth = NoAuth(args.endpoint or ENDPOINT)
    return Adapter(
        session,
        auth=auth,
        service_type="laas",
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

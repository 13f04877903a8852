# SPDX-License-Identifier: Apache-2.0

"""REST calls behind the commands, shared by ``laas`` and ``openstack isolated network``.

Each function reads the arguments that ``options`` adds to a parser, and those that its own
command adds.
"""

from __future__ import annotations

import argparse
import uuid
from typing import Any
from urllib.parse import quote

from laas_service.client import options
from laas_service.client.rest import Refused, Rest


def fabric_list(rest: Rest, args: argparse.Namespace) -> Any:
    return list(rest.listed("/v1/fabrics", "fabrics"))


def fabric_show(rest: Rest, args: argparse.Namespace) -> Any:
    return rest.get(rest.fabric(args.fabric))


def fabric_utilization(rest: Rest, args: argparse.Namespace) -> Any:
    return rest.get(f"{rest.fabric(args.fabric)}/utilization")


def fabric_routing(rest: Rest, args: argparse.Namespace) -> Any:
    return rest.get(f"{rest.fabric(args.fabric)}/routing")


def fabric_agents(rest: Rest, args: argparse.Namespace) -> Any:
    return list(rest.listed(f"{rest.fabric(args.fabric)}/agents", "agents"))


def fabric_idle(rest: Rest, args: argparse.Namespace) -> Any:
    path = f"{rest.fabric(args.fabric)}/idle"
    first_page = rest.get(path)
    links = list(rest.listed(path, "links"))
    return {**first_page, "links": links, "next": None}


def fabric_plane(rest: Rest, args: argparse.Namespace) -> Any:
    path = f"{rest.fabric(args.fabric)}/plane"
    if not (args.l2 or args.spines or args.none):
        return rest.get(path)
    if args.none and (args.l2 or args.spines):
        raise Refused("give --none, or indices, not both")
    body = {"l2": args.l2, "spines": args.spines, "dry_run": args.dry_run}
    return rest.call("PUT", path, body=body)


def fabric_fit(rest: Rest, args: argparse.Namespace) -> Any:
    query = {
        name: ",".join(map(str, value)) if isinstance(value, list) else value
        for name, value in _constraints(args).items()
    }
    if args.parent is not None:
        query["parent"] = rest.allocation(args.parent)["id"]
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


def leaf_show(rest: Rest, args: argparse.Namespace) -> Any:
    return rest.get(f"{rest.fabric(args.fabric)}/switches/{quote(args.switch, safe='')}")


def leaf_state(rest: Rest, args: argparse.Namespace) -> Any:
    state = {"drain": "drained", "repair": "up"}[args.verb]
    path = f"{rest.fabric(args.fabric)}/switches/{quote(args.switch, safe='')}"
    return rest.call("PATCH", path, body={"state": state})


def host_set(rest: Rest, args: argparse.Namespace) -> Any:
    names = {"traits": [] if args.no_traits else args.trait, "cost": args.cost}
    body = {name: value for name, value in names.items() if value is not None}
    path = f"{rest.fabric(args.fabric)}/hosts/{quote(args.name, safe='')}"
    return rest.call("PATCH", path, body=body)


def _constraints(args: argparse.Namespace) -> dict[str, Any]:
    """The constraints that the arguments give, under their names in REST."""
    values = {name: getattr(args, name, None) for name in (*options.CONSTRAINTS, "cheapest")}
    return {name: value for name, value in values.items() if value is not None}


def allocation_create(rest: Rest, args: argparse.Namespace) -> Any:
    names = ("name", "hosts", "policy", "fabric", "project_id", "duration")
    body = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    if constraints := _constraints(args):
        body["constraints"] = constraints
    if args.queue:
        body["wait"] = True
    if args.container:
        body["container"] = True
    if args.parent is not None:
        body["parent"] = rest.allocation(args.parent)["id"]
    if args.dry_run:
        return rest.call("POST", "/v1/allocations", body={**body, "dry_run": True})
    key = {"Idempotency-Key": args.key or str(uuid.uuid4())}
    allocation = rest.call("POST", "/v1/allocations", {"wait": args.wait}, body, key)
    return allocation if args.wait is None else rest.settled(allocation, args.wait)


def allocation_list(rest: Rest, args: argparse.Namespace) -> Any:
    query = {"state": args.state, "fabric": args.fabric, "project_id": args.project_id}
    return list(rest.listed("/v1/allocations", "allocations", **query))


def quota_show(rest: Rest, args: argparse.Namespace) -> Any:
    return rest.get("/v1/quota", project_id=args.project_id)


def allocation_show(rest: Rest, args: argparse.Namespace) -> Any:
    return rest.allocation(args.allocation)


def allocation_history(rest: Rest, args: argparse.Namespace) -> Any:
    id = rest.allocation(args.allocation)["id"]
    return list(rest.listed(f"/v1/allocations/{id}/history", "history"))


def allocation_rename(rest: Rest, args: argparse.Namespace) -> Any:
    path = f"/v1/allocations/{rest.allocation(args.allocation)['id']}"
    return rest.call("PATCH", path, body={"name": args.name})


def allocation_delete(rest: Rest, args: argparse.Namespace) -> Any:
    path = f"/v1/allocations/{rest.allocation(args.allocation)['id']}"
    allocation = rest.call("DELETE", path, {"force": args.force or None, "wait": args.wait})
    return allocation if args.wait is None else rest.settled(allocation, args.wait)


def allocation_retry(rest: Rest, args: argparse.Namespace) -> Any:
    path = f"/v1/allocations/{rest.allocation(args.allocation)['id']}/retry"
    allocation = rest.call("POST", path, {"wait": args.wait})
    return allocation if args.wait is None else rest.settled(allocation, args.wait)


def allocation_repair(rest: Rest, args: argparse.Namespace) -> Any:
    path = f"/v1/allocations/{rest.allocation(args.allocation)['id']}/repair"
    allocation = rest.call("POST", path, {"wait": args.wait})
    return allocation if args.wait is None else rest.settled(allocation, args.wait)

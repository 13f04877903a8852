# SPDX-License-Identifier: Apache-2.0

"""REST calls behind the commands, shared by ``laas`` and ``openstack isolated network``.

Each function reads the arguments that ``options`` adds to a parser, and those that its own
command adds.
"""

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


def fabric_part(rest: Rest, args: argparse.Namespace) -> Any:
    """What the verb names: utilization or routing."""
    return rest.get(f"{rest.fabric(args.fabric)}/{args.verb}")


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


def host_confirm_empty(rest: Rest, args: argparse.Namespace) -> Any:
    path = f"{rest.fabric(args.fabric)}/hosts/{quote(args.name, safe='')}"
    return rest.call("PATCH", path, body={"confirm_empty": True})


def leaf_show(rest: Rest, args: argparse.Namespace) -> Any:
    return rest.get(f"{rest.fabric(args.fabric)}/switches/{quote(args.switch, safe='')}")


def leaf_state(rest: Rest, args: argparse.Namespace) -> Any:
    states = {"drain": "drained", "maintain": "maintenance", "fail": "failed", "repair": "up"}
    state = states[args.verb]
    path = f"{rest.fabric(args.fabric)}/switches/{quote(args.switch, safe='')}"
    return rest.call("PATCH", path, body={"state": state})


def fabric_observation(rest: Rest, args: argparse.Namespace) -> Any:
    path = f"{rest.fabric(args.fabric)}/observation"
    body = _given(mode=args.mode, acknowledge=args.acknowledge or None)
    return rest.call("PATCH", path, body=body) if body else rest.get(path)


def host_set(rest: Rest, args: argparse.Namespace) -> Any:
    body = _given(traits=[] if args.no_traits else args.trait, cost=args.cost)
    path = f"{rest.fabric(args.fabric)}/hosts/{quote(args.name, safe='')}"
    return rest.call("PATCH", path, body=body)


def _given(**values: Any) -> dict[str, Any]:
    """The values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def _constraints(args: argparse.Namespace) -> dict[str, Any]:
    """The constraints that the arguments give, under their names in REST."""
    names = (*options.CONSTRAINTS, "cheapest")
    return _given(**{name: getattr(args, name, None) for name in names})


def allocation_create(rest: Rest, args: argparse.Namespace) -> Any:
    body = _given(
        name=args.name,
        hosts=args.hosts,
        policy=args.policy,
        fabric=args.fabric,
        project_id=args.project_id,
        duration=args.duration,
        constraints=_constraints(args) or None,
        wait=args.queue or None,
        container=args.container or None,
        parent=None if args.parent is None else rest.allocation(args.parent)["id"],
        dry_run=args.dry_run or None,
    )
    if args.dry_run:
        return rest.call("POST", "/v1/allocations", body=body)
    key = {"Idempotency-Key": args.key or str(uuid.uuid4())}
    allocation = rest.call("POST", "/v1/allocations", {"wait": args.wait}, body, key)
    return _settled(rest, args, allocation)


def allocation_list(rest: Rest, args: argparse.Namespace) -> Any:
    query = {"state": args.state, "fabric": args.fabric, "project_id": args.project_id}
    return list(rest.listed("/v1/allocations", "allocations", **query))


def quota_show(rest: Rest, args: argparse.Namespace) -> Any:
    return rest.get("/v1/quota", project_id=args.project_id)


def allocation_show(rest: Rest, args: argparse.Namespace) -> Any:
    return rest.allocation(args.allocation)


def allocation_history(rest: Rest, args: argparse.Namespace) -> Any:
    return list(rest.listed(f"{_allocation(rest, args)}/history", "history"))


def allocation_rename(rest: Rest, args: argparse.Namespace) -> Any:
    return rest.call("PATCH", _allocation(rest, args), body={"name": args.name})


def allocation_delete(rest: Rest, args: argparse.Namespace) -> Any:
    query = {"force": args.force or None, "wait": args.wait}
    return _settled(rest, args, rest.call("DELETE", _allocation(rest, args), query))


def allocation_step(rest: Rest, args: argparse.Namespace) -> Any:
    """Repair or retry, as the verb says."""
    path = f"{_allocation(rest, args)}/{args.verb}"
    return _settled(rest, args, rest.call("POST", path, {"wait": args.wait}))


def _allocation(rest: Rest, args: argparse.Namespace) -> str:
    """The path of the allocation that is named."""
    return f"/v1/allocations/{rest.allocation(args.allocation)['id']}"


def _settled(rest: Rest, args: argparse.Namespace, allocation: Any) -> Any:
    """The allocation; with ``--wait`` once it no longer changes."""
    return allocation if args.wait is None else rest.settled(allocation, args.wait)

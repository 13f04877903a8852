# SPDX-License-Identifier: Apache-2.0

"""REST calls behind the commands, shared by ``laas`` and ``openstack isolated network``.

Each function reads the arguments that ``options`` adds to a parser, and those that its own
command adds.
"""

import argparse
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from laas_service import page
from laas_service.client import options
from laas_service.client.rest import Refused, Rest
from laas_service.client.view import ViewServer


def fabric_list(rest: Rest, args: argparse.Namespace) -> Any:
    return list(rest.listed("/v1/fabrics", "fabrics"))


def fabric_show(rest: Rest, args: argparse.Namespace) -> Any:
    return rest.get(rest.fabric(args.fabric))


def fabric_delete(rest: Rest, args: argparse.Namespace) -> Any:
    return rest.call("DELETE", rest.fabric(args.fabric))


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


def fabric_map(rest: Rest, args: argparse.Namespace) -> Any:
    """Write the page of a fabric into a file; answers what the page shows, in numbers."""
    shown = rest.get(f"{rest.fabric(args.fabric)}/map", hosts=args.hosts, policy=args.policy)
    written(args.html, page.page(shown))
    question = shown["question"]
    return {
        "fabric": shown["fabric"],
        "generation": shown["generation"],
        "tenants": len(shown["tenants"]),
        "waiting": len(shown["queue"]),
        "faults": len(shown["faults"]),
        **({} if question is None else {"fits": question["fits"]}),
        "file": args.html,
    }


def view(rest: Rest, args: argparse.Namespace) -> Any:
    """Serve the page of a fabric on loopback until interrupted."""
    try:
        server = ViewServer(rest, rest.fabric(args.fabric), args.port)
    except OSError as error:
        raise Refused(f"cannot listen on port {args.port}: {error.strerror}") from error
    with server:
        print(server.url, flush=True)
        print("End with Ctrl-C. Whoever knows the address sees this page.", file=sys.stderr)
        server.serve_forever()


def allocation_draw(rest: Rest, args: argparse.Namespace) -> Any:
    """Write the tree of an allocation into an SVG file."""
    allocation = rest.allocation(args.allocation)
    shown = rest.get(f"/v1/fabrics/{quote(allocation['fabric'], safe='')}/map")
    for tenant in shown["tenants"]:
        if tenant["id"] == allocation["id"]:
            written(args.svg, tenant["drawing"] + "\n")
            return {
                **{name: tenant[name] for name in ("id", "name", "hosts")},
                "links": tenant["leaf_links"] + tenant["spine_links"],
                "file": args.svg,
            }
    raise Refused(f"allocation {args.allocation} is {allocation['state']} and holds no hosts")


def written(path: str, text: str) -> None:
    """Write a file for the caller. Raises: Refused."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror}") from error


def host_drain(rest: Rest, args: argparse.Namespace) -> Any:
    """Drain a host; with ``--move`` its tenant moves, too."""
    return _evacuated(rest, args, hosts=[args.name]) or host_state(rest, args)


def leaf_drain(rest: Rest, args: argparse.Namespace) -> Any:
    """Drain a leaf; with ``--move`` its tenants move, too."""
    return _evacuated(rest, args, switch=args.switch) or leaf_state(rest, args)


def _evacuated(rest: Rest, args: argparse.Namespace, **what: Any) -> Any:
    """The answer to an evacuation; None without ``--move``. Raises: Refused."""
    if not args.move:
        if args.override or args.dry_run or args.max_cost is not None:
            raise Refused("--override, --max-cost and --dry-run are for --move")
        return None
    body = _given(
        max_cost=args.max_cost,
        override=args.override or None,
        dry_run=args.dry_run or None,
    )
    return rest.call("POST", f"{rest.fabric(args.fabric)}/evacuate", body={**what, **body})


def host_state(rest: Rest, args: argparse.Namespace) -> Any:
    state = {"drain": "drained", "fail": "failed", "repair": "up"}[args.verb]
    path = f"{rest.fabric(args.fabric)}/{args.noun}s/{quote(args.name, safe='')}"
    return rest.call("PATCH", path, body={"state": state})


def host_confirm_empty(rest: Rest, args: argparse.Namespace) -> Any:
    path = f"{rest.fabric(args.fabric)}/hosts/{quote(args.name, safe='')}"
    return rest.call("PATCH", path, body={"confirm_empty": True})


def link_show(rest: Rest, args: argparse.Namespace) -> Any:
    return rest.get(f"{rest.fabric(args.fabric)}/links/{quote(args.name, safe='')}")


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
        movable=args.movable,
        notice=args.notice,
        move_cost=args.move_cost,
        parent=None if args.parent is None else rest.allocation(args.parent)["id"],
        dry_run=args.dry_run or None,
    )
    if args.dry_run:
        return rest.call("POST", "/v1/allocations", body=body)
    key = {"Idempotency-Key": args.key or str(uuid.uuid4())}
    allocation = rest.call("POST", "/v1/allocations", {"wait": args.wait}, body, key)
    return _settled(rest, args, allocation)


def allocation_list(rest: Rest, args: argparse.Namespace) -> Any:
    query = {
        "state": args.state,
        "fabric": args.fabric,
        "project_id": args.project_id,
        "all_projects": args.all_projects or None,
    }
    return list(rest.listed("/v1/allocations", "allocations", **query))


def quota_show(rest: Rest, args: argparse.Namespace) -> Any:
    return rest.get("/v1/quota", project_id=args.project_id)


def allocation_show(rest: Rest, args: argparse.Namespace) -> Any:
    return rest.allocation(args.allocation)


def allocation_history(rest: Rest, args: argparse.Namespace) -> Any:
    return list(rest.listed(f"{_allocation(rest, args)}/history", "history"))


def allocation_ranks(rest: Rest, args: argparse.Namespace) -> str:
    """The order of hosts that the allocation's tables are made for, as a file for ``args.format``.

    Raises:
        Refused: it holds no hosts yet.
    """
    allocation = rest.allocation(args.allocation)
    names = [host["name"] for host in sorted(allocation["hosts"], key=lambda host: host["rank"])]
    if not names:
        raise Refused(f"{allocation['name']} has no hosts; it is {allocation['state']}")
    return rank_file(args.format, names, args.slots, bool(allocation["rails_joined"]))


def rank_file(form: str, names: Sequence[str], slots: int, rails_joined: bool) -> str:
    """A rank file or host file of Open MPI, or the environment of NCCL, as text.

    Each of ``names`` runs ``slots`` consecutive ranks.
    """
    if form == "openmpi":
        places = ((name, slot) for name in names for slot in range(slots))
        lines = [f"rank {rank}={name} slot={slot}" for rank, (name, slot) in enumerate(places)]
    elif form == "hostfile":
        lines = [f"{name} slots={slots}" for name in names]
    else:
        hosts = ",".join(f"{name}:{slots}" for name in names)
        lines = [f"NCCL_CROSS_NIC={2 if rails_joined else 0}", f"# mpirun --host {hosts}"]
    return "\n".join(lines) + "\n"


def allocation_rename(rest: Rest, args: argparse.Namespace) -> Any:
    return rest.call("PATCH", _allocation(rest, args), body={"name": args.name})


def allocation_consent(rest: Rest, args: argparse.Namespace) -> Any:
    body = _given(movable=args.movable, notice=args.notice, move_cost=args.move_cost)
    return rest.call("PATCH", _allocation(rest, args), body=body)


def fabric_make_room(rest: Rest, args: argparse.Namespace) -> Any:
    body = _given(
        hosts=args.hosts,
        policy=args.policy,
        constraints=_constraints(args) or None,
        moves=args.moves,
        max_cost=args.max_cost,
        override=args.override or None,
        dry_run=args.dry_run or None,
    )
    return rest.call("POST", f"{rest.fabric(args.fabric)}/make-room", body=body)


def allocation_resize(rest: Rest, args: argparse.Namespace) -> Any:
    body = _given(hosts=args.hosts, give_back=args.give_back, dry_run=args.dry_run or None)
    query = {} if args.dry_run else {"wait": args.wait}
    answer = rest.call("PATCH", _allocation(rest, args), query, body)
    return answer if args.dry_run else _settled(rest, args, answer)


def allocation_replace_hosts(rest: Rest, args: argparse.Namespace) -> Any:
    body = _given(hosts=args.host, turn_back=args.turn_back or None, dry_run=args.dry_run or None)
    query = {} if args.dry_run else {"wait": args.wait}
    answer = rest.call("POST", f"{_allocation(rest, args)}/replace-hosts", query, body)
    return answer if args.dry_run else _settled(rest, args, answer)


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

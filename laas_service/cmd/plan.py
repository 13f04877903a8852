# SPDX-License-Identifier: Apache-2.0

"""laas-plan: answers allocation requests offline, without a server or a database.

Requests are JSON objects, one on each line. The answers are JSON objects too, in the same
order, and each is written as soon as it is known:

    {"op": "allocate", "id": "t1", "hosts": 267}
    {"op": "release", "id": "t1"}
    {"op": "probe", "hosts": 300}
    {"op": "fail", "host": 7}      also "leaf_link": [pod, leaf, l2],
    {"op": "repair", "host": 7}    "spine_link": [pod, l2, spine]
    {"op": "repair-allocation", "id": "t1"}
    {"op": "resize", "id": "t1", "hosts": 300}
    {"op": "make-room", "hosts": 300, "moves": 1}     also "apply": true
    {"op": "sleep", "moves": 2}                       also "apply": true
    {"op": "allocate", "id": "c", "hosts": 64, "container": true}
    {"op": "allocate", "id": "t2", "hosts": 8, "parent": "c"}     also in "probe"
    {"op": "withhold", "l2": [0]}  also "spines": [0]; neither: end the common plane

A request may name its own "policy". An allocate or a probe may have "constraints":
{"traits": [...], "avoid_hosts": [host], "avoid_pods": [pod], "within": "leaf" or "pod",
"spread": pods, "max_host_cost": cost, "cheapest": true, "contention_free" and "undisturbed":
"require" or "prefer"}. On a fabric with domains, which a snapshot or a description names, also
{"domains": 4, "kind": "nvlink"} (whole ones; "hosts" may be left out),
{"per_domain": 18, "kind": "nvlink"}, {"within": "rack"},
{"spread": {"kind": "power", "least": 2}}, and "exclusive": true. With the policy lc-s, whose
allocations share links, "bandwidth" is the part of each link that the allocation needs,
such as 0.2 (default 0.8). With --explain, or "explain": true in a request, a refusal
has a field "room": drains to undo or allocations to release until the request fits.

At a terminal the answers are sentences with the names of hosts, and a table and a drawing of the
final state follow; --format json prints what programs get.

Exit status 0: every line was valid. 1: the fabric, the state or an output file cannot be
used. 2: a line was malformed (its answer is "error", and the run continues), or the
command line was malformed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from io import TextIOWrapper
from itertools import count
from pathlib import Path
from time import perf_counter_ns
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, NoReturn

from pydantic import (
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    TypeAdapter,
    ValidationError,
)

from laas_service.adapters.documents import constraints_from
from laas_service.adapters.snapshot import fabric_from_snapshot, shape_document, snapshot
from laas_service.client.usage import Parser
from laas_service.domain.admission.admit import admit, explain, propose_in_scope
from laas_service.domain.admission.constrained import check_constraints, hosts_of_domains
from laas_service.domain.admission.make_room import make_room
from laas_service.domain.admission.undisturbed import disturbance
from laas_service.domain.allocation import WHOLE, Allocation, NoFit, Request
from laas_service.domain.common_plane import CommonPlane
from laas_service.domain.constraints import Constraints
from laas_service.domain.errors import Conflict, InvalidFile, InvalidInput, LaasError, NotFound
from laas_service.domain.faults.degradation import Degraded
from laas_service.domain.inventory import Inventory
from laas_service.domain.ledger import Ledger, LedgerView
from laas_service.domain.ledger.shared_links import CAP, SharedLedger
from laas_service.domain.moves.plan_moves import plan_moves
from laas_service.domain.moves.resize import resize
from laas_service.domain.moves.sleep import plan_sleep
from laas_service.domain.moves.sparing import sparing_repair
from laas_service.domain.policies import PLANNING
from laas_service.domain.policies.base import Policy
from laas_service.domain.policies.lc_s import LcS
from laas_service.domain.routing.contention import contention
from laas_service.domain.routing.tenant_tables import (
    joined_rails,
    reserved_links,
    routed_allocations,
)
from laas_service.domain.topology import LeafLink, Link, SpineLink, Topology
from laas_service.version import ShowVersion

if TYPE_CHECKING:
    from laas_service.adapters.fabric_import.fabric_file import FabricFile
    from laas_service.messages import TenantRoute

Answer = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    if args.xgft is None and args.fabric is None and args.state is None:
        parser().error("give a fabric: --xgft, --fabric or --state")
    if args.tables and not args.snapshot:
        print("laas-plan: --tables extends the file of --snapshot; give both", file=sys.stderr)
    try:
        return _run(args)
    except LaasError as error:
        print(f"laas-plan: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of the answers has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


def parser() -> argparse.ArgumentParser:
    top = Parser(
        prog="laas-plan",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action=ShowVersion)
    fabric = top.add_mutually_exclusive_group()
    fabric.add_argument("--xgft", metavar="SPEC", help='such as "3;18,18,36;1,18,18"')
    fabric.add_argument(
        "--fabric",
        metavar="FILE",
        help="description, snapshot, or ibnetdiscover dump; also packed",
    )
    top.add_argument(
        "--accept",
        action="append",
        default=[],
        choices=("no-fat-tree",),
        help="take a cabling that is no fat-tree, as laas-manage fabric import does",
    )
    top.add_argument("--policy", choices=sorted(PLANNING), default="jigsaw")
    top.add_argument(
        "--explain", action="store_true", help="answer refusals with what would make room"
    )
    top.add_argument("--state", metavar="SNAPSHOT", help="start with the allocations in this file")
    top.add_argument(
        "--requests", metavar="FILE", default="-", help="JSON lines (default: standard input)"
    )
    top.add_argument(
        "--output", metavar="FILE", default="-", help="answers (default: standard output)"
    )
    top.add_argument(
        "--format",
        choices=("json", "text"),
        help="of the answers: JSON lines, or sentences, a table and a drawing for people (default: "
        "text at a terminal, otherwise json)",
    )
    top.add_argument("--snapshot", metavar="FILE", help="write the final state")
    top.add_argument(
        "--html", metavar="FILE", help="write a page that shows the final state; works offline"
    )
    top.add_argument(
        "--tables", action="store_true", help="add each tenant's forwarding entries to the snapshot"
    )
    top.add_argument("--opensm", metavar="DIR", help="write OpenSM's files for the final state")
    return top


def _run(args: argparse.Namespace) -> int:
    source, fabric = _fabric(args)
    planner = Planner(fabric, args.policy, args.explain)
    with ExitStack() as stack:
        requests = _opened(stack, "requests", args.requests, "r", sys.stdin)
        output = _opened(stack, "output", args.output, "w", sys.stdout)
        people = args.format == "text" or (args.format is None and output.isatty())
        if people:
            _write_for_people(planner.answers(requests), source, fabric, output)
        else:
            for answer in planner.answers(requests):
                output.write(json.dumps(answer) + "\n")
                output.flush()
    if args.snapshot:
        _write_snapshot(fabric, args.snapshot, args.tables)
    if args.html:
        _write_page(source, fabric, args, planner.last_refusal)
    if args.opensm:
        _write_opensm(source, fabric, Path(args.opensm))
    return 2 if planner.malformed else 0


def _write_for_people(
    answers: Iterable[Answer], source: FabricFile, fabric: LedgerView, output: IO[str]
) -> None:
    from laas_service.cmd import plan_text  # programs need not wait for its imports

    names = source.inventory.host_names
    for answer in answers:
        output.write(plan_text.sentence(answer, names) + "\n")
        output.flush()
    plan_text.write_state(fabric, names, output)


def _opened(stack: ExitStack, field: str, name: str, mode: str, standard: IO[str]) -> IO[str]:
    if name == "-":
        if isinstance(standard, TextIOWrapper):
            standard.reconfigure(encoding="utf-8", errors="replace")
        return standard
    try:
        return stack.enter_context(open(name, mode, encoding="utf-8", errors="replace"))
    except OSError as error:
        _unusable(field, name, error)


def _unusable(field: str, name: str, error: OSError) -> NoReturn:
    why = (error.strerror or str(error)).lower()
    raise InvalidInput(field, name, f"give a file that can be used ({why})") from error


# -- input ----------------------------------------------------------------------


def _fabric(args: argparse.Namespace) -> tuple[FabricFile, Ledger]:
    """The description of the fabric, and its ledger before the first request."""
    from laas_service.adapters.fabric_import.fabric_file import (
        parse_fabric,
        parse_xgft,
        read_fabric,
    )

    if args.xgft is not None:
        if "\0" not in args.xgft and Path(args.xgft).is_file():
            raise InvalidInput("xgft", args.xgft, "this is a file; give it with --fabric")
        parse_xgft(args.xgft)
        source = parse_fabric(args.xgft, "xgft")
    else:
        path = Path(args.state if args.fabric is None else args.fabric)
        source = read_fabric(path, accept_no_fat_tree="no-fat-tree" in args.accept)
    if args.state is None:
        fabric: Ledger = SharedLedger(source.topology)
        fabric.withhold(source.shared_plane)
    else:
        fabric = fabric_from_snapshot(_state(args.state), source.topology)
    if not fabric.features.hosts:
        fabric.describe_hosts(source.features.hosts)
    fabric.inventory = source.inventory
    for host in sorted(source.withheld_hosts):
        fabric.drain_host(host)
    for host in sorted(source.failed_hosts):
        fabric.fail_host(host)
    for link in sorted(source.failed_links, key=source.topology.tree.link_id):
        fabric.fail_link(link)
    return source, fabric


def _state(name: str) -> object:
    try:
        return json.loads(Path(name).read_bytes())
    except OSError as error:
        _unusable("state", name, error)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise InvalidFile(name, line, f"it is not valid JSON: {error}") from error


# -- output -----------------------------------------------------------------------


def _write_snapshot(fabric: LedgerView, name: str, tables: bool) -> None:
    try:
        Path(name).write_text(json.dumps(snapshot(fabric, tables)) + "\n")
    except OSError as error:
        _unusable("snapshot", name, error)


def _write_page(
    source: FabricFile, fabric: LedgerView, args: argparse.Namespace, refusal: Answer | None
) -> None:
    """Write the fabric page of the final state; the last refusal is the question it answers."""
    from laas_service import page
    from laas_service.domain.fabric_map.document import ledger_document

    name = args.xgft or args.fabric or args.state
    shown = ledger_document(fabric, source.inventory, Path(name).name)
    if refusal is not None:
        fields = ("hosts", "policy", "reason", "detail", "largest_fit")
        shown["question"] = {"fits": False, **{field: refusal[field] for field in fields}}
        room = refusal.get("room") or {"releases": (), "undrain": ()}
        names = source.inventory.host_names
        shown["question"]["releases"] = list(room["releases"])
        shown["question"]["undrain"] = [names[host] for host in room["undrain"]]
    try:
        Path(args.html).write_text(page.page(shown), encoding="utf-8")
    except OSError as error:
        _unusable("html", args.html, error)


def _routes(
    tenants: Sequence[Allocation], topology: Topology, inventory: Inventory
) -> Iterator[TenantRoute]:
    """Routes with the lowest keys: first one for each tenant, then those of rails apart."""
    from laas_service.messages import TenantRoute

    further = count(len(tenants) + 1)
    for key, tenant in enumerate(tenants, 1):
        joined = joined_rails(topology, inventory, tenant)
        key_of = {0: key} | {first: next(further) for first in sorted({*joined} - {0})}
        keys = tuple(key_of[first] for first in joined)
        yield TenantRoute(tenant, key, pkeys=keys if len(key_of) > 1 else ())


def _write_opensm(source: FabricFile, fabric: LedgerView, directory: Path) -> None:
    """Publish the final state as the next generation of the directory."""
    from laas_service.messages import FabricState
    from opensm_writer import desired, fileset, publish, render

    directory = directory.absolute()
    tenants = routed_allocations(fabric.everybody())
    for tenant in tenants:
        if tenant.bandwidth != WHOLE:
            raise InvalidInput(
                "opensm", tenant.id, "give it whole links; allocations of lc-s are not routed"
            )
    try:
        previous = fileset.current(directory.parent, directory.name)
        state = FabricState(
            fabric=directory.name,
            generation=previous.generation + 1 if previous else 1,
            topology=fabric.topology,
            inventory=source.inventory,
            tenants=tuple(_routes(tenants, fabric.topology, source.inventory)),
            failed_links=tuple(sorted(fabric.failed_links, key=fabric.topology.tree.link_id)),
            shared_plane=fabric.shared_plane,
            reserved_links=reserved_links(fabric.topology, fabric.everybody()),
        )
        settings = render.Settings(str(directory / "current"))
        publish.publish_set(desired.subnet_configuration(state), settings, directory.parent, keep=1)
    except OSError as error:
        _unusable("opensm", str(directory), error)


# -- requests and answers -----------------------------------------------------------


class Planner:
    """Answers requests against one ledger; ``policy`` and ``explain`` are the defaults."""

    def __init__(self, fabric: Ledger, policy: str, explain: bool = False) -> None:
        self.malformed = 0
        """Number of malformed lines so far."""
        self.last_refusal: Answer | None = None
        """The last answer that refused a size, with its request; None if none did."""
        self._fabric = fabric
        self._default = policy
        self._explain = explain
        self._policies: dict[str, Policy] = {}

    def answers(self, lines: Iterable[str]) -> Iterator[Answer]:
        """One answer for each line that is not blank."""
        for number, line in enumerate(lines, 1):
            if line.strip():
                answer = self._answer(number, line)
                if answer["outcome"] == "refused" and answer["op"] in ("allocate", "probe"):
                    self.last_refusal = answer
                yield answer

    def _answer(self, number: int, line: str) -> Answer:
        request: Answer = {}
        try:
            request = _object(line)
            return request | _OPERATIONS[_field(request, "op")](self, request)
        except InvalidInput as error:
            self.malformed += 1
            return request | _error(error, f"line {number}: {error}")
        except LaasError as error:
            return request | _error(error, str(error))

    def allocate(self, request: Answer) -> Answer:
        allocation_request = self._allocation_request(_field(request, "id"), request)
        policy, with_room = self._policy(request), _field(request, "explain", self._explain)
        if any(allocation_request.id in ledger.allocations for ledger in self._fabric.ledgers()):
            id = allocation_request.id
            raise Conflict(f"id: {id!r} is taken; release it first, or give this one another id")
        start = perf_counter_ns()
        answer = admit(policy, self._fabric, allocation_request)
        elapsed = _microseconds(start)
        if isinstance(answer, NoFit):
            return self._refused(policy, allocation_request, answer, elapsed, with_room)
        return {
            "outcome": "allocated",
            "elapsed_us": elapsed,
            "n": allocation_request.hosts,
            "policy": policy.name,
            **self._placed(answer),
            **self._cost(answer),
        }

    def _disturbance(self, request: Request, answer: Allocation | NoFit) -> Answer:
        """What default routes do to it, if it or another owner asks about that."""
        found = disturbance(self._fabric, request, answer)
        return {} if found is None else {"crossed_by": found.crossing, "crossed_more": found.others}

    def _placed(self, allocation: Allocation) -> Answer:
        topology = self._fabric.topology
        share = {} if allocation.bandwidth == WHOLE else {"bandwidth": allocation.bandwidth / WHOLE}
        return {
            **share,
            "hosts": allocation.hosts(topology),
            "leaf_links": sorted(allocation.leaf_links(topology)),
            "spine_links": sorted(allocation.spine_links(topology)),
            "shape": shape_document(allocation.shape),
            **self._contention(allocation),
        }

    def _contention(self, allocation: Allocation) -> Answer:
        reached = contention(self._fabric.topology, allocation)
        return {"contention_free": reached.free, "worst_load": reached.worst_load}

    def _cost(self, allocation: Allocation) -> Answer:
        """The sum of the hosts' costs, if the fabric describes hosts."""
        features = self._fabric.features
        if not features.hosts:
            return {}
        return {"cost": features.cost(allocation.hosts(self._fabric.topology))}

    def _constraints(self, request: Answer) -> Constraints | None:
        """The constraints of a request; None if it has none.

        Raises:
            InvalidInput: they are malformed, or name what the fabric lacks.
        """
        if request.get("constraints") is None:
            return None
        constraints = constraints_from(request["constraints"])
        if constraints is not None:
            check_constraints(self._fabric, constraints)
        return constraints

    def _allocation_request(self, id: str, request: Answer) -> Request:
        constraints = self._constraints(request)
        if constraints is not None and constraints.domains is not None:
            ledger = self._fabric.ledger(_field(request, "parent"))
            given = None if request.get("hosts") is None else _field(request, "hosts")
            hosts = hosts_of_domains(self._policy(request), ledger, constraints, given)
        else:
            hosts = _field(request, "hosts")
        return Request(
            id,
            hosts,
            constraints=constraints,
            parent=_field(request, "parent"),
            container=_field(request, "container", False),
            bandwidth=_bandwidth(request),
        )

    def probe(self, request: Answer) -> Answer:
        allocation_request = self._allocation_request("", {**request, "container": False})
        policy, with_room = self._policy(request), _field(request, "explain", self._explain)
        start = perf_counter_ns()
        answer = propose_in_scope(policy, self._fabric, allocation_request)
        elapsed = _microseconds(start)
        if isinstance(answer, NoFit):
            return self._refused(policy, allocation_request, answer, elapsed, with_room)
        return {
            "outcome": "fits",
            "elapsed_us": elapsed,
            "policy": policy.name,
            "shape": shape_document(answer.shape),
            **self._contention(answer),
            **self._cost(answer),
            **self._disturbance(allocation_request, answer),
        }

    def _refused(
        self,
        policy: Policy,
        allocation_request: Request,
        refusal: NoFit,
        elapsed: float,
        with_room: bool,
    ) -> Answer:
        ledger = self._fabric.ledger(allocation_request.parent)
        explained = explain(policy, ledger, allocation_request, refusal)
        room: Answer = {}
        if with_room:
            change = make_room(policy, ledger.flattened(), allocation_request)
            room = {"room": None if change is None else asdict(change)}
        return {
            "outcome": "refused",
            "reason": explained.reason.value,
            "detail": explained.detail,
            "largest_fit": explained.largest_fit,
            "elapsed_us": elapsed,
            "policy": policy.name,
            **room,
        }

    def release(self, request: Answer) -> Answer:
        id = _field(request, "id")
        start = perf_counter_ns()
        try:
            self._fabric.release(id)
        except NotFound as error:
            raise NotFound("id", id, "name an allocation that holds hosts") from error
        return {"outcome": "released", "elapsed_us": _microseconds(start)}

    def fail(self, request: Answer) -> Answer:
        return self._change(request, self._fabric.fail_host, self._fabric.fail_link)

    def repair(self, request: Answer) -> Answer:
        return self._change(request, self._fabric.repair_host, self._fabric.repair_link)

    def repair_allocation(self, request: Answer) -> Answer:
        ledger, allocation = self._holder(request)
        start = perf_counter_ns()
        repaired = sparing_repair(ledger, allocation)
        if isinstance(repaired, Degraded):
            return {
                "outcome": "refused",
                "reason": "not_repairable",
                "detail": str(repaired),
                "elapsed_us": _microseconds(start),
            }
        self._fabric.change(repaired)
        return {
            "outcome": "ok" if repaired is allocation else "repaired",
            "elapsed_us": _microseconds(start),
            **self._placed(repaired),
        }

    def resize(self, request: Answer) -> Answer:
        """Grow or shrink an allocation in place."""
        hosts = _field(request, "hosts")
        ledger, allocation = self._holder(request)
        start = perf_counter_ns()
        answer = resize(ledger, allocation, hosts)
        elapsed = _microseconds(start)
        if isinstance(answer, NoFit):
            return {
                "outcome": "refused",
                "reason": answer.reason.value,
                "detail": answer.detail,
                "largest_fit": answer.largest_fit,
                "elapsed_us": elapsed,
                "cut_off": answer.cut_off,
            }
        self._fabric.change(answer)
        return {
            "outcome": "resized",
            "elapsed_us": elapsed,
            "n": hosts,
            "policy": answer.policy,
            **self._placed(answer),
            **self._cost(answer),
        }

    def make_room(self, request: Answer) -> Answer:
        """Plan moves of tenants after which a request fits, and make them if asked to."""
        most_moves, apply = _field(request, "moves"), _field(request, "apply", False)
        allocation_request = self._allocation_request("", {**request, "container": False})
        policy = self._policy(request)
        ledger = self._fabric.ledger(allocation_request.parent)
        start = perf_counter_ns()
        plan = plan_moves(policy, ledger, allocation_request, most_moves)
        elapsed = _microseconds(start)
        if isinstance(plan, NoFit):
            cut_off = {"cut_off": plan.cut_off}
            return self._refused(policy, allocation_request, plan, elapsed, False) | cut_off
        for move in plan.moves if apply else ():
            self._fabric.change(move.allocation)
        return {
            "outcome": "plan" if plan.moves else "fits",
            "elapsed_us": elapsed,
            "policy": policy.name,
            "shape": shape_document(plan.placement.shape),
            "moves": [
                {"id": move.allocation.id, **self._placed(move.allocation)} for move in plan.moves
            ],
            "moved_hosts": plan.new_hosts,
            "cut_off": plan.cut_off,
        }

    def sleep(self, request: Answer) -> Answer:
        """Plan moves of tenants after which more switches are unused; make them if asked to."""
        most_moves, apply = _field(request, "moves"), _field(request, "apply", False)
        start = perf_counter_ns()
        plan = plan_sleep(self._fabric, most_moves)
        elapsed = _microseconds(start)
        for move in plan.moves if apply else ():
            self._fabric.change(move.allocation)
        return {
            "outcome": "plan" if plan.moves else "ok",
            "elapsed_us": elapsed,
            "moves": [
                {"id": move.allocation.id, **self._placed(move.allocation)} for move in plan.moves
            ],
            "moved_hosts": plan.new_hosts,
            "unused_now": asdict(plan.now),
            "unused_after": asdict(plan.after),
            "cut_off": plan.cut_off,
        }

    def _holder(self, request: Answer) -> tuple[Ledger, Allocation]:
        """The allocation that a request names, and the ledger that it is in."""
        id = _field(request, "id")
        try:
            ledger = self._fabric.holder(id)
        except NotFound as error:
            raise NotFound("id", id, "name an allocation that holds hosts") from error
        return ledger, ledger.allocations[id]

    def withhold(self, request: Answer) -> Answer:
        """Replace the common plane, which no allocation gets links of."""
        plane = CommonPlane.of(
            self._fabric.topology.tree, _field(request, "l2", ()), _field(request, "spines", ())
        )
        start = perf_counter_ns()
        self._fabric.withhold(plane)
        return {"outcome": "ok", "elapsed_us": _microseconds(start)}

    def _change(
        self, request: Answer, host: Callable[[int], None], link: Callable[[Link], None]
    ) -> Answer:
        name, component = _component(request)
        start = perf_counter_ns()
        try:
            if isinstance(component, int):
                host(component)
            else:
                link(component)
        except NotFound as error:
            tree = self._fabric.topology.tree
            fix = f"the fabric has m={list(tree.m)}, w={list(tree.w)}, less what is absent"
            raise NotFound(name, request[name], fix) from error
        return {"outcome": "ok", "elapsed_us": _microseconds(start)}

    def _policy(self, request: Mapping[str, Any]) -> Policy:
        name = _field(request, "policy", self._default)
        if name != LcS.name and "bandwidth" in request:
            raise InvalidInput("bandwidth", request["bandwidth"], "only lc-s shares links")
        return self._policies.setdefault(name, PLANNING[name]())


def _error(error: LaasError, detail: str) -> Answer:
    """The answer to a request that no policy decided."""
    return {"outcome": "error", "reason": error.code, "detail": detail, "elapsed_us": 0.0}


def _microseconds(start: int) -> float:
    return round((perf_counter_ns() - start) / 1000, 1)


def _object(line: str) -> Answer:
    """The JSON object on a line.

    Raises:
        InvalidInput: the line is something else, or has a number that JSON does not allow.
    """
    fix = 'give one JSON object a line, such as {"op": "probe", "hosts": 4}'
    try:
        request = json.loads(line.lstrip("\ufeff"), parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("request", _short(line.strip()), f"{fix} ({error})") from error
    if not isinstance(request, dict):
        raise InvalidInput("request", _short(line.strip()), fix)
    return request


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no JSON number")
    return number


def _short(value: str) -> str:
    return value if len(value) <= 80 else value[:77] + "..."


def _one_of(names: Collection[str]) -> tuple[TypeAdapter[Any], str]:
    kind: Any = Literal[tuple(names)]
    return TypeAdapter(kind), f"use one of {', '.join(names)}"


_OPERATIONS: Mapping[str, Callable[[Planner, Answer], Answer]] = {
    "allocate": Planner.allocate,
    "release": Planner.release,
    "probe": Planner.probe,
    "fail": Planner.fail,
    "repair": Planner.repair,
    "repair-allocation": Planner.repair_allocation,
    "resize": Planner.resize,
    "make-room": Planner.make_room,
    "sleep": Planner.sleep,
    "withhold": Planner.withhold,
}

_FLAG = TypeAdapter(StrictBool), "use true or false"
_INDICES = TypeAdapter(tuple[StrictInt, ...]), "give a list of whole numbers, such as [0]"
_TRIPLE = TypeAdapter(tuple[StrictInt, StrictInt, StrictInt])

_FIELDS: Mapping[str, tuple[TypeAdapter[Any], str]] = {
    "op": _one_of(_OPERATIONS),
    "id": (
        TypeAdapter(Annotated[StrictStr, Field(min_length=1)]),
        "name the allocation with a text",
    ),
    "hosts": (
        TypeAdapter(Annotated[StrictInt, Field(ge=1)]),
        "give a whole number of at least 1",
    ),
    "policy": _one_of(sorted(PLANNING)),
    "parent": (TypeAdapter(StrictStr | None), "name a container"),
    "moves": (
        TypeAdapter(Annotated[StrictInt, Field(ge=0)]),
        "give a whole number of at least 0",
    ),
    "apply": _FLAG,
    "container": _FLAG,
    "explain": _FLAG,
    "bandwidth": (
        TypeAdapter(Annotated[StrictFloat, Field(gt=0, le=CAP / WHOLE)]),
        f"give a part of a link, above 0 and up to {CAP / WHOLE}",
    ),
    "l2": _INDICES,
    "spines": _INDICES,
    "host": (TypeAdapter(StrictInt), "give the number of a host"),
    "leaf_link": (_TRIPLE, "give three whole numbers, [pod, leaf, l2]"),
    "spine_link": (_TRIPLE, "give three whole numbers, [pod, l2, spine]"),
}
"""The type of each field, and what to give instead of a wrong value. True is not a number."""


def _field(request: Mapping[str, Any], name: str, default: object = None) -> Any:
    """The value of a field, or ``default`` if the request lacks it.

    Raises:
        InvalidInput: the value has another type.
    """
    kind, fix = _FIELDS[name]
    value = request.get(name, default)
    try:
        return kind.validate_python(value)
    except ValidationError as error:
        raise InvalidInput(name, value, fix) from error


def _bandwidth(request: Mapping[str, Any]) -> int | None:
    """Bandwidth in parts per million of a link; None if the request does not name it."""
    if "bandwidth" not in request:
        return None
    share: float = _field(request, "bandwidth")
    return max(1, round(share * WHOLE))


def _component(request: Mapping[str, Any]) -> tuple[str, int | Link]:
    """The field that names a host or link, and the host or link.

    Raises:
        InvalidInput: the request names none or several.
    """
    named = [name for name in ("host", "leaf_link", "spine_link") if name in request]
    if len(named) != 1:
        raise InvalidInput(
            "host, leaf_link, spine_link", named, "name exactly one host or link to change"
        )
    (name,) = named
    value = _field(request, name)
    if name == "host":
        return name, value
    return name, LeafLink(*value) if name == "leaf_link" else SpineLink(*value)


if __name__ == "__main__":
    sys.exit(main())

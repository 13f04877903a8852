# SPDX-License-Identifier: Apache-2.0

"""``laas apply FILE``: carries out requests as ``laas-plan`` reads them, one a line, in order.

What was planned offline is done on the live service with the same file.
"""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from laas_service.client.command import YES, RestCommand
from laas_service.client.options import FABRIC_OPTION, argument
from laas_service.client.rest import Refused, Rest
from laas_service.client.usage import did_you_mean

Line = Mapping[str, Any]


class Apply(RestCommand):
    """Carry out the requests of a file, one JSON object a line, as laas-plan reads them"""

    example = "lines --yes"
    arguments = (
        argument("file", metavar="FILE", help='lines such as {"op": "allocate", "id": "blue", '
                 '"hosts": 6}; - reads standard input'),
        YES,
        FABRIC_OPTION,
    )  # fmt: skip
    waits = True

    def carry_out(self, args: argparse.Namespace) -> int:
        """Print an answer a line: the request with its outcome. The worst exit status."""
        return int(self.answered(args))

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        """The exit status. Nothing is done if any line cannot be read.

        Raises:
            Refused: the service could not be reached, or the answer did not come.
        """
        lines = self._read(args.file)
        freed = [f"{one['op']} {one['id']}" for one in lines.values() if one["op"] in FREEING]
        if freed:
            self.confirm(args, f"carry out {', '.join(freed)}")
        if any("host" in FIELDS[line["op"]] for line in lines.values()):
            rest.get(rest.fabric(args.fabric))  # one that is not there is refused at once
        worst = 0
        for number, line in lines.items():
            try:
                answer = OPERATIONS[line["op"]](rest, args, line)
            except Refused as refusal:
                if refusal.status is None or refusal.status >= 500:
                    where = (
                        f"{args.file}: line {number}: {refusal}; the lines after it are not done"
                    )
                    document = {**refusal.document, "detail": where}
                    raise type(refusal)(where, refusal.status, document) from refusal
                document = dict(refusal.document)
                document["reason"] = document.pop("code", None)
                answer = {"outcome": "refused", **document}
                worst = worst or refusal.exit_status
            self.app.stdout.write(json.dumps({**line, **answer}) + "\n")
            self.app.stdout.flush()
        return worst

    def _read(self, file: str) -> dict[int, Line]:
        """The requests by number of their line; ends the command at the first that is none."""
        try:
            text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            self.usage_error(f"argument FILE: {file} cannot be read: {error}")
        found = {}
        for number, one in enumerate(text.splitlines(), 1):
            if one.strip():
                if problem := _problem(one):
                    self.usage_error(f"{file}: line {number}: {problem}")
                found[number] = json.loads(one)
        return found


def _problem(text: str) -> str:
    """Why a line is no request; empty if it is one."""
    try:
        line = json.loads(text)
    except ValueError:
        line = None
    if not isinstance(line, dict):
        return 'give one JSON object a line, such as {"op": "allocate", "id": "blue", "hosts": 4}'
    operation = line.get("op")
    if operation not in OPERATIONS:
        near = did_you_mean(str(operation), OPERATIONS)
        return f"op: {operation!r} is not known here{near}; use one of {', '.join(OPERATIONS)}"
    for field, kind in FIELDS[operation].items():
        value = line.get(field)
        if not isinstance(value, kind) or isinstance(value, bool) or not value:
            what = "a whole number of at least 1" if kind is int else "a name"
            return f"{field}: {value!r} is not valid; give {what}"
    return ""


PASSED = (
    *("hosts", "policy", "parent", "container", "constraints", "duration", "wait"),
    *("movable", "notice", "move_cost", "project_id", "allow_duplicate_name"),
)
"""Fields of a request that REST has under the same names; others are repeated in the answer alone,
as ``laas-plan`` does."""


def _asked(line: Line) -> dict[str, Any]:
    return {name: line[name] for name in PASSED if name in line}


def _settled(rest: Rest, args: argparse.Namespace, allocation: Any) -> Any:
    return allocation if args.wait is None else rest.settled(allocation, args.wait)


def _placed(outcome: str, allocation: Mapping[str, Any]) -> dict[str, Any]:
    """The answer about a placement: its hosts by name, its state, and its id in the service."""
    hosts = [host["name"] for host in allocation.get("hosts") or ()]
    return {
        "outcome": outcome,
        "n": len(hosts),
        "hosts": hosts,
        "state": allocation.get("state"),
        "allocation": allocation.get("id"),
    }


def _allocate(rest: Rest, args: argparse.Namespace, line: Line) -> dict[str, Any]:
    body = {"name": line["id"], **_asked(line)}
    if args.fabric is not None:
        body["fabric"] = args.fabric
    if "parent" in body:
        body["parent"] = rest.allocation(body["parent"], args.fabric)["id"]
    made = rest.call(
        "POST",
        "/v1/allocations",
        {"wait": args.wait},
        body,
        {"Idempotency-Key": str(uuid.uuid4())},
    )
    return _placed("allocated", _settled(rest, args, made))


def _probe(rest: Rest, args: argparse.Namespace, line: Line) -> dict[str, Any]:
    body = {"name": "probe", "dry_run": True, **_asked(line)}
    if args.fabric is not None:
        body["fabric"] = args.fabric
    return {"outcome": "fits", "placement": rest.call("POST", "/v1/allocations", body=body)}


def _path(rest: Rest, args: argparse.Namespace, line: Line) -> str:
    return f"/v1/allocations/{rest.allocation(line['id'], args.fabric)['id']}"


def _release(rest: Rest, args: argparse.Namespace, line: Line) -> dict[str, Any]:
    gone = rest.call("DELETE", _path(rest, args, line), {"wait": args.wait})
    return {"outcome": "released", "state": _settled(rest, args, gone)["state"]}


def _resize(rest: Rest, args: argparse.Namespace, line: Line) -> dict[str, Any]:
    path, body = _path(rest, args, line), {"hosts": line["hosts"]}
    changed = rest.call("PATCH", path, {"wait": args.wait}, body)
    return _placed("resized", _settled(rest, args, changed))


def _repair_allocation(rest: Rest, args: argparse.Namespace, line: Line) -> dict[str, Any]:
    repaired = rest.call("POST", f"{_path(rest, args, line)}/repair", {"wait": args.wait})
    return _placed("repaired", _settled(rest, args, repaired))


def _mark(state: str) -> Callable[[Rest, argparse.Namespace, Line], dict[str, Any]]:
    def mark(rest: Rest, args: argparse.Namespace, line: Line) -> dict[str, Any]:
        path = f"{rest.fabric(args.fabric)}/hosts/{quote(line['host'], safe='')}"
        rest.call("PATCH", path, body={"state": state})
        return {"outcome": "ok"}

    return mark


OPERATIONS: dict[str, Callable[[Rest, argparse.Namespace, Line], dict[str, Any]]] = {
    "allocate": _allocate,
    "probe": _probe,
    "release": _release,
    "resize": _resize,
    "repair-allocation": _repair_allocation,
    "fail": _mark("failed"),
    "repair": _mark("up"),
}
"""Those of ``laas-plan`` that have a meaning on a live fabric."""

FIELDS: dict[str, dict[str, type]] = {
    "allocate": {"id": str},
    "probe": {},
    "release": {"id": str},
    "resize": {"id": str, "hosts": int},
    "repair-allocation": {"id": str},
    "fail": {"host": str},
    "repair": {"host": str},
}
"""Fields that a line must have. Hosts have their names, since a live fabric has no numbers."""

FREEING: Iterable[str] = ("release", "resize")
"""Operations that may give hosts back, and are asked about."""

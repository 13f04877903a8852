# SPDX-License-Identifier: Apache-2.0

"""What laas-plan prints for people: sentences, a table of the allocations, the hosts drawn."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import IO, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from laas_service.adapters.slurm import host_list
from laas_service.domain.fabric_map.picture import LEGEND, marks, picture
from laas_service.domain.ledger import LedgerView
from laas_service.domain.wording import printable

MOST_LINES = 40
"""Lines of a drawing; --html shows larger fabrics."""


def sentence(answer: Mapping[str, Any], names: Sequence[str]) -> str:
    """An answer of the planner on one line; ``names`` of hosts by their numbers."""
    return printable(_sentence(answer, names))


def _sentence(answer: Mapping[str, Any], names: Sequence[str]) -> str:
    def placed(part: Mapping[str, Any]) -> str:
        shape = f", shape {part['shape']['text']}" if part["shape"] else ""
        hosts = host_list(names[host] for host in part["hosts"])
        return f"{part['id']}: {len(part['hosts'])} hosts{shape}, on {hosts}"

    outcome, subject = answer["outcome"], _subject(answer, names)
    match outcome:
        case "allocated" | "resized" | "repaired":
            return f"{outcome}  {placed(answer)}"
        case "fits":
            shape = f" as {answer['shape']['text']}" if answer["shape"] else ""
            return f"fits  {subject}{shape}"
        case "plan":
            moves = "; ".join(map(placed, answer["moves"]))
            done = "moved" if answer.get("apply") else "would fit after moves"
            return f"{done}  {subject}; {moves}"
        case "refused":
            largest = answer.get("largest_fit")
            beside = "" if largest is None else f"; the largest that fits is {largest}"
            return f"refused  {subject}: {answer['detail']}{beside}{_room(answer, names)}"
        case "error":
            return f"error  {answer['detail']}"
    return f"{outcome}  {subject}"


def _subject(answer: Mapping[str, Any], names: Sequence[str]) -> str:
    """What the request was about."""
    op = answer.get("op")
    if op in ("fail", "repair") and isinstance(answer.get("host"), int):
        host = answer["host"]
        return f"{op} host {names[host] if 0 <= host < len(names) else host}"
    if isinstance(answer.get("hosts"), int):
        hosts = f"{answer['hosts']} hosts"
        return f"{answer['id']}, {hosts}" if "id" in answer else hosts
    if "id" in answer:
        return str(answer["id"])
    keys = (key for key in ("leaf_link", "spine_link", "l2", "spines") if key in answer)
    return " ".join([str(op), *(f"{key} {answer[key]}" for key in keys)])


def _room(answer: Mapping[str, Any], names: Sequence[str]) -> str:
    room = answer.get("room")
    if not room:
        return ""
    if room["releases"]:
        return f"; it would after the release of {', '.join(room['releases'])}"
    return f"; it would with {host_list(names[host] for host in room['undrain'])} in use again"


def write_state(ledger: LedgerView, names: Sequence[str], output: IO[str]) -> None:
    """Write a table of the allocations and a drawing of the hosts."""
    console = Console(file=output, highlight=False, emoji=False)
    topology, marked = ledger.topology, marks(ledger)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="")
    for column in ("", "allocation", "hosts", "policy", "shape", "links", "host names"):
        right = column in ("hosts", "links")
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    held = {allocation.id: allocation for allocation in ledger.everybody()}
    for id, mark in marked.items():
        allocation = held[id]
        hosts = allocation.hosts(topology)
        row = (
            mark,
            allocation.id,
            str(len(hosts)),
            allocation.policy,
            "-" if allocation.shape is None else str(allocation.shape),
            str(sum(1 for _ in allocation.links(topology))),
            host_list(names[host] for host in hosts),
        )
        table.add_row(*(Text(printable(cell)) for cell in row))
    console.print(table if marked else "No allocation.")
    lines = picture(ledger, marked, console.width)
    for line in islice(lines, MOST_LINES):
        console.print(Text(line), soft_wrap=True)
    rest = sum(1 for _ in lines)
    if rest:
        console.print(f"and {rest} more lines; --html FILE shows all of the fabric")
    console.print(LEGEND)

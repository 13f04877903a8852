# SPDX-License-Identifier: Apache-2.0

"""Readers of external texts: each returns a usable result or raises an error of the service."""

from __future__ import annotations

import json
from collections.abc import Callable

from laas_service.adapters import slurm
from laas_service.adapters.fabric_import import generator
from laas_service.adapters.fabric_import.fabric_file import FabricFile, parse_fabric
from laas_service.adapters.fabric_import.netlist import netlist
from laas_service.adapters.snapshot import fabric_from_snapshot, snapshot
from laas_service.cmd.plan import Planner
from laas_service.domain.errors import InvalidFile, LaasError
from laas_service.domain.ledger import Ledger
from laas_service.simulator.workload import read_csv, read_swf
from tests.functional.fuzz.inputs import TREES

generator.MOST_PLACES = 2_000
"""A low limit saves time: larger fabrics take longer and reach no other code."""


def _fabric(text: str) -> FabricFile:
    read = parse_fabric(text, "fuzz")
    assert len(read.inventory.host_names) >= 0
    return read


def dump(text: str) -> None:
    """Every fabric that is read can be written in every format."""
    inventory = _fabric(text).inventory
    netlist(inventory)
    slurm.host_list([name for name in inventory.host_names if slurm.usable(name)])


def description(text: str) -> None:
    read = _fabric(text)
    assert read.topology.hosts >= 0


def state(text: str) -> None:
    """Like ``laas-plan --state``: a snapshot that is read is written back unchanged."""
    read = _fabric(text)
    try:
        document = json.loads(text)
    except ValueError as error:  # parse_fabric accepts more kinds of blanks than json
        raise InvalidFile("fuzz", 1, str(error)) from error
    fabric = fabric_from_snapshot(document, read.topology)
    again = json.loads(json.dumps(snapshot(fabric)))
    assert snapshot(fabric_from_snapshot(again)) == snapshot(fabric)


def swf(text: str) -> None:
    for job in read_swf(text.splitlines()).jobs:
        assert job.hosts >= 1
        assert job.arrival >= 0


def csv(text: str) -> None:
    for job in read_csv(text.splitlines()).jobs:
        assert job.hosts >= 1
        assert job.arrival >= 0


def jsonl(text: str) -> None:
    """Each line is answered with a JSON object; a refused request changes nothing."""
    fabric = Ledger(TREES["one rail"])
    planner = Planner(fabric, "jigsaw")
    lines = [line for line in text.split("\n") if line.strip()][:40]
    before = snapshot(fabric)
    for answer in planner.answers(lines):
        json.loads(json.dumps(answer))
        after = snapshot(fabric)
        if answer["outcome"] in ("error", "refused", "fits"):
            assert after == before, answer
        before = after


TARGETS: dict[str, Callable[[str], None]] = {
    "dump": dump,
    "snapshot": state,
    "description": description,
    "swf": swf,
    "csv": csv,
    "jsonl": jsonl,
}
"""Readers by the keys of ``inputs.SEEDS``."""


def taken(target: str, text: str) -> bool:
    """Whether the reader accepted the text; errors other than ``LaasError`` propagate."""
    said = None
    try:
        TARGETS[target](text.encode("utf-8", "replace").decode())  # as a file is read
    except LaasError as error:
        said = str(error)
    assert said is None or (said and "\n" not in said), "an error is one line"
    return said is None

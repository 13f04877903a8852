# SPDX-License-Identifier: Apache-2.0

"""Drawings of states, steps, processes and packages; what the code knows is asked of the code."""

from __future__ import annotations

import configparser
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from drawings.canvas import BLUE, GREEN, ORANGE, PURPLE, RED, Canvas
from laas_service.app.lifecycle import STEPS, SUCCESSORS, State
from opensm_writer.desired import Partition
from opensm_writer.render import Settings, partitions

ROOT = Path(__file__).parents[3]


def life() -> Canvas:
    """States of an allocation and what may follow each."""
    canvas = Canvas(700, 290)
    wide, high = 120, 50
    places = {
        State.QUEUED: (4, 34),
        State.ALLOCATING: (147, 34),
        State.ACTIVE: (290, 34),
        State.RELEASING: (433, 34),
        State.RELEASED: (576, 34),
        State.ERROR: (290, 190),
    }
    assert places.keys() == SUCCESSORS.keys(), "a state has no place in the drawing"
    colours = {State.ACTIVE: GREEN, State.ERROR: RED, State.QUEUED: ORANGE, State.ALLOCATING: BLUE}
    words = {
        State.QUEUED: "waits for room",
        State.ALLOCATING: "routes, then hosts",
        State.ACTIVE: "yours",
        State.RELEASING: "hosts, then routes",
        State.RELEASED: "claims are free",
        State.ERROR: "keeps its claims",
    }
    drawn = {
        (State.QUEUED, State.ALLOCATING): [(124, 59), (146, 59)],
        (State.ALLOCATING, State.ACTIVE): [(267, 59), (289, 59)],
        (State.ACTIVE, State.RELEASING): [(410, 59), (432, 59)],
        (State.RELEASING, State.RELEASED): [(553, 59), (575, 59)],
        (State.QUEUED, State.RELEASED): [(64, 34), (64, 12), (636, 12), (636, 33)],
        (State.ALLOCATING, State.QUEUED): [(172, 84), (172, 104), (64, 104), (64, 85)],
        (State.ALLOCATING, State.RELEASING): [(246, 84), (246, 126), (454, 126), (454, 85)],
        (State.ALLOCATING, State.ERROR): [(222, 84), (222, 206), (289, 206)],
        (State.ERROR, State.ALLOCATING): [(290, 226), (196, 226), (196, 85)],
        (State.ACTIVE, State.ERROR): [(334, 84), (334, 189)],
        (State.ERROR, State.ACTIVE): [(366, 190), (366, 85)],
        (State.RELEASING, State.ERROR): [(486, 84), (486, 206), (411, 206)],
        (State.ERROR, State.RELEASING): [(410, 226), (516, 226), (516, 85)],
    }
    possible = {(one, two) for one, after in SUCCESSORS.items() for two in after if one is not two}
    assert drawn.keys() == possible, drawn.keys() ^ possible
    for (one, two), points in drawn.items():
        bad = State.ERROR in (one, two)
        canvas.line(*points, arrow=True, colour=RED if bad else "currentColor", dashed=bad)
    for state, (x, y) in places.items():
        colour = colours.get(state, "currentColor")
        canvas.card(x, y, wide, high, state.value, [words[state]], colour=colour, fill=0.15)
    for x, y, text in (
        (118, 118, "no room after all"),
        (410, 120, "delete"),
        (350, 26, "delete while it waits"),
    ):
        canvas.text(x, y, text, size=11)
    canvas.lines(
        350,
        260,
        [
            "A step failed. The service repeats it; an administrator may retry or release.",
            "Dashed: into error and back.",
        ],
    )
    return canvas


class _Stage(NamedTuple):
    title: str
    module: str
    words: Sequence[str]
    colour: str


def request() -> Canvas:
    """A request from HTTP to the switches, and the module of each stage."""
    stages = (
        _Stage("REST", "laas_service/api/app.py", ["caller and", "body checked"], BLUE),
        _Stage(
            "use case",
            "laas_service/app/allocations.py",
            ["one snapshot", "of all it needs"],
            BLUE,
        ),
        _Stage(
            "policy",
            "laas_service/domain/policies",
            ["finds hosts", "and links"],
            GREEN,
        ),
        _Stage(
            "ledger",
            "laas_service/adapters/db/admissions.py",
            ["one transaction:", "claims, generation"],
            GREEN,
        ),
        _Stage(
            "worker",
            "laas_service/app/worker/converger.py",
            ["compares, takes", "the next step"],
            ORANGE,
        ),
        _Stage(
            "routes",
            "opensm_writer/publish.py",
            ["files as one set,", "tables read back"],
            ORANGE,
        ),
        _Stage(
            "hosts",
            "laas_service/adapters/nova/handover.py",
            ["aggregate of", "the project"],
            ORANGE,
        ),
    )
    canvas = Canvas(700, 300)
    for number, stage in enumerate(stages):
        assert (ROOT / stage.module).exists(), stage.module
        row, column = divmod(number, 4)
        x, y = 8 + 176 * column, 20 + 130 * row
        if row:
            x = 8 + 176 * (3 - column)
        canvas.card(x, y, 152, 78, f"{number + 1}. {stage.title}", stage.words, colour=stage.colour)
        short = stage.module.removeprefix("laas_service/")
        canvas.text(x + 76, y + 93, short, size=10.5)
        if number and number != 4:
            ends = [(x - 24, y + 39), (x - 2, y + 39)]
            if row:
                ends = [(x + 176, y + 39), (x + 154, y + 39)]
            canvas.line(*ends, arrow=True, wide=1.6)
    canvas.line((612, 118), (612, 148), arrow=True, wide=1.6)
    canvas.text(8, 176, "active:", at="start", bold=True)
    canvas.lines(8, 194, ["Nova accepts", "servers"], at="start")
    canvas.line((182, 189), (100, 189), arrow=True, wide=1.6, colour=GREEN)
    canvas.text(
        350,
        286,
        "1 to 4 answer within one request (202). 5 to 7 can be repeated by any worker.",
        size=12,
    )
    return canvas


def generation() -> Canvas:
    """A generation from the record to the confirmation."""
    canvas = Canvas(700, 316)
    left, right = 110.0, 540.0
    lanes = (
        ("database", 150.0, "claims recorded"),
        ("set of files", 240.0, "published as one"),
        ("OpenSM", 330.0, "told to route"),
        ("switches", 420.0, "written"),
    )
    for number, (name, since, words) in enumerate(lanes):
        y = 44 + 48 * number
        canvas.text(8, y + 4, name, at="start", bold=True)
        canvas.box(left, y - 8, since - left, 16, fill=0.12, round=2)
        canvas.text(left + 8, y + 4, "41", at="start", size=11)
        canvas.box(since, y - 8, right - since, 16, colour=BLUE, fill=0.3, round=2)
        canvas.text(since + 8, y + 4, "42", at="start", size=11)
        canvas.note(since + 2, y - 13, words)
        if number:
            canvas.line((since - 90, y - 40), (since, y - 8), faint=0.6, arrow=True)
    canvas.box(right, 36, 690 - right, 16, colour=GREEN, fill=0.3, round=2)
    canvas.text(right + 26, 48, "42, confirmed", at="start", size=11)
    canvas.line((right, 188), (right + 16, 188), (right + 16, 54), colour=GREEN, wide=2, arrow=True)
    canvas.lines(right + 24, 108, ["read back,", "compared"], at="start")
    y = 44 + 48 * 4
    canvas.text(8, y + 4, "Nova", at="start", bold=True)
    canvas.box(left, y - 8, 640 - left, 16, fill=0.03, round=2)
    canvas.text(630, y + 4, "hosts accept nobody", at="end", size=11)
    canvas.box(640, y - 8, 50, 16, colour=GREEN, fill=0.3, round=2)
    canvas.text(665, y + 4, "open", size=11)
    canvas.line((640, 52), (640, y - 9), colour=GREEN, wide=2, arrow=True)
    canvas.text(632, y - 16, "only then", at="end", size=12)
    canvas.lines(
        left,
        276,
        [
            "Before the confirmation nothing that 41 used is given to anybody else.",
            "If the comparison fails, the service publishes again, and an alarm says since when.",
        ],
        at="start",
    )
    return canvas


def change() -> Canvas:
    """The steps of a change of placement, as the lifecycle has them."""
    told = {
        "stop": "servers stop where no bridge exists",
        "prepare": "new routes lie beside the old ones",
        "switch": "traffic uses the new routes",
        "enter": "new hosts accept servers",
        "leave": "old hosts are emptied and taken back",
        "withdraw": "old routes go; claims become free",
    }
    names = [step.phase.value for step in STEPS]
    assert names == list(told), names
    canvas = Canvas(700, 40 * len(names) + 40)
    for number, (name, words) in enumerate(told.items()):
        y = 12 + 40 * number
        awaits = STEPS[number].awaits_routes
        canvas.box(8, y, 110, 28, colour=BLUE, fill=0.12)
        canvas.text(63, y + 19, name, bold=True)
        canvas.text(136, y + 19, words, at="start")
        canvas.text(
            692, y + 19, "after routes are confirmed" if awaits else "at once", at="end", size=12
        )
        if number:
            canvas.line((63, y - 12), (63, y - 1), arrow=True)
    canvas.note(
        8,
        40 * len(names) + 30,
        "A change takes only the steps that it needs, and may turn back until the last one.",
    )
    return canvas


def shared_host() -> Canvas:
    """A shared host: slots of three tenants, and what its link promises."""
    canvas = Canvas(700, 300)
    slots = (("web", BLUE), ("web", BLUE), ("batch", ORANGE), ("db", GREEN))
    canvas.box(8, 120, 330, 150, fill=0.04)
    canvas.text(22, 144, "host with 4 slots", at="start", bold=True)
    for number, (name, colour) in enumerate(slots):
        x = 22 + 78 * number
        canvas.card(x, 160, 68, 60, name, ["1 slot"], colour=colour, fill=0.2)
    canvas.note(22, 250, "Each machine has a promise of bandwidth.")
    canvas.line((172, 120), (172, 62), wide=6, faint=0.4)
    canvas.card(112, 20, 120, 42, "leaf")
    canvas.note(184, 98, "link of 100 Gb/s")
    canvas.text(380, 40, "What the link promises in each direction", at="start", bold=True)
    demands = (("web", 2, 4, 20, BLUE), ("batch", 1, 12, 30, ORANGE), ("db", 1, 3, 25, GREEN))
    x, scale = 380.0, 3.0
    canvas.box(x, 56, 100 * scale, 26, dashed=True)
    total = 0
    for number, (name, here, of, bandwidth, colour) in enumerate(demands):
        promised = min(here, of - here) * bandwidth  # the hose model of Oktopus
        canvas.box(x, 56, promised * scale, 26, colour=colour, fill=0.4, round=0)
        canvas.text(x + promised * scale / 2, 74, str(promised), size=12)
        x += promised * scale
        total += promised
        y = 112 + 46 * number
        canvas.dot(388, y - 4, colour=colour, size=6)
        canvas.text(
            402, y, f"{name}: {here} of {of} machines here, {bandwidth} Gb/s each", at="start"
        )
        canvas.note(402, y + 17, f"min({here}, {of} - {here}) x {bandwidth} = {promised} Gb/s")
    assert total <= 100
    canvas.note(380, 262, f"{total} of 100 promised: room for {100 - total} Gb/s more.")
    canvas.note(380, 280, "The rest of a tenant limits what can cross.")
    return canvas


def keys() -> Canvas:
    """Partition keys: which host is a member of what, by the file that the service writes."""
    hosts = {"hosts of blue": 1, "hosts of orange": 2, "idle hosts": 3}
    ports = {**hosts, "storage (a service)": 4, "subnet manager": 5}
    tenants = [Partition("laas-blue", 0x2D2, (1,)), Partition("laas-orange", 0x338, (2,))]
    text = "".join(partitions(tenants, Settings("/", services=(4,))))
    default, *others = text.replace("\n", " ").split(" ;")[:3]
    canvas = Canvas(700, 318)
    columns = ("default key", "key of blue", "key of orange")
    for number, name in enumerate(columns):
        canvas.text(270 + 160 * number, 26, name, bold=True)
        key = (default, *others)[number].partition("=")[2].partition(" ")[0].rstrip(",")
        canvas.text(270 + 160 * number, 42, key, size=11)
    colours = (BLUE, ORANGE, "currentColor", PURPLE, "currentColor")
    for number, ((name, guid), colour) in enumerate(zip(ports.items(), colours, strict=True)):
        y = 76 + 38 * number
        canvas.dot(16, y - 4, colour=colour, size=6)
        canvas.text(32, y, name, at="start")
        canvas.line((8, y + 14), (680, y + 14), faint=0.2)
        manager = name == "subnet manager" and "SELF=full" in default
        if manager or f"{guid:#018x}=full" in default:
            canvas.dot(270, y - 4, colour=GREEN, size=8)
        else:
            assert "ALL=limited" in default
            canvas.ring(270, y - 4, size=7)
        for place, partition in enumerate(others):
            if f"{guid:#018x}" in partition and "defmember=full" in partition:
                canvas.dot(430 + 160 * place, y - 4, colour=(BLUE, ORANGE)[place], size=8)
    canvas.dot(16, 276, size=7)
    canvas.note(32, 280, "full member: may talk to every member of the key")
    canvas.ring(16, 298, size=7)
    canvas.note(32, 302, "limited member: may talk to full members alone, so not to other hosts")
    return canvas


def queue() -> Canvas:
    """The queue under EASY: the head's reservation, and jobs that overtake without delaying it."""
    canvas = Canvas(700, 286)
    left, top, unit, row = 70.0, 34.0, 56.0, 26.0
    width, height = 10 * unit, 8 * row
    jobs = (
        ("running", 0, 3, 0, 5, "currentColor"),
        ("running", 0, 5, 5, 2, "currentColor"),
        ("head of the queue: 6 hosts", 5, 9, 0, 6, BLUE),
        ("brief", 0, 5, 7, 1, GREEN),
        ("fits until then", 3, 5, 0, 5, GREEN),
    )
    cells: set[tuple[int, int]] = set()
    for name, start, end, first, hosts, colour in jobs:
        taken = {(t, h) for t in range(start, end) for h in range(first, first + hosts)}
        assert not taken & cells, f"{name} overlaps"
        cells |= taken
        canvas.card(
            left + start * unit + 1,
            top + first * row + 1,
            (end - start) * unit - 2,
            hosts * row - 2,
            name,
            colour=colour,
            fill=0.2,
        )
    reserved = min(start for name, start, *_ in jobs if name.startswith("head"))
    assert all(end <= reserved for *_, end, _, _, colour in jobs if colour == GREEN)
    canvas.line((left, top - 6), (left, top + height), (left + width, top + height), arrow=True)
    canvas.text(left - 10, top + 10, "hosts", at="end", size=12)
    canvas.text(left + width - 4, top + height + 17, "time", at="end", size=12)
    x = left + reserved * unit
    canvas.line((x, top - 6), (x, top + height + 6), colour=BLUE, wide=2, dashed=True)
    canvas.text(x, top - 12, "reservation", size=12, colour=BLUE)
    canvas.text(
        350,
        276,
        "Green jobs overtake: they end by the reservation, so the head starts when it would.",
        size=12,
    )
    return canvas


Machine = tuple[str, Sequence[tuple[str, str, str]]]
"""A machine: its name, and its programs: name, words, colour."""


class _Way(NamedTuple):
    """Calls between programs, over the gap right of a machine; rows of programs count from 0."""

    machine: int
    row: int
    to: int
    words: str
    back: bool = False


def _machines(machines: Sequence[Machine], ways: Iterable[_Way], *notes: str) -> Canvas:
    """Machines beside each other, their programs in them, and who calls whom."""
    highest = max(len(programs) for _, programs in machines)
    gap = 78
    wide = (684 - gap * (len(machines) - 1)) / len(machines)
    height = 44 + 64 * highest
    canvas = Canvas(700, height + 18 + 16 * len(notes))
    for number, (name, programs) in enumerate(machines):
        x = 8 + (wide + gap) * number
        canvas.box(x, 8, wide, height - 8, dashed=True)
        canvas.text(x + wide / 2, 28, name, bold=True, size=12)
        for place, (program, words, colour) in enumerate(programs):
            canvas.card(x + 8, 40 + 64 * place, wide - 16, 54, program, [words], colour=colour)
    for way in ways:
        x = 8 + (wide + gap) * way.machine + wide - 8
        ends = [(x, 67 + 64 * way.row), (x + gap + 15, 67 + 64 * way.to)]
        canvas.line(*(reversed(ends) if way.back else ends), arrow=True, wide=1.6)
        middle = 67 + 32 * (way.row + way.to)
        aside = 8 if way.row == way.to else 14
        canvas.text(x + gap / 2 + 8, middle - aside, way.words, size=12)
    canvas.lines(350, height + 22, notes)
    return canvas


def all_in_one() -> Canvas:
    """Everything in one process."""
    return _machines(
        [
            ("any machine", [("laas", "a tenant, an operator", "currentColor")]),
            (
                "one machine",
                [
                    ("laas-api --all-in-one", "API and worker", BLUE),
                    ("SQLite", "one file", "currentColor"),
                    ("OpenSM", "reads the set of files", ORANGE),
                ],
            ),
        ],
        [_Way(0, 0, 0, "REST")],
        "For a laptop, a laboratory, a first day. No broker, no Keystone, loopback only.",
    )


def controllers() -> Canvas:
    """Several API processes and workers."""
    return _machines(
        [
            ("clients", [("openstack, laas", "and any REST client", "currentColor")]),
            (
                "each controller",
                [
                    ("laas-api", "behind uwsgi and TLS", BLUE),
                    ("laas-worker", "one holds a fabric", BLUE),
                    ("database", "one for all controllers", "currentColor"),
                ],
            ),
            (
                "the cloud",
                [
                    ("Keystone", "tokens and roles", "currentColor"),
                    ("Nova, placement", "aggregates", GREEN),
                    ("subnet manager", "files, agent or UFM", ORANGE),
                ],
            ),
        ],
        [
            _Way(0, 0, 0, "https"),
            _Way(1, 0, 0, "https"),
            _Way(1, 1, 1, "https"),
            _Way(1, 1, 2, ""),
        ],
        "Any controller may stop: another worker takes over its fabrics.",
    )


def agents() -> Canvas:
    """Agents beside the subnet managers."""
    return _machines(
        [
            (
                "manager 1: master",
                [
                    ("laas-opensm-agent", "fetches, publishes", ORANGE),
                    ("OpenSM", "routes the fabric", ORANGE),
                ],
            ),
            (
                "controllers",
                [
                    ("laas-api", "offers the set", BLUE),
                    ("laas-worker", "waits for the reports", BLUE),
                ],
            ),
            (
                "manager 2: standby",
                [
                    ("laas-opensm-agent", "has the same set", ORANGE),
                    ("OpenSM", "ready to take over", ORANGE),
                ],
            ),
        ],
        [_Way(0, 0, 0, "https"), _Way(1, 0, 0, "https", back=True)],
        "Agents call the service, never the reverse. They need no database and no Nova.",
    )


def aggregates() -> Canvas:
    """Hosts of Nova: in the pool they accept nobody, in an aggregate one project."""
    canvas = Canvas(700, 292)
    canvas.box(8, 8, 684, 72, fill=0.05, dashed=True)
    canvas.text(24, 32, "laas-pool", at="start", bold=True)
    canvas.note(24, 50, "accepts nobody")
    owned = {2: BLUE, 3: BLUE, 4: BLUE, 7: ORANGE, 8: ORANGE}
    places = {number: 170 + 54 * number for number in range(10)}
    for number, x in places.items():
        colour = owned.get(number, "currentColor")
        canvas.box(x - 20, 26, 40, 32, colour=colour, fill=0.25 if number in owned else 0.05)
        canvas.text(x, 47, f"n{number}", size=12)
    for name, first, last, colour in (("blue", 2, 4, BLUE), ("orange", 7, 8, ORANGE)):
        left, right = places[first] - 26, places[last] + 26
        middle = (left + right) / 2
        canvas.line((middle - 14, 80), (middle - 14, 150), arrow=True, wide=1.8, colour=colour)
        canvas.line((middle + 14, 150), (middle + 14, 81), arrow=True, wide=1.8, colour=colour)
        canvas.card(
            middle - 90,
            152,
            180,
            58,
            f"laas-{name.upper()}",
            [f"only project {name}"],
            colour=colour,
            fill=0.2,
        )
    canvas.text(304, 112, "handed over when", at="end", size=12)
    canvas.text(304, 127, "routes are confirmed", at="end", size=12)
    canvas.note(360, 112, "taken back")
    canvas.note(360, 127, "when empty")
    canvas.lines(
        8,
        240,
        [
            "The tenant filter keeps others out, the limit to the aggregate the tenant in, and",
            "LaasTenantFilter closes what both leave open. A host joins the pool when it is empty.",
        ],
        at="start",
    )
    return canvas


def ufm() -> Canvas:
    """UFM as the subnet manager."""
    return _machines(
        [
            (
                "controllers",
                [
                    ("laas-api", "offers the set", BLUE),
                    ("laas-worker", "removes, adds, asks", BLUE),
                ],
            ),
            (
                "machine of UFM",
                [
                    ("laas-opensm-agent", "puts the files there", ORANGE),
                    ("UFM", "partitions, jobs, ports", ORANGE),
                ],
            ),
            (
                "fabric",
                [
                    ("subnet manager", "of UFM, reads the files", ORANGE),
                    ("switches", "keys and tables", "currentColor"),
                ],
            ),
        ],
        [
            _Way(0, 0, 0, "https", back=True),
            _Way(0, 1, 1, "REST"),
            _Way(1, 0, 0, "files"),
            _Way(1, 1, 0, ""),
        ],
        "UFM's own answer confirms the partitions. It tells no forwarding tables.",
    )


def slurm() -> Canvas:
    """A cluster of Slurm."""
    return _machines(
        [
            (
                "users",
                [("sbatch, salloc, srun", "as before", "currentColor")],
            ),
            (
                "machine of slurmctld",
                [
                    ("job_submit.lua", "a gate before the job", GREEN),
                    ("laas-slurm", "asks for hosts, lifts gates", GREEN),
                    ("PrologSlurmctld", "checks each start", GREEN),
                ],
            ),
            (
                "service",
                [
                    ("laas-api", "and laas-worker", BLUE),
                    ("OpenSM", "or laas-opensm-agent", ORANGE),
                ],
            ),
        ],
        [_Way(0, 0, 0, "job"), _Way(1, 1, 0, "REST")],
        "A job starts only on hosts of its own allocation, when its routes are confirmed.",
    )


def house() -> Canvas:
    """Packages as storeys: each imports only what lies below, by the contract in setup.cfg."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", "utf-8")
    layers = [
        [room.strip(" ()") for room in layer.split("|")]
        for layer in setup["importlinter:contract:layers"]["layers"].split("\n")
        if layer.strip()
    ]
    told = {
        "cmd": "commands",
        "wiring": "joins ports, adapters",
        "api": "REST",
        "adapters": "SQL, Nova, UFM",
        "simulator": "jobs and clocks",
        "conf": "options",
        "client": "laas, openstack",
        "app": "use cases, worker, ports",
        "messages": "documents",
        "domain": "policies, ledger, routing, judge",
        "garbage": "memory",
        "page": "fabric page",
        "version": "",
        "background": "threads",
    }
    rooms = {room for layer in layers for room in layer}
    assert rooms == told.keys(), rooms ^ told.keys()
    colours = {"domain": GREEN, "app": BLUE, "api": ORANGE, "adapters": ORANGE}
    canvas = Canvas(710, 54 * len(layers) + 86)
    canvas.line((8, 48), (290, 8), (572, 48), wide=1.6)
    canvas.text(290, 36, "laas_service", bold=True)
    for number, layer in enumerate(layers):
        y = 54 + 54 * number
        weights = {room: 2.4 if room in ("domain", "app") else 1.0 for room in layer}
        left, whole = 8.0, 564 / sum(weights.values())
        for room in layer:
            wide = weights[room] * whole
            words = [told[room]] if told[room] else []
            colour = colours.get(room, "currentColor")
            canvas.card(left, y, wide - 4, 48, room, words, colour=colour, fill=0.12)
            left += wide
    floor = 54 + 54 * len(layers)
    canvas.line((590, 60), (590, floor - 10), arrow=True, wide=2)
    canvas.text(604, 112, "imports", at="start", bold=True)
    canvas.lines(604, 130, ["go down only;", "a new module", "names its storey"], at="start")
    canvas.text(604, 220, "beside it", at="start", bold=True)
    canvas.lines(
        604,
        238,
        [
            "opensm_writer:",
            "domain, messages",
            "nova_filters:",
            "Nova alone",
            "plug-ins:",
            "client alone",
        ],
        at="start",
    )
    canvas.note(
        8,
        floor + 24,
        "In the domain, verification is the judge: it imports no ledger, search, policy, routing.",
    )
    return canvas

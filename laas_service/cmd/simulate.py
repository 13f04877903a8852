# SPDX-License-Identifier: Apache-2.0

"""laas-simulate: replays jobs on a simulated fabric and measures an allocation policy."""

import argparse
import itertools
import json
import math
import os
import sys
import webbrowser
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from laas_service import page
from laas_service.adapters.fabric_import.generator import inventory
from laas_service.adapters.snapshot import snapshot
from laas_service.client.options import Argument, argument
from laas_service.client.usage import Parser
from laas_service.cmd.simulation import (
    CHECKPOINT_DIR,
    Extension,
    commands_of,
    extensions,
    on_this_machine,
    positive,
    progress,
    share,
    sink,
    tree_of,
    write,
)
from laas_service.domain.admission.queue import KINDS, Discipline, Order, Shadow
from laas_service.domain.constraints import ContentionFree
from laas_service.domain.errors import InvalidInput, LaasError, NotSupported
from laas_service.domain.fabric_map.document import ledger_document
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import PLANNING
from laas_service.simulator import plots, report
from laas_service.simulator.checkpoints import EVERY, Checkpoint, Results
from laas_service.simulator.measured import ROUTINGS, times_to_private
from laas_service.simulator.moves import MoveSettings
from laas_service.simulator.scenario import Scenario, Trace, Watcher, kept_run, run
from laas_service.simulator.workload import RUNTIME, SPEEDUPS, Exponential, WholeDomains
from laas_service.version import ShowVersion

Result = dict[str, Any]
"""JSON data of one run; see ``scenario.run``."""


RESEARCH = (
    "adaptive-fit",
    "chosen-routes",
    "interference",
    "kraken",
    "kraken-routed",
    "starcube",
    "svc",
    "svc-routed",
)
"""Commands that the distribution ``laas-research`` adds."""

INSTALL = "install it with pip install ./research"


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    extended = extensions()
    try:
        if arguments and arguments[0] in RESEARCH and not extended:
            raise NotSupported(f"{arguments[0]} is a command of laas-research: {INSTALL}")
        options = _parser(extended).parse_args(arguments)
        command: Callable[[argparse.Namespace], int] = options.command
        return command(options)
    except LaasError as error:
        print(f"laas-simulate: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


# -- options ------------------------------------------------------------------


def _low_and_high(text: str) -> tuple[int, int]:
    low, _, high = text.partition(":")
    if not (low.isdecimal() and high.isdecimal() and 0 < int(low) <= int(high)):
        raise argparse.ArgumentTypeError(f"{text!r}: give LOW:HIGH seconds, for example 20:3000")
    return int(low), int(high)


def _job_and_file(text: str) -> tuple[int, str]:
    job, _, path = text.partition(":")
    if not (job.isdecimal() and path):
        raise argparse.ArgumentTypeError(f"{text!r}: give JOB:FILE, for example 5000:state.json")
    return int(job), path


def _moves(text: str) -> int | None:
    """A number of jobs; None for all."""
    if text != "all" and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number of at least 0, or all")
    return None if text == "all" else int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: give a number of seconds, 0 or more")
    return seconds


def _names(kind: type[Shadow] | type[Order]) -> list[str]:
    return [member.value for member in kind]


def _fabric(*, required: bool) -> Argument:
    """The shape of the fabric, one of two ways."""

    def add(parser: argparse.ArgumentParser) -> None:
        shape = parser.add_mutually_exclusive_group(required=required)
        shape.add_argument(
            "--radix", type=int, metavar="K", help="full three-level tree of K-port switches"
        )
        shape.add_argument("--xgft", metavar="SPEC", help='for example "3;18,18,36;1,18,18"')

    return add


def _source(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--swf", metavar="FILE", help="jobs in Standard Workload Format, also .gz")
    source.add_argument("--csv", metavar="FILE", help="jobs as lines of id,hosts,arrival,run time")
    source.add_argument("--synthetic", metavar="exp:MEAN:JOBS", help="exponential sizes")


_WORKLOAD = (
    argument(
        "--procs-per-node",
        type=positive,
        metavar="P",
        help="processors of a host (default: MaxProcs / MaxNodes of the trace's header where that"
        " is whole, else 1)",
    ),
    argument("--clean", action="store_true", help="leave out cancelled jobs (status 5) of a trace"),
    argument("--max-hosts", type=int, metavar="H", help="leave out jobs of more hosts"),
    argument(
        "--runtime",
        type=_low_and_high,
        metavar="LOW:HIGH",
        help="draw run times in seconds (default for synthetic jobs: 20:3000)",
    ),
    argument(
        "--arrivals",
        choices=("trace", "zero"),
        default="trace",
        help="zero: all jobs arrive at once",
    ),
    argument("--scale-arrivals", type=float, default=1.0, metavar="F"),
    argument("--queue", choices=KINDS, default="easy"),
    argument(
        "--rails",
        type=positive,
        default=1,
        metavar="R",
        help="ports of each host; the pods of the tree are divided among as many planes (1)",
    ),
    argument(
        "--domains",
        metavar="SIZE[:SHARE]",
        help="so many hosts in a row are a domain; a share of the jobs (0.5) asks for 1 to 8 whole"
        " ones instead of its hosts",
    ),
    argument(
        "--domains-as-hosts",
        action="store_true",
        help="with --domains: these jobs ask for as many hosts anywhere, to compare with",
    ),
    argument(
        "--two-pods",
        action="store_true",
        help="jigsaw only: a shape on two pods may have the larger pod as its remainder pod",
    ),
    argument(
        "--contention-free",
        choices=[wish.value for wish in ContentionFree],
        help="what every job wants: a shape in which no shift of its hosts meets itself",
    ),
    argument(
        "--interference",
        metavar="FILE",
        help="jobs take as long as tenants did in these results of interference --format json",
    ),
    argument(
        "--routing",
        choices=[routing for routing in ROUTINGS if routing != "own"],
        default="d-mod-k",
        help="with --interference: that of jobs without links of their own (d-mod-k)",
    ),
    argument(
        "--moves",
        type=_moves,
        default=0,
        metavar="K",
        help="move up to K running jobs for each job that starts (0); all: place all of them again",
    ),
    argument(
        "--links-only",
        action="store_true",
        help="with --moves K: jobs keep their hosts and exchange links alone",
    ),
    argument(
        "--movable",
        type=share,
        default=1.0,
        metavar="SHARE",
        help="share of jobs that may move (1)",
    ),
    argument(
        "--move-cost",
        type=_seconds,
        default=0.0,
        metavar="SECONDS",
        help="time that a job loses when it moves to other hosts (0)",
    ),
)

_CHECKPOINT_EVERY = argument(
    "--checkpoint-every",
    metavar="SECONDS",
    type=_seconds,
    default=EVERY,
    help=f"time between two checkpoints of a run ({EVERY:g})",
)

_CHOICES = ("policy", "window", "shadow", "order", "packing", "speedup", "seed")
"""The options of which a sweep takes several values."""

_PACKINGS = ("none", "ends")

_HTML = argument(
    "--html",
    metavar="FILE",
    help="write a report with charts that explains its words; a browser shows it on a terminal",
)

_RUN = (
    _fabric(required=True),
    argument("--policy", required=True, choices=sorted(PLANNING)),
    _source,
    *_WORKLOAD,
    argument(
        "--window",
        type=int,
        default=50,
        help="requests behind the head of the queue that may overtake it (50)",
    ),
    argument(
        "--shadow",
        choices=_names(Shadow),
        default="what-if",
        help="requests that may overtake the head of the queue: those that end before its "
        "reservation (end-before-shadow), or also those after which it still has a legal "
        "placement (what-if)",
    ),
    argument(
        "--order",
        choices=_names(Order),
        default="arrival",
        help="order in which the window is searched; big-first raises utilization",
    ),
    argument(
        "--packing",
        choices=_PACKINGS,
        default="none",
        help="ends: small jobs prefer a leaf whose jobs end at a similar time; raises utilization",
    ),
    argument(
        "--speedup",
        choices=list(SPEEDUPS),
        default="none",
        help="run time that isolated jobs save: percent, or a scenario of the Jigsaw paper",
    ),
    argument("--seed", type=int, default=1, help="of all random draws (1)"),
    argument("--json", metavar="FILE", help="write the results as JSON; - is standard output"),
    _HTML,
    argument(
        "--snapshot-at",
        metavar="JOB:FILE",
        type=_job_and_file,
        action="append",
        default=[],
        help="write the state of the fabric after this many jobs have started; a FILE that ends in "
        ".html becomes a page that shows it",
    ),
    argument(
        "--checkpoint",
        metavar="FILE",
        help="save the state of the run in FILE every minute, and go on from there if FILE"
        " exists; removed when the run has ended",
    ),
    _CHECKPOINT_EVERY,
)

_SWEEP = (
    _fabric(required=False),
    argument("--policy", nargs="+", default=["baseline"], choices=sorted(PLANNING)),
    argument("--swf", metavar="FILE", nargs="+", default=[]),
    argument("--csv", metavar="FILE", nargs="+", default=[]),
    argument("--synthetic", metavar="exp:MEAN:JOBS", nargs="+", default=[]),
    *_WORKLOAD,
    argument("--window", type=int, nargs="+", default=[50]),
    argument("--shadow", nargs="+", choices=_names(Shadow), default=["what-if"]),
    argument("--order", nargs="+", choices=_names(Order), default=["arrival"]),
    argument("--packing", nargs="+", choices=_PACKINGS, default=["none"]),
    argument("--speedup", nargs="+", choices=list(SPEEDUPS), default=["none"]),
    argument("--seed", type=int, nargs="+", default=[1]),
    argument("--suite", metavar="NAME", help="a ready-made set of scenarios of laas-research"),
    argument("--traces", metavar="DIR", help="directory of the suite's traces"),
    argument("--only", metavar="TEXT", help="only scenarios whose label or policy contains TEXT"),
    argument("--workers", type=int, default=os.cpu_count(), help="processes on this machine"),
    argument("--dask", metavar="ADDRESS", help="run on a Dask cluster instead"),
    argument(
        "--json", metavar="FILE", default="-", help="write one line of JSON for each scenario"
    ),
    _HTML,
    CHECKPOINT_DIR,
    _CHECKPOINT_EVERY,
)


_REPORTED = (
    argument("results", metavar="RESULTS", nargs="+", help="files written by run or sweep"),
    argument("--format", choices=("html", "rst"), default="html"),
    argument("--output", metavar="FILE", default="-"),
)


def _parser(extended: Iterable[Extension] = ()) -> argparse.ArgumentParser:
    parser = Parser(prog="laas-simulate", description=__doc__)
    parser.add_argument("--version", action=ShowVersion)
    add = commands_of(parser)
    add("run", "simulate one scenario", _RUN, command=_run)
    add("sweep", "simulate every combination of the given options", _SWEEP, command=_sweep)
    for extension in extended:
        extension.add_commands(add)
    add("report", "make plots and tables from results", _REPORTED, command=_report)
    return parser


def _scenario(
    options: argparse.Namespace, source: Trace | Exponential, chosen: Mapping[str, Any]
) -> Scenario:
    """``chosen`` has one value of each of ``_CHOICES``, of which a sweep takes several."""
    policy, window, shadow, order, packing, speedup, seed = (chosen[name] for name in _CHOICES)
    runtime = options.runtime
    if runtime is None and isinstance(source, Exponential):
        runtime = RUNTIME
    return Scenario(
        policy=policy,
        tree=tree_of(options),
        source=source,
        max_hosts=options.max_hosts,
        runtime=runtime,
        scale_arrivals=0 if options.arrivals == "zero" else options.scale_arrivals,
        discipline=Discipline(
            options.queue, window, Shadow(shadow), Order(order), packing == "ends"
        ),
        speedup=speedup,
        seed=seed,
        two_pods=options.two_pods,
        contention_free=(
            ContentionFree(options.contention_free) if options.contention_free else None
        ),
        rails=options.rails,
        domains=_domains(options),
        measured=_measured(options, policy),
        moves=_move_settings(options),
    )


def _move_settings(options: argparse.Namespace) -> MoveSettings:
    if options.links_only and not options.moves:
        raise InvalidInput("links-only", True, "give --moves K with it, a number of at least 1")
    return MoveSettings(options.moves, options.movable, options.move_cost, options.links_only)


def _domains(options: argparse.Namespace) -> WholeDomains | None:
    if options.domains is None:
        if options.domains_as_hosts:
            raise InvalidInput("domains-as-hosts", True, "give --domains SIZE with it")
        return None
    return WholeDomains.parse(options.domains, as_hosts=options.domains_as_hosts)


def _measured(options: argparse.Namespace, policy: str) -> tuple[tuple[int, float], ...]:
    """The tenants whose times the jobs of a policy have; none without ``--interference``."""
    if options.interference is None:
        return ()
    try:
        results = json.loads(Path(options.interference).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = f"cannot be read: {error}"
        raise InvalidInput("interference", options.interference, reason) from error
    if not isinstance(results, list) or not all(isinstance(x, dict) for x in results):
        reason = "holds no results of laas-simulate interference --format json"
        raise InvalidInput("interference", options.interference, reason)
    return tuple(times_to_private(results, policy, options.routing))


def _trace(options: argparse.Namespace, path: str, form: str) -> Trace:
    return Trace(path, form, options.procs_per_node, options.clean)


# -- run ----------------------------------------------------------------------


def _run(options: argparse.Namespace) -> int:
    _check_page(options.html)
    source: Trace | Exponential
    if options.synthetic is not None:
        source = Exponential.parse(options.synthetic)
    elif options.csv is not None:
        source = _trace(options, options.csv, "csv")
    else:
        source = _trace(options, options.swf, "swf")
    scenario = _scenario(options, source, vars(options))
    checkpoint = None
    if options.checkpoint is not None:
        checkpoint = Checkpoint(Path(options.checkpoint), options.checkpoint_every)
    with progress("jobs") as advance:
        result = run(
            scenario,
            progress=advance,
            watch=_snapshots(options.snapshot_at),
            checkpoint=checkpoint,
        )
    for job, path in options.snapshot_at:
        if job > result["jobs"]:
            raise InvalidInput("snapshot-at", f"{job}:{path}", f"only {result['jobs']} jobs start")
        if checkpoint is not None and path != "-" and not Path(path).exists():
            raise InvalidInput(
                "snapshot-at",
                f"{job}:{path}",
                "the checkpoint is of a later moment; remove it to start at the beginning",
            )
    _warn_of_malformed(result)
    if options.json is not None:
        write(options.json, json.dumps(result, indent=1) + "\n")
    if options.json != "-":
        print(report.text(result), end="")
        if sys.stdout.isatty():
            print(report.drawing(result, min(Console().width, 100)), end="")
    _show_page(options.html, [result])
    if checkpoint is not None:
        checkpoint.remove()
    return 0


def _check_page(path: str | None) -> None:
    """Refuse a report that could not be written, before the simulation.

    Raises:
        InvalidInput, NotSupported: its directory does not exist; matplotlib is not installed.
    """
    if path is None:
        return
    plots.require_matplotlib()
    if not Path(path).absolute().parent.is_dir():
        raise InvalidInput("html", path, "is in a directory that does not exist")


def _show_page(path: str | None, results: Sequence[Result]) -> None:
    """Write the report of some results, and open it if a person sits at a terminal."""
    if path is None:
        return
    write(path, report.html(results))
    if path != "-" and sys.stdout.isatty():
        webbrowser.open(Path(path).absolute().as_uri())


def _snapshots(snapshots: Sequence[tuple[int, str]]) -> Watcher | None:
    """A watcher that writes each snapshot (jobs, file) when that many jobs have started."""
    if not snapshots:
        return None

    def watch(started: int, fabric: Ledger) -> None:
        for job, path in snapshots:
            if job == started:
                text = _page(fabric, job) if path.endswith(".html") else _snapshot(fabric)
                write(path, text)

    return watch


def _snapshot(fabric: Ledger) -> str:
    return json.dumps(snapshot(fabric, tables=True)) + "\n"


def _page(fabric: Ledger, job: int) -> str:
    """The fabric page at the moment when that many jobs have started."""
    tree = fabric.topology.tree
    name = f"XGFT(3; {','.join(map(str, tree.m))}; {','.join(map(str, tree.w))}) after {job} jobs"
    return page.page(ledger_document(fabric, inventory(fabric.topology), name))


def _warn_of_malformed(result: Result) -> None:
    malformed = result["malformed"]
    for line in malformed["first"]:
        print(f"laas-simulate: line {line['line']}: {line['why']}", file=sys.stderr)
    rest = malformed["count"] - len(malformed["first"])
    if rest:
        print(f"laas-simulate: and {rest} more malformed lines", file=sys.stderr)


# -- sweep --------------------------------------------------------------------


def _sweep(options: argparse.Namespace) -> int:
    scenarios = [
        scenario
        for scenario in _scenarios(options)
        if not options.only or options.only in f"{scenario.label} {scenario.policy}"
    ]
    if not scenarios:
        raise InvalidInput("scenarios", 0, "give traces, --synthetic or --suite that match --only")
    _check_page(options.html)
    results: list[Result] = []
    with sink(options.json) as put, progress("scenarios") as advance:
        for result in _results(scenarios, options):
            put(json.dumps(result) + "\n")
            results.append(result)
            advance(len(results), len(scenarios))
    for result in results:
        _warn_of_malformed(result)
    table = sys.stderr if options.json == "-" else sys.stdout
    print(report.comparison_text(results), end="", file=table)
    _show_page(options.html, results)
    return 0


def _scenarios(options: argparse.Namespace) -> Iterable[Scenario]:
    if options.suite is not None:
        if options.traces is None:
            raise InvalidInput("traces", None, "name the directory with the suite's traces")
        suites = {name: make for each in extensions() for name, make in each.SUITES.items()}
        if options.suite not in suites:
            known = f"choose from {', '.join(suites)}" if suites else INSTALL
            raise InvalidInput("suite", options.suite, known)
        chosen = suites[options.suite](Path(options.traces))
        return [scenario for section in chosen for scenario in section.scenarios()]
    sources: list[Trace | Exponential] = [
        *(_trace(options, path, "swf") for path in options.swf),
        *(_trace(options, path, "csv") for path in options.csv),
        *(Exponential.parse(text) for text in options.synthetic),
    ]
    choices = [getattr(options, name) for name in _CHOICES]
    return [
        _scenario(options, source, dict(zip(_CHOICES, chosen, strict=True)))
        for source, *chosen in itertools.product(sources, *choices)
    ]


def _results(scenarios: Sequence[Scenario], options: argparse.Namespace) -> Iterator[Result]:
    """The result of each scenario, in the given order, as soon as it is known."""
    simulate: Callable[[Scenario], Result] = run
    if options.checkpoint is not None:
        results = Results(Path(options.checkpoint).absolute(), options.checkpoint_every)
        simulate = partial(kept_run, results=results)
    if options.dask:
        return _on_dask(simulate, scenarios, options.dask)
    return on_this_machine(simulate, scenarios, options.workers)


def _on_dask(
    simulate: Callable[[Scenario], Result], scenarios: Sequence[Scenario], address: str
) -> Iterator[Result]:
    try:
        from distributed import Client
    except ImportError as error:
        raise NotSupported(
            "--dask needs the package distributed: pip install distributed"
        ) from error
    with Client(address) as client:  # type: ignore[no-untyped-call]
        for future in client.map(simulate, scenarios, pure=False):
            yield future.result()


# -- report -------------------------------------------------------------------


def _report(options: argparse.Namespace) -> int:
    results = [result for path in options.results for result in _read_results(path)]
    sections = [section for each in extensions() for section in each.sections()]
    make = report.html if options.format == "html" else report.rst
    write(options.output, make(results, sections))
    return 0


def _read_results(path: str) -> list[Result]:
    """Results of ``run`` (one document) or ``sweep`` (one on each line)."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput("results", path, f"cannot be read: {error}") from error
    decoder = json.JSONDecoder()
    results, position = [], 0
    try:
        while text[position:].strip():
            position += len(text[position:]) - len(text[position:].lstrip())
            result, position = decoder.raw_decode(text, position)
            results.append(result)
    except ValueError as error:
        raise InvalidInput("results", path, f"is not JSON of laas-simulate: {error}") from error
    if not results or not all(isinstance(x, dict) and "utilization" in x for x in results):
        raise InvalidInput("results", path, "holds no result of laas-simulate run or sweep")
    return results


if __name__ == "__main__":
    sys.exit(main())

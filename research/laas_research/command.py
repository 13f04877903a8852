# SPDX-License-Identifier: Apache-2.0

"""laas-research: repeats the evaluations of the papers, and measures interference.

``laas-simulate`` has the same commands where this distribution is installed.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from laas_research import papers
from laas_research.experiments import EXPERIMENTS, figures
from laas_research.experiments.figures import Experiment
from laas_research.interference import study
from laas_research.interference.study import HOSTS_A_SERVER, Study
from laas_research.interference.traffic import PATTERNS, STORAGE
from laas_service.client.options import Argument, argument
from laas_service.cmd.simulation import (
    CHECKPOINT_DIR,
    AddCommand,
    commands_of,
    on_this_machine,
    positive,
    progress,
    share,
    tree_of,
    whole,
    write,
)
from laas_service.domain.common_plane import CommonPlane
from laas_service.domain.errors import InvalidInput, LaasError
from laas_service.domain.policies import POLICIES
from laas_service.simulator.checkpoints import Results
from laas_service.simulator.measured import RANDOM, ROUTINGS
from laas_service.simulator.sections import Section

# -- options ------------------------------------------------------------------


def any_fabric(parser: argparse.ArgumentParser) -> None:
    """The shape of a fabric, or a real one."""
    shape = parser.add_mutually_exclusive_group(required=True)
    shape.add_argument("--radix", type=int, metavar="K", help="full tree of K-port switches")
    shape.add_argument("--xgft", metavar="SPEC", help='for example "3;12,12,12;1,12,12"')
    shape.add_argument("--fabric", metavar="FILE", help="fabric description, or ibnetdiscover dump")


def _experiment_arguments(experiment: Experiment) -> tuple[Argument, ...]:
    return (
        argument("--seed", type=int, default=1, help="of all random draws (1)"),
        argument(
            "--runs",
            type=positive,
            default=experiment.runs,
            help=f"repetitions of each point ({experiment.runs})",
        ),
        argument(
            "--size",
            type=float,
            default=1.0,
            help="share of the published size; 0.1 is quick (1)",
        ),
        argument(
            "--workers", type=positive, default=os.cpu_count(), help="processes on this machine"
        ),
        argument("--format", choices=("text", "rst", "html", "json"), default="text"),
        argument("--output", metavar="FILE", default="-"),
        CHECKPOINT_DIR,
    )


INTERFERENCE = (
    any_fabric,
    argument("--tenants", type=positive, default=32, help="tenants that run at one time (32)"),
    argument(
        "--pattern",
        nargs="+",
        choices=(*PATTERNS, STORAGE),
        default=["stencil-2d"],
        help="what they send; of several, each tenant sends the next",
    ),
    argument(
        "--servers",
        type=positive,
        default=0,
        help=f"storage servers, for the pattern storage (one in {HOSTS_A_SERVER} hosts)",
    ),
    argument(
        "--l2",
        type=whole,
        nargs="+",
        default=[],
        metavar="INDEX",
        help="L2 indices of a common plane, over which tenants on their own links reach storage",
    ),
    argument(
        "--messages",
        type=positive,
        nargs="+",
        default=[1024, 8192, 32768, 131072, 1048576],
        metavar="BYTES",
        help="sizes of messages",
    ),
    argument(
        "--policy", nargs="+", choices=(*POLICIES, RANDOM), default=["baseline", "laas", "jigsaw"]
    ),
    argument(
        "--routing",
        nargs="+",
        choices=ROUTINGS,
        default=list(ROUTINGS),
        help="own: each tenant on its own links, for policies that own some; the others are for "
        "the whole tree, where they own none",
    ),
    argument(
        "--compute",
        type=share,
        default=0.0,
        metavar="SHARE",
        help="share of an iteration alone in which a tenant computes (0)",
    ),
    argument("--iterations", type=positive, default=3, help="iterations of each tenant (3)"),
    argument("--seed", type=int, default=1, help="of all random draws (1)"),
    argument("--format", choices=("text", "rst", "html", "json"), default="text"),
    argument("--output", metavar="FILE", default="-"),
)


# -- experiments --------------------------------------------------------------


def _experiment(options: argparse.Namespace) -> int:
    experiment: Experiment = options.experiment
    if not 0 < options.size <= 1:
        raise InvalidInput("size", options.size, "give a share of the published size, above 0 to 1")
    trials = experiment.trials(options.seed, options.runs, options.size)
    kept = None if options.checkpoint is None else Results(Path(options.checkpoint))
    simulate = partial(figures.kept_run, results=kept)
    results = []
    with progress("simulations") as advance:
        for result in on_this_machine(simulate, trials, options.workers):
            results.append(result)
            advance(len(results), len(trials))
    result_figures = experiment.figures(results)
    write(
        options.output,
        {
            "text": lambda: figures.text(result_figures),
            "rst": lambda: figures.rst(result_figures),
            "html": lambda: figures.html(experiment.source, result_figures),
            "json": lambda: json.dumps(figures.data(result_figures), indent=1) + "\n",
        }[options.format](),
    )
    return 0


# -- interference -------------------------------------------------------------


def _interference(options: argparse.Namespace) -> int:
    from laas_service.adapters.fabric_import.fabric_file import parse_fabric, read_fabric

    if options.fabric is not None:
        fabric = read_fabric(Path(options.fabric))
    else:
        spec = tree_of(options)
        sizes = (",".join(map(str, numbers)) for numbers in (spec.m, spec.w))
        fabric = parse_fabric(f"3;{';'.join(sizes)}", "xgft")
    plane = fabric.shared_plane
    if options.l2:
        plane = CommonPlane.of(fabric.topology.tree, tuple(options.l2))
    wanted = Study(
        tenants=options.tenants,
        patterns=tuple(options.pattern),
        servers=options.servers,
        plane=plane,
        messages=tuple(options.messages),
        policies=tuple(options.policy),
        routings=tuple(options.routing),
        compute=options.compute,
        iterations=options.iterations,
        seed=options.seed,
    )
    with progress("cases") as advance:
        results = study.run(wanted, fabric.topology, fabric.inventory, advance)
    drawn = study.figures(results)
    write(
        options.output,
        {
            "text": lambda: figures.text(drawn),
            "rst": lambda: figures.rst(drawn),
            "html": lambda: figures.html(f"What isolation is worth. {study.defaults()}", drawn),
            "json": lambda: json.dumps(results, indent=1) + "\n",
        }[options.format](),
    )
    return 0


# -- commands -----------------------------------------------------------------


def _suite(name: str) -> Callable[[Path], Sequence[Section]]:
    return lambda traces: papers.suite(name, traces)


SUITES: Mapping[str, Callable[[Path], Sequence[Section]]] = {
    name: _suite(name) for name in papers.SUITES
}


def sections() -> Sequence[Section]:
    """The sections of the papers."""
    return papers.suite("papers", Path())


def add_commands(add: AddCommand) -> None:
    """Add a command for each experiment, and ``interference``."""
    for name, experiment in EXPERIMENTS.items():
        add(
            name,
            experiment.source,
            _experiment_arguments(experiment),
            f"Repeat the figures of {experiment.source}.",
            command=_experiment,
            experiment=experiment,
        )
    add(
        "interference",
        "measure how much tenants slow each other down",
        INTERFERENCE,
        "Compare policies and routings by the speed that tenants keep among each other.",
        command=_interference,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="laas-research", description=__doc__)
    add_commands(commands_of(parser))
    options = parser.parse_args(arguments)
    try:
        command: Callable[[argparse.Namespace], int] = options.command
        return command(options)
    except LaasError as error:
        print(f"laas-research: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())

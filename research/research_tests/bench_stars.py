# SPDX-License-Identifier: Apache-2.0

"""Cost of a StarCube request: ``python -m research_tests.bench_stars [--radix K] [--size N]``.

The experiment is that of the book (section 5.5): requests fill a K-ary fat-tree, 10 percent of
the units leave at random, and requests for as many units follow. Sizes have a normal
distribution; types are E and A. Times are milliseconds of processor time per request, refusals
included; they are reported, never asserted.
"""

from __future__ import annotations

import argparse
import time
from random import Random

from laas_research.stars.cube import Cube
from laas_research.stars.plan import Plan, StarRequest
from laas_research.stars.scap import Method, propose
from laas_research.stars.units import Kind

PAPER = {1: "1", 2: "3", 3: "10"}


def fill(cube: Cube, method: Method, rng: Random, name: str) -> list[tuple[int, float]]:
    """(size, milliseconds) of each request; the sizes add up to the free units."""
    times: list[tuple[int, float]] = []
    asked, most = sum(cube.room), cube.sizes[0]
    while asked:
        size = min(asked, max(1, min(most, round(rng.gauss(most / 2, most / 6)))))
        kind = rng.choice((Kind.E, Kind.A)) if size > 1 else Kind.S
        request = StarRequest(f"{name}{len(times)}", size, kind, across=True)
        start = time.thread_time_ns()
        answer = propose(cube, request, method)
        if isinstance(answer, Plan):
            cube.admit(answer)
        times.append((size, (time.thread_time_ns() - start) / 1e6))
        asked -= size
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--radix", type=int, default=48)
    parser.add_argument("--size", type=int, default=10, help="the size of which to tell apart")
    options, _ = parser.parse_known_args()
    half = options.radix // 2
    print(f"{half * half * options.radix} hosts: StarCube, ms a request")
    heads = ("method", "number", "mean", "p99", "max", f"size {options.size}", "book")
    print("".join(f"{head:>9}" for head in heads))
    for method in Method:
        rng = Random(1)
        cube = Cube((half, half, options.radix))
        fill(cube, method, rng, "old ")
        for unit in rng.sample(sorted(cube.owner), len(cube.owner) // 10):
            cube.shrink(cube.owner[unit], [unit])
        times = fill(cube, method, rng, "new ")
        every = sorted(elapsed for _, elapsed in times)
        some = [elapsed for size, elapsed in times if size == options.size] or [0.0]
        row = [sum(every) / len(every), every[int(0.99 * (len(every) - 1))], every[-1]]
        row.append(sum(some) / len(some))
        figures = "".join(f"{value:9.2f}" for value in row)
        print(f"{method:9}{len(every):9}{figures}{PAPER.get(method, '-'):>9}", flush=True)


if __name__ == "__main__":
    main()

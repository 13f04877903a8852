# SPDX-License-Identifier: Apache-2.0

"""``make stack``: the whole stack, the story of many tenants on it, and its figures.

    python -m tests.stack [--keep] [--json FILE] [--xgft SPEC] [--tenants N] [--servers N] ...

The exit status is 0 only if the judge found nothing. All processes end, also on Ctrl-C and
after a failure. After a failure, ``stack-logs`` has the logs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from tests.stack import figures
from tests.stack.everything import SIGNALS, XGFT, Everything, undisturbed
from tests.stack.people import People
from tests.stack.service import FABRIC
from tests.story.scenario import Story


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="stack", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--keep", action="store_true", help="leave it running until Ctrl-C")
    parser.add_argument("--json", type=Path, help="write what was seen to this file")
    parser.add_argument("--xgft", default=XGFT, help=f"tree of the hosts; {XGFT} by default")
    parser.add_argument("--tenants", type=int, default=12)
    parser.add_argument("--servers", type=int, default=300, help="to start in all")
    parser.add_argument("--at-once", type=int, default=4, help="tenants that act at one time")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    for number in SIGNALS:
        signal.signal(number, _interrupt)
    begin = time.monotonic()
    try:
        with Everything(say, options.xgft) as stack:
            seen = told(stack, options)
            seen["seconds"]["all"] = time.monotonic() - begin
            report(seen, options.json)
            if seen["problems"]:
                raise Broken
            if options.keep:
                keep(stack)
    except Broken:
        return 1
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    return 0


class Broken(Exception):
    """The judge found a problem; the stack ends as after any failure."""


def say(text: str) -> None:
    print(text, flush=True)


def told(stack: Everything, options: argparse.Namespace) -> dict[str, Any]:
    """Take the figures on an idle stack, then run the story, then verify record and switches."""
    people = People(stack, options.tenants)
    seen = figures.timed(people, stack.service.hosts)
    say(json.dumps(_rounded(seen)))
    story = Story(
        people.site(), options.seed, options.tenants, options.servers, at_once=options.at_once
    )
    story.say = say
    story.projects = people.projects
    begin = time.monotonic()
    result = story.tell()
    taken = time.monotonic() - begin
    say(verified(stack))
    return {
        "load": list(os.getloadavg()),
        "seconds": {**stack.times, "the story": taken},
        "MiB": figures.memory(os.getpid()),
        **seen,
        "story": dataclasses.asdict(result),
        "problems": result.problems,
    }


def verified(stack: Everything) -> str:
    """Verify record and switches by ``laas-manage``. Raises: RuntimeError: it found problems."""
    manager = f"{stack.service.manager.guid:#018x}"
    words = ("fabric", "verify", FABRIC, "--lfts", "-", "--subnet-manager", manager)
    return stack.service.manage(*words, text=stack.service.tables()).strip()


def report(seen: dict[str, Any], path: Path | None) -> None:
    text = json.dumps(_rounded(seen), indent=1)
    say(text)
    if path:
        path.write_text(f"{text}\n")
    for problem in seen["problems"]:
        say(f"PROBLEM {problem}")
    say("Everything held." if not seen["problems"] else "Failed.")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 1)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return value


def keep(stack: Everything) -> None:
    """Print how to reach the stack, and wait for Ctrl-C."""
    login = stack.keystone.environment("admin", "admin")
    say("\nTo reach it, in another shell:\n")
    for name, value in login.items():
        say(f"    export {name}={value}")
    say(f"    export LAAS_ENDPOINT={stack.service.url}")
    say(f"\nlogs    {stack.logs}\nfiles   {stack.service.directory}\nCtrl-C ends it.")
    signal.pause()


def _interrupt(number: int, frame: FrameType | None) -> None:
    undisturbed()
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())

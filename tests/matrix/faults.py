# SPDX-License-Identifier: Apache-2.0

"""Faults of the matrix: how each one begins and ends, and which steps notice it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from tests.matrix.site import Ground, Site
from tests.nova_standin import Fault as Answer

HASTE = 0.5
"""Timeout of requests to Nova, in seconds, while Nova is made silent."""


PLAIN = Ground()


def _nothing(site: Site) -> None:
    pass


@dataclass(frozen=True)
class Fault:
    """A column of the matrix.

    The fault strikes ``when`` (before or after) a step. It either ``kills`` the process, or
    ``fails`` it with an exception, or calls ``begin`` and, later, ``end``. With ``haste``,
    requests to Nova time out after ``HASTE`` seconds. A fault that ``lasts`` ends when all
    work is done; another one ends when the step is over, or has failed twice. ``meets`` tells
    which steps of a scenario notice the fault, and ``unmet`` why the others do not.
    """

    name: str
    title: str
    when: str = "before"
    ground: Ground = PLAIN
    kills: bool = False
    fails: bool = False
    begin: Callable[[Site], None] = _nothing
    end: Callable[[Site], None] = _nothing
    haste: bool = False
    lasts: bool = False
    meets: Callable[[str, str], bool] = lambda scenario, step: True
    unmet: str = ""

    @property
    def own(self) -> bool:
        """Whether the fault hits the service's own processes and connections."""
        return self.kills or self.fails or self.ground.proxy


def _answers(kind: int | str) -> Callable[[Site], None]:
    def begin(site: Site) -> None:
        site.cloud.faults.append(Answer(kind, times=1_000_000_000))

    return begin


def _well_again(site: Site) -> None:
    cloud = site.cloud
    with cloud.lock:
        cloud.faults.clear()
        cloud.hanging.set()
        cloud.hanging = threading.Event()


def _cut(how: str) -> Callable[[Site], None]:
    def begin(site: Site) -> None:
        assert site.database_proxy is not None
        site.database_proxy.cut = how

    return begin


def _no_cut(site: Site) -> None:
    assert site.database_proxy is not None
    site.database_proxy.cut = None


def _asks_nova(scenario: str, step: str) -> bool:
    """Whether the step needs an answer of Nova.

    A release asks which servers run on the hosts; a forced release does not. An allocation
    asks for the limit of the project, and continues without an answer.
    """
    names = ("fence", "take back", "hand over", "move servers")
    return step.partition(" (")[0] in names or (scenario, step) == ("release", "request")


def _commits(scenario: str, step: str) -> bool:
    return step == "request" or step.startswith("commit")


def _publishes(scenario: str, step: str) -> bool:
    return step.startswith("publish")


def _writes(scenario: str, step: str) -> bool:
    return _commits(scenario, step) or _publishes(scenario, step)


NOVA = "needs no Nova"
FAULTS = {
    fault.name: fault
    for fault in (
        Fault("killed before", "kill -9 before", kills=True),
        Fault("killed after", "kill -9 after", "after", kills=True),
        Fault("exception before", "exception before", fails=True),
        Fault("exception after", "exception after", "after", fails=True),
        Fault(
            "broker",
            "broker down",
            ground=Ground(broker=True),
            begin=lambda site: site.world.broker.kill(),
            end=lambda site: site.world.broker.start(),
            lasts=True,
            meets=lambda scenario, step: False,
            unmet="waits for no broker",
        ),
        Fault(
            "nova down",
            "Nova down",
            begin=lambda site: site.nova_proxy.down(),
            end=lambda site: site.nova_proxy.up(),
            meets=_asks_nova,
            unmet=NOVA,
        ),
        Fault(
            "nova 409",
            "Nova: 409",
            begin=_answers(409),
            end=_well_again,
            meets=_asks_nova,
            unmet=NOVA,
        ),
        Fault(
            "nova 500",
            "Nova: 500",
            begin=_answers(500),
            end=_well_again,
            meets=_asks_nova,
            unmet=NOVA,
        ),
        Fault(
            "nova silent",
            "Nova: no answer",
            begin=_answers("late"),
            end=_well_again,
            haste=True,
            meets=_asks_nova,
            unmet=NOVA,
        ),
        Fault(
            "opensm",
            "OpenSM down",
            ground=Ground(opensm=True),
            begin=lambda site: site.kill_opensm(),
            end=lambda site: site.start_opensm(),
            meets=_publishes,
            unmet="needs no OpenSM",
        ),
        Fault(
            "disk",
            "disk full",
            ground=Ground(sqlite=True),
            begin=lambda site: site.fill_disk(),
            end=lambda site: site.empty_disk(),
            meets=_writes,
            unmet="writes nothing",
        ),
        Fault(
            "lost before",
            "database lost before commit",
            ground=Ground(proxy=True),
            begin=_cut("before"),
            end=_no_cut,
            meets=_commits,
            unmet="commits nothing",
        ),
        Fault(
            "lost after",
            "database lost after commit",
            ground=Ground(proxy=True),
            begin=_cut("after"),
            end=_no_cut,
            meets=_commits,
            unmet="commits nothing",
        ),
    )
}

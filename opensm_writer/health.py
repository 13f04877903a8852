# SPDX-License-Identifier: Apache-2.0

"""What is the matter with an OpenSM, told apart from what was seen of it; pure."""

from __future__ import annotations

from dataclasses import dataclass

from laas_service.messages import AgentReport, Condition
from opensm_writer.opensm import NOT_MASTER, Sweep

UNASKED = Sweep(True)


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen at one moment.

    ``dead``, ``refused`` and ``blind`` say why there is no process, why the wanted set was
    not published, and why no tables were read. ``stands_by``: the log says that it is not the
    master. ``sweep`` is what the log says since OpenSM
    was told to read the current set. ``waited`` is how many seconds ago that was, and
    ``unconfirmed`` whether the switches have not been seen with that set since.
    ``restarted``: since it was seen with the current set it has become another process;
    ``untold``: that one has not been told. ``published`` is the generation of the current
    set. ``matches`` is that of the set whose tables are in the switches, ``current`` whether
    it is the current one, and ``difference`` where they differ from it.
    """

    dead: str | None = None
    stopped: bool = False
    stands_by: bool = False
    restarted: bool = False
    untold: bool = False
    refused: str | None = None
    blind: str | None = None
    sweep: Sweep = UNASKED
    waited: float = 0.0
    unconfirmed: bool = False
    published: int | None = None
    matches: int | None = None
    current: bool = False
    difference: str | None = None


def seen(look: Look, timeout: float) -> AgentReport:
    """What is to be reported. OpenSM has ``timeout`` seconds to do as it was told.

    The first of these that holds: dead, wedged, refused, nothing published, not the master,
    blind, then what the sweep and the tables say. Within the time it has, nothing counts
    against OpenSM but that it is gone, stopped, not the master, which does not sweep, or says
    itself that it cannot use the tables.
    """

    def answer(
        condition: Condition, detail: str | None, generation: int | None = None
    ) -> AgentReport:
        return AgentReport(condition, detail, generation, look.published)

    waiting = Condition.RESTARTED if look.restarted else Condition.SWEEPING
    in_time = look.waited < timeout
    if look.dead is not None:
        return answer(Condition.DEAD, look.dead)
    if look.stopped:
        return answer(Condition.WEDGED, "the process of OpenSM is stopped")
    if not look.sweep.ended and not in_time and not look.stands_by:
        return answer(Condition.WEDGED, f"{look.sweep.problem}, in {timeout:g} s")
    if look.refused is not None:
        return answer(Condition.REFUSED, look.refused)
    if look.published is None:
        return answer(Condition.STARTING, "no set has been published here yet")
    if look.stands_by:
        return answer(Condition.NOT_MASTER, NOT_MASTER)
    if not look.sweep.ended:
        return answer(waiting, look.sweep.problem)
    late = not (look.unconfirmed and in_time)
    if look.blind is not None:
        return answer(Condition.BLIND if late else waiting, look.blind)
    if look.current and look.sweep.problem is None:
        if look.untold:
            return answer(Condition.RESTARTED, "OpenSM is another process than the one told")
        return answer(Condition.APPLIED, None, look.matches)
    if not late and look.sweep.problem is None:
        return answer(waiting, look.difference)
    detail = look.sweep.problem or look.difference
    if look.matches is None or look.current:
        return answer(Condition.DIFFERS, detail)
    return answer(
        Condition.OTHER_GENERATION,
        f"the switches have generation {look.matches}, not {look.published}: {detail}",
        look.matches,
    )

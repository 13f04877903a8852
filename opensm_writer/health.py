# SPDX-License-Identifier: Apache-2.0

"""Judges the health of an OpenSM from an observation; pure."""

from dataclasses import dataclass, replace

from laas_service.domain.faults.reading import FabricReading
from laas_service.messages import NOTHING_KNOWN, AgentReport, Condition, Running
from opensm_writer.opensm import Sweep

UNCHECKED = Sweep(True)


@dataclass(frozen=True, slots=True)
class OpenSMState:
    """The state of one OpenSM, its sets and the switches at one moment."""

    published: int | None = None  # generation of the current set, None if it is missing or damaged
    damage: str | None = None  # why the current set cannot be used
    refused: str | None = None  # why the desired set was not published
    dead: str | None = None  # why there is no process
    stopped: bool = False  # it has received SIGSTOP
    foreign_master: str | None = None  # the master, if that is not this OpenSM
    sweep: Sweep = UNCHECKED  # the last sweep since it was signalled to read the current set
    waited: float = 0.0  # seconds since then
    unconfirmed: bool = False  # the current set has not been seen in the switches since then
    restarted: bool = False  # another process runs than when the current set was last confirmed
    unsignalled: bool = False  # the process is not the one that was signalled
    blind: str | None = None  # why the tables were not read back
    matches: int | None = None  # generation of the set whose tables are in the switches
    current: bool = False  # whether that is the current set
    wrong_keys: str | None = None  # the first port with other keys than the current set has
    wrong_settings: str | None = None  # the first site setting that is not in force
    difference: str | None = None  # first difference of the switches from the current set
    wrong_lids: str | None = None  # why tables without port GUIDs are not right
    without: tuple[int, ...] = ()  # dead switches, which were not compared
    silent: tuple[int, ...] = ()  # switches that do not answer, which were not compared
    reading: FabricReading | None = None  # the last look at the ports
    published_stamp: str = ""  # of ``published``
    stamp: str = ""  # of ``matches``
    running: Running = NOTHING_KNOWN  # the engine that ran last, and the master


def report(observation: OpenSMState, timeout: float) -> AgentReport:
    """The condition that an observation means. OpenSM has ``timeout`` seconds to read a set.

    The first of these that applies: dead, wedged, refused, nothing published, not the master,
    blind, then the last sweep, the tables, the partition keys and the site settings. During the
    ``timeout`` OpenSM is reported as sweeping, unless it is dead, stopped, not the master, or its
    log says that it cannot use the tables.
    """

    def answer(
        condition: Condition, detail: str | None, generation: int | None = None
    ) -> AgentReport:
        report = AgentReport(
            condition,
            detail,
            generation,
            observation.published,
            reading=observation.reading,
            published_stamp=observation.published_stamp,
            running=observation.running,
        )
        if generation is None:
            return report
        return replace(
            report,
            without=observation.without,
            unconfirmed=observation.silent,
            stamp=observation.stamp,
        )

    sweep = observation.sweep
    waiting = Condition.RESTARTED if observation.restarted else Condition.SWEEPING
    in_time = observation.waited < timeout
    if observation.dead is not None:
        return answer(Condition.DEAD, observation.dead)
    if observation.stopped:
        return answer(Condition.WEDGED, "the process of OpenSM is stopped")
    if not sweep.ended and not in_time and observation.foreign_master is None:
        return answer(Condition.WEDGED, f"{sweep.problem}, in {timeout:g} s")
    if observation.refused is not None:
        return answer(Condition.REFUSED, observation.refused)
    if observation.published is None:
        return answer(Condition.STARTING, observation.damage or "no set has been published yet")
    if observation.foreign_master is not None:
        return answer(Condition.NOT_MASTER, observation.foreign_master)
    if not sweep.ended:
        return answer(waiting, sweep.problem)
    late = not (observation.unconfirmed and in_time)
    if observation.blind is not None:
        return answer(Condition.BLIND if late else waiting, observation.blind)
    if observation.wrong_lids is not None:
        return answer(Condition.DIFFERS, observation.wrong_lids)
    if observation.current and sweep.problem is None and observation.wrong_keys is not None:
        return answer(Condition.WRONG_KEYS if late else waiting, observation.wrong_keys)
    if observation.current and sweep.problem is None and observation.wrong_settings is not None:
        return answer(Condition.WRONG_SETTINGS if late else waiting, observation.wrong_settings)
    if observation.current and sweep.problem is None:
        if observation.unsignalled:
            return answer(Condition.RESTARTED, "OpenSM is not the process that was signalled")
        return answer(Condition.APPLIED, None, observation.matches)
    if not late and sweep.problem is None:
        return answer(waiting, observation.difference)
    detail = sweep.problem or observation.difference
    if sweep.other_engine:
        return answer(Condition.OTHER_ENGINE, detail)
    if observation.matches is None or observation.current:
        return answer(Condition.DIFFERS, detail)
    return answer(
        Condition.OTHER_GENERATION,
        f"the switches have generation {observation.matches}, not {observation.published}: "
        f"{detail}",
        observation.matches,
    )

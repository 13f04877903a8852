# SPDX-License-Identifier: Apache-2.0

"""Faults of links and switches: what follows from a reading of the ports; pure.

All memory of faults is in the store, so a new worker goes on where the last one ended.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace

from laas_service.app.records import Observation
from laas_service.app.worker import instructions as do
from laas_service.app.worker.decide import counters
from laas_service.app.worker.instructions import Log, Steps
from laas_service.app.worker.memory import FaultsMemory
from laas_service.app.worker.round import Round
from laas_service.domain.errors import LaasError
from laas_service.domain.faults.interpretation import UnreadSwitch, interpret
from laas_service.domain.faults.memory import FaultMemory, LinkCondition
from laas_service.domain.faults.observation import ReadingOutcome, Rules, hold_down_ends_in, judge
from laas_service.domain.inventory import PortRef
from laas_service.domain.topology import Link, link_name
from laas_service.domain.wording import listed
from laas_service.messages import Applied

WRITES = 6
"""How often, in the lifetime of a reading, the time of the last reading is recorded."""


def observe(round: Round, memory: FaultsMemory) -> Steps[FaultsMemory]:
    """Judge the last reading of the ports, and record what follows; errors are logged."""
    if round.rules.faults is None:
        return memory
    try:
        return (yield from _observe(round, round.rules.faults, memory.excesses))
    except LaasError as error:
        yield Log(f"fabric {round.fabric.id} is not observed: {error}")
        return replace(memory, hold_down=None)


def _observe(round: Round, rules: Rules, earlier: Mapping[Link, str]) -> Steps[FaultsMemory]:
    reading = yield from do.reading(round.fabric.id)
    excesses = yield from counters.account(round, earlier)
    if reading is None:
        return FaultsMemory(excesses)
    interpretation = interpret(round.cabling, reading)
    errors = counters.quarantined(round, excesses)
    interpretation = replace(interpretation, erroneous={**interpretation.erroneous, **errors})
    known = round.observation.memory.switches.items()
    returning = frozenset(guid for guid, entry in known if entry.state is UnreadSwitch.RETURNING)
    as_published = compared((yield from do.applied()), returning) if returning else returning
    seconds = (yield from do.time()).timestamp()

    def judgement(seen: Observation) -> ReadingOutcome:
        valid = replace(rules, mode=seen.mode or rules.mode)
        return judge(seen.memory, interpretation, valid, seconds, seen.operator, as_published)

    lifetime = rules.reading_lifetime / WRITES
    made = yield from do.judge_reading(
        round.fabric.id, reading, judgement, lifetime, round.observation
    )
    yield from _lines(round.fabric.id, made)
    yield from _mark(round, made.memory)
    return FaultsMemory(excesses, hold_down_ends_in(made.memory, rules, seconds))


def return_switches(round: Round) -> Steps[None]:
    """Make repaired switches usable that have the newest routes."""
    repaired = round.observation.repaired
    if not repaired or not (yield from do.runs_newest()):
        return
    if returned := compared((yield from do.applied()), repaired):
        yield from do.return_switches(round.fabric.id, returned)


def compared(applied: Applied, switches: frozenset[int]) -> frozenset[int]:
    """Those of these switches (GUIDs) that have the tables of a confirmed generation."""
    if applied.generation is None:
        return frozenset()
    return switches.difference(applied.without, applied.unconfirmed)


def _mark(round: Round, memory: FaultMemory) -> Steps[None]:
    """Have the subnet manager isolate the ports of links in quarantine; failures are logged."""
    wanted = quarantined_ports(round, memory)
    try:
        if (yield from do.marks_differ(round.fabric.id, wanted)):
            yield from do.mark_ports(round.fabric.id, wanted)
    except LaasError as error:
        yield Log(f"fabric {round.fabric.id}: quarantined links are not marked in UFM: {error}")


def quarantined_ports(round: Round, memory: FaultMemory) -> frozenset[PortRef]:
    """Both ends of the links in quarantine."""
    cables = round.fabric.inventory.cable_of_link
    return frozenset(
        end
        for link, entry in memory.links.items()
        if entry.marked and entry.condition is LinkCondition.QUARANTINED and link in cables
        for end in (cables[link].lower, cables[link].upper)
    )


def _lines(fabric_id: str, judgement: ReadingOutcome) -> Iterator[Log]:
    """What is logged of a judgement."""
    for fault in judgement.fail:
        yield Log(f"fabric {fabric_id}: {link_name(fault.link)} has failed: {fault.evidence}")
    if judgement.restore:
        names = listed(map(link_name, judgement.restore))
        yield Log(f"fabric {fabric_id}: up again: {names}", logging.INFO)
    if judgement.raised and judgement.alarm is not None:
        yield Log(f"fabric {fabric_id}: {judgement.alarm.text}", logging.ERROR)
    if judgement.cleared:
        yield Log(f"fabric {fabric_id}: the alarm of the observation has ended", logging.INFO)
    for text in judgement.news:
        yield Log(f"fabric {fabric_id}: {text}")

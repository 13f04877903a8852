# SPDX-License-Identifier: Apache-2.0

"""Port counters: data by allocation, the audit, and links with too many errors; pure."""

from collections.abc import Mapping
from functools import partial

from laas_service.app.worker import instructions as do
from laas_service.app.worker.instructions import Log, Steps
from laas_service.app.worker.round import CounterMode, Round
from laas_service.domain.faults import counters
from laas_service.domain.topology import Link, link_name

BATCHES = 16
"""Transactions of one round at most; the next round goes on."""


def account(round: Round, earlier: Mapping[Link, str]) -> Steps[Mapping[Link, str]]:
    """Account what was read; the links with too many errors, and the evidence for each.

    ``told`` are those of the round before. Raises: LaasError.
    """
    rules = round.rules
    if rules.counters is CounterMode.OFF:
        return {}
    if readings := (yield from do.counters(round.fabric.id)):
        yield from do.record_counters(round.fabric.id, readings)
    elif not round.observation.counted:
        return {}
    accounts = partial(counters.account, round.cabling, rules.counter_rules)
    for _ in range(BATCHES):
        if not (yield from do.account_counters(round.fabric.id, accounts)):
            break
    found = yield from do.excesses()
    links = counters.excessive(
        (error for findings in found for error in findings.errors), round.cabling
    )
    for link in links.keys() - earlier.keys():
        yield Log(f"fabric {round.fabric.id}: {link_name(link)} has errors: {links[link]}")
    return links


def quarantined(round: Round, links: Mapping[Link, str]) -> Mapping[Link, str]:
    """Of links with too many errors those to quarantine, and the evidence for each."""
    return links if round.rules.counters is CounterMode.MARK else {}

# SPDX-License-Identifier: Apache-2.0

"""Faults under the real OpenSM and the real worker, as a sample; ``tox -e faults`` plays all."""

from __future__ import annotations

import pytest

from tests.faults import histories
from tests.faults.fabrics import FABRICS
from tests.faults.mass import MASS
from tests.faults.mass import play as play_mass
from tests.faults.measure import play
from tests.faults.scenarios import SCENARIOS
from tests.faults.site import Site
from tests.marks import needs_ibsim

pytestmark = needs_ibsim

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


@pytest.mark.parametrize("name", ["spine-link", "l2"])
def test_tenants_get_other_links_and_never_cross_those_of_others(name):
    """The worker polls every ten minutes: OpenSM's log and the hold-down have to wake it."""
    options = {"poll_interval": 600}
    with Site(FABRICS["128"](), faults={"hold_down": 1}, worker=options) as site:
        outcome = play(site, BY_NAME[name])
    assert outcome.lost > 0
    assert outcome.lost_at_end == 0
    assert (outcome.foreign, outcome.complaints) == (0, [])


@pytest.mark.parametrize("name", ["spines", "hosts"])
def test_what_is_lost_together_changes_nothing(name):
    event = next(event for event in MASS if event.name == name)
    with Site(FABRICS["128"](), faults={"hold_down": 1}) as site:
        result = play_mass(site, event, quiet=8)
    assert result.alarms == event.alarm
    assert (result.marked, result.generations, result.generations_after) == (0, 0, 0)
    assert (result.foreign, result.lost_after) == (0, 0)


def test_a_random_history():
    histories.run(1, steps=6)

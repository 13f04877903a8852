# SPDX-License-Identifier: Apache-2.0

"""Faults under the real OpenSM and the real worker, as a sample; ``tox -e faults`` plays all."""

from __future__ import annotations

import pytest

from tests.faults.fabrics import FABRICS
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

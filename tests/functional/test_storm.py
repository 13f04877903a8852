# SPDX-License-Identifier: Apache-2.0

"""A short storm test: concurrent clients, killed processes and cut connections.

``tox -e storm`` runs the long one, on PostgreSQL and MariaDB.
"""

from __future__ import annotations

import pytest

from tests.servers import postgresql
from tests.storm.storm import Plan, run

pytestmark = pytest.mark.skipif(
    not postgresql.AVAILABLE, reason="needs the Debian package postgresql"
)


def test_what_was_acknowledged_is_recorded_and_everybody_owns_what_he_has():
    plan = Plan("postgresql", seconds=12, round=12, clients=4, apis=2, workers=2, pause=(0.2, 1.5))
    outcome = run(plan)
    assert list(outcome.complaints) == []
    assert outcome.figures.total
    assert outcome.broken

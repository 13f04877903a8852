# SPDX-License-Identifier: Apache-2.0

"""A small sample of ``tests.nova.scale``: an ordinary project and an owner find their hosts."""

from __future__ import annotations

from tests.nova import scale


def test_default_flavors_find_their_hosts_at_the_first_try():
    """Placement returns 5 of 120 hosts; those of the pool would leave no room for the others."""

    def count(what, act):
        act()
        return 0.0

    scale.run(120, "boot", count, results=5)

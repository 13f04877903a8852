# SPDX-License-Identifier: Apache-2.0

"""The service level and virtual lane of shared hosts, in partitions and OpenSM's configuration."""

from __future__ import annotations

from opensm_writer import parse, render
from opensm_writer.desired import Partition

OWNED, SHARED = Partition("laas-a", 2, (1, 5)), Partition("laas-p", 3, (7,), shared=True)
HOME = "/var/lib/laas/f/current"


def test_only_shared_hosts_have_the_level():
    text = "".join(render.partitions([OWNED, SHARED], render.Settings(HOME, level=2)))
    assert "laas-a=0x0002, indx0, defmember=full :" in text
    assert "laas-p=0x0003, indx0, sl=2, defmember=full :" in text
    found = parse.partitions(text, "partitions.conf")
    assert (found.partitions, found.level) == ((OWNED, SHARED), 2)


def test_without_a_level_nothing_changes():
    with_level, without = (
        "".join(render.fragment(render.Settings(HOME, level=level), chains=False))
        for level in (2, 0)
    )
    assert "qos" not in without
    assert with_level.startswith(without.rpartition("# Pinned")[0])
    text = "".join(render.partitions([SHARED], render.Settings(HOME)))
    assert "sl=" not in text


def test_the_level_has_the_lane_of_its_number():
    text = "".join(render.fragment(render.Settings(HOME, level=1), chains=False))
    assert "qos TRUE\n" in text
    assert "qos_max_vls 2\n" in text
    assert "qos_sl2vl 0,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0\n" in text

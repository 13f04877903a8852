# SPDX-License-Identifier: Apache-2.0

"""Partition keys as the kernels of hosts show them."""

import pytest

from laas_service.domain.errors import InvalidFile
from opensm_writer.functions import tables_of

PORT = "/sys/class/infiniband/mlx5_2/ports/1"
GID = f"{PORT}/gids/0:fe80:0000:0000:0000:0002:c904:0000:001b"


def test_keys_stand_at_their_indices_whatever_the_order_of_the_lines():
    lines = [
        f"{PORT}/pkeys/10:0x7fff\n",
        f"{PORT}/pkeys/0:0x8162\n",
        "\n",
        f"{GID}\n",
        f"{PORT}/pkeys/1:0x0000\n",
    ]
    assert tables_of(lines, "x") == {0x0002C9040000001B: (0x8162, *[0] * 9, 0x7FFF)}
    assert tables_of([], "x") == {}


def test_machines_may_have_adapters_of_the_same_name():
    lines = [
        f"{host}{line}"
        for host, gid in (("gpu001: ", GID), ("gpu002:", GID.replace("001b", "002b")))
        for line in (gid, f"{PORT}/pkeys/0:0x8162")
    ]
    assert tables_of(lines, "x") == {0x0002C9040000001B: (0x8162,), 0x0002C9040000002B: (0x8162,)}


def test_a_port_without_a_guid_is_left_out():
    gid = GID.replace("0002:c904:0000:001b", "0000:0000:0000:0000")
    assert tables_of([gid, f"{PORT}/pkeys/0:0xffff"], "x") == {}


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([GID, f"{PORT}/pkeys/0:8162"], "line 2: .* is no line of 'grep"),
        ([GID, f"{PORT}/pkeys/0:0x81620"], "line 2: .* is no line of 'grep"),
        ([f"{PORT}/pkeys/0:0x8162"], "has no line of gids/0"),
        ([GID, *[f"{PORT}/pkeys/0:0x8162"] * 2], "line 3: index 0 of .* occurs twice"),
        (
            [f"{h}:{line}" for h in "ab" for line in (GID, f"{PORT}/pkeys/0:0x8162")],
            "two ports have GUID 0x0002c9040000001b",
        ),
    ],
)
def test_lines_of_another_form_are_refused(lines, words):
    with pytest.raises(InvalidFile, match=words):
        tables_of(lines, "x")

# SPDX-License-Identifier: Apache-2.0

"""``laas`` and ``openstack isolated network`` side by side."""

from __future__ import annotations

import configparser
from pathlib import Path

import pytest

from laas_service.cmd import client

SETUP = Path(__file__).parents[3] / "setup.cfg"

OTHERWISE = {"rename": "set"}
"""Verbs with another name in ``openstack``, where ``set`` changes any property."""


def of_laas() -> set[str]:
    commands = {
        f"{noun} {verb.name}" for noun, (_, verbs) in client.NOUNS.items() for verb in verbs
    }
    return {*commands, client.VIEW.name}


def of_openstack() -> set[str]:
    """The commands of the plugin; those about isolated networks have no noun there."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(SETUP)
    lines = parser["options.entry_points"]["openstack.isolated_network.v1"].split("\n")
    names = [line.partition(" = ")[0] for line in lines if line]
    return {name.removeprefix("isolated_network_").replace("_", " ") for name in names}


def test_both_command_lines_have_the_same_commands():
    expected = set()
    for command in of_laas():
        noun, _, verb = command.partition(" ")
        own = noun == "allocation"
        expected.add(OTHERWISE.get(verb, verb) if own else command)
    assert of_openstack() == expected


FABRIC_COMMANDS = [
    *(
        ["fabric", verb.name]
        for verb in client.FABRIC_VERBS
        if verb.name not in ("list", "delete", "plane", "make-room", "fit", "map")
    ),
    ["fabric", "plane"],
    ["fabric", "make-room", "8"],
    ["fabric", "fit", "8"],
    ["fabric", "map", "--html", "map.html"],
    ["view"],
    *(["host", verb.name, "node01"] for verb in client.HOST_VERBS),
    *(["switch", verb.name, "leaf1"] for verb in client.SWITCH_VERBS),
    *(["link", verb.name, "leaf-0-0-0"] for verb in client.LINK_VERBS),
    ["allocation", "list"],
    ["allocation", "create", "--name", "blue", "--hosts", "8"],
]


@pytest.mark.parametrize("words", FABRIC_COMMANDS, ids=" ".join)
def test_every_command_about_a_fabric_takes_the_option_that_a_refusal_names(words):
    parser = client.parser()
    assert parser.parse_args(words).fabric is None
    assert parser.parse_args([*words, "--fabric", "main"]).fabric == "main"


@pytest.mark.parametrize("words", [["fabric", "show"], ["fabric", "fit", "8"]], ids=" ".join)
def test_a_command_about_a_fabric_also_takes_it_without_the_option(words):
    assert client.parser().parse_args([*words, "main"]).fabric == "main"

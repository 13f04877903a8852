# SPDX-License-Identifier: Apache-2.0

"""``laas`` and ``openstack isolated network`` side by side."""

from __future__ import annotations

import pytest
from cliff.commandmanager import CommandManager

from laas_service.cmd.client import GROUP, LaasShell

OPENSTACK = "isolated network "


def of_laas():
    """The commands of ``laas`` by name, without those of cliff itself."""
    entries = {name: entry.load() for name, entry in LaasShell().command_manager}
    return {name: command for name, command in entries.items() if name not in ("help", "complete")}


def of_openstack():
    """The commands of the plugin as ``openstack`` finds them."""
    return {name: entry.load() for name, entry in CommandManager(GROUP)}


def test_both_command_lines_have_the_same_commands():
    """Name by name and class by class; ``openstack`` has no noun for isolated networks."""
    side_by_side = {
        OPENSTACK + name.removeprefix("allocation "): command for name, command in of_laas().items()
    }
    assert len(side_by_side) == len(of_laas()) > 40
    assert side_by_side == of_openstack()


@pytest.fixture
def parse():
    """Parse words as ``laas`` does; the command and its arguments."""

    def parsed(words):
        app = LaasShell()
        app.options, remainder = app.parser.parse_known_args(words)
        factory, name, rest = app.command_manager.find_command(remainder)
        command = factory(app, app.options)
        return command, command.get_parser(name).parse_args(rest)

    return parsed


FABRIC_COMMANDS = [
    *(
        ["fabric", verb]
        for verb in (
            *("show", "utilization", "routing", "idle", "plane", "hosts", "links", "observation"),
            *("agents", "switches", "sleep", "promises", "consolidate"),
        )
    ),
    ["fabric", "make-room", "8"],
    ["fabric", "fit", "8"],
    ["fabric", "map", "--html", "map.html"],
    ["view"],
    ["manager", "list"],
    ["manager", "forget", "sm2"],
    *(["host", verb, "node01"] for verb in ("drain", "fail", "repair", "set", "confirm-empty")),
    *(["switch", verb, "leaf1"] for verb in ("show", "drain", "maintain", "fail", "repair")),
    *(["link", verb, "leaf-0-0-0"] for verb in ("show", "fail", "repair")),
    ["allocation", "list"],
    ["allocation", "create", "--name", "blue", "--hosts", "8"],
]


@pytest.mark.parametrize("words", FABRIC_COMMANDS, ids=" ".join)
def test_every_command_about_a_fabric_takes_the_option_that_a_refusal_names(parse, words):
    assert parse(words)[1].fabric is None
    assert parse([*words, "--fabric", "main"])[1].fabric == "main"


def test_no_command_about_a_fabric_is_forgotten():
    nouns = ("fabric ", "host ", "link ", "manager ", "switch ", "view")
    about = {name for name in of_laas() if name.startswith(nouns)} - {
        "fabric list",
        "fabric delete",
    }
    assert about <= {" ".join(words[: 1 if words == ["view"] else 2]) for words in FABRIC_COMMANDS}


class OneFabric:
    """Answers the path of a fabric, and what a question about hosts asks there."""

    def fabric(self, named):
        return f"/v1/fabrics/{named or 'only'}"

    def get(self, path, **query):
        return path, query["hosts"]

    def call(self, method, path, body):
        return path, body["hosts"]


@pytest.mark.parametrize("verb", ["fit", "make-room"])
@pytest.mark.parametrize(
    ("words", "fabric"),
    [
        ("8", "only"),
        ("8 main", "main"),
        ("8 --fabric main", "main"),
        ("--hosts 8", "only"),
        ("--hosts 8 main", "main"),
        ("main --hosts 8", "main"),
        ("--hosts 8 --fabric main", "main"),
    ],
)
def test_a_number_of_hosts_and_a_fabric_in_the_forms_of_both(parse, verb, words, fabric):
    command, args = parse(["fabric", verb, *words.split()])
    path, hosts = command.answer(OneFabric(), args)
    assert (path, hosts) == (f"/v1/fabrics/{fabric}/{verb}", 8)


@pytest.mark.parametrize("words", ["", "main", "--hosts 8 main --fabric other"])
def test_a_number_of_hosts_is_needed_once(parse, words):
    command, args = parse(["fabric", "fit", *words.split()])
    with pytest.raises(SystemExit) as stopped:
        command.answer(OneFabric(), args)
    assert stopped.value.code == 2


def test_a_new_name_with_or_without_its_option(parse):
    create = ["allocation", "create", "--hosts", "4"]
    assert parse([*create, "--name", "blue"])[1].name == "blue"
    assert parse([*create, "blue"])[1].name == "blue"
    for words in ([], ["--name", "blue", "red"]):
        with pytest.raises(SystemExit):
            parse([*create, *words])

# SPDX-License-Identifier: Apache-2.0

"""The ``laas`` command against a real server on a free port."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import pytest
from keystoneauth1 import noauth
from sqlalchemy import text
from waitress import wasyncore
from waitress.server import create_server

from laas_service.client.rest import Rest
from laas_service.cmd import client as command
from laas_service.cmd.client import main
from laas_service.messages import AgentReport, Condition
from tests.functional.api.test_resize import work as work

LIKES = ("--undisturbed", "prefer", "--wait", "10")
DRY = ("allocation", "create", "--dry-run", "--name", "new", "--hosts")


@pytest.fixture
def server(deployment, monkeypatch):
    """The service on a free port; environment variables tell the command its address."""
    app = deployment.client().application
    listening = create_server(app, host="127.0.0.1", port=0, threads=4)
    thread = threading.Thread(target=listening.run, daemon=True)
    thread.start()
    for name in ("OS_AUTH_URL", "OS_AUTH_TYPE", "OS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LAAS_ENDPOINT", f"http://127.0.0.1:{listening.effective_port}")
    yield listening
    with suppress(OSError):  # the server may have closed the trigger already
        listening.trigger.pull_trigger(lambda: wasyncore.close_all(listening._map, ignore_all=True))
    thread.join(5)


@pytest.fixture
def laas(server, capsys):
    """Run a command; return its exit status, standard output and standard error."""

    def run(*words):
        status = main(list(words))
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


def answered(run, *words):
    status, out, err = run(*words, "--json")
    assert (status, err) == (0, "")
    return json.loads(out)


def test_a_link_is_shown_by_any_of_its_names(laas):
    made = answered(laas, "allocation", "create", "--name", "blue", "--hosts", "6", "--wait", "10")
    link = answered(laas, "fabric", "links", "--owner", "blue")[0]
    assert link["owner"] == made["id"]
    unknown = "laas: there is no allocation 'nobody' (not_found)\n"
    assert laas("fabric", "links", "--owner", "nobody") == (4, "", unknown)
    ends = [f"{link[end]['guid']}/{link[end]['port']}" for end in ("lower", "upper")]
    for named in (link["id"], *ends):
        assert answered(laas, "link", "show", named, "--fabric", "main") == link
    fix = "fabric main has leaf-0-0-0 to spine-1-3-3"
    refusal = f"laas: there is no link 'leaf-9-9-9'; {fix} (not_found)\n"
    assert laas("link", "show", "leaf-9-9-9") == (4, "", refusal)
    shown = laas("link", "show", ends[0])[1]
    assert made["id"] in shown
    assert ends[1] in shown


def test_with_several_fabrics_the_hint_of_a_refusal_works(laas, deployment):
    deployment.add_fabric("other")
    for line in ("fabric show", "fabric fit 4", "fabric hosts", "host drain node00"):
        words = line.split()
        refusal = "laas: name one of these with --fabric: main, other\n"
        assert laas(*words) == (1, "", refusal)
        status, _, err = laas(*words, "--fabric", "other")
        assert (status, err) == (0, "")


def test_a_fabric_is_deleted_by_its_id_only(laas, capsys):
    made = answered(laas, "allocation", "create", "--name", "blue", "--hosts", "6", "--wait", "10")
    status, _, err = laas("fabric", "delete", "main")
    assert (status, made["id"] in err) == (3, True)
    answered(laas, "allocation", "delete", "blue", "--wait", "10")
    with pytest.raises(SystemExit):
        laas("fabric", "delete")
    assert "the following arguments are required: fabric" in capsys.readouterr().err
    assert answered(laas, "fabric", "delete", "main")["id"] == "main"
    assert answered(laas, "fabric", "list") == []


def test_a_life_from_the_terminal(laas):
    made = answered(laas, "allocation", "create", "--name", "blue", "--hosts", "6", "--wait", "10")
    assert (made["state"], made["confirmed_by"]) == ("active", "switches")
    assert "switches" in laas("allocation", "list")[1]
    assert "switches" in laas("allocation", "show", "blue")[1]
    routing = laas("fabric", "routing")[1]
    assert "confirmed_by" in routing
    assert len(made["hosts"]) == 6
    assert [one["name"] for one in answered(laas, "allocation", "list")] == ["blue"]
    assert answered(laas, "allocation", "show", "blue")["id"] == made["id"]
    assert answered(laas, "allocation", "rename", "blue", "navy")["name"] == "navy"
    shown = answered(laas, "allocation", "resize", "navy", "7", "--dry-run")
    assert (shown["requested"], len(shown["joining"]), shown["leaving"]) == (7, 1, [])
    status, _, err = laas("allocation", "resize", "navy", "33")
    assert (status, "too_few_hosts" in err) == (3, True)
    begun = answered(laas, "allocation", "resize", "navy", "5", "--yes", "--give-back", "node03")
    assert (begun["changing"], begun["leaving"]) == ("prepare", ["node03"])
    assert answered(laas, "allocation", "resize", "navy", "6")["changing"] == "withdraw"
    gone = answered(laas, "allocation", "delete", "navy", "--wait", "10")
    assert gone["state"] == "released"
    assert answered(laas, "allocation", "show", made["id"])["state"] == "released"
    assert answered(laas, "allocation", "list") == []


def requested(laas, name):
    return answered(laas, "allocation", "show", name)["requested"]


def test_a_sign_means_so_many_hosts_more_or_fewer(laas, work):
    """Nothing is given back unless a person at the terminal, or ``--yes``, says so."""
    answered(laas, "allocation", "create", "--name", "big", "--hosts", "20", "--wait", "10")
    assert answered(laas, "allocation", "resize", "big", "+4")["requested"] == 24
    work()
    dry = answered(laas, "allocation", "resize", "big", "-4", "--dry-run")
    assert (dry["requested"], len(dry["leaving"])) == (20, 4)
    assert answered(laas, "allocation", "resize", "--yes", "big", "-4")["requested"] == 20
    work()
    assert answered(laas, "allocation", "resize", "big", "19", "--yes")["requested"] == 19
    work()
    status, _, err = laas("allocation", "resize", "big", "-19", "--yes")
    assert (status, "big has 19 hosts, so 0 would be left" in err) == (1, True)
    assert requested(laas, "big") == 19


@pytest.mark.parametrize("size", ["4", "-4", "-1"])
def test_without_a_terminal_nothing_shrinks_unless_yes_is_given(laas, capsys, monkeypatch, size):
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    answered(laas, "allocation", "create", "--name", "big", "--hosts", "20", "--wait", "10")
    to = {"4": 4, "-4": 16, "-1": 19}[size]
    with pytest.raises(SystemExit) as ended:
        laas("allocation", "resize", "big", size)
    assert ended.value.code == 2
    told = f"this would shrink big: 20 -> {to}: {20 - to} host{'s' * (to < 19)} fewer: give --yes"
    assert told in capsys.readouterr().err
    assert requested(laas, "big") == 20


@pytest.mark.parametrize(("said", "left"), [("y", 16), ("Yes", 16), ("n", 20), ("", 20)])
def test_a_person_at_the_terminal_is_asked_before_hosts_are_given_back(server, laas, said, left):
    answered(laas, "allocation", "create", "--name", "big", "--hosts", "20", "--wait", "10")
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "laas_service.cmd.client", "allocation", "resize", "big", "-4"]
    with subprocess.Popen(
        command, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        os.write(controller, f"{said}\n".encode())
        _, err = process.communicate(timeout=60)
    os.close(controller)
    os.close(terminal)
    assert "This would shrink big: 20 -> 16: 4 hosts fewer. Go on? [y/N] " in err
    assert process.returncode == (0 if left == 16 else 1)
    assert ("nothing was changed" in err) == (left == 20)
    assert requested(laas, "big") == left


@pytest.mark.parametrize("size", ["+", "-", "x", "+-4", "1.5", "4+"])
def test_a_size_that_is_none_is_a_wrong_command_line(laas, capsys, size):
    with pytest.raises(SystemExit) as ended:
        laas("allocation", "resize", "big", size)
    assert ended.value.code == 2
    capsys.readouterr()


def test_of_two_who_add_hosts_at_once_neither_is_forgotten(laas, deployment, server, work):
    """Each sees the size of before; the one that is later looks again."""
    made = answered(laas, "allocation", "create", "--name", "big", "--hosts", "8", "--wait", "10")
    path, raced = f"/v1/allocations/{made['id']}", list[Any]()
    adding, reading = Rest.call, Rest.versioned

    def versioned(rest, path):
        seen = reading(rest, path)
        if not raced:  # the other one is faster
            raced.append(adding(rest, "PATCH", path, body={"hosts": 12}))
            work()
        return seen

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Rest, "versioned", versioned)
        status, _, err = laas("allocation", "resize", "big", "+4")
    assert (status, err) == (0, "12 -> 16: 4 hosts more\n")
    assert deployment.client().get(path).json["requested"] == 16


def test_other_hosts_from_the_terminal(laas):
    create = ("allocation", "create", "--name", "blue", "--hosts", "3", "--movable", "restart")
    host = answered(laas, *create, "--wait", "10")["hosts"][0]["name"]
    status, _, err = laas("host", "drain", host, "--override")
    assert (status, "for --move" in err) == (1, True)
    dry = answered(laas, "host", "drain", host, "--move", "--dry-run")
    assert [move["leaving"] for move in dry["moves"]] == [[host]]
    assert answered(laas, "fabric", "hosts", "--state", "drained") == []
    begun = answered(laas, "host", "drain", host, "--move")
    assert begun["moves"][0]["announced"] is True
    assert answered(laas, "fabric", "hosts", "--state", "drained")[0]["name"] == host
    other = ("allocation", "replace-hosts", "blue")
    assert answered(laas, *other, "--host", host, "--dry-run")["leaving"] == [host]
    changed = answered(laas, *other, "--host", host)
    assert (changed["changing"], changed.get("announced")) == ("prepare", None)
    assert answered(laas, *other, "--turn-back")["changing"] == "withdraw"


def test_inside_a_container_from_the_terminal(laas):
    create = ("allocation", "create", "--hosts")
    outer = answered(laas, *create, "16", "--name", "outer", "--container", "--wait", "10")
    inner = answered(laas, *create, "4", "--name", "in", "--parent", "outer", "--wait", "10")
    assert inner["parent"] == outer["id"]
    assert answered(laas, "fabric", "fit", "12", "--parent", "outer")["fits"] is True
    assert answered(laas, "fabric", "fit", "13", "--parent", "outer")["largest_fit"] == 12
    status, _, err = laas("allocation", "delete", "outer")
    assert status == 3
    assert "release them first" in err
    assert outer["id"] in laas("allocation", "list")[1]


def test_a_shared_plane_from_the_terminal(laas):
    assert answered(laas, "fabric", "plane")["l2"] == []
    status, out, _ = laas("fabric", "plane", "--l2", "3", "--dry-run")
    assert status == 0
    assert "jigsaw: largest 32 -> 12, hosts beyond a leaf 32 -> 24" in out
    assert answered(laas, "fabric", "plane", "--l2", "3")["leaf_links"] == 8
    assert answered(laas, "fabric", "plane")["l2"] == [3]
    assert "not both" in laas("fabric", "plane", "--l2", "3", "--none")[2]
    assert answered(laas, "fabric", "plane", "--none")["l2"] == []


def test_waiting_in_the_queue_from_the_terminal(laas):
    laas("allocation", "create", "--name", "blue", "--hosts", "30", "--duration", "60")
    words = ("allocation", "create", "--name", "red", "--hosts", "4", "--queue")
    made = answered(laas, *words, "--duration", "90.5")
    assert (made["state"], made["position"], made["duration"]) == ("queued", 1, 90.5)
    status, _, err = laas(*words, "--wait", "0", "--name", "green")
    assert status == 5
    assert "still queued" in err
    assert "hosts free" in err
    listed = answered(laas, "allocation", "list", "--state", "queued")
    assert [one["position"] for one in listed] == [1, 2]
    assert answered(laas, "allocation", "delete", made["id"])["state"] == "released"


def test_constraints_from_the_terminal(laas):
    for host in ("node16", "node17"):
        told = answered(laas, "host", "set", host, "--trait", "gpu", "--trait", "ib", "--cost", "3")
        assert (told["traits"], told["cost"]) == (["gpu", "ib"], 3)
    assert answered(laas, "host", "set", "node17", "--no-traits")["traits"] == []
    (listed,) = answered(laas, "fabric", "hosts", "--trait", "gpu")
    assert listed["name"] == "node16"
    create = ("allocation", "create", "--name", "blue", "--hosts")
    wish = ("--trait", "gpu", "--trait", "ib", "--within", "leaf", "--max-host-cost", "4")
    made = answered(laas, *create, "1", *wish, "--cheapest")
    assert [host["name"] for host in made["hosts"]] == ["node16"]
    assert made["constraints"]["traits"] == ["gpu", "ib"]
    status, _, err = laas(*create, "1", "--trait", "gpu")
    assert status == 3
    assert "would fit without constraint traits (gpu)" in err
    made = answered(laas, *create, "5", "--spread", "2", "--name", "green")
    assert {host["index"] // 16 for host in made["hosts"]} == {0, 1}
    avoiding = ("--avoid-host", "node31", "--avoid-pod", "0", "--avoid-host", "node30")
    made = answered(laas, *create, "4", *avoiding, "--name", "red")
    assert all(16 < host["index"] < 30 for host in made["hosts"])
    fit = answered(laas, "fabric", "fit", "30", *avoiding, "--within", "pod")
    assert fit["fits"] is False
    status, _, err = laas(*create, "1", "--avoid-host", "nobody")
    assert "--avoid-host: 'nobody'" in err


def test_tables_name_what_matters(laas, deployment):
    laas("allocation", "create", "--name", "blue", "--hosts", "6")
    deployment.agents.report("main", "sm1", AgentReport(Condition.DEAD, "no process"), 15)
    status, out, _ = laas("allocation", "list")
    assert status == 0
    assert "blue" in out
    assert "allocating" in out
    for words, expected in (
        (("fabric", "list"), "XGFT(3; 4,4,2; 1,4,4)"),
        (("fabric", "show"), "total 32"),
        (("fabric", "hosts"), "node31"),
        (("fabric", "links"), "spine-1-3-3"),
        (("fabric", "switches"), "leaf-1-3"),
        (("fabric", "utilization"), "0.1875"),
        (("fabric", "fit", "3"), "largest_fit"),
        (("fabric", "idle"), "links"),
        (("quota", "show"), "allocations"),
        (("fabric", "agents", "main"), "sm1"),
        (("fabric", "routing"), "nothing was published yet"),
        (("allocation", "show", "blue"), "claimed 6 hosts"),
    ):
        status, out, err = laas(*words)
        assert (status, err) == (0, "")
        assert expected in out


def test_control_characters_are_escaped_on_the_terminal(laas, deployment):
    """A record of an earlier release, which accepted such names."""
    made = answered(laas, "allocation", "create", "--name", "blue", "--hosts", "6")
    with deployment.engine.begin() as connection:
        connection.execute(text("update allocation set name = :n"), {"n": "\x1b[2J\u202eeulb\x9b"})
    for words in (("list",), ("show", made["id"])):
        status, out, _ = laas("allocation", *words)
        assert status == 0
        assert out.replace("\n", "").isprintable()
        assert r"\x1b[2J\u202eeulb\x9b" in out


def test_lists_are_complete_over_all_pages(laas, monkeypatch):
    monkeypatch.setattr("laas_service.api.resource.AT_ONCE", 5)
    assert len(answered(laas, "fabric", "hosts")) == 32
    assert len(answered(laas, "fabric", "links", "main")) == 64


def test_links_that_others_have_to_cross_are_listed(laas):
    """A host is alone on its leaf with a tenant's, and the uplinks that are free have failed."""
    answered(laas, "allocation", "create", "--name", "blue", "--hosts", "9", *LIKES)
    assert answered(laas, "fabric", "links", "--crossed") == []
    links = answered(laas, "fabric", "links", "--kind", "leaf")
    partly = {tuple(link["index"][:2]) for link in links if link["owner"]}
    for link in links:
        if not link["owner"] and tuple(link["index"][:2]) in partly:
            answered(laas, "link", "fail", link["id"])
    crossed = answered(laas, "fabric", "links", "--crossed")
    assert crossed
    assert all(link["crossed_by"] > 0 and link["owner"] for link in crossed)
    assert all("uplinks of leaf" in link["why"] for link in crossed)
    assert "Crossed By" in laas("fabric", "links", "--crossed")[1]
    shown = answered(laas, "allocation", "show", "blue")
    assert shown["crossed_by"] > 0
    row = rf"\| crossed_by +\| {shown['crossed_by']} "
    assert re.search(row, laas("allocation", "show", "blue")[1])
    for room in (answered(laas, "fabric", "fit", "3"), answered(laas, *DRY, "3")):
        assert {"crossed_by", "crossed_more"} <= room.keys()


def test_who_is_still_on_a_leaf_is_named(laas):
    made = answered(laas, "allocation", "create", "--name", "blue", "--hosts", "6", "--wait", "10")
    status, out, _ = laas("switch", "drain", "leaf-0-0", "--yes")
    assert status == 0
    assert f"blue ({made['id']})" in out
    assert "node00" in out


def test_operators_words(laas):
    assert answered(laas, "host", "drain", "node03")["state"] == "drained"
    assert [host["name"] for host in answered(laas, "fabric", "hosts", "--state", "drained")] == [
        "node03"
    ]
    assert answered(laas, "host", "fail", "node03", "--fabric", "main")["state"] == "failed"
    assert answered(laas, "host", "repair", "node03")["state"] == "up"
    assert answered(laas, "switch", "drain", "leaf-0-1", "--yes")["hosts"]["drained"] == 4
    status, out, err = laas("switch", "show", "leaf-0-1", "--fabric", "main")
    assert (status, err) == (0, "")
    assert "drained" in out
    assert answered(laas, "switch", "repair", "leaf-0-1")["hosts"]["up"] == 4
    assert answered(laas, "link", "fail", "leaf-0-0-0")["state"] == "failed"
    assert answered(laas, "link", "repair", "leaf-0-0-0")["state"] == "up"


def test_a_repair_from_the_terminal(laas, deployment):
    answered(laas, "allocation", "create", "--name", "wide", "--hosts", "6", "--wait", "10")
    answered(laas, "link", "fail", "leaf-0-0-0")
    status, _, err = laas("allocation", "repair", "wide")
    assert status == 3
    assert "leaf 0/0 has 3 of 4 uplinks: up to 2 flows may meet" in err
    assert "(not_repairable)" in err
    assert "link leaf-0-0-0 has failed" in laas("allocation", "show", "wide")[1]
    answered(laas, "link", "repair", "leaf-0-0-0")
    done = answered(laas, "allocation", "repair", "wide", "--wait", "10")
    assert not done.keys() & {"degraded", "changing"}


def test_a_refusal_is_one_sentence_with_what_would_fit(laas):
    status, out, err = laas("allocation", "create", "--name", "big", "--hosts", "40")
    assert (status, out) == (3, "")
    assert err.startswith("laas: ")
    assert err.count("\n") == 1
    assert "too_few_hosts" in err
    assert "32" in err


def test_a_dry_run_takes_nothing(laas):
    given = answered(laas, "allocation", "create", "--name", "x", "--hosts", "3", "--dry-run")
    assert len(given["hosts"]) == 3
    assert answered(laas, "allocation", "list") == []


def test_a_key_makes_repeating_safe(laas):
    words = ("allocation", "create", "--name", "x", "--hosts", "3", "--key", "k1")
    assert answered(laas, *words)["id"] == answered(laas, *words)["id"]


def test_names_that_several_have_are_not_guessed(laas):
    first, second = (
        answered(laas, "allocation", "create", "twin", "--hosts", "1", "--allow-duplicate-name")
        for _ in range(2)
    )
    status, _, err = laas("allocation", "delete", "twin")
    assert status == 1
    assert "by the beginning of its id" in err
    told = err.rpartition(": ")[2].strip().split(", ")
    assert [one["id"].startswith(short) for one, short in zip((first, second), told, strict=True)]
    for short in told:
        assert answered(laas, "allocation", "show", short)["name"] == "twin"


def test_a_name_that_is_taken_is_refused_with_the_option_that_allows_it(laas):
    made = answered(laas, "allocation", "create", "twin", "--hosts", "1")
    status, _, err = laas("allocation", "create", "twin", "--hosts", "1")
    assert status == 3
    assert f"--name: 'twin' is the name of allocation {made['id']}" in err
    assert "give --allow-duplicate-name" in err
    assert answered(laas, "allocation", "create", "x", "--hosts", "1")["name"] == "x"
    status, _, err = laas("allocation", "rename", "x", "twin")
    assert status == 3
    assert "give --allow-duplicate-name" in err
    laas("allocation", "rename", "x", "twin", "--allow-duplicate-name")
    assert len(answered(laas, "allocation", "list")) == 2


def test_a_fabric_tells_namesakes_apart(laas, deployment):
    deployment.add_fabric("other")
    words = ("allocation", "create", "twin", "--hosts", "1", "--allow-duplicate-name", "--fabric")
    made = {fabric: answered(laas, *words, fabric)["id"] for fabric in ("main", "other")}
    _, _, err = laas("allocation", "show", "twin")
    assert "or give --fabric: main, other" in err
    for fabric, id in made.items():
        assert answered(laas, "allocation", "show", "twin", "--fabric", fabric)["id"] == id


def test_waiting_in_vain_is_a_failure(laas, deployment):
    deployment.while_waiting = lambda: time.sleep(0.02)  # time passes, nothing else
    words = ("allocation", "create", "--name", "x", "--hosts", "1", "--wait", "0.1")
    status, out, err = laas(*words)
    (made,) = answered(laas, "allocation", "list")
    assert (status, out) == (5, f"{made['id']}\n")
    assert "still allocating" in err


def test_nobody_there(monkeypatch, capsys):
    for name in ("OS_AUTH_URL", "OS_AUTH_TYPE", "OS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    assert main(["--endpoint", "http://127.0.0.1:9", "fabric", "list"]) == 6
    err = capsys.readouterr().err
    assert "cannot reach the service" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["fabric"],
        ["fabric", "paint"],
        ["allocation", "create", "--name", "x"],
        ["allocation", "create", "--name", "x", "--hosts", "many"],
        ["fabric", "hosts", "--state", "odd"],
    ],
)
def test_a_wrong_command_line_is_status_2(words, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    said, advice = capsys.readouterr().err.splitlines()
    assert said.startswith("laas")
    assert re.fullmatch(r"See 'laas[a-z ]* --help'\.", advice)


def test_options_may_stand_before_or_after(server, capsys):
    url = f"http://127.0.0.1:{server.effective_port}"
    for words in (
        ["--endpoint", url, "--json", "fabric", "list"],
        ["fabric", "list", "--json", "--endpoint", url],
    ):
        assert main(words) == 0
        assert json.loads(capsys.readouterr().out)[0]["id"] == "main"


def options(*words):
    return command.LaasShell().parser.parse_args(words)


def test_a_token_is_sent(monkeypatch):
    adapter = command.adapter(options("--token", "t", "--endpoint", "http://x"))
    assert adapter.get_token() == "t"
    assert adapter.get_endpoint() == "http://x"
    monkeypatch.delenv("OS_AUTH_URL", raising=False)
    plain = command.adapter(options())
    assert isinstance(plain.auth, noauth.NoAuth)


def test_keystone_comes_from_the_environment(monkeypatch):
    monkeypatch.delenv("OS_TOKEN", raising=False)
    monkeypatch.delenv("OS_AUTH_TYPE", raising=False)
    for name, value in {
        "OS_AUTH_URL": "http://keystone/v3",
        "OS_USERNAME": "u",
        "OS_PASSWORD": "p",
        "OS_PROJECT_NAME": "blue",
        "OS_USER_DOMAIN_ID": "default",
        "OS_PROJECT_DOMAIN_ID": "default",
    }.items():
        monkeypatch.setenv(name, value)
    auth: Any = command.adapter(options()).auth
    assert auth.auth_url == "http://keystone/v3"


def test_a_page_and_a_drawing_from_the_terminal(laas, allocate, tmp_path):
    allocate(9, "blue")
    path, drawing = tmp_path / "map.html", tmp_path / "blue.svg"
    told = answered(laas, "fabric", "map", "--html", str(path), "--hosts", "30")
    assert (told["tenants"], told["fits"], told["file"]) == (1, False, str(path))
    assert '"name":"blue"' in path.read_text()
    assert "30 asked" in path.read_text()
    told = answered(laas, "allocation", "draw", "blue", "--svg", str(drawing))
    assert (told["hosts"], told["links"]) == (9, 9)
    assert drawing.read_text().startswith("<svg")
    status, _, err = laas("fabric", "map", "--html", str(tmp_path / "none" / "map.html"))
    assert (status, err.count("\n")) == (1, 1)
    assert "cannot write" in err


def test_slots_of_shared_hosts(deployment, laas):
    shared = ("--share-slots", "4", "--share-bandwidth", "10", "--share-risk", "0.1")
    pool = answered(laas, "allocation", "create", "pool", "--hosts", "8", *shared)
    assert pool["sharing"] == {"slots": 4, "bandwidth": 10.0, "risk": 0.1, "open": False}
    wanted = ("--slots", "8", "--bandwidth", "1", "--deviation", "0.5", "--parent", "pool")
    made = answered(laas, "allocation", "create", "web", *wanted)
    assert (made["class"], made["slots"], made["deviation"]) == ("shared", 8, 0.5)
    deployment.converge()
    less = answered(laas, "allocation", "change-slots", "web", "--slots", "6")
    assert less["slots"] == 6
    plan = answered(laas, "allocation", "change-slots", "web", "--bandwidth", "2", "--dry-run")
    assert (plan["dry_run"], plan["bandwidth"]) == (True, 2.0)

# SPDX-License-Identifier: Apache-2.0

"""Mistakes of people, as a table: what was given, the answer, and its advice carried out.

The commands run in this process against a service on SQLite. Each answer names the field, the
value and the fix; where the fix is a command, it is run afterwards and has to succeed.
"""

from __future__ import annotations

import json
import re
import shlex
from types import SimpleNamespace
from typing import Any

import pytest

from laas_service.client.usage import bandwidth, duration
from laas_service.cmd import client as command
from laas_service.cmd import manage, plan, simulate


class Direct:
    """Stands for the adapter: every request goes to the application in this process."""

    def __init__(self, client):
        self._client = client

    def request(self, path, method, params, json, headers, **_):
        answer = self._client.open(
            path, method=method, query_string=params, json=json, headers=headers
        )
        return SimpleNamespace(
            status_code=answer.status_code,
            json=lambda: answer.json,
            headers=dict(answer.headers),
            url=path,
            reason="",
        )


@pytest.fixture
def laas(client, allocate, monkeypatch, capsys, tmp_path):
    """Run a command line of ``laas``: its exit status, output and errors. ``blue`` has 9 hosts."""
    allocate(9)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("OS_AUTH_URL", "OS_AUTH_TYPE", "OS_TOKEN", "LAAS_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    whole = command.adapter

    def adapter(args):
        if args.endpoint or args.token:
            whole(args)  # judges the address
        return Direct(client)

    monkeypatch.setattr(command, "adapter", adapter)

    def run(line):
        status: Any = None
        try:
            status = command.main(shlex.split(line))
        except SystemExit as ended:
            status = ended.code
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


NUMBER = "give a whole number of at least 1"
TIME = "give seconds, or a time such as 30m, 2h or 1d"
RATE = "give Gb/s, or a rate such as 10G or 400M"
CREATE = "allocation create --name red --hosts 3"

MISTAKES = [
    # command lines: what is unknown
    ("", 2, "no command; choose from allocation", "--help"),
    ("alocation list", 2, "no command 'alocation'; did you mean allocation?", "allocation list"),
    ("allocations list", 2, "'allocations'; did you mean allocation?", "allocation list"),
    ("allocation", 2, "no command 'allocation'; choose from certificate", "allocation --help"),
    ("allocation lst", 2, "did you mean list or set?", "allocation list"),
    ("allocation shwo blue", 2, "did you mean show?", "allocation show blue"),
    ("allocation creat", 2, "give --name", None),
    ("fabrc list", 2, "did you mean fabric?", "fabric list"),
    ("fabric utilisation", 2, "did you mean utilization?", "fabric utilization"),
    ("host drian node01", 2, "did you mean drain?", "host drain node01"),
    ("link repiar leaf-0-0-0", 2, "did you mean repair?", "link repair leaf-0-0-0"),
    ("swich show leaf-0-0", 2, "did you mean switch?", "switch show leaf-0-0"),
    ("quota set local --hosts 5", 2, "'laas-manage quota set PROJECT'", "quota show"),
    ("fabric list -f xml", 2, "'xml' (choose from 'csv', 'json'", "fabric list -f json"),
    ("fabric list -f jsn", 2, "did you mean json?", "fabric list -f json"),
    ("fabric list -c Size", 2, "there is no 'Size'; choose from id, shape", "fabric list -c shape"),
    ("fabric list -c shap", 2, "did you mean shape?", "fabric list -c shape"),
    ("fabric list --sort-column Sise", 2, "there is no 'Sise'", "fabric list --sort-column id"),
    ("allocation show blue -c stat", 2, "did you mean state?", "allocation show blue -c state"),
    (f"{CREATE} --dry-rum", 2, "--dry-rum; did you mean --dry-run?", f"{CREATE} --dry-run"),
    (f"{CREATE} --polic jigsaw --x", 2, "unrecognized arguments: --x", None),
    ("allocation list --sort size", 2, "ambiguous option: --sort", None),
    # command lines: what is missing
    ("allocation create", 2, "create: give --name", None),
    ("allocation create blue", 2, "give --hosts or --slots", f"{CREATE} --dry-run"),
    ("allocation delete", 2, "required: ALLOCATION", None),
    ("allocation show", 2, "required: ALLOCATION", "allocation show blue"),
    ("allocation resize blue", 2, "required: HOSTS", "allocation resize blue +1 --dry-run"),
    ("allocation rename blue", 2, "required: NAME", "allocation rename blue navy"),
    ("allocation draw blue", 2, "required: --svg", "allocation draw blue --svg x.svg"),
    ("allocation consent blue", 2, "--movable, --notice", "allocation consent blue --notice 1h"),
    ("fabric fit", 2, "required: hosts", "fabric fit 4"),
    ("fabric map", 2, "required: --html", "fabric map --html x.html"),
    ("fabric delete", 2, "required: fabric", None),
    ("host drain", 2, "required: HOST", "host drain node01"),
    ("link show", 2, "required: LINK", "link show leaf-0-0-0"),
    ("switch show", 2, "required: SWITCH", "switch show leaf-0-0"),
    ("wait", 2, "required: ALLOCATION", "wait blue"),
    (f"{CREATE} --policy", 2, "--policy: expected one argument", f"{CREATE} --policy jigsaw"),
    # values of the wrong type
    ("allocation create x --hosts four", 2, f"--hosts: 'four': {NUMBER}", None),
    ("allocation create x --hosts 4,5", 2, f"--hosts: '4,5': {NUMBER}", None),
    ("allocation create x --hosts 0", 2, f"--hosts: '0': {NUMBER}", None),
    ("allocation create x --hosts -3", 2, f"--hosts: '-3': {NUMBER}", None),
    ("allocation create x --hosts 1.5", 2, f"--hosts: '1.5': {NUMBER}", None),
    ("allocation create x --hosts ''", 2, f"--hosts: '': {NUMBER}", None),
    ("allocation create x --slots many", 2, f"--slots: 'many': {NUMBER}", None),
    ("allocation create x --slots 4 --bandwidth fast", 2, f"--bandwidth: 'fast': {RATE}", None),
    ("allocation create x --slots 4 --bandwidth 10GB/x", 2, f"'10GB/x': {RATE}", None),
    ("allocation create x --hosts 4 --share-slots x", 2, f"--share-slots: 'x': {NUMBER}", None),
    (
        "allocation create x --hosts 4 --share-bandwidth x",
        2,
        f"--share-bandwidth: 'x': {RATE}",
        None,
    ),
    (f"{CREATE} --duration soon", 2, f"--duration: 'soon': {TIME}", f"{CREATE} --duration 2h"),
    (f"{CREATE} --duration 2y", 2, f"--duration: '2y': {TIME}", f"{CREATE} --duration 2d"),
    (f"{CREATE} --notice later", 2, f"--notice: 'later': {TIME}", f"{CREATE} --notice 1h"),
    (f"{CREATE} --wait soon", 2, f"--wait: 'soon': {TIME}", f"{CREATE} --wait 10m"),
    (f"{CREATE} --move-cost much", 2, "--move-cost: 'much': give a number", None),
    (f"{CREATE} --spread wide", 2, "--spread: 'wide': give a whole number", f"{CREATE} --spread 1"),
    (f"{CREATE} --max-host-cost x", 2, "--max-host-cost: 'x': give a whole", None),
    (f"{CREATE} --avoid-pod first", 2, "--avoid-pod: 'first': give a whole number", None),
    (
        f"{CREATE} --within rack",
        1,
        "'rack' is not valid; the fabric has leaf",
        f"{CREATE} --within leaf",
    ),
    (f"{CREATE} --within lef", 1, "did you mean leaf?", f"{CREATE} --within leaf"),
    (f"{CREATE} --movable lve", 2, "did you mean live?", f"{CREATE} --movable live"),
    (f"{CREATE} --contention-free yes", 2, "choose from 'require', 'prefer'", None),
    ("allocation resize blue x", 2, "'x' is no number of hosts such as 12, +4 or -4", None),
    ("allocation resize blue +", 2, "'+' is no number of hosts", None),
    ("allocation resize blue 1.5", 2, "'1.5' is no number of hosts", None),
    ("allocation ranks blue --format mpich", 2, "'openmpi', 'hostfile'", "allocation ranks blue"),
    ("allocation ranks blue --slots 0", 2, f"--slots: '0': {NUMBER}", None),
    ("allocation list --watch often", 2, f"--watch: 'often': {TIME}", None),
    ("wait blue --timeout long", 2, f"--timeout: 'long': {TIME}", "wait blue --timeout 1m"),
    ("fabric fit many", 2, "hosts: 'many': give a whole number", "fabric fit 4"),
    ("fabric hosts --state odd", 2, "'odd' (choose from 'up', 'drained', 'failed')", None),
    ("fabric hosts --state faild", 2, "did you mean failed?", "fabric hosts --state failed"),
    ("fabric links --kind spin", 2, "did you mean spine?", "fabric links --kind spine"),
    ("fabric switches --level 4", 2, "invalid choice: 4 (choose from 1, 2, 3)", None),
    ("fabric switches --level top", 2, "--level: 'top': give a whole number", None),
    ("fabric plane --l2 x", 2, "--l2: 'x': give a whole number", None),
    ("fabric make-room 3 --moves few", 2, f"--moves: 'few': {NUMBER}", None),
    ("fabric observation --mode actt", 2, "did you mean act?", "fabric observation --mode act"),
    (
        "host set node01 --cost cheap",
        2,
        "--cost: 'cheap': give a whole",
        "host set node01 --cost 3",
    ),
    ("view --port http", 2, "--port: 'http': give a whole number", None),
    ("allocation list --stte active", 2, "did you mean --state", None),
    ("host drain node01 node02 --x", 2, "unrecognized arguments", None),
    ("fabric consolidate --max-moves few", 2, f"--max-moves: 'few': {NUMBER}", None),
    ("fabric sleep --moves 0", 2, f"--moves: '0': {NUMBER}", None),
    ("fabric make-room 3 --max-cost low", 2, "--max-cost: 'low': give a number", None),
    ("fabric map --html x --hosts all", 2, f"--hosts: 'all': {NUMBER}", None),
    ("allocation create x --hosts 3 --risk none", 2, "--risk: 'none': give a number", None),
    ("allocation change-slots x --slots 0", 2, f"--slots: '0': {NUMBER}", None),
    # what excludes what, and what wants a yes
    (
        "allocation create x --hosts 3 --slots 4",
        2,
        "--slots: not allowed with argument --hosts",
        None,
    ),
    ("host set node01 --trait A --no-traits", 2, "--no-traits: not allowed with", None),
    ("fabric plane --none --l2 3", 1, "give --none, or indices, not both", "fabric plane --none"),
    (
        "host drain node01 --dry-run",
        1,
        "are for --move",
        "host drain node01 --move --dry-run",
    ),
    (
        "allocation resize blue 4",
        2,
        "blue: 9 -> 4: 5 hosts fewer: give --yes",
        "allocation resize blue 4 --yes",
    ),
    (
        "allocation resize blue -4",
        2,
        "9 -> 5: 4 hosts fewer: give --yes",
        "allocation resize blue -4 --yes",
    ),
    ("allocation resize blue -9", 1, "blue has 9 hosts, so 0 would be left", None),
    (
        "allocation delete blue --force",
        2,
        "servers may run there: give --yes",
        "allocation delete blue --force --yes",
    ),
    (
        "switch drain leaf-0-0",
        2,
        "drain leaf leaf-0-0 with its 4 hosts: give --yes",
        "switch drain leaf-0-0 --yes",
    ),
    ("switch drain leaf-0-0 --move", 2, "with its 4 hosts: give --yes", None),
    (
        "switch drain spine-0-0",
        1,
        "only a leaf has hosts to drain",
        "switch maintain spine-0-0",
    ),
    ("allocation delete blue x", 2, "would free all hosts of blue, x: give --yes", None),
    # what does not exist
    ("allocation show nope", 4, "there is no allocation 'nope'", "allocation list"),
    ("allocation delete nope", 4, "there is no allocation 'nope'", None),
    ("allocation history nope", 4, "there is no allocation 'nope'", None),
    ("allocation resize nope 4", 4, "there is no allocation 'nope'", None),
    ("allocation ranks nope", 4, "there is no allocation 'nope'", None),
    ("wait nope", 4, "there is no allocation 'nope'", None),
    (f"{CREATE} --parent nope", 4, "there is no allocation 'nope'", None),
    ("fabric show nope", 4, "there is no fabric 'nope'; the service has main", "fabric show main"),
    ("fabric show mian", 4, "there is no fabric 'mian'; did you mean main?", "fabric show main"),
    ("fabric fit 4 --fabric mian", 4, "did you mean main?", "fabric fit 4 --fabric main"),
    ("fabric hosts --fabric mian", 4, "did you mean main?", "fabric hosts --fabric main"),
    (f"{CREATE} --fabric Main", 4, "did you mean main?", f"{CREATE} --fabric main"),
    ("host fail node007", 4, "'node007'; did you mean node07", "host fail node07"),
    ("host drain nod01", 4, "did you mean node01", "host drain node01"),
    ("host repair xx", 4, "'xx'; fabric main has node00, node01", "host repair node00"),
    ("host set node99 --cost 3", 4, "there is no host 'node99'; did you mean node", None),
    ("switch show leaf-0-9", 4, "'leaf-0-9'; did you mean leaf-0-", "switch show leaf-0-0"),
    ("switch fail xx", 4, "there is no switch 'xx'; fabric main has", None),
    (
        "link fail leaf-99-0-0",
        4,
        "fabric main has leaf-0-0-0 to spine-1-3-3",
        "link show spine-1-3-3",
    ),
    ("link show leaf_0_0_0", 1, "use leaf-POD-LEAF-UP or spine-POD-L2-UP", "link show leaf-0-0-0"),
    (f"{CREATE} --trait GPU", 1, "--trait: 'GPU' is not valid; the fabric has none", None),
    (f"{CREATE} --avoid-host node99", 1, "'node99' is not valid", None),
    (f"{CREATE} --policy best", 1, "--policy: 'best' is not valid", f"{CREATE} --policy jigsaw"),
    (
        "allocation list --state runing",
        1,
        "--state: choose from 'queued', 'allocating'",
        "allocation list --state active",
    ),
    # names
    ("allocation create '' --hosts 3", 1, "--name: give 1 or more characters", None),
    ("allocation create 'a\nb' --hosts 3", 1, "--name: leave out control characters", None),
    (f"allocation create {'x' * 300} --hosts 3", 1, "--name: give at most 255 characters", None),
    ("allocation rename blue ''", 1, "give 1 or more characters", "allocation rename blue navy"),
    # refusals
    (
        "allocation create x --hosts 100",
        3,
        "the largest that would fit now is 23",
        "allocation create x --hosts 23",
    ),
    ("allocation create x --hosts 24 --within leaf", 3, "the largest that would fit now is", None),
    (
        "allocation resize blue 100000",
        3,
        "100000 hosts asked",
        "allocation resize blue 20 --dry-run",
    ),
    ("allocation change-slots blue --slots 3", 3, "has hosts and no slots; change its hosts", None),
    ("fabric delete main", 3, "main", None),
    ("allocation create x --slots 4", 1, "--bandwidth: is missing", None),
    # files
    (
        "allocation draw blue --svg /nowhere/x.svg",
        1,
        "cannot write /nowhere/x.svg: No such",
        "allocation draw blue --svg x.svg",
    ),
    ("fabric map --html /nowhere/x.html", 1, "cannot write /nowhere/x.html: No such", None),
    # addresses
    (
        "fabric list --endpoint 127.0.0.1:8780",
        6,
        "write http://127.0.0.1:8780",
        "fabric list --endpoint http://127.0.0.1:8780",
    ),
    ("fabric list --endpoint localhost", 6, "'localhost': write http://localhost", None),
    ("fabric list --endpoint ftp://x:1", 6, "'ftp://x:1': write http://x:1", None),
    (
        "fabric list --endpoint http://x:1/v1",
        6,
        "leave out the version: http://x:1",
        "fabric list --endpoint http://x:1",
    ),
    ("fabric list --endpoint http://x:1/v1/", 6, "leave out the version: http://x:1", None),
    ("fabric list --endpoint http://x:1/v2.0", 6, "leave out the version: http://x:1", None),
]
"""Command line; exit status; a part of the answer; the command that its advice makes, if any."""


@pytest.mark.parametrize(("given", "status", "told", "fixed"), MISTAKES)
def test_a_mistake_is_answered_with_field_value_and_fix(laas, given, status, told, fixed):
    ended, _, err = laas(given)
    assert (ended, told in err) == (status, True), (ended, err)
    assert "Traceback" not in err
    assert len(err.splitlines()) == (2 if status == 2 else 1), err
    if status == 2:
        advice = re.fullmatch(r"See '(laas[a-z -]* --help)'\.", err.splitlines()[1])
        assert advice
        assert laas(advice[1].removeprefix("laas "))[0] == 0
    if fixed is not None:
        ended, _, err = laas(fixed)
        assert ended == 0, err


@pytest.mark.parametrize("given", [row for row in MISTAKES if row[1] in (2, 3, 4)][::4])
def test_an_error_is_json_where_json_is_asked(laas, given):
    line, status, _, _ = given
    ended, out, _ = laas(f"{line} --json")
    assert ended == status
    assert {"code", "detail"} <= json.loads(out).keys()


BODY: dict[str, Any] = {"name": "red", "hosts": 3}

REQUESTS: list[tuple[str, str, Any, int, str]] = [
    ("GET", "/v1/allocation", None, 404, "did you mean /v1/allocations?"),
    ("GET", "/v1/fabric", None, 404, "did you mean /v1/fabrics?"),
    ("GET", "/v2/allocations", None, 404, "did you mean /v1/allocations?"),
    ("GET", "/v1/v1/fabrics", None, 404, "leave out what is in front of /v1 there"),
    ("GET", "/api/v1/fabrics", None, 404, "leave out what is in front of /v1 there"),
    ("GET", "/x", None, 404, "all are in /v1/openapi.json"),
    ("DELETE", "/v1/allocations", None, 405, "/v1/allocations has no DELETE; it has GET, POST"),
    ("PUT", "/v1/fabrics", None, 405, "has no PUT; it has GET"),
    ("GET", "/v1/allocations?limit=0", None, 400, "limit: give at least 1"),
    ("GET", "/v1/allocations?limit=x", None, 400, "limit: give a whole number"),
    ("GET", "/v1/allocations?stat=active", None, 400, "stat: there is no such field"),
    ("GET", "/v1/allocations?state=runing", None, 400, "state: choose from 'queued'"),
    ("GET", "/v1/fabrics/mian", None, 404, "did you mean main?"),
    ("GET", "/v1/fabrics/main/hosts?state=odd", None, 400, "state: choose from"),
    ("GET", "/v1/fabrics/main/switches?level=4", None, 400, "level: give at most 3"),
    ("GET", "/v1/fabrics/main/fit?hosts=0", None, 400, "hosts: give at least 1"),
    ("GET", "/v1/fabrics/main/links/leaf-9-9-9", None, 404, "fabric main has leaf-0-0-0"),
    ("PATCH", "/v1/fabrics/main/hosts/nod00", {"state": "up"}, 404, "did you mean node00"),
    ("PATCH", "/v1/fabrics/main/hosts/node00", {"state": "down"}, 400, "state: choose from"),
    ("POST", "/v1/allocations", {}, 400, "name: is required"),
    ("POST", "/v1/allocations", {"name": "red"}, 400, "hosts"),
    ("POST", "/v1/allocations", {**BODY, "hosts": "4"}, 400, "hosts: give a whole number"),
    ("POST", "/v1/allocations", {**BODY, "hosts": 4.5}, 400, "hosts: give a whole number"),
    ("POST", "/v1/allocations", {**BODY, "hosts": 0}, 400, "hosts: give at least 1"),
    ("POST", "/v1/allocations", {**BODY, "hosts": None}, 400, "hosts"),
    ("POST", "/v1/allocations", {**BODY, "host": 4}, 400, "host: there is no such field"),
    ("POST", "/v1/allocations", {**BODY, "name": 4}, 400, "name: give a text"),
    ("POST", "/v1/allocations", {**BODY, "name": ""}, 400, "name: give 1 or more characters"),
    ("POST", "/v1/allocations", {**BODY, "name": "a\nb"}, 400, "name: leave out control char"),
    ("POST", "/v1/allocations", {**BODY, "duration": "2h"}, 400, "duration: give a number"),
    ("POST", "/v1/allocations", {**BODY, "wait": "yes"}, 400, "wait: give true or false"),
    ("POST", "/v1/allocations", {**BODY, "constraints": 3}, 400, "constraints"),
    ("POST", "/v1/allocations", [], 400, "body"),
    ("PATCH", "/v1/allocations/ID", {"hosts": "x"}, 400, "hosts: give a whole number"),
    ("PATCH", "/v1/allocations/ID", {"name": None, "x": 1}, 400, "x: there is no such field"),
    ("PATCH", "/v1/allocations/nope", {"hosts": 4}, 404, "there is no allocation 'nope'"),
]
"""Method, path, body; status; a part of the detail."""


@pytest.mark.parametrize(("method", "path", "body", "status", "told"), REQUESTS)
def test_a_wrong_request_is_answered_with_field_and_fix(
    client, allocate, method, path, body, status, told
):
    path = path.replace("ID", allocate(2)["id"])
    answer = client.open(path, method=method, json=body)
    assert (answer.status_code, told in answer.json["detail"]) == (status, True), answer.text


RUN = "run --policy jigsaw --radix 8 --synthetic exp:8:10"

PROGRAMS = [
    (manage.main, "fabric", "required"),
    (manage.main, "fabric imprt x", "did you mean import or reimport?"),
    (manage.main, "fabrc list", "did you mean fabric?"),
    (manage.main, "fabric import", "give FILE or --live"),
    (manage.main, "fabric import x --accept nofat", "did you mean no-fat-tree?"),
    (manage.main, "fabric import x --exlude a", "did you mean --exclude"),
    (manage.main, "fabric generate", "required: description"),
    (manage.main, "fabric generate x --format dot", "choose from 'ibnetdiscover'"),
    (manage.main, "fabric generate x --format slrum", "did you mean slurm?"),
    (manage.main, "quota set", "required: project"),
    (manage.main, "quota set p --hosts many", "--hosts: 'many': give -1, or 0 to 999999999"),
    (manage.main, "quota set p --moves -2", "--moves: '-2': give -1, or 0"),
    (manage.main, "host set n --cost cheap", "--cost: 'cheap': give 0 to"),
    (manage.main, "host set n --trait 'a b'", "--trait: 'a b': use letters, digits"),
    (manage.main, "host virtual-ports n --rule x", "'x': give STEP:COUNT"),
    (manage.main, "db purge --released-days soon", "--released-days: 'soon': give 1 to 99999"),
    (manage.main, "db restore f --above x", "--above: 'x': give 0 to 999999999"),
    (manage.main, "db bakup f", "did you mean backup?"),
    (manage.main, "fabric plane --l2 x", "--l2: 'x': give a whole number"),
    (plan.main, "", "give a fabric: --xgft, --fabric or --state"),
    (plan.main, "--xgft '2;4,4;1,4' --fabrc x", "did you mean --fabric?"),
    (plan.main, "--xgft '2;4,4;1,4' --policy jigsw", "did you mean jigsaw?"),
    (simulate.main, "run", "required: --policy"),
    (simulate.main, "rn", "did you mean run?"),
    (simulate.main, "run --policy jigsaw --radix x", "--radix: 'x': give a whole number"),
    (simulate.main, "run --policy jigsw --radix 8", "did you mean jigsaw?"),
    (
        simulate.main,
        "run --policy jigsaw --radix 8 --synthetic exp:8:10 --sed 3",
        "did you mean --seed or",
    ),
    (simulate.main, "run --policy jigsaw --radix 8 --seed x", "--seed: 'x': give a whole number"),
    (simulate.main, "report", "required: RESULTS"),
    (simulate.main, "report x --format pdf", "choose from 'html', 'rst'"),
]
"""The main function of another command, its arguments; a part of the answer."""


@pytest.mark.parametrize(("main", "given", "told"), PROGRAMS)
def test_other_commands_answer_in_two_lines(main, given, told, capsys):
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(given))
    err = capsys.readouterr().err
    assert (ended.value.code, told in err, err.count("\n")) == (2, True, 2), err


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({}, "set OS_PASSWORD and OS_USERNAME or OS_USER_ID too"),
        ({"OS_USERNAME": "u"}, "set OS_PASSWORD too, or unset OS_AUTH_URL"),
        ({"OS_PASSWORD": "p"}, "set OS_USERNAME or OS_USER_ID too, or unset OS_AUTH_URL"),
    ],
)
def test_a_login_that_is_not_whole(monkeypatch, capsys, variables, told):
    for name in ("OS_AUTH_TYPE", "OS_TOKEN", "OS_USERNAME", "OS_USER_ID", "OS_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"OS_AUTH_URL": "http://127.0.0.1:9/v3", **variables}.items():
        monkeypatch.setenv(name, value)
    assert command.main(["fabric", "list"]) == 6
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("30m", 1800), ("2h", 7200), ("1.5h", 5400), ("1d", 86400), ("5 min", 300)],
)
def test_times_have_units(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "rate"),
    [("5", 5), ("10G", 10), ("10Gb/s", 10), ("400M", 0.4), ("0.1T", 100), ("25gbps", 25)],
)
def test_bandwidths_have_units(text, rate):
    assert bandwidth(text) == pytest.approx(rate)


def test_there_are_enough():
    assert len(MISTAKES) + len(REQUESTS) + len(PROGRAMS) >= 200

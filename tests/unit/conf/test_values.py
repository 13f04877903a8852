# SPDX-License-Identifier: Apache-2.0

"""Each group of options is offered as one value, checked, with what an operator has set."""

from __future__ import annotations

import configparser
from datetime import time
from pathlib import Path

import pytest
from oslo_config import cfg

from laas_service import conf as options
from laas_service.app.records import Limits
from laas_service.conf import gone, logins, review
from laas_service.conf.api import ApiOptions
from laas_service.conf.compute import ComputeOptions
from laas_service.conf.faults import FaultOptions
from laas_service.conf.limits import LimitOptions
from laas_service.conf.opensm import (
    OpenSmOptions,
    attended,
    found_tools,
    looks_for_tools,
    named,
    opensm,
)
from laas_service.conf.queue import QueueOptions
from laas_service.conf.sharing import SharingOptions
from laas_service.conf.ufm import UfmOptions
from laas_service.conf.worker import WorkerOptions
from laas_service.domain.errors import InvalidInput
from opensm_writer.tools import Tools
from tests.options import options_from
from tests.scripts import executable

OWN = {
    group: [option.dest for option in opts]
    for group, opts in options.list_opts()
    if group not in logins.GROUPS
}


def configured(tmp_path: Path, **groups: str) -> cfg.ConfigOpts:
    """A configuration with these lines in its groups."""
    path = tmp_path / "laas.conf"
    path.write_text("".join(f"[{name}]\n{lines}\n" for name, lines in groups.items()))
    return options_from(path)


def test_what_requests_are_offered(tmp_path):
    lines = "enabled_policies = jigsaw,laas\ncontention_free = prefer\nthreads = 12\n"
    made = ApiOptions.of(configured(tmp_path, api=lines + "search_budget = 100000"))
    assert set(made.policies) == {"jigsaw", "laas"}
    assert made.contention_free is not None
    assert made.contention_free.value == "prefer"
    assert (made.waiters, made.search_budget) == (6, 100_000)
    assert ApiOptions.of(configured(tmp_path)).contention_free is None


def test_how_the_queue_is_served(tmp_path):
    lines = "discipline = fifo\nwindow = 7\nmake_room = on\nmake_room_max_cost = 4.5\n"
    lines += "make_room_interval = 9\nmake_room_window = 22:00-04:30\nmake_room_hosts = 64"
    made = QueueOptions.of(configured(tmp_path, queue=lines))
    assert (made.order.kind, made.order.window) == ("fifo", 7)
    assert (made.room.mode.value, made.room.permission.max_cost) == ("on", 4.5)
    assert (made.room.interval, made.room.hosts) == (9, 64)
    assert made.room.window == (time(22), time(4, 30))


@pytest.mark.parametrize("window", ["22-23-24", "noon-04:00", "10:00-10:00"])
def test_a_wrong_window_is_named(tmp_path, window):
    conf = configured(tmp_path, queue=f"make_room_window = {window}")
    with pytest.raises(InvalidInput, match=r"\[queue\] make_room_window"):
        QueueOptions.of(conf)


def test_what_projects_may_have(tmp_path):
    lines = "hosts = 9\nallocations = 0\nmoves = 2\nslots = -1\nunmoved_projects = blue,red"
    made = LimitOptions.of(configured(tmp_path, limits=lines))
    assert made.limits == Limits(hosts=9, allocations=0, moves=2, slots=None)
    assert made.unmoved_projects == {"blue", "red"}


def test_how_ports_are_judged(tmp_path):
    lines = "mode = observe\nhold_down = 7\nflaps = 4\nquarantine = 60\n"
    lines += "breaker_switches = 2\nbreaker_share = 0.5\ncounters = mark\n"
    lines += "error_thresholds = PortRcvErrors:7/day\naudit_bytes_per_second = 5000"
    made = FaultOptions.of(configured(tmp_path, faults=lines))
    rules = made.rules
    assert (rules.mode.value, rules.hold_down, rules.flaps) == ("observe", 7, 4)
    assert rules.quarantine == 60
    assert (rules.breaker_switches, rules.breaker_share) == (2, 0.5)
    assert made.counters == "mark"
    assert [(t.counter, t.count, t.seconds) for t in made.counter_rules.thresholds] == [
        ("PortRcvErrors", 7, 86400)
    ]
    assert made.counter_rules.tolerance.bytes_per_second == 5000


def test_how_hosts_are_watched(tmp_path):
    lines = "kind = nova\none_allocation_per_project = false\nstop_strangers = true\n"
    lines += "state_interval = 5\nhold_down = 30\nreap_interval = 2400\nlive_ports = true"
    made = ComputeOptions.of(configured(tmp_path, compute=lines))
    assert (made.one_per_project, made.stop_strangers, made.live_ports) == (False, True, True)
    assert (made.state_interval, made.withholding.hold_down) == (5, 30)
    assert made.withholding.reap_interval == 2400
    assert "Ironic" not in made.withholding.away
    assert ComputeOptions.of(configured(tmp_path, compute="kind = nova")).one_per_project
    node = ComputeOptions.of(configured(tmp_path, compute="kind = ironic"))
    assert not node.one_per_project
    assert "Ironic" in node.withholding.away


def test_how_hosts_are_shared(tmp_path):
    apart = SharingOptions.of(configured(tmp_path))
    assert "access = together" in apart.unshared
    assert apart.level == 0
    together = configured(tmp_path, sharing="access = together\nservice_level = 3")
    assert SharingOptions.of(together).unshared == ""
    assert SharingOptions.of(together).level == 3
    chains = "enforcement = chains\ndirectory = /tmp/opensm"
    routed = configured(tmp_path, sharing="access = together", opensm=chains)
    assert "OpenSM chooses the routes" in SharingOptions.of(routed).unshared
    nodes = configured(tmp_path, sharing="access = together", compute="kind = ironic")
    assert "one owner" in SharingOptions.of(nodes).unshared
    with pytest.raises(InvalidInput, match=r"\[sharing\] enforcement"):
        SharingOptions.of(configured(tmp_path, sharing="enforcement = neutron"))


def test_the_worker_has_all_of_its_options(tmp_path):
    text = "".join(f"{name} = 1\n" for name in OWN["worker"])
    made = WorkerOptions.of(configured(tmp_path, worker=text))
    assert {getattr(made, name) for name in OWN["worker"]} == {1}


def test_moves_end_after_the_window(tmp_path):
    assert WorkerOptions.of(configured(tmp_path, worker="move_window = 60")).move_window == 60


def test_a_standby_is_fenced_only_where_that_is_configured(tmp_path):
    assert OpenSmOptions.of(configured(tmp_path)).agent_fence_after == 0
    made = OpenSmOptions.of(configured(tmp_path, opensm="agent_fence_after = 60"))
    assert made.agent_fence_after == 60


def test_ufm_has_all_of_its_options(tmp_path):
    lines = "url = https://ufm\nfabric = f\ntoken_file = /t\ncert_file = /c\nkey_file = /k\n"
    lines += (
        "ca_file = /a\njob_timeout = 3\nports_interval = 4\nagent = true\nmark_unhealthy = true"
    )
    made = UfmOptions.of(configured(tmp_path, ufm=lines))
    assert (made.url, made.managed, made.agent, made.mark_unhealthy) == (
        "https://ufm",
        "f",
        True,
        True,
    )
    assert (made.job_timeout, made.ports_interval) == (3, 4)
    files = (made.token_file, made.cert_file, made.key_file, made.ca_file)
    assert files == (Path("/t"), Path("/c"), Path("/k"), Path("/a"))
    with pytest.raises(InvalidInput, match=r"\[ufm\] fabric"):
        UfmOptions.of(configured(tmp_path)).managed  # noqa: B018


def test_the_files_of_opensm(tmp_path):
    lines = (
        f"directory = {tmp_path}\nmulticast = true\nservices = 0x1c,0x1b\nvirtual_ports = true\n"
    )
    lines += "one_rule_per_group = true\npkeys = 0x10-0x1f"
    conf = configured(tmp_path, opensm=lines)
    made = OpenSmOptions.of(conf)
    assert attended(conf)
    assert named(conf, "pkeys")
    assert made.pkeys == range(0x10, 0x20)
    files = made.files(tmp_path, 2)
    assert (files.directory, files.enforcement, files.services) == (
        str(tmp_path),
        "file",
        (0x1B, 0x1C),
    )
    assert (files.multicast, files.one_rule_per_group, files.virtual_ports) == (True, True, True)
    assert files.level == 2
    assert not attended(configured(tmp_path))
    assert not named(configured(tmp_path), "pkeys")


TOOL = "#!/bin/sh\nexit 0\n"


@pytest.fixture
def tools(tmp_path):
    there = tmp_path / "bin"
    there.mkdir()
    for name in ("smpquery", "dump_lfts", "iblinkinfo", "perfquery", "laas-opensm-keys"):
        executable(there / name, TOOL)
    return f"tools = {there}\n"


def test_defaults_look_for_nothing(tmp_path, tools):
    conf = configured(tmp_path, opensm=tools)
    assert not looks_for_tools(conf)
    assert opensm(conf, Tools()) is None


def test_the_directory_alone_has_everything_read(tmp_path, tools):
    conf = configured(tmp_path, opensm=f"{tools}directory = {tmp_path}/files")
    assert looks_for_tools(conf)
    made = opensm(conf, found_tools(conf))
    assert made is not None
    assert made.dump_command[-1] == "-n"
    assert made.links_command
    assert made.counters_command
    assert made.keys_command
    assert made.may_have_a_log


def test_what_is_configured_is_used_and_the_rest_is_found(tmp_path, tools):
    conf = configured(tmp_path, opensm=f"{tools}dump_command = cat,/dump\nmanagers = 0x1b")
    made = opensm(conf, found_tools(conf))
    assert made is not None
    assert made.dump_command == ("cat", "/dump")
    assert made.links_command
    assert made.managers == {0x1B}
    conf = configured(tmp_path, opensm=f"{tools}dump_file = /dump")
    made = opensm(conf, found_tools(conf))
    assert made is not None
    assert not made.dump_command


@pytest.mark.parametrize("lines", ["reached_by = ufm", "enforcement = chains", "tools = none"])
def test_what_computes_its_own_tables_is_not_read(tmp_path, tools, lines):
    assert found_tools(configured(tmp_path, opensm=f"{tools}{lines}")) == Tools()


def test_one_key_for_each_port_leaves_counters_only(tmp_path, tools):
    key = tmp_path / "key"
    key.write_text("0x1b")
    key.chmod(0o600)
    site = f"m_key_file = {key}\noption = m_key_per_port TRUE"
    conf = configured(tmp_path, opensm=f"{tools}directory = {tmp_path}/files", opensm_site=site)
    found = found_tools(conf)
    assert found.counters
    assert found == Tools(counters=found.counters)
    assert opensm(conf, found) is None


def test_without_tools_a_directory_only_has_files_written(tmp_path):
    conf = configured(tmp_path, opensm=f"directory = {tmp_path}\ntools = {tmp_path}")
    found = found_tools(conf)
    assert "not found" in found.problem
    assert opensm(conf, found) is None


# -- options that have gone


def test_there_are_no_more_options_than_a_person_reads():
    assert sum(map(len, OWN.values())) <= 110


def test_no_option_is_there_and_gone():
    assert not {(group, name) for group, names in OWN.items() for name in names} & gone.GONE.keys()


@pytest.mark.parametrize(("group", "name"), gone.GONE)
def test_an_option_that_has_gone_is_named_with_what_takes_its_place(tmp_path, group, name):
    conf = configured(tmp_path, **{group: f"{name} = 1"})
    (said,) = review.remarks(conf)
    assert said.startswith(f"{tmp_path}/laas.conf: [{group}] {name} has gone: ")
    assert gone.GONE[group, name] in said


def test_an_option_of_the_sample_has_not_gone():
    samples = Path(__file__).parents[3] / "etc" / "laas"
    for path in samples.glob("*.conf"):
        parser = configparser.ConfigParser(interpolation=None, default_section="none", strict=False)
        parser.read(path)
        for group in parser.sections():
            assert not {(group, name) for name in parser[group]} & gone.GONE.keys(), path

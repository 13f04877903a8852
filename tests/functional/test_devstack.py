# SPDX-License-Identifier: Apache-2.0

"""The DevStack plugin: each phase is run twice against stand-ins for DevStack's functions.

Files are written and ``laas-manage`` is run for real. Users, aggregates and started processes
are only recorded. These tests do not cover DevStack itself.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest
from keystoneauth1 import loading
from keystonemiddleware import opts as keystonemiddleware
from oslo_config import cfg
from oslo_db import options as database
from oslo_log import _options as log

from laas_service import conf as options
from laas_service.adapters import messaging
from laas_service.api import auth, microversions
from laas_service.domain.errors import InvalidInput
from laas_service.wiring.agent import agent
from laas_service.wiring.composition import Composition
from tests.options import options_from
from tests.scripts import executable

ROOT = Path(__file__).parents[2]
STUBS = Path(__file__).with_name("devstack_stubs.sh")
SERVICES = "n-api,n-sch,key,rabbit,mysql,tempest"
WITH_AGENT = f"{SERVICES},laas-opensm-agent"
AGENT_CONF = "laas-opensm-agent.conf"
SECTIONS = ("keystone_authtoken", "nova", "placement", "ironic", "laas")
STACK = ["stack install", "stack post-config", "stack extra", "stack test-config"]
DEFAULTS = [
    *("ComputeFilter", "ComputeCapabilitiesFilter", "ImagePropertiesFilter"),
    *("ServerGroupAntiAffinityFilter", "ServerGroupAffinityFilter"),
]
OURS = ["AggregateMultiTenancyIsolation", "LaasTenantFilter"]
ALL_FILTERS = "nova.scheduler.filters.all_filters"
FILTER = "nova_filters.laas.LaasTenantFilter"


class Machine:
    """The files and commands that DevStack provides, and those the plugin writes."""

    def __init__(self, top: Path) -> None:
        self.top = top
        for name in ("dest", "etc/nova", "etc/placement", "bin"):
            (top / name).mkdir(parents=True)
        (top / "bin" / "python3").symlink_to(sys.executable)
        executable(
            top / "bin" / "laas-manage",
            f'#!/bin/sh\nexec {sys.executable} -m laas_service.cmd.manage "$@"\n',
        )
        self.nova = top / "etc" / "nova" / "nova.conf"
        self.laas = top / "etc" / "laas" / "laas.conf"
        self.nova.write_text("[DEFAULT]\ndebug = True\n")

    def run(self, *phases: str, services: str = SERVICES, **variables: str) -> str:
        """Run each phase in its own shell, as DevStack does; return the text on stderr."""
        said = ""
        for phase in phases:
            script = f'source "{STUBS}"; source "$1"; source "$2" {phase}'
            settings, plugin = ROOT / "devstack" / "settings", ROOT / "devstack" / "plugin.sh"
            done = subprocess.run(
                ["bash", "-c", script, "stack.sh", str(settings), str(plugin)],
                env={
                    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                    "PYTHONPATH": str(ROOT),
                    "HOME": str(self.top),
                    "TOP": str(self.top),
                    "BIN": str(self.top / "bin"),
                    "ENABLED_SERVICES": services,
                    **variables,
                },
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            assert done.returncode == 0, f"{phase}: {done.stdout}\n{done.stderr}"
            said += done.stderr
        return said

    def calls(self, command: str) -> list[str]:
        lines = (self.top / "calls").read_text().splitlines()
        return [line.removeprefix(f"{command} ") for line in lines if line.startswith(command)]

    def cloud(self) -> set[str]:
        return {
            str(path.relative_to(self.top / "cloud"))
            for path in (self.top / "cloud").rglob("*")
            if path.is_file()
        }

    def files(self) -> dict[str, str]:
        """The contents of all files below etc, by relative path."""
        etc = self.top / "etc"
        return {str(p.relative_to(etc)): p.read_text() for p in etc.rglob("*") if p.is_file()}

    def filters(self) -> tuple[list[str], list[str], bool]:
        """Enabled filters, available filters and the pre-filter switch, as read from nova.conf."""
        conf = cfg.ConfigOpts()
        filters = [
            cfg.ListOpt("enabled_filters", default=DEFAULTS),
            cfg.MultiStrOpt("available_filters", default=[ALL_FILTERS]),
        ]
        conf.register_opts(filters, "filter_scheduler")
        conf.register_opt(cfg.BoolOpt("limit_tenants_to_placement_aggregate"), "scheduler")
        conf([], default_config_files=[str(self.nova)], default_config_dirs=[])
        found = conf.filter_scheduler
        limits = conf.scheduler.limit_tenants_to_placement_aggregate
        return found.enabled_filters, found.available_filters, bool(limits)


def configured(machine: Machine, file: str = "laas.conf") -> cfg.ConfigOpts:
    """The options that the service, or the agent, reads from its file."""
    return options_from(machine.laas.with_name(file))


@pytest.fixture
def machine(tmp_path):
    if shutil.which("bash") is None:
        pytest.skip("needs bash")
    return Machine(tmp_path)


# -- Nova -----------------------------------------------------------------------------


def test_unset_filters_become_the_defaults_and_ours(machine):
    machine.run("stack post-config")
    assert machine.filters() == ([*DEFAULTS, *OURS], [ALL_FILTERS, FILTER], True)


def test_the_defaults_are_those_that_the_documentation_names():
    page = (ROOT / "doc" / "source" / "install" / "nova.rst").read_text()
    [named] = re.findall(r"enabled_filters = (\S+)", page)
    assert named.split(",") == [*DEFAULTS, *OURS]


@pytest.mark.parametrize(
    ("text", "enabled", "available"),
    [
        (
            "enabled_filters = ComputeFilter, SameHostFilter",
            ["ComputeFilter", "SameHostFilter", *OURS],
            [ALL_FILTERS, FILTER],
        ),
        (
            "enabled_filters = LaasTenantFilter,ComputeFilter\navailable_filters = a.b.C\n"
            "available_filters = d.e.F",
            ["ComputeFilter", *OURS],
            ["a.b.C", "d.e.F", FILTER],
        ),
        (
            f"available_filters = {ALL_FILTERS}\navailable_filters = {FILTER}",
            [*DEFAULTS, *OURS],
            [ALL_FILTERS, FILTER],
        ),
    ],
    ids=["set", "with ours already", "ours alone"],
)
def test_filters_that_are_set_are_kept_and_ours_come_once(machine, text, enabled, available):
    machine.nova.write_text(f"[filter_scheduler]\n{text}\nshuffle = True\n[other]\nkey = value\n")
    for _ in range(2):
        machine.run("stack post-config")
        assert machine.filters() == (enabled, available, True)
        assert "shuffle = True" in machine.nova.read_text()


def test_the_role_has_the_rights_that_the_documentation_asks_for(machine):
    policies = [machine.top / "etc" / name / "policy.yaml" for name in ("nova", "placement")]
    policies[0].write_text('"os_compute_api:servers:create": "role:member"\n')
    machine.run("stack post-config", "stack post-config")
    page = (ROOT / "doc" / "source" / "install" / "nova.rst").read_text()
    rights = re.search(r"\nRights\n=+\n(.*?)\n\n[A-Z]", page, re.DOTALL)
    assert rights
    asked, prefix = set(), ""
    for name in re.findall(r"``([a-z_:-]+)``", rights[1]):
        if ":" not in name and prefix:
            asked.add(f"{prefix}:{name}")
        elif ":" in name:
            asked.add(name)
            prefix = name.rpartition(":")[0]
    text = "".join(path.read_text() for path in policies)
    granted = Counter(re.findall(r'^"(\S+)": "role:admin.* or role:laas"$', text, re.MULTILINE))
    assert granted == Counter(asked)
    assert '"os_compute_api:servers:create": "role:member"\n' in text


# -- the service -----------------------------------------------------------------------


def known() -> set[tuple[str, str]]:
    """Section and name of each option of the service, as in the sample configuration."""
    login = loading.get_auth_plugin_conf_options("password")
    lists = [
        *options.list_opts(),
        *database.list_opts(),
        *log.list_opts(),
        *import_module("oslo_messaging.opts").list_opts(),
        *keystonemiddleware.list_auth_token_opts(),
        *((section, login) for section in SECTIONS),
    ]
    return {(section or "DEFAULT", o.dest) for section, found in lists for o in found}


def test_the_configuration_is_what_the_service_understands(machine):
    machine.run("stack post-config")
    conf = configured(machine)
    messaging.configure(conf)
    auth.middleware("keystone", "0.0.0.0", conf)(lambda environ, start: [])
    assert conf.api.auth_strategy == "keystone"
    assert conf.api.default_fabric == "default"
    assert conf.keystone_authtoken.service_token_roles_required
    assert (conf.compute.kind, conf.compute.pool) == ("nova", "laas-pool")
    assert conf.transport_url == "rabbit://stackrabbit:secret@192.0.2.7:5672/"
    parts = Composition(conf)
    assert parts.bus is not None
    assert parts.notifier is not None
    assert parts.compute is not None
    parts.database.upgrade()
    assert (machine.top / "laas.sqlite").is_file()
    assert parts.use_cases(parts.waker).fabrics.fabrics() == []


@pytest.mark.parametrize("file", ["laas.conf", AGENT_CONF])
def test_every_option_that_is_written_is_known(machine, file):
    machine.run("stack post-config", services=WITH_AGENT)
    section, written = "DEFAULT", set()
    for line in machine.laas.with_name(file).read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line:
            written.add((section, line.partition(" = ")[0]))
    ignored = {(section, "interface") for section in SECTIONS}  # DevStack's own function
    assert written - ignored <= known()


def test_without_rabbit_there_is_no_bus(machine):
    machine.run("stack post-config", services="n-api,key,mysql", LAAS_NOTIFICATIONS="noop")
    parts = Composition(configured(machine))
    assert parts.bus is None
    assert parts.notifier is None


def test_the_api_runs_behind_uwsgi_with_its_configuration(machine):
    machine.run("stack post-config", "stack extra")
    ini = machine.files()["laas/laas-api-uwsgi.ini"]
    [module] = re.findall(r"module = (\S+):application", ini)
    assert module == "laas_service.cmd.wsgi"
    assert f"env = LAAS_CONFIG_DIR={machine.laas.parent}" in ini
    application = "from laas_service.cmd.wsgi import application"
    subprocess.run(
        [sys.executable, "-c", application],
        env=os.environ | {"LAAS_CONFIG_DIR": str(machine.laas.parent)},
        timeout=300,
        check=True,
    )
    started = machine.calls("run_process")
    assert [call.split()[0] for call in started] == ["laas-api", "laas-worker"]
    assert started[1].endswith(f"laas-worker --config-file {machine.laas}")
    assert machine.calls("wait_for_service") == ["60 http://192.0.2.7/laas/healthcheck"]


def test_the_catalog_has_the_service_under_the_type_that_clients_ask_for(machine):
    machine.run("stack post-config")
    assert machine.cloud() == {
        "user laas",
        "role laas",
        "assignment laas laas service",
        f"service {microversions.SERVICE_TYPE}",
        f"endpoint {microversions.SERVICE_TYPE} RegionOne",
    }


def test_the_sample_fabric_has_novas_hosts_and_leaves_the_rest_out(machine):
    machine.run("stack post-config", "stack extra")
    parts = Composition(configured(machine))
    [fabric] = parts.store.fabrics.all()
    assert fabric.id == "default"
    names = {
        name
        for number, name in enumerate(fabric.inventory.host_names)
        if name and number not in fabric.topology.absent_hosts
    }
    assert {"stack1", "stack2", "stack3", "stack10"} <= names
    ledger, _ = parts.store.fabrics.ledger("default")
    assert ledger.free_host_count == 4
    assert "aggregates/laas-pool" in machine.cloud()
    marks = "filter_tenant_id=laas-nobody --property laas:pool=true laas-pool"
    assert any(marks in call for call in machine.calls("openstack"))


def test_with_ironic_the_hosts_are_its_nodes(machine):
    machine.run("stack post-config", "stack extra", services=f"{SERVICES},ir-api,ir-cond")
    conf = configured(machine)
    assert conf.compute.kind == "nova"
    assert conf.ironic.region_name == "RegionOne"
    [fabric] = Composition(conf).store.fabrics.all()
    assert {"node-0", "node-1", "node-10"} <= set(fabric.inventory.host_names)
    ironic = (machine.top / "etc" / "ironic.conf").read_text()
    assert "rbac_service_role_elevated_access = True" in ironic
    assert not (machine.top / "cloud" / "aggregates" / "laas-pool").read_text(), "the worker does"
    enabled = [call for call in machine.calls("openstack") if "--enable" in call]
    assert len(enabled) == 4


def test_hosts_are_mapped_and_pooled_before_they_are_enabled(machine):
    """``LAAS_XGFT`` leaves one of Nova's four hosts an ordinary one."""
    machine.run("stack post-config", "stack extra", LAAS_XGFT="2;3,1;1,3")
    assert "enable_new_services = False" in machine.files()["nova/nova.conf"]
    pool = machine.top / "cloud" / "aggregates" / "laas-pool"
    assert pool.read_text().split() == ["stack1", "stack2", "stack3"]
    steps = ["is_nova_ready", "discover_hosts", "add host", "service set --enable", "laas-worker"]
    calls = (machine.top / "calls").read_text().splitlines()
    places = [[n for n, call in enumerate(calls) if step in call] for step in steps]
    for earlier, later in pairwise(places):
        assert max(earlier) < min(later)
    enabled = [call.split()[-2] for call in calls if "--enable" in call]
    assert enabled == ["stack1", "stack2", "stack3", "stack10"]


def test_a_subnode_of_computes_starts_no_second_api(machine):
    before = machine.files()
    machine.run(*STACK, "unstack", "clean", services="n-cpu,q-agt,placement-client")
    assert machine.files() == before
    assert not machine.cloud()
    assert not (machine.top / "calls").exists()


def test_an_agent_where_opensm_runs(machine):
    """The agent has its own user, file and process; the service relies on its reports."""
    machine.run("stack post-config", "stack extra", services=f"{WITH_AGENT},tls-proxy")
    service, conf = configured(machine), configured(machine, AGENT_CONF)
    assert service.opensm.reached_by == "agent"
    assert service.opensm.directory == conf.opensm.directory
    assert conf.opensm.agent_fabric == "default"
    assert "[database]" not in machine.files()[f"laas/{AGENT_CONF}"]
    conf.set_override("endpoint_override", "https://192.0.2.7/laas", group="laas")  # no Keystone
    parts = Composition(conf)
    assert agent(conf) is not None
    assert parts.bus is not None
    assert conf.laas.username == "laas-opensm-agent"
    assert "user laas-opensm-agent" in machine.cloud()
    [started] = [c for c in machine.calls("run_process") if c.startswith("laas-opensm-agent")]
    file = machine.laas.with_name(AGENT_CONF)
    assert started.endswith(f"laas-opensm-agent --config-file {file}")


def test_an_agent_needs_the_proxy_that_ends_tls(machine):
    machine.run("stack post-config", services=WITH_AGENT)
    with pytest.raises(InvalidInput, match=r"auth_url: 'http://192\.0\.2\.7/identity'.* use https"):
        agent(configured(machine, AGENT_CONF))


def test_without_an_agent_the_worker_writes_the_files(machine):
    machine.run("stack post-config")
    assert configured(machine).opensm.reached_by == "worker"
    assert f"laas/{AGENT_CONF}" not in machine.files()


def test_tempest_hears_of_the_service_and_the_filters(machine):
    machine.run("stack post-config", "stack test-config")
    tempest = machine.files()["tempest.conf"]
    assert "laas = True" in tempest
    assert f"scheduler_enabled_filters = {','.join([*DEFAULTS, *OURS])}" in tempest


# -- again, and undone --------------------------------------------------------------------


def test_every_phase_can_run_again(machine):
    machine.run(*STACK)
    first, cloud = machine.files(), machine.cloud()
    machine.run(*(phase for phase in STACK for _ in range(2)))
    assert machine.files() == first
    assert machine.cloud() == cloud
    assert len(Composition(configured(machine)).store.fabrics.all()) == 1


@pytest.mark.parametrize(
    ("nova", "agent"),
    [
        ("[DEFAULT]\ndebug = True\n", False),
        (
            "[filter_scheduler]\nenabled_filters = ComputeFilter,SameHostFilter\n"
            "available_filters = a.b.C\n[scheduler]\n"
            "limit_tenants_to_placement_aggregate = true\n",
            True,
        ),
    ],
    ids=["unset", "set, with an agent"],
)
def test_unstack_and_clean_undo_all_of_it(machine, nova, agent):
    services = WITH_AGENT if agent else SERVICES
    machine.nova.write_text(nova)
    policy = machine.top / "etc" / "nova" / "policy.yaml"
    policy.write_text('"a:b": "role:c"\n')
    before = machine.filters()
    machine.run(*STACK, services=services)
    (machine.top / "cloud" / "aggregates" / "laas-pool").write_text("stack1\nstack2\n")
    (machine.top / "cloud" / "aggregates" / "laas-1234").write_text("stack1\n")
    (machine.top / "cloud" / "aggregates" / "of-others").write_text("stack3\n")
    machine.run("unstack", "unstack", "clean", "clean", services=services)
    assert machine.cloud() == {"aggregates/of-others"}
    assert machine.filters() == before
    assert policy.read_text() == '"a:b": "role:c"\n'
    assert not any(word in machine.nova.read_text() for word in ("laas", *OURS))
    assert set(machine.files()) == {"nova/nova.conf", "nova/policy.yaml", "tempest.conf"}
    assert not (machine.top / "data" / "laas").exists()
    stopped = {call.split()[0] for call in machine.calls("stop_process")}
    assert stopped == {"laas-api", "laas-worker", *(["laas-opensm-agent"] if agent else [])}
    machine.run("stack post-config")
    assert set(OURS) <= set(machine.filters()[0])


def test_a_service_that_is_not_enabled_does_nothing(machine):
    before = machine.files()
    machine.run(*STACK, "unstack", "clean", DISABLED_SERVICES="laas-api,laas-worker")
    assert machine.files() == before
    assert not machine.cloud()


def test_nova_without_the_filter_is_found_out_at_once(machine):
    (machine.top / "bin" / "python3").unlink()
    (machine.top / "bin" / "python3").symlink_to("/bin/false")
    with pytest.raises(AssertionError, match="nova_filters is not installed"):
        machine.run("stack install")

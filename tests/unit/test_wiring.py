# SPDX-License-Identifier: Apache-2.0

"""A configuration gives a working service, or an error that names the wrong option."""

import configparser
from importlib import import_module
from pathlib import Path

import pytest

from laas_service import conf as options
from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.app.lifecycle import State
from laas_service.app.records import Caller, LinkState
from laas_service.app.requests import AllocationRequest, AllocationView
from laas_service.domain.constraints import Constraints, Undisturbed
from laas_service.domain.errors import InvalidInput, Unavailable
from laas_service.wiring.agent import agent
from laas_service.wiring.composition import Composition
from tests.options import options_from

ROOT = Path(__file__).parents[2]
OPERATOR = Caller("blue", "operator", admin=True, request_id="test")


@pytest.fixture
def conf(tmp_path):
    conf = options_from()
    conf.set_override("state_dir", str(tmp_path))
    return conf


def test_defaults_make_a_service_that_needs_nothing_else(conf, tmp_path):
    parts = Composition(conf)
    with pytest.raises(Unavailable, match="laas-manage db upgrade"):
        parts.store.check()
    parts.database.upgrade()
    made = generate(Description(xgft="2;4,4;1,4"))
    parts.store.fabrics.add("f", made.topology, made.inventory)
    use_cases = parts.use_cases(wake=parts.worker.wake)
    answer = use_cases.allocations.allocate(OPERATOR, AllocationRequest(name="a", hosts=6))
    assert isinstance(answer, AllocationView)
    parts.fabric_leases.run_once()
    assert use_cases.allocations.allocation(OPERATOR, answer.record.id).state is State.ACTIVE
    assert (tmp_path / "opensm" / "f" / "current" / "manifest.json").is_file()
    assert list((tmp_path / "compute" / "commands").glob("*-hand-over-*.sh"))
    routing = use_cases.fabrics.routing("f")
    assert routing.applied["opensm"].generation == routing.wanted


@pytest.mark.parametrize(("enforcement", "refused"), [("file", False), ("chains", True)])
def test_only_who_makes_the_default_routes_keeps_links_undisturbed(conf, enforcement, refused):
    conf.set_override("enforcement", enforcement, group="opensm")
    parts = Composition(conf)
    parts.database.upgrade()
    made = generate(Description(xgft="2;4,4;1,4"))
    parts.store.fabrics.add("f", made.topology, made.inventory)
    allocations = parts.use_cases(wake=lambda: None).allocations
    wish = Constraints(undisturbed=Undisturbed.REQUIRE)
    asked = AllocationRequest(name="a", hosts=6, constraints=wish)
    if refused:
        with pytest.raises(InvalidInput, match="enforcement = chains"):
            allocations.allocate(OPERATOR, asked)
    else:
        assert isinstance(allocations.allocate(OPERATOR, asked), AllocationView)


@pytest.mark.parametrize(("repair_links", "next_step"), [(True, "repair"), (False, None)])
def test_the_service_announces_repairs_as_workers_are_configured(conf, repair_links, next_step):
    conf.set_override("repair_links", repair_links, group="worker")
    parts = Composition(conf)
    parts.database.upgrade()
    made = generate(Description(xgft="2;4,4;1,4"))
    parts.store.fabrics.add("f", made.topology, made.inventory)
    use_cases = parts.use_cases(wake=parts.worker.wake)
    allocations = use_cases.allocations
    answer = allocations.allocate(OPERATOR, AllocationRequest(name="a", hosts=6))
    assert isinstance(answer, AllocationView)
    parts.fabric_leases.run_once()
    assert answer.record.placed is not None
    link = next(answer.record.placed.links(made.topology))
    parts.store.components.set_link_state("f", link, LinkState.FAILED)
    view = use_cases.views.view(allocations.allocation(OPERATOR, answer.record.id))
    assert view.progress is not None
    assert view.progress.next_step == next_step


@pytest.mark.parametrize(
    ("set_up", "said"),
    [
        ({"opensm.tools": "none"}, r"\[opensm\] tools.*set dump_command or dump_file"),
        ({"opensm.dump_file": "/dump"}, r"\[laas\] auth_type"),
        ({"opensm.dump_file": "/dump", "laas.auth_type": "pass"}, r"\[laas\]: 'login'"),
        (
            {"opensm.dump_file": "/dump", "laas.endpoint_override": "http://laas.internal:8780"},
            r"\[laas\] endpoint_override: 'http://laas\.internal:8780' is not valid; use https",
        ),
    ],
)
def test_an_agent_says_what_it_lacks(conf, set_up, said):
    for name, value in set_up.items():
        group, _, option = name.partition(".")
        conf.set_override(option, value, group=group)
    with pytest.raises(InvalidInput, match=said):
        agent(conf)


@pytest.mark.parametrize(
    ("group", "name", "value", "made"),
    [
        ("api", "enabled_policies", ["fastest"], lambda parts: parts.use_cases(lambda: None)),
        ("api", "default_policy", "laas", lambda parts: parts.use_cases(lambda: None)),
        ("opensm", "services", ["storage"], lambda parts: parts.subnet_managers.of_worker),
        ("opensm", "directory", "/a b", lambda parts: parts.subnet_managers.of_worker),
        ("opensm", "pkeys", "0x0000-0x7ffe", lambda parts: parts.store),
        ("opensm", "pkeys", "0x0001-0x7fff", lambda parts: parts.store),
        ("opensm", "pkeys", "2", lambda parts: parts.store),
    ],
)
def test_wrong_option_is_named(conf, group, name, value, made):
    conf.set_override(name, value, group=group)
    parts = Composition(conf)
    with pytest.raises(InvalidInput, match=name):
        made(parts)


def test_database_that_cannot_be_made_is_unavailable(conf, tmp_path):
    (tmp_path / "file").touch()
    conf.set_override("state_dir", str(tmp_path / "file"))
    with pytest.raises(Unavailable):
        Composition(conf).database.upgrade()


def test_every_option_is_explained():
    for _, group in options.list_opts():
        for option in group:
            assert option.help, option.name


def test_the_sample_configuration_has_our_defaults():
    """The sample generator applies defaults only for the namespaces in its configuration."""
    setup, sample = configparser.ConfigParser(), ROOT / "etc" / "laas" / "config-generator.conf"
    setup.read(ROOT / "setup.cfg")
    hooks = setup["options.entry_points"]["oslo.config.opts.defaults"].split("\n")
    for hook in filter(None, hooks):
        name, target = hook.split(" = ")
        assert f"\nnamespace = {name}\n" in sample.read_text()
        module, function = target.split(":")
        getattr(import_module(module), function)()
    opts = import_module("oslo_messaging.opts").list_opts()
    defaults = {o.dest: o.default for group, found in opts if group is None for o in found}
    assert (defaults["transport_url"], defaults["control_exchange"]) == ("fake://", "laas")
    assert "namespace = oslo.messaging\n" in sample.read_text()

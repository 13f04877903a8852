# SPDX-License-Identifier: Apache-2.0

"""The sample configuration files use the names of our options and of Nova's rules."""

import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from keystonemiddleware.auth_token import _opts as auth_token
from oslo_config import cfg, generator
from oslo_messaging._drivers import amqp, impl_rabbit
from oslo_middleware import http_proxy_to_wsgi
from oslo_policy import generator as policy_generator
from sqlalchemy.engine import make_url

from laas_service import conf as options
from laas_service.api import policies
from laas_service.conf import database, logins
from laas_service.wiring.composition import Composition
from tests.options import options_from

ETC = Path(__file__).parents[2] / "etc"


def known() -> dict[str, set[str]]:
    """The options of each section, as the samples' generator would list them."""
    found: dict[str, set[str]] = {"DEFAULT": {"transport_url"}}
    listed = [
        *options.list_opts(),
        *auth_token.list_opts(),
        ("database", database.OPTIONS),
        ("keystone_authtoken", logins.LOGIN_OPTIONS),
        ("oslo_messaging_rabbit", [*amqp.amqp_opts, *impl_rabbit.rabbit_opts]),
        ("oslo_middleware", http_proxy_to_wsgi.OPTS),
    ]
    for group, opts in listed:
        found.setdefault(group, set()).update(opt.dest for opt in opts)
    return found


@pytest.mark.parametrize(
    "name", ["controller.conf", "fabric.conf", "opensm-agent.conf", "ufm.conf"]
)
def test_every_line_sets_an_option_that_is_there(name):
    parser = configparser.ConfigParser(interpolation=None, strict=True, default_section="none")
    parser.read(ETC / "laas" / name)
    there = known()
    for section in parser.sections():
        assert set(parser[section]) <= there[section], section


def test_the_sample_of_the_worker_has_every_option_of_faults_with_its_default():
    conf, plain = cfg.ConfigOpts(), cfg.ConfigOpts()
    for made, files in ((conf, ["--config-file", str(ETC / "laas" / "fabric.conf")]), (plain, [])):
        options.register_opts(made)
        made(files, project="laas", default_config_files=[], default_config_dirs=[])
    parser = configparser.ConfigParser(interpolation=None, default_section="none")
    parser.read(ETC / "laas" / "fabric.conf")
    assert set(parser["faults"]) == known()["faults"]
    assert dict(conf.faults) == dict(plain.faults)


@pytest.mark.parametrize("name", ["controller.conf", "fabric.conf"])
def test_database_and_bus_are_encrypted_and_their_servers_checked(name):
    parser = configparser.ConfigParser(interpolation=None, default_section="none")
    parser.read(ETC / "laas" / name)
    url = make_url(parser["database"]["connection"])
    _, arguments = url.get_dialect()().create_connect_args(url)
    assert arguments["ssl"]["ca"]
    assert arguments["ssl"].get("check_hostname", True)
    assert parser["DEFAULT"]["transport_url"].endswith(":5671/")
    assert parser["oslo_messaging_rabbit"]["ssl"] == "true"
    assert parser["oslo_messaging_rabbit"]["ssl_ca_file"]


def test_the_worker_can_be_made_of_its_sample():
    conf = options_from(ETC / "laas" / "fabric.conf")
    parts = Composition(conf)
    assert parts.compute
    assert parts.subnet_managers.of_worker


ABSENT = "alembic flask keystonemiddleware networkx novaclient oslo_db oslo_policy sqlalchemy"

ALONE = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[2].split()))  # an import of these fails
from oslo_config import cfg
from laas_service import conf as options
from laas_service.cmd import opensm_agent
from laas_service.wiring.agent import agent
conf = cfg.ConfigOpts()
options.register_opts(conf)
conf(["--config-file", sys.argv[1]], project="laas")
print(agent(conf).name)
"""


def test_the_agent_can_be_made_of_its_sample_without_packages_of_the_service():
    words = [str(ETC / "laas" / "opensm-agent.conf"), ABSENT]
    done = subprocess.run(
        [sys.executable, "-c", ALONE, *words], capture_output=True, text=True, check=False
    )
    assert done.stdout == "laas-opensm-agent\n", done.stderr


def test_rights_of_the_service_are_those_that_the_adapter_names():
    adapter = ETC.parent / "laas_service" / "adapters" / "nova"
    source = "".join(path.read_text() for path in sorted(adapter.glob("*.py")))
    named = set(re.findall(r'"((?:os_compute_api|placement):[a-z:_-]+)(?: and )?"', source))
    assert len(named) > 10
    samples = [ETC / name / "links-policy.yaml" for name in ("nova", "placement")]
    rules = [
        re.findall(r'^"(\S+)": "\S.* or role:links"$', file.read_text(), re.M) for file in samples
    ]
    assert sorted(named) == sorted(rules[0] + rules[1])


def test_the_samples_hold_no_password():
    for file in ETC.rglob("*.conf"):
        for line in file.read_text().splitlines():
            if line.startswith("password"):
                assert line == "password = CHANGE-ME"


@pytest.mark.parametrize("name", ["laas-api", "laas-worker", "laas-opensm-agent"])
def test_units_give_no_more_rights_than_needed(name):
    parser = configparser.RawConfigParser(strict=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(ETC / "systemd" / f"{name}.service")
    unit = parser["Service"]
    needed = "" if name == "laas-api" else "CAP_KILL"
    assert unit["User"] == "laas"
    assert unit["CapabilityBoundingSet"] == needed
    assert unit.get("AmbientCapabilities", "") == needed
    assert int(unit["UMask"], 8) & 0o137 == 0o027, "files are 0640"
    assert unit["ProtectSystem"] == "strict"
    assert unit["StateDirectory"] == "laas"
    for option in ("NoNewPrivileges", "PrivateTmp", "ProtectHome", "RestrictSUIDSGID"):
        assert unit[option] == "yes"


def test_every_line_of_the_policy_sample_is_a_rule_with_its_default():
    text = (ETC / "laas" / "policy.yaml").read_text()
    listed = dict(re.findall(r'^#"(\S+)": "(.*)"$', text, re.MULTILINE))
    rules = {rule.name: rule.check_str for rule in policies.list_rules()}
    assert listed == {name: rules.get(name) for name in listed}
    assert len(listed) > 20
    assert all(line.startswith("#") for line in text.splitlines() if line)


# -- what tox -e genconfig and genpolicy write --------------------------------------


@pytest.fixture(scope="module")
def configuration(tmp_path_factory):
    file = tmp_path_factory.mktemp("etc") / "laas.conf.sample"
    generator.main(
        ["--config-file", str(ETC / "laas" / "config-generator.conf"), "--output-file", str(file)]
    )
    return file


def test_the_sample_configuration_has_every_option(configuration):
    """The sample has each option, commented out, in its section."""
    text = configuration.read_text().replace("\n#", "\n")
    parser = configparser.ConfigParser(strict=False, interpolation=None, default_section="")
    lines = [line for line in text.splitlines() if line.startswith("[") or " =" in line]
    parser.read_string("\n".join(line for line in lines if not line.startswith(" ")))
    for group, listed in options.list_opts():
        assert {option.dest for option in listed} <= set(parser[group]), group
    assert parser["database"]["connection"] == "sqlite:///$state_dir/laas.sqlite"
    assert "service_token_roles" in parser["keystone_authtoken"]
    assert "policy_file" in parser["oslo_policy"]
    assert "enable_proxy_headers_parsing" in parser["oslo_middleware"]


def test_the_sample_configuration_changes_nothing(configuration):
    conf = options_from(configuration)
    assert conf.api.auth_strategy == "none"


def test_the_sample_policy_has_every_rule_and_changes_none(tmp_path):
    file = tmp_path / "policy.yaml.sample"
    conf = cfg.ConfigOpts()
    policy_generator.generate_sample(
        ["--config-file", str(ETC / "laas" / "policy-generator.conf"), "--output-file", str(file)],
        conf,
    )
    text = file.read_text()
    assert yaml.safe_load(text) is None
    opened = yaml.safe_load(
        "\n".join(line[1:] for line in text.splitlines() if line.startswith('#"'))
    )
    assert opened == {rule.name: rule.check_str for rule in policies.list_rules()}

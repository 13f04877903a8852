# SPDX-License-Identifier: Apache-2.0

"""The sample files that ``tox -e genconfig`` and ``tox -e genpolicy`` write."""

from __future__ import annotations

import configparser
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from oslo_config import cfg, generator
from oslo_policy import generator as policy_generator

from laas_service.api.policies import list_rules
from laas_service.conf import list_opts, register_opts

ETC = Path(__file__).parents[2] / "etc" / "laas"


@pytest.fixture(scope="module")
def configuration(tmp_path_factory):
    file = tmp_path_factory.mktemp("etc") / "laas.conf.sample"
    generator.main(
        ["--config-file", str(ETC / "config-generator.conf"), "--output-file", str(file)]
    )
    return file


def test_the_sample_configuration_has_every_option(configuration):
    """The sample has each option, commented out, in its section."""
    text = configuration.read_text().replace("\n#", "\n")
    parser = configparser.ConfigParser(strict=False, interpolation=None, default_section="")
    lines = [line for line in text.splitlines() if line.startswith("[") or " =" in line]
    parser.read_string("\n".join(line for line in lines if not line.startswith(" ")))
    for group, options in list_opts():
        assert {option.dest for option in options} <= set(parser[group]), group
    assert parser["database"]["connection"] == "sqlite:///$state_dir/laas.sqlite"
    assert "service_token_roles" in parser["keystone_authtoken"]
    assert "policy_file" in parser["oslo_policy"]
    assert "enable_proxy_headers_parsing" in parser["oslo_middleware"]


def test_the_sample_configuration_changes_nothing(configuration):
    conf = cfg.ConfigOpts()
    register_opts(conf)
    conf(["--config-file", str(configuration)], project="laas")
    assert conf.api.auth_strategy == "none"


def test_the_sample_policy_has_every_rule_and_changes_none(tmp_path):
    file = tmp_path / "policy.yaml.sample"
    conf = cfg.ConfigOpts()
    policy_generator.generate_sample(
        ["--config-file", str(ETC / "policy-generator.conf"), "--output-file", str(file)], conf
    )
    text = file.read_text()
    assert yaml.safe_load(text) is None
    opened = yaml.safe_load(
        "\n".join(line[1:] for line in text.splitlines() if line.startswith('#"'))
    )
    assert opened == {rule.name: rule.check_str for rule in list_rules()}

"""Sphinx configuration."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "doc" / "ext"), str(ROOT)]

project = "Links as a Service"
copyright = "the LaaS contributors"
extensions = [
    "cliff.sphinxext",
    "openapi_reference",
    "oslo_config.sphinxconfiggen",
    "oslo_config.sphinxext",
    "oslo_policy.sphinxext",
    "oslo_policy.sphinxpolicygen",
    "reno.sphinxext",
    "sphinx_argparse_cli",
]
config_generator_config_file = [
    (str(ROOT / "etc/laas/config-generator.conf"), "_static/laas"),
]
policy_generator_config_file = [
    (str(ROOT / "etc/laas/policy-generator.conf"), "_static/laas"),
]
master_doc = "index"
html_theme = "alabaster"
html_theme_options = {"page_width": "1100px"}
nitpicky = True

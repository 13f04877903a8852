"""Sphinx configuration."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "doc" / "ext"), str(ROOT)]

project = "Links as a Service"
copyright = "the LaaS contributors"
extensions = [
    "cliff.sphinxext",
    "drawings",
    "laas_commands",
    "openstackdocstheme",
    "openapi_reference",
    "oslo_config.sphinxconfiggen",
    "oslo_config.sphinxext",
    "oslo_policy.sphinxext",
    "oslo_policy.sphinxpolicygen",
    "reno.sphinxext",
    "result_figures",
    "self_contained",
    "sentence_length",
    "sequence_drawing",
    "sphinx_argparse_cli",
]
config_generator_config_file = [
    (str(ROOT / "etc/laas/config-generator.conf"), "_static/laas"),
]
policy_generator_config_file = [
    (str(ROOT / "etc/laas/policy-generator.conf"), "_static/laas"),
]
master_doc = "index"
html_theme = "openstackdocs"
html_theme_options = {"analytics_tracking_code": "", "display_badge": False}
html_math_renderer = "mathml"
html_static_path = ["_css"]
# The theme's own header and sidebar fetch a search, and its footer states another licence.
templates_path = ["_templates"]
openstackdocs_auto_name = False
openstackdocs_auto_version = False
openstackdocs_pdf_link = False
nitpicky = True
sentences_unchecked = [
    "reference/api",
    "reference/cli/",
    "reference/configuration",
    "reference/policy",
    "reference/release-notes",
]

"""Sphinx configuration of the pages of laas-research."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "doc" / "ext"), str(ROOT)]

project = "laas-research"
copyright = "the LaaS contributors"
extensions = ["openstackdocstheme", "result_figures", "self_contained"]
html_theme = "openstackdocs"
html_theme_options = {"analytics_tracking_code": "", "display_badge": False}
html_math_renderer = "mathml"
html_static_path = [str(ROOT / "doc/source/_css")]
templates_path = [str(ROOT / "doc/source/_templates")]
openstackdocs_auto_name = False
openstackdocs_auto_version = False
openstackdocs_pdf_link = False
nitpicky = True

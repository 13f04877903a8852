"""Sphinx configuration."""

project = "Links as a Service"
copyright = "the LaaS contributors"
extensions: list[str] = []
master_doc = "index"
html_theme = "alabaster"
html_theme_options = {"page_width": "1100px"}
nitpicky = True

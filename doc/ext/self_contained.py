# SPDX-License-Identifier: Apache-2.0

"""Pages that fetch nothing from elsewhere: formulas as MathML, and a check of every page.

Browsers draw MathML themselves. The build warns of every style, script, image or frame of a page
that comes from another site.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

LOG = logging.getLogger(__name__)

_FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|object)\b[^>]*?\s(?:src|data)=["']?(?:https?:)?//[^>]*"""
    r"""|<link\b(?=[^>]*\brel=["']?(?:stylesheet|preload|icon))[^>]*?\shref=["']?(?:https?:)?//[^>]*"""
    r"""|\.src\s*=\s*["']https?://[^"']*""",
    re.IGNORECASE,
)


def fetched(html: str) -> list[str]:
    """The elements of a page that a browser would load from another site."""
    return _FETCHED.findall(html)


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f"<div class='math'>{tex2mathml(node.astext(), as_block=True)}</div>\n")
    raise nodes.SkipNode


def _check(app: Sphinx, exception: Exception | None) -> None:
    if exception is None and app.builder.format == "html":
        for page in sorted(Path(app.outdir).rglob("*.html")):
            for element in fetched(page.read_text(encoding="utf-8")):
                LOG.warning("%s fetches from elsewhere: %s", page.name, element)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.connect("build-finished", _check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

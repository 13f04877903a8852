# SPDX-License-Identifier: Apache-2.0

"""A build warns of sentences that are too long to be read once.

Aim at 25 words; ``longest_sentence`` (30) is the most that a build of lint accepts. A literal,
such as a command or an option, counts as one word. A sentence ends with a full stop, a question
mark, an exclamation mark, a colon or a semicolon, or with its paragraph. Pages that the build makes
from the code (``sentences_unchecked``) are left out.
"""

from __future__ import annotations

import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

LOG = logging.getLogger(__name__)

_END = re.compile(r"[.?!:;][\"')]*(?=\s|$)")
_WORD = re.compile(r"\w[\w'\u2019.,/+-]*")


def sentences(paragraph: nodes.Node) -> list[str]:
    """The sentences of a paragraph; each literal in it is the word ``literal``."""
    parts = []
    for node in paragraph.findall(nodes.Text):
        inside = node.parent
        while inside is not paragraph and not isinstance(inside, nodes.literal | nodes.math):
            inside = inside.parent
        if inside is paragraph:
            parts.append(node.astext())
        elif inside.next_node(nodes.Text) is node:
            parts.append("literal")
    return [one.strip() for one in _END.split(" ".join("".join(parts).split())) if one.strip()]


def words(sentence: str) -> int:
    return len(_WORD.findall(sentence))


def _check(app: Sphinx, doctree: nodes.document) -> None:
    name, most = app.env.docname, app.config.longest_sentence
    if name.startswith(tuple(app.config.sentences_unchecked)):
        return
    for paragraph in doctree.findall(nodes.paragraph):
        for sentence in sentences(paragraph):
            if (length := words(sentence)) > most:
                LOG.warning(
                    "a sentence has %d words, more than %d: %s ...",
                    length,
                    most,
                    sentence[:60],
                    location=paragraph,
                )


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_config_value("longest_sentence", 30, "env", [int])
    app.add_config_value("sentences_unchecked", [], "env", [list])
    app.connect("doctree-read", _check)
    return {"parallel_read_safe": True}

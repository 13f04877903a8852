# SPDX-License-Identifier: Apache-2.0

"""The page is one file: it loads nothing, its script is small, and data cannot become markup."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

from laas_service import page

BUDGET = 150_000
"""Compressed bytes of a page without a map, at most."""


class Parsed(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self._within = [], {}, None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._within = (tag, dict(attrs).get("type"))

    def handle_data(self, data):
        if self._within:
            self.texts[self._within] = self.texts.get(self._within, "") + data

    def handle_endtag(self, tag):
        self._within = None


def test_data_stay_data():
    hostile = {"fabric": "</script><script>alert(1)</script>", "n": "<!-- @SCRIPT@ \u2028 &amp;"}
    parsed = Parsed(page.page(hostile))
    assert json.loads(parsed.texts["script", "application/json"]) == {"map": hostile}
    assert [tag for tag, _ in parsed.tags].count("script") == 2


def test_nothing_is_loaded_from_elsewhere():
    text = page.page({"fabric": "f"})
    for tag, attributes in Parsed(text).tags:
        assert not {"src", "srcset", "action", "onclick", "style"} & attributes.keys(), tag
        assert attributes.get("href", "#").startswith("#")
    style_and_script = text.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|@import|url\(|//cdn", style_and_script)


def test_the_policy_names_this_script_and_this_style():
    parsed = Parsed(page.page({"fabric": "f"}))
    (policy,) = (a["content"] for t, a in parsed.tags if a.get("http-equiv"))
    for part in (("script", "module"), ("style", None)):
        digest = b64encode(sha256(parsed.texts[part].encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_style_and_script_are_within_their_budget():
    assert len(gzip.compress(page.page({}).encode(), 6)) < BUDGET


def test_a_live_page_loads_its_modules_from_its_server_alone():
    parsed = Parsed(page.live_page("f", "v1/map", "view/"))
    loaded = {a.get("href") for t, a in parsed.tags if t == "link"}
    assert loaded == {f"view/{name}" for name in page.modules()}
    assert [a["src"] for t, a in parsed.tags if "src" in a] == [f"view/{page.MAIN}"]
    (policy,) = (a["content"] for t, a in parsed.tags if a.get("http-equiv"))
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy

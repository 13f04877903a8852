# SPDX-License-Identifier: Apache-2.0

"""The fabric page: one HTML file with its style, its script and its data; it loads nothing.

The page shows a map as ``GET /v1/fabrics/{id}/map`` answers it. ``page`` puts the map into the
file, which then works offline; ``live_page`` has the browser fetch the map from an address beside
the page. The page's own policy forbids the browser to load or run anything else.
"""

import functools
import json
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

CONTENT_TYPE = "text/html; charset=utf-8"


SCRIPTS = (
    "helpers.js",
    "palette.js",
    "attention.js",
    "sign_in.js",
    "live.js",
    "page.js",
)
"""The files of the script, each after those that it uses."""


def page(fabric_map: Mapping[str, Any]) -> str:
    """The page of one map, complete in one file."""
    return _filled(str(fabric_map.get("fabric", "")), {"map": fabric_map})


def live_page(fabric: str, source: str) -> str:
    """The page of a fabric whose map the browser fetches from ``source``, of the same origin.

    With two empty texts the page holds no data: the browser signs in, and asks which fabrics
    there are.
    """
    return _filled(fabric, {"source": source})


def policy(frames: bool = False) -> str:
    """The content security policy of the page, for its own meta element and for a server's header.

    ``frames`` adds what browsers heed in headers alone: no other page may embed this one.
    """
    rules = [
        "default-src 'none'",
        f"script-src '{_digest(_script())}'",
        f"style-src '{_digest(_part('page.css'))}'",
        "connect-src 'self'",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join([*rules, "frame-ancestors 'none'"] if frames else rules)


def _filled(fabric: str, data: Mapping[str, Any]) -> str:
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    html = _part("page.html")
    title = f"{fabric} -" if fabric else ""
    for name, value in (
        ("POLICY", escape(policy(), quote=True)),
        ("TITLE", escape(title)),
        ("NAME", escape(fabric)),
        ("STYLE", _part("page.css")),
        ("SCRIPT", _script()),
        ("DATA", text),  # the last one: nothing is replaced inside the data
    ):
        before, _, after = html.partition(f"@{name}@")
        html = f"{before}{value}{after}"
    return html


def _script() -> str:
    return "".join(map(_part, SCRIPTS))


@functools.cache
def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"

# SPDX-License-Identifier: Apache-2.0

"""The fabric page: HTML, a style, and a script in modules that browsers load as they are.

The page shows a map as ``GET /v1/fabrics/{id}/map`` answers it. ``page`` puts the map, the style
and all modules into one file, which then works offline; ``live_page`` has the browser fetch the map
from an address beside the page. The page's own policy forbids the browser to load or run anything
else.
"""

import functools
import json
import re
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

CONTENT_TYPE = "text/html; charset=utf-8"

MAIN = "page.js"
"""The module that uses all others."""


def page(fabric_map: Mapping[str, Any]) -> str:
    """The page of one map, complete in one file."""
    return _filled(str(fabric_map.get("fabric", "")), {"map": fabric_map}, None)


def live_page(fabric: str, source: str, below: str | None = None) -> str:
    """The page of a fabric whose map the browser fetches from ``source``, of the same origin.

    With two empty texts the page holds no data: the browser signs in, and asks which fabrics
    there are. ``below`` is the address of the modules, such as ``view/``: then the page acts, too;
    without it, it holds them and only shows.
    """
    return _filled(fabric, {"source": source, "acts": below is not None}, below)


@functools.cache
def modules() -> Mapping[str, str]:
    """The modules by name, each after those that it imports.

    Raises:
        KeyError: a module imports one that does not exist.
    """
    texts = {one.name: one.read_text(encoding="utf-8") for one in files(__package__).iterdir()
             if one.name.endswith(".js")}  # fmt: skip
    ordered: dict[str, str] = {}

    def add(name: str) -> None:
        if name not in ordered:
            for imported in _IMPORT.findall(texts[name]):
                add(imported)
            ordered[name] = texts[name]

    add(MAIN)
    return ordered


def policy(frames: bool = False, loaded: bool = False) -> str:
    """The content security policy of the page, for its own meta element and for a server's header.

    ``frames`` adds what browsers heed in headers alone: no other page may embed this one.
    ``loaded``: the browser loads the modules from the page's server.
    """
    script = "'self'" if loaded else f"'{_digest(_script())}'"
    rules = [
        "default-src 'none'",
        f"script-src {script}",
        f"style-src '{_digest(_part('page.css'))}'",
        "connect-src 'self'",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join([*rules, "frame-ancestors 'none'"] if frames else rules)


def _filled(fabric: str, data: Mapping[str, Any], below: str | None) -> str:
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    html = _part("page.html")
    title = f"{fabric} -" if fabric else ""
    for name, value in (
        ("POLICY", escape(policy(loaded=below is not None), quote=True)),
        ("SOURCE", "" if below is None else f' src="{escape(below)}{MAIN}"'),
        ("PRELOAD", "" if below is None else _preloads(below)),
        ("TITLE", escape(title)),
        ("NAME", escape(fabric)),
        ("STYLE", _part("page.css")),
        ("SCRIPT", _script() if below is None else ""),
        ("DATA", text),  # the last one: nothing is replaced inside the data
    ):
        before, _, after = html.partition(f"@{name}@")
        html = f"{before}{value}{after}"
    return html


_IMPORT = re.compile(r'^import (?:{[^}]*} from )?"\./([^"]+)";\n', re.MULTILINE)
"""How the modules import each other: by names, which are unique among all modules."""


@functools.cache
def _script() -> str:
    """All modules as one, which a page on a disk needs: browsers load none from there."""
    joined = "".join(_IMPORT.sub("", text) for text in modules().values())
    return re.sub(r"^export ", "", joined, flags=re.MULTILINE)


def _preloads(below: str) -> str:
    """Have the browser ask for all modules at once."""
    link = '<link rel="modulepreload" href="{}">'
    return "\n".join(link.format(escape(below + name)) for name in modules())


@functools.cache
def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"

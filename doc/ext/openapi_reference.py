# SPDX-License-Identifier: Apache-2.0

"""The API reference, written at every build of the documentation from the OpenAPI document.

The directive ``.. openapi::`` is replaced by the whole reference. The reference is not stored,
so it cannot differ from the answer of the service at ``/v1/openapi.json``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import nested_parse_with_titles

from laas_service.api.app import ROUTES
from laas_service.api.openapi import document

_BOUNDS = (
    ("minimum", "at least {}"),
    ("exclusiveMinimum", "above {}"),
    ("maximum", "at most {}"),
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("minItems", "at least {} items"),
    ("maxItems", "at most {} items"),
    ("pattern", "like ``{}``"),
)


class OpenApi(SphinxDirective):
    """The directive ``.. openapi::``: inserts the reference of all operations and schemas."""

    def run(self) -> list[nodes.Node]:
        lines = list(reference(document(ROUTES, "https://links.example.org")))
        parent = nodes.section()
        nested_parse_with_titles(self.state, StringList(lines, "openapi"), parent)
        return parent.children


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("openapi", OpenApi)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def reference(spec: dict[str, Any]) -> Iterator[str]:
    """Lines of reStructuredText: all operations, then all schemas."""
    rules = {(route.method.lower(), route.template): route.rule for route in ROUTES}
    for path, operations in spec["paths"].items():
        for method, operation in operations.items():
            yield from _operation(method, path, operation, rules[method, path])
    yield from _title("Documents", "=")
    for name, schema in sorted(spec["components"]["schemas"].items()):
        yield from _schema(name, schema)


def _operation(
    method: str, path: str, operation: dict[str, Any], rule: str | None
) -> Iterator[str]:
    yield from _title(f"{method.upper()} {path}", "=")
    allowed = f"Rule ``{rule}``." if rule else "Needs no token."
    yield from (f"{operation['summary']}. {allowed}", "")
    rows = [
        (p["name"], f"{p['in']}, {_kind(p['schema'])}", p["required"])
        for p in operation["parameters"]
    ]
    yield from _table(rows)
    if "requestBody" in operation:
        yield from (f"Body: {_content(operation['requestBody'])}", "")
    for status, answer in sorted(operation["responses"].items()):
        said = "Otherwise" if status == "default" else f"{status} {answer['description']}"
        yield f"* {said}: {_content(answer)}"
    yield ""


def _schema(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield from (f".. _document-{name.lower()}:", "")
    yield from _title(name, "-")
    text = " ".join(str(schema.get("description", "")).split())
    yield from (_plain(text), "") if text else ()
    if "enum" in schema:
        yield from (_kind(schema), "")
    required = schema.get("required", ())
    yield from _table(
        [
            (field, _described(value), field in required)
            for field, value in schema.get("properties", {}).items()
        ]
    )


def _table(rows: list[tuple[str, str, bool]]) -> Iterator[str]:
    if not rows:
        return
    yield from (".. list-table::", "   :widths: 25 75", "")
    for name, text, required in rows:
        yield f"   * - ``{name}``"
        yield f"     - {text}" + ("" if required else "; may be left out")
    yield ""


def _content(holder: dict[str, Any]) -> str:
    bodies = holder.get("content", {}).items()
    return ", ".join(f"{_kind(one['schema'])} (``{media}``)" for media, one in bodies) or "no body"


def _described(schema: dict[str, Any]) -> str:
    text = " ".join(str(schema.get("description", "")).split())
    return f"{_kind(schema)}. {_plain(text)}" if text else _kind(schema)


def _kind(schema: dict[str, Any]) -> str:
    """Type of a value, in words."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return f":ref:`{name} <document-{name.lower()}>`"
    if "enum" in schema:
        return "one of " + ", ".join(f"``{value}``" for value in schema["enum"])
    if "const" in schema:
        return f"``{schema['const']}``"
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return " or ".join(_kind(one) for one in schema[word])
    kind = schema.get("type", "anything")
    if kind == "array":
        kind = f"list of {_kind(schema.get('items', {}))}"
    elif kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        kind = f"object of {_kind(schema['additionalProperties'])}"
    if "format" in schema:
        kind += f" ({schema['format']})"
    bounds = [text.format(schema[key]) for key, text in _BOUNDS if key in schema]
    return ", ".join([kind, *bounds])


def _plain(text: str) -> str:
    """Escape markup in a text, apart from literals."""
    return text.replace("\\", "\\\\").replace("*", "\\*").replace("|", "\\|")


def _title(text: str, line: str) -> Iterator[str]:
    yield from (text, line * len(text), "")

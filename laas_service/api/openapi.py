# SPDX-License-Identifier: Apache-2.0

"""The OpenAPI document, generated from the routes and the schemas that validate them."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from laas_service.api import examples
from laas_service.api.microversions import HEADER, LONGEST, NEWEST, SERVICE_TYPE
from laas_service.api.resource import Operation
from laas_service.api.schemas import Problem, Unchanged, media

_VERSION = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": f"The microversion, such as '{SERVICE_TYPE} {NEWEST}'.",
    "schema": {"type": "string", "maxLength": LONGEST},
}

LONGEST_NAME = 255
"""Characters of a name in a path. No name of what exists is longer, so a longer one is 404."""

_NAME = {"type": "string", "maxLength": LONGEST_NAME}

REFERENCE = "#/components/schemas/{model}"


def document(routes: Sequence[Operation], root: str) -> dict[str, Any]:
    """OpenAPI 3.1 for these routes, served at ``root``."""
    schemas, components = _components(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        operations = paths.setdefault(route.template, {})
        operations[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Links as a Service",
            "version": "1",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": root}],
        "tags": [{"name": name, "description": what} for name, what in examples.TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"}
            },
        },
    }


def _components(
    routes: Sequence[Operation],
) -> tuple[dict[type[BaseModel], dict[str, Any]], dict[str, Any]]:
    """A reference for each body and answer, and the schemas that the references name."""
    bodies = {route.takes["body"] for route in routes if "body" in route.takes}
    answers = {schema for route in routes for schema in route.answers.values()} | {Problem}
    inputs = [(schema, "validation") for schema in sorted(bodies, key=lambda s: s.__name__)]
    outputs = [(schema, "serialization") for schema in sorted(answers, key=lambda s: s.__name__)]
    references, definitions = models_json_schema(
        [*inputs, *outputs],  # type: ignore[list-item]
        ref_template=REFERENCE,
    )
    for definition in definitions["$defs"].values():
        _join_lines(definition)
    by_schema = {schema: _published(shown) for (schema, _), shown in references.items()}
    shown = {_name(name): _published(value) for name, value in definitions["$defs"].items()}
    return by_schema, shown  # type: ignore[return-value]


def _name(model: str) -> str:
    """The published name of a schema: ``AllocationAnswer`` shows an ``Allocation``."""
    return model.removesuffix("Answer")


def _published(value: Any) -> Any:
    """A schema with published names in its references and titles."""
    if isinstance(value, list):
        return [_published(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _name(item) if key in ("$ref", "title") and isinstance(item, str) else _published(item)
        for key, item in value.items()
    }


def _operation(route: Operation, schemas: dict[type[BaseModel], dict[str, Any]]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": f"{route.view.__module__.rsplit('.', 1)[-1]}_{route.view.__name__}",
        "tags": [examples.tag(route.template)],
        "summary": (route.view.__doc__ or "").strip().rstrip("."),
        "security": [{"token": []}] if route.rule else [],
        "parameters": _parameters(route),
        "responses": {
            str(status): _response(status, schema, schemas[schema])
            for status, schema in route.answers.items()
        },
    }
    operation["responses"]["default"] = {
        "description": "A problem document.",
        "content": {"application/problem+json": {"schema": schemas[Problem]}},
    }
    if "body" in route.takes:
        operation["requestBody"] = {
            "required": True,
            "content": {
                "application/json": {
                    "schema": schemas[route.takes["body"]],
                    "example": examples.BODIES[f"{route.method} {route.template}"],
                }
            },
        }
    return operation


def _parameters(route: Operation) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": _NAME,
            "example": examples.PATH.get(name) or examples.NAMES[route.template],
        }
        for name in route.variables
    ]
    if route.versioned:
        parameters.append(_VERSION)
    for part, place in (("query", "query"), ("headers", "header")):
        if part not in route.takes:
            continue
        schema = route.takes[part].model_json_schema(ref_template=REFERENCE)
        definitions = schema.get("$defs", {})
        _join_lines(schema)
        for name, value in schema["properties"].items():
            inlined = _inlined(value, definitions)
            commas = {"explode": False} if inlined.get("type") == "array" else {}
            parameters.append(
                {
                    "name": name,
                    "in": place,
                    "required": name in schema.get("required", ()),
                    "schema": inlined,
                    **commas,
                }
            )
    return parameters


def _join_lines(schema: dict[str, Any]) -> None:
    """Put the description of each property, which is the text below a field, on one line."""
    for shown in schema.get("properties", {}).values():
        if "description" in shown:
            shown["description"] = " ".join(shown["description"].split())


def _inlined(value: Any, definitions: dict[str, Any]) -> Any:
    """A parameter's schema with references resolved; an absent parameter stands for null."""
    if isinstance(value, list):
        return [_inlined(item, definitions) for item in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        return _inlined(definitions[value["$ref"].rsplit("/", 1)[-1]], definitions)
    kept = {key: _inlined(item, definitions) for key, item in value.items() if key != "default"}
    kinds = [kind for kind in kept.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) == 1:
        kept = {**{k: v for k, v in kept.items() if k != "anyOf"}, **kinds[0]}
    return kept


def _response(status: int, schema: type[BaseModel], reference: dict[str, Any]) -> dict[str, Any]:
    if schema is Unchanged:
        return {"description": HTTPStatus(status).phrase}
    kind = media(schema).partition(";")[0]
    return {"description": HTTPStatus(status).phrase, "content": {kind: {"schema": reference}}}

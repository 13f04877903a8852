# SPDX-License-Identifier: Apache-2.0

"""The document is valid OpenAPI and names what the routes take and give."""

from __future__ import annotations

import json

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from laas_service.api import policies
from laas_service.api.app import ROUTES
from laas_service.api.openapi import document
from tests.access import table


@pytest.fixture(scope="module")
def spec():
    return document(ROUTES, "http://127.0.0.1:8780")


def test_the_document_is_valid(spec):
    OpenAPIV31SpecValidator(spec).validate()


def test_every_operation_of_the_contract_is_there(spec):
    found = {
        (method.upper(), path)
        for path, operations in spec["paths"].items()
        for method in operations
    }
    assert found == {
        ("GET", "/"),
        ("GET", "/healthcheck"),
        ("GET", "/metrics"),
        ("GET", "/view"),
        ("GET", "/view/{name}"),
        ("POST", "/v1/session"),
        ("DELETE", "/v1/session"),
        ("GET", "/v1"),
        ("GET", "/v1/openapi.json"),
        ("GET", "/v1/fabrics"),
        ("GET", "/v1/fabrics/{fabric_id}"),
        ("DELETE", "/v1/fabrics/{fabric_id}"),
        ("GET", "/v1/fabrics/{fabric_id}/hosts"),
        ("GET", "/v1/fabrics/{fabric_id}/links"),
        ("GET", "/v1/fabrics/{fabric_id}/switches"),
        ("GET", "/v1/fabrics/{fabric_id}/switches/{switch_id}"),
        ("PATCH", "/v1/fabrics/{fabric_id}/switches/{switch_id}"),
        ("PATCH", "/v1/fabrics/{fabric_id}/hosts/{name}"),
        ("GET", "/v1/fabrics/{fabric_id}/links/{link_id}"),
        ("PATCH", "/v1/fabrics/{fabric_id}/links/{link_id}"),
        ("POST", "/v1/allocations"),
        ("GET", "/v1/allocations"),
        ("GET", "/v1/allocations/{allocation_id}"),
        ("GET", "/v1/allocations/{allocation_id}/history"),
        ("GET", "/v1/allocations/{allocation_id}/certificate"),
        ("GET", "/v1/allocations/{allocation_id}/promise"),
        ("PATCH", "/v1/allocations/{allocation_id}"),
        ("DELETE", "/v1/allocations/{allocation_id}"),
        ("POST", "/v1/allocations/{allocation_id}/repair"),
        ("POST", "/v1/allocations/{allocation_id}/replace-hosts"),
        ("POST", "/v1/allocations/{allocation_id}/retry"),
        ("GET", "/v1/quota"),
        ("GET", "/v1/fabrics/{fabric_id}/utilization"),
        ("GET", "/v1/fabrics/{fabric_id}/fit"),
        ("GET", "/v1/fabrics/{fabric_id}/map"),
        ("GET", "/v1/fabrics/{fabric_id}/routing"),
        ("GET", "/v1/fabrics/{fabric_id}/idle"),
        ("GET", "/v1/fabrics/{fabric_id}/crossed"),
        ("GET", "/v1/fabrics/{fabric_id}/promises"),
        ("GET", "/v1/fabrics/{fabric_id}/plane"),
        ("PUT", "/v1/fabrics/{fabric_id}/plane"),
        ("GET", "/v1/fabrics/{fabric_id}/make-room"),
        ("POST", "/v1/fabrics/{fabric_id}/make-room"),
        ("POST", "/v1/fabrics/{fabric_id}/sleep"),
        ("POST", "/v1/fabrics/{fabric_id}/consolidate"),
        ("POST", "/v1/fabrics/{fabric_id}/evacuate"),
        ("GET", "/v1/fabrics/{fabric_id}/observation"),
        ("PATCH", "/v1/fabrics/{fabric_id}/observation"),
        ("GET", "/v1/fabrics/{fabric_id}/agents"),
        ("PUT", "/v1/fabrics/{fabric_id}/agents/{agent}"),
        ("DELETE", "/v1/fabrics/{fabric_id}/agents/{agent}"),
        ("GET", "/v1/fabrics/{fabric_id}/file-set"),
        ("GET", "/v1/fabrics/{fabric_id}/file-set/{generation}/{file}"),
    }


def test_operations_have_distinct_names_and_summaries(spec):
    operations = [op for item in spec["paths"].values() for op in item.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    assert all(operation["summary"] for operation in operations)
    assert {"fabrics_consolidate", "fabrics_promises", "fabrics_make_room"} <= set(names)


def test_every_operation_has_a_group_that_is_described(spec):
    groups = {tag["name"]: tag["description"] for tag in spec["tags"]}
    used = [op["tags"] for item in spec["paths"].values() for op in item.values()]
    assert {name for (name,) in used} == groups.keys()
    assert all(groups.values())


def test_every_example_is_what_the_operation_takes(spec):
    for route in ROUTES:
        operation = spec["paths"][route.template][route.method.lower()]
        places = [p for p in operation["parameters"] if p["in"] == "path"]
        assert [p["name"] for p in places if p["example"]] == route.variables
        if "body" in route.takes:
            content = operation["requestBody"]["content"]["application/json"]
            route.takes["body"].model_validate_json(json.dumps(content["example"]))


def test_parameters_carry_their_limits(spec):
    fit = spec["paths"]["/v1/fabrics/{fabric_id}/fit"]["get"]
    counts = [p for p in fit["parameters"] if p["name"] in ("hosts", "slots")]
    assert [(p["required"], p["schema"]["minimum"]) for p in counts] == [(False, 1)] * 2
    link = spec["paths"]["/v1/fabrics/{fabric_id}/links/{link_id}"]["get"]["parameters"]
    assert next(p for p in link if p["name"] == "link_id")["required"]
    release = spec["paths"]["/v1/allocations/{allocation_id}"]["delete"]["parameters"]
    names = {"allocation_id", "If-Match", "wait", "force", "OpenStack-API-Version"}
    assert {p["name"] for p in release} == names


def test_what_needs_a_token_says_so(spec):
    open_paths = {
        path
        for path, operations in spec["paths"].items()
        for operation in operations.values()
        if not operation["security"]
    }
    assert open_paths == {
        "/",
        "/healthcheck",
        "/view",
        "/view/{name}",
        "/v1",
        "/v1/openapi.json",
        "/v1/session",
    }


def test_every_rule_of_a_route_is_registered():
    known = {rule.name for rule in policies.list_rules()}
    assert {route.rule for route in ROUTES if route.rule} <= known


def test_every_rule_names_operations_that_exist(spec):
    for rule in policies.list_rules():
        for operation in rule.operations:
            path = operation["path"].partition("?")[0]
            assert operation["method"].lower() in spec["paths"][path]


def test_every_route_says_who_may_call_it():
    """The documented table has one row for each route and no other rows."""
    routes = {f"{route.method} {route.template}" for route in ROUTES}
    assert {" ".join(request.split()[:2]) for request in table()} == routes


def test_only_what_describes_the_service_needs_no_token():
    free = {request for request, statuses in table().items() if statuses["none"] != 401}
    always = {"GET /", "GET /healthcheck", "GET /v1", "GET /v1/openapi.json"}
    page = {"GET /view", "GET /view/{name}"}  # without data, if there are logins
    assert free == {*always, *page}


def unbounded(spec, schema, place, within=()):
    """Places of inputs that have no least or no greatest value, length or number of items."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        if name not in within:
            inner = spec["components"]["schemas"][name]
            yield from unbounded(spec, inner, place, (*within, name))
        return
    for kind in ("anyOf", "oneOf", "allOf"):
        for one in schema.get(kind, ()):
            yield from unbounded(spec, one, place, within)
    if "enum" in schema or "const" in schema:
        return
    match schema.get("type"):
        case "integer" | "number":
            yield from (f"{place}: {k}" for k in ("minimum", "maximum") if k not in schema)
        case "string":
            yield from (f"{place}: {k}" for k in ("maxLength",) if k not in schema)
        case "array":
            yield from (f"{place}: {k}" for k in ("maxItems",) if k not in schema)
            for item in (schema["items"],) if "items" in schema else schema["prefixItems"]:
                yield from unbounded(spec, item, f"{place}[]", within)
        case "object":
            for name, one in schema.get("properties", {}).items():
                yield from unbounded(spec, one, f"{place}.{name}", within)
            if schema.get("additionalProperties") is False:
                return
            yield from (f"{place}: {k}" for k in ("maxProperties",) if k not in schema)
            values = [schema["additionalProperties"]] if "additionalProperties" in schema else []
            for one in [*values, *schema.get("patternProperties", {}).values()]:
                yield from unbounded(spec, one, f"{place} value", within)


def test_every_input_has_a_least_and_a_greatest_value(spec):
    """So nothing that a request multiplies is unbounded, and no number is near 0 or infinity."""
    found = []
    for path, operations in spec["paths"].items():
        for method, operation in operations.items():
            place = f"{method} {path}"
            for parameter in operation["parameters"]:
                name = f"{place} {parameter['in']} {parameter['name']}"
                found += unbounded(spec, parameter["schema"], name)
            if "requestBody" in operation:
                [content] = operation["requestBody"]["content"].values()
                found += unbounded(spec, content["schema"], place)
    assert found == []


def test_schemas_are_published_under_the_names_of_what_they_show(spec):
    schemas = spec["components"]["schemas"]
    assert {"Allocation", "Fabric", "RoomPlan", "Promise", "Waiting", "MapWaiting"} <= set(schemas)
    assert not [name for name in schemas if name.endswith("Answer") or "__" in name]
    assert all(schema.get("title", name) == name for name, schema in schemas.items())
    assert 'Answer"' not in json.dumps(spec)

# SPDX-License-Identifier: Apache-2.0

"""Parses the query, headers and body of a request by the schemas of its route."""

import json
from collections import Counter

from flask import request
from pydantic import BaseModel, ValidationError
from werkzeug.exceptions import RequestEntityTooLarge, UnsupportedMediaType

from laas_service.api.errors import InvalidRequest
from laas_service.api.resource import Operation
from laas_service.domain.errors import InvalidInput


def parsed(route: Operation) -> dict[str, BaseModel]:
    """The query, headers and body that a route takes, validated.

    Raises:
        InvalidRequest: they do not match their schema.
        UnsupportedMediaType: the body is not JSON.
    """
    try:
        return {part: _PARSERS[part](schema) for part, schema in route.takes.items()}
    except ValidationError as error:
        raise InvalidRequest(error) from None


def _query(schema: type[BaseModel]) -> BaseModel:
    for name, values in request.args.lists():
        if len(values) > 1:
            raise InvalidInput(name, values, "give it once")
    return schema.model_validate(request.args.to_dict())


def _headers(schema: type[BaseModel]) -> BaseModel:
    names = [field.alias for field in schema.model_fields.values() if field.alias]
    return schema.model_validate({n: request.headers[n] for n in names if n in request.headers})


def _body(schema: type[BaseModel]) -> BaseModel:
    if not request.is_json:
        raise UnsupportedMediaType("send the body as application/json")
    text = _whole()
    checked = schema.model_validate_json(text)
    json.loads(text, object_pairs_hook=_once)
    return checked


def _whole() -> bytes:
    """The body.

    Raises:
        RequestEntityTooLarge: it is longer than allowed. A chunked body arrives cut off at the
            limit, so one that reaches the limit is refused, too.
    """
    text = request.get_data()
    if request.content_length is None and len(text) >= (request.max_content_length or 0):
        raise RequestEntityTooLarge
    return text


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A JSON object without repeated keys: other parsers might take the other value."""
    for name, times in Counter(name for name, _ in pairs).items():
        if times > 1:
            raise InvalidInput(name, [value for key, value in pairs if key == name], "give it once")
    return dict(pairs)


_PARSERS = {"query": _query, "headers": _headers, "body": _body}

# SPDX-License-Identifier: Apache-2.0

"""Exceptions as HTTP: their statuses and problem documents."""

import json
from http import HTTPStatus
from typing import Any

from pydantic import ValidationError
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge

from laas_service.api.microversions import NEWEST, OLDEST, UnknownVersion
from laas_service.api.schemas import (
    ByMovingAnswer,
    DegradedAnswer,
    FieldError,
    Problem,
    RoomAnswer,
    requests,
)
from laas_service.app.records import FabricRecord
from laas_service.domain import errors
from laas_service.domain.allocation import NoFit
from laas_service.domain.faults import degradation
from laas_service.domain.wording import CONTROLS

ECHO = 200
"""Characters of a wrong value that are repeated to the caller."""

FORMS = (requests.NUMBER, requests.LIST, requests.OBJECT)
"""Parts of a place in a body that are no names of fields."""

WORDS = {
    "missing": "is required",
    "extra_forbidden": "there is no such field; see /v1/openapi.json for those there are",
    "string_type": "give a text",
    "string_too_short": "give {min_length} or more characters",
    "string_too_long": "give at most {max_length} characters",
    "int_type": "give a whole number",
    "int_parsing": "give a whole number",
    "int_from_float": "give a whole number",
    "float_type": "give a number",
    "float_parsing": "give a number",
    "finite_number": "give a finite number",
    "bool_type": "give true or false",
    "bool_parsing": "give true or false",
    "greater_than": "give more than {gt}",
    "greater_than_equal": "give at least {ge}",
    "less_than": "give less than {lt}",
    "less_than_equal": "give at most {le}",
    "enum": "choose from {expected}",
    "literal_error": "choose from {expected}",
    "list_type": "give a list",
    "dict_type": "give an object",
    "too_short": "give at least {min_length}",
    "too_long": "give at most {max_length}",
}
"""The fix of a wrong field, by the validator's type of error; others keep its message."""

MANY = 100
"""Bad fields that are named to the caller."""


class InvalidRequest(errors.LaasError):
    """A query, header or body does not match its schema; lists the bad fields."""

    code = "invalid_input"

    def __init__(self, error: ValidationError) -> None:
        self.fields = [_field(item) for item in error.errors(include_url=False)[:MANY]]
        super().__init__("; ".join(f"{field.field}: {field.detail}" for field in self.fields))


STATUS: dict[type[errors.LaasError], int] = {
    errors.LaasError: 500,
    errors.InvalidInput: 400,
    errors.InvalidFile: 400,
    InvalidRequest: 400,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.QuotaExceeded: 403,
    errors.TooManyRequests: 429,
    errors.NotFound: 404,
    UnknownVersion: 406,
    errors.Conflict: 409,
    errors.ConcurrentUpdate: 409,
    errors.DoubleClaim: 409,
    errors.ManagedElsewhere: 409,
    errors.HostsBusy: 409,
    errors.NameTaken: 409,
    errors.LimitExceeded: 409,
    errors.PreconditionFailed: 412,
    errors.IdempotencyMismatch: 422,
    errors.NotSupported: 501,
    errors.Unavailable: 503,
}
"""By exception class. The statuses are those of RFC 9110, and of the Idempotency-Key draft for a
key that was used for another request."""


def status_of(error: errors.LaasError) -> int:
    """The status of the nearest class that has one."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def of_error(error: errors.LaasError) -> Problem:
    """The problem document of one of the service's exceptions."""
    fields = None
    if isinstance(error, UnknownVersion):
        versions = {"min_version": str(OLDEST), "max_version": str(NEWEST)}
        return problem(status_of(error), error.code, str(error), **versions)
    if isinstance(error, InvalidRequest):
        fields = error.fields
    elif isinstance(error, errors.InvalidInput | errors.QuotaExceeded):
        fields = [FieldError(field=error.field, value=_echo(error.value), detail=error.fix)]
    elif isinstance(error, errors.NameTaken):
        fields = [FieldError(field="name", value=_echo(error.name), detail=error.fix)]
        holder = error.allocation
        return problem(409, error.code, str(error), errors=fields, allocation=holder)
    return problem(status_of(error), error.code, str(error), errors=fields)


def of_refusal(refusal: NoFit, fabric: FabricRecord | None = None) -> Problem:
    """The problem document of a refusal: its code is the limit that was hit.

    ``fabric`` is that of the allocation whose size was refused; it names the hosts.
    """
    moving, way = None, refusal.by_moving
    if way is not None and fabric is not None:
        names = [fabric.inventory.host_names[host] for host in way.moves]
        moving = ByMovingAnswer(moves=names, new_hosts=way.new_hosts)
    return problem(
        409,
        refusal.reason.value,
        refusal.detail,
        reason=refusal.reason,
        largest_fit=refusal.largest_fit,
        fits_when_empty=refusal.fits_when_empty,
        cut_off=refusal.cut_off or None,
        room=RoomAnswer.model_validate(refusal.room) if refusal.room else None,
        by_moving=moving,
    )


def of_degraded(fabric: FabricRecord, degraded: degradation.Degraded) -> Problem:
    """The problem document of a repair that is not possible now."""
    return problem(
        409, "not_repairable", str(degraded), degraded=DegradedAnswer.of(fabric, degraded)
    )


def of_http(error: HTTPException, detail: str = "") -> Problem:
    """The problem document of an error of the HTTP layer; ``detail`` is what to say of it."""
    status = error.code or 500
    too_large = isinstance(error, RequestEntityTooLarge)
    code = "too_large" if too_large else error.name.lower().replace(" ", "_")
    return problem(status, code, detail or error.description or error.name)


def problem(status: int, code: str, detail: str, **more: Any) -> Problem:
    return Problem(
        type="about:blank",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        code=code,
        **more,
    )


def _field(item: Any) -> FieldError:
    """One error of the validator as a field, its value and the problem."""
    fix = WORDS.get(item["type"])
    words = item["msg"] if fix is None else fix.format(**item.get("ctx", {}))
    if item["type"] == "string_pattern_mismatch":
        pattern = item["ctx"]["pattern"]
        words = (
            "leave out control characters"
            if CONTROLS in pattern
            else f"match the pattern {pattern}"
        )
    known = item["type"] not in ("missing", "json_invalid", "model_type")
    return FieldError(
        field=".".join(str(part) for part in item["loc"] if part not in FORMS) or "body",
        value=_echo(item["input"]) if known else None,
        detail=words,
    )


def _echo(value: object) -> Any:
    """The value if it is short and JSON can represent it, else its beginning as text."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        text = repr(value)
        value = text
    return value if len(text) <= ECHO else text[:ECHO]

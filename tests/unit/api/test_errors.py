# SPDX-License-Identifier: Apache-2.0

"""Every exception has one HTTP status, and every refusal reason a code of its own."""

from __future__ import annotations

import pytest

from laas_service.api import errors as table
from laas_service.domain import errors
from laas_service.domain.allocation import NoFit, Refusal


def tree(kind: type[errors.LaasError]) -> list[type[errors.LaasError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in tree(child))]


OF_ONE_ADAPTER = "laas_service.adapters."
"""Kinds of error that only commands meet; they would get the status of their parent."""


@pytest.mark.parametrize(
    "kind",
    [kind for kind in tree(errors.LaasError) if not kind.__module__.startswith(OF_ONE_ADAPTER)],
    ids=lambda kind: kind.__name__,
)
def test_every_class_of_the_tree_has_a_status(kind):
    assert kind in table.STATUS


def test_only_what_is_nobodys_fault_is_a_server_error():
    broken = {kind for kind, status in table.STATUS.items() if status >= 500}
    assert broken == {errors.LaasError, errors.NotSupported, errors.Unavailable}


def test_a_wrong_value_names_field_value_and_fix():
    document = table.of_error(errors.InvalidInput("policy", "best", "name a policy out of: jigsaw"))
    assert document.status == 400
    assert document.code == "invalid_input"
    (field,) = document.errors or []
    assert (field.field, field.value) == ("policy", "best")
    assert "jigsaw" in field.detail


@pytest.mark.parametrize("value", [object(), {1, 2}, "x" * 10_000, float("nan")])
def test_a_value_that_json_cannot_say_is_still_a_document(value):
    document = table.of_error(errors.InvalidInput("field", value, "fix it"))
    assert len(document.model_dump_json()) < 12_000


@pytest.mark.parametrize("reason", Refusal)
def test_a_refusal_is_a_conflict_whose_code_is_the_limit(reason):
    document = table.of_refusal(NoFit(reason, "no room", 3))
    assert (document.status, document.code, document.largest_fit) == (409, reason.value, 3)


def test_a_kind_of_error_nobody_listed_gets_the_status_of_its_parent():
    class Odd(errors.NotFound):
        pass

    assert table.status_of(Odd("thing", "x")) == 404

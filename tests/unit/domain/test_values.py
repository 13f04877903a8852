# SPDX-License-Identifier: Apache-2.0

"""Values compare, hash, pickle and are replaced by their fields, and have no others."""

from __future__ import annotations

import pickle
from dataclasses import field, replace

import pytest

from laas_service.domain.values import value


@value
class Pair:
    left: int
    right: int = 2
    note: str = field(default="", compare=False)


def test_values_of_equal_fields_are_equal():
    assert Pair(1) == Pair(1, 2, "beside") != Pair(1, 3)
    assert len({Pair(1), Pair(1, 2, "beside"), Pair(1, 3)}) == 2


def test_a_replaced_value_leaves_the_first_as_it_was():
    pair = Pair(1)
    assert replace(pair, left=5) == Pair(5)
    assert pair == Pair(1)


def test_values_have_no_other_fields():
    with pytest.raises(AttributeError):
        Pair(1).middle = 0  # type: ignore[attr-defined]


def test_values_can_be_pickled():
    assert pickle.loads(pickle.dumps(Pair(1, 3, "beside"))).note == "beside"

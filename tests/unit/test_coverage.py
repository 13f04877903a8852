# SPDX-License-Identifier: Apache-2.0

"""The page of coverage: which functions no test has entered, and what is decided about them."""

from __future__ import annotations

import ast

from tests.coverage import DECIDED, decisions, functions


def test_functions_have_their_own_lines():
    text = "class A:\n  def f(self):\n    def g():\n      return 1\n    return g\n"
    assert dict(functions(ast.parse(text))) == {"A.f": {3, 5}, "A.f.g": {4}}


def test_a_decision_holds_until_its_environments_are_measured():
    text = "# head\na.py* functional,nova why\nb.py* - why\n"
    assert decisions(text, ["py3", "nova"]) == ["a.py*", "b.py*"]
    assert decisions(text, ["functional", "nova"]) == ["b.py*"]
    assert all(reason for _, _, *reason in map(str.split, DECIDED.read_text().splitlines()[1:]))

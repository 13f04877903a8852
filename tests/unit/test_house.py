# SPDX-License-Identifier: Apache-2.0

"""Sizes of the sources stay within limits, and ``tests.bench.house`` counts them right."""

from __future__ import annotations

import re
import textwrap

import pytest

from tests.bench import house


@pytest.fixture
def tree(tmp_path):
    """A tree with one module."""

    def made(text, path="laas_service/app/one.py"):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
        return house.modules(tmp_path, "laas_service")

    return made


def test_lines_of_code_have_no_docstrings_comments_and_blank_lines(tree):
    found = tree('''
        """What it is.

        More of it.
        """

        # why
        X = """one
        two"""  # a text that is code
        """What X is."""


        def answer():
            """Says so."""
            return (
                42,
            )
        ''')
    assert house.code_lines(found) == {"laas_service/app": 6}


def test_functions_are_wide_beyond_eight_parameters_without_self(tree):
    names = "a, b, c, d, e, f, g, h"
    found = tree(f"""
        def eight({names}): ...
        def nine({names}, *, i): ...
        class A:
            def eight(self, {names}): ...
            def nine(self, {names}, i=0): ...
        """)
    assert [each.rpartition(": ")[2] for each in house.wide_functions(found)] == ["nine 9"] * 2


def test_protocols_and_questions_for_a_kind_are_counted(tree):
    found = tree("""
        class A(Protocol): ...
        class B(Protocol[T]): ...
        class C(A): ...

        def ask(record, slots):
            if record.slots is None or slots is not None:
                return record.encloses
            record.scripted = True
            return record.sharing == 1
        """)
    assert len(house.protocols(found)) == 2
    assert house.conditions(found) == {"slots is": 2, "encloses": 1}


def test_class_names_in_several_modules_are_counted(tree):
    tree("class _Search: ...\nclass One: ...\nclass One: ...\n")
    found = tree("class _Search: ...\n", "laas_service/domain/two.py")
    assert house.repeated_names(found) == {"_Search": 2}


def test_sizes_of_the_product_are_within_the_limits():
    """A larger module, class or function is two things, each with a name of its own."""
    product = house.modules(house.HERE, *house.PRODUCT)
    assert product, "no sources were found"
    too_large = (
        *house.long_modules(product),
        *house.tall_classes(product),
        *house.wide_functions(product),
    )
    assert too_large == ()


def test_the_ports_are_few():
    """A further port first asks which of these should grow."""
    app = house.modules(house.HERE, "laas_service/app")
    assert 0 < len(house.protocols(app)) <= 20


def test_kinds_of_tenancy_answer_for_themselves():
    """What asks for the kind of an allocation is better asked of the kind (``domain.tenancy``)."""
    asked = house.conditions(house.modules(house.HERE, *house.PRODUCT))
    assert asked.total() <= house.QUESTIONS, asked.most_common()


def test_a_class_name_stands_for_one_idea():
    """Rows end in ``Row``, and the schemas of answers in ``Answer``."""
    names = house.repeated_names(house.modules(house.HERE, *house.PRODUCT))
    assert len(names) <= house.REPEATED, names


def test_each_sleep_of_the_tests_says_why():
    """A test waits for an event; where there is none, the line names the reason."""
    places = [path for path in (house.HERE / "tests").rglob("*.py") if "bench" not in path.parts]
    assert len(places) > 400
    bare = re.compile(r"time\.sleep\([\d.]+\)\s*$", re.MULTILINE)
    assert [str(path) for path in places if bare.search(path.read_text())] == []

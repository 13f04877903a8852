# SPDX-License-Identifier: Apache-2.0

"""Which tests ``make quick`` leaves out (``tests.quick``)."""

from collections import Counter

from tests import quick

SECONDS = {"a.py::long": 9.0, "a.py::short": 0.1, "b.py::long": 5.0, "c.py::many": 6.0}
TESTS = Counter({"a.py::long": 1, "a.py::short": 1, "b.py::long": 1, "c.py::many": 600})


def test_the_slowest_for_each_test_are_left_out_until_the_others_fit():
    lines = quick.slow(SECONDS, TESTS, budget=7.0).splitlines()[1:]
    assert lines == ["9.00 a.py::long", "5.00 b.py"]


def test_a_written_list_is_read():
    text = quick.slow(SECONDS, TESTS, budget=0.0)
    assert quick.read(text) == {"a.py", "b.py", "c.py"}

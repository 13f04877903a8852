# SPDX-License-Identifier: Apache-2.0

"""Charts: what they show, where their axes begin, and what happens without matplotlib."""

import re
import sys
from xml.etree import ElementTree

import pytest

from laas_service.domain.errors import NotSupported
from laas_service.simulator.plots import Value, compared, steps


def texts(chart):
    """The texts of a chart, which is a well-formed document."""
    found = ElementTree.fromstring(chart).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(one.itertext()).strip() for one in found]


def test_words_stand_beside_each_other_and_the_paper_beside_them():
    curves = {
        "laas": [Value("Thunder", 92.0, (90, 91)), Value("<Atlas>", 89.5)],
        "ta": [Value("Thunder", 88.0, (85, 85))],
    }
    shown = texts(compared(curves, "percent of hosts", "trace"))
    assert {"Thunder", "<Atlas>", "laas", "ta", "paper", "percent of hosts", "trace"} <= set(shown)


def ticks(chart):
    return [float(x.replace(",", "")) for x in texts(chart) if re.fullmatch(r"[\d.,]+", x)]


def test_values_that_differ_much_begin_at_zero_and_others_do_not():
    assert 0 in ticks(compared({"a": [Value("x", 10), Value("y", 90)]}, "s"))
    assert 0 not in ticks(compared({"a": [Value("x", 97), Value("y", 99)]}, "s"))


def test_numbers_of_several_sizes_are_on_a_logarithmic_axis():
    curves = {"a": [Value(hosts, 5.0) for hosts in (128, 1024, 27648)]}
    assert [x for x in ticks(compared(curves, "us", "hosts")) if x > 100] == [128, 1024, 27648]


@pytest.mark.parametrize(
    ("span", "unit", "end"), [(90, "seconds", 90), (600, "minutes", 10), (864000, "days", 10)]
)
def test_time_is_in_units_of_its_length(span, unit, end):
    shown = steps({"jigsaw": [(0, 1), (span, 2)], "laas": [(0, 3)]}, "jobs")
    assert f"{unit} since the start" in texts(shown)
    assert max(ticks(shown)) <= end


def test_equal_values_give_equal_bytes():
    first, second = (compared({"a": [Value(1, 2.5)], "b": []}, "s") for _ in range(2))
    assert first == second
    assert "<metadata" not in first
    assert compared({}, "s") == steps({}, "s") == ""


def test_without_matplotlib_a_chart_is_refused_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(NotSupported, match=r"pip install 'laas-service\[report\]'"):
        compared({"a": [Value(1, 2.5)]}, "s")

# SPDX-License-Identifier: Apache-2.0

"""Tables for narrow terminals."""

from __future__ import annotations

import pytest

from laas_service.client.tables import fitted

NAMES = ["ID", "Name", "Project ID", "State", "Position", "Error"]
ROWS = [
    ["6f9619ff-8b86-d011-b42d-00cf4fc964ff", "blue", "9" * 32, "active", "-", "-"],
    ["1a2b3c4d-8b86-d011-b42d-00cf4fc964ff", "red", "9" * 32, "error", "-", "no answer " * 9],
]


def lines(names, rows):
    """The width of a table by cliff: two for each border and each space beside a column."""
    widths = [
        max(len(line) for row in [names, *rows] for line in str(row[place]).split("\n"))
        for place in range(len(names))
    ]
    return sum(widths) + 3 * len(names) + 1


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_a_table_fits(width):
    names, rows, left_out = fitted(NAMES, ROWS, width)
    assert lines(names, rows) <= width
    assert {"ID", "Name", "State", "Error"} <= set(names)
    assert "Position" not in left_out
    words = "".join(rows[1][names.index("Error")].split())
    assert words == "noanswer" * 9
    if "Project ID" in names:
        assert rows[0][names.index("Project ID")] == "9" * 32


def test_a_table_that_fits_stays_as_it_is():
    assert fitted(NAMES, ROWS, 300) == (NAMES, ROWS, [])


def test_ids_stay_different():
    ids = [[f"6f9619ff-8b86-{number}-b42d-00cf4fc964ff"] for number in (17, 18)]
    _, rows, _ = fitted(["ID"], ids, 20)
    assert rows == [["6f9619ff-8b86-17"], ["6f9619ff-8b86-18"]]
    assert fitted(["ID"], ids[:1], 20)[1] == [["6f9619ff"]]


def test_chosen_columns_stay():
    names, _, left_out = fitted(NAMES, ROWS, 40, every=True)
    assert (names, left_out) == (NAMES, [])


def test_the_least_important_go_first():
    names, _, left_out = fitted(NAMES, ROWS, 40)
    assert left_out[0] == "Project ID"
    assert names[:2] == ["ID", "Name"]


@pytest.mark.parametrize("width", [1, 20, 40])
def test_how_it_is_and_what_is_wrong_stay_however_narrow(width):
    names, _, left_out = fitted(NAMES, ROWS, width)
    assert {"ID", "Name", "State", "Error"} <= set(names)
    assert "Project ID" in left_out

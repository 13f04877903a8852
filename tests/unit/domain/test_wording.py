# SPDX-License-Identifier: Apache-2.0

import pytest

from laas_service.domain.wording import listed


@pytest.mark.parametrize(
    ("names", "shown", "text"),
    [
        ([], 5, ""),
        (["a"], 5, "a"),
        (["b", "a"], 5, "b, a"),
        ("abcde", 5, "a, b, c, d, e"),
        ("abcdef", 5, "a, b, c, d, e and 1 more"),
        (range(10), 3, "0, 1, 2 and 7 more"),
    ],
)
def test_a_list_names_the_first_few_and_counts_the_rest(names, shown, text):
    assert listed(names, shown) == text

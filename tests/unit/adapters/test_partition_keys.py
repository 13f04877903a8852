# SPDX-License-Identifier: Apache-2.0

"""The partition keys of rails when a change of placement joins or parts them."""

import pytest

from laas_service.adapters.db import partition_keys

JOINED, APART, PAIRS = (0, 0, 0, 0), (0, 1, 2, 3), (0, 0, 2, 2)


@pytest.mark.parametrize(
    ("joined", "present", "lacking", "keys"),
    [
        (JOINED, (5, 5, 5, 5), 0, (5, 5, 5, 5)),
        (JOINED, (5, 6, 7, 8), 0, (5, 6, 7, 8)),  # ports in use keep their keys
        (PAIRS, (5, 5, 5, 5), 1, (5, 5, 20, 20)),
        (APART, (5, 5, 5, 5), 3, (5, 20, 21, 22)),
        (APART, (5, 5, 7, 7), 2, (5, 20, 7, 21)),
        (PAIRS, (5, 6, 7, 8), 0, (5, 6, 7, 8)),
        (PAIRS, (5, 6, 5, 6), 1, (5, 5, 20, 20)),
    ],
)
def test_rails_that_are_not_joined_have_different_keys(joined, present, lacking, keys):
    assert partition_keys.missing(joined, present) == lacking
    owned = sorted({*present, *range(20, 20 + lacking)})
    assert partition_keys.by_rail(joined, present, owned) == keys
    for one, first in enumerate(joined):
        for other, second in enumerate(joined):
            assert first == second or keys[one] != keys[other]

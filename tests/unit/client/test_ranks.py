# SPDX-License-Identifier: Apache-2.0

"""Files of ranks for MPI and NCCL."""

import pytest

from laas_service.client.allocations import _rank_file


@pytest.mark.parametrize(
    ("form", "joined", "expected"),
    [
        ("hostfile", False, "b slots=2\na slots=2\n"),
        ("openmpi", False, "rank 0=b slot=0\nrank 1=b slot=1\nrank 2=a slot=0\nrank 3=a slot=1\n"),
        ("nccl", True, "NCCL_CROSS_NIC=2\n# mpirun --host b:2,a:2\n"),
        ("nccl", False, "NCCL_CROSS_NIC=0\n# mpirun --host b:2,a:2\n"),
    ],
)
def test_every_form_keeps_the_order_of_hosts(form, joined, expected):
    assert _rank_file(form, ["b", "a"], 2, joined) == expected

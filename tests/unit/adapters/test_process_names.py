# SPDX-License-Identifier: Apache-2.0

"""A killed process counts as gone; a process of another machine never does."""

from __future__ import annotations

import subprocess
import sys

import pytest

from laas_service.adapters import process_names
from tests.waiting import eventually

SAY = (
    "from laas_service.adapters import process_names\n"
    "print(process_names.new_name(), flush=True); input()"
)


@pytest.fixture
def other():
    with subprocess.Popen(
        [sys.executable, "-c", SAY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def test_names_are_unique_and_ours_is_not_gone():
    names = {process_names.new_name() for _ in range(100)}
    assert len(names) == 100
    assert not any(process_names.is_gone(name) for name in names)
    assert max(map(len, names)) <= 255


def test_gone_when_it_was_killed_even_if_nobody_has_noticed(other):
    name = other.stdout.readline().strip()
    assert not process_names.is_gone(name)
    other.kill()
    eventually(lambda: process_names.is_gone(name), "a zombie counts as gone")
    other.wait()
    assert process_names.is_gone(name)


def test_another_process_of_the_same_number_is_another_one():
    space, process, random = process_names.new_name().rsplit("/", 2)
    number, _, start = process.partition("-")
    assert process_names.is_gone(f"{space}/{number}-{int(start) - 1}/{random}")


@pytest.mark.parametrize(
    "name", ["", "/", "worker", "host/boot.1/-/abc", "elsewhere/boot.1/999999-1/abc"]
)
def test_of_others_nothing_is_known(name):
    assert not process_names.is_gone(name)

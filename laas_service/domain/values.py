# SPDX-License-Identifier: Apache-2.0

"""Dataclasses of which a search makes many."""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """A dataclass with slots, equality and a hash, whose fields never change.

    The type checker refuses to write to a field. At run time nothing does: a class that
    ``dataclass`` freezes takes six times as long to make an object with ten fields.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)

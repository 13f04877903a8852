# SPDX-License-Identifier: Apache-2.0

"""Refusals of an import: the stable codes that programs read."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from laas_service.domain.errors import InvalidFile, InvalidInput, LaasError, ManagedElsewhere


class ImportRefusal(StrEnum):
    """Why a fabric is not imported."""

    NOT_A_DUMP = "not_a_dump"
    """The file is something else than a dump, a snapshot or a description."""

    ANOTHER_TOOL = "another_tool"
    """Another tool than ``ibnetdiscover`` wrote it, or ``ibnetdiscover`` with an option."""

    EMPTY = "empty"
    COMPRESSED = "compressed"
    """An archive or a compressed file that cannot be read as one dump."""

    TOO_LARGE = "too_large"
    NO_SWITCH = "no_switch"
    NO_HOST = "no_host"
    NO_FAT_TREE = "no_fat_tree"
    MANAGED_ELSEWHERE = ManagedElsewhere.code
    """Another managed fabric has one of its switches or ports."""

    PATTERN_MATCHES_NOTHING = "pattern_matches_nothing"
    """A pattern of host names matches none."""

    UNREADABLE = "unreadable"
    """No file can be read there, or it is truncated or edited."""


class PatternMatchesNothing(InvalidInput):
    """A pattern of host names matches none of a fabric."""

    code = ImportRefusal.PATTERN_MATCHES_NOTHING.value


class RefusedCabling(InvalidFile):
    """A cabling is refused. ``recognised`` has the known keys of ``FabricFile.document``."""

    def __init__(
        self, source: str, why: str, refusal: ImportRefusal, recognised: Mapping[str, Any]
    ) -> None:
        self.recognised = recognised
        super().__init__(source, 1, why, refusal)


def refusal_of(error: LaasError) -> ImportRefusal | None:
    """Which refusal an error of an import is; None if it says nothing about the fabric."""
    try:
        return ImportRefusal(error.code)
    except ValueError:
        pass
    return ImportRefusal.UNREADABLE if isinstance(error, (InvalidFile, InvalidInput)) else None

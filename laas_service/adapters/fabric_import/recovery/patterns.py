# SPDX-License-Identifier: Apache-2.0

"""Patterns of host names that match none: most likely a typo, so the import is refused."""

from collections.abc import Collection
from fnmatch import fnmatchcase

from laas_service.adapters.fabric_import.recovery.hosts import Selection
from laas_service.adapters.fabric_import.recovery.levels import natural
from laas_service.adapters.fabric_import.refusal import PatternMatchesNothing
from laas_service.domain.wording import listed


def refuse_unmatched(selection: Selection, hosts: Collection[str]) -> None:
    """Raise if a pattern of the selection matches none of the hosts.

    Raises:
        PatternMatchesNothing: names the option and the pattern.
    """
    given = (
        ("--exclude", selection.exclude),
        ("--include", selection.include),
        ("--subnet-manager", selection.managers),
    )
    for option, globs in given:
        for glob in globs:
            if not any(fnmatchcase(host, glob) for host in hosts):
                ordered: list[str] = sorted(hosts, key=natural)
                some = listed(ordered, 3) or "none"
                fix = f"it matches no host of this fabric; its {len(hosts)} hosts are {some}"
                raise PatternMatchesNothing(option, glob, fix)

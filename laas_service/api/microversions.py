# SPDX-License-Identifier: Apache-2.0

"""Microversions: the version of the interface that a request asks for in a header.

Each version is described in ``doc/source/reference/api.rst``.
"""

import re
from typing import NamedTuple

from laas_service.domain.errors import InvalidInput, LaasError

SERVICE_TYPE = "isolated-network"
"""The service type in Keystone's catalog, in access rules, and in the header."""

HEADER = "OpenStack-API-Version"


class Microversion(NamedTuple):
    """A version of the interface, ``MAJOR.MINOR``."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


OLDEST = Microversion(1, 0)
"""The version of a request that asks for none."""

OWN_PROJECT = Microversion(1, 1)
"""From here on an administrator's list is that of his project, unless he asks for all."""

KINDS = Microversion(1, 2)
"""From here on an answer lacks the fields that the kind of an allocation does not have, and fields
of situations, such as ``position``, while they have no value."""

UNIQUE_NAMES = Microversion(1, 3)
"""From here on a live allocation has its name alone in its project, unless the request allows a
duplicate."""

NEWEST = UNIQUE_NAMES

LONGEST = 1000
"""Characters of the header."""


class UnknownVersion(LaasError):
    """The service does not know the version that a request asks for."""

    code = "unknown_version"

    def __init__(self, asked: Microversion) -> None:
        super().__init__(
            f"version {asked} is not known; send '{HEADER}: {SERVICE_TYPE} VERSION' with a version "
            f"from {OLDEST} to {NEWEST} or with latest, or leave it out for {OLDEST}"
        )


def asked(header: str | None) -> Microversion:
    """The version that the header asks for. Versions for other services are ignored.

    Raises:
        InvalidInput: the header is too long, or names this service twice or with something that
            is no version.
        UnknownVersion: the version is older or newer than those of this release.
    """
    if len(header or "") > LONGEST:
        raise InvalidInput(HEADER, "...", f"give at most {LONGEST} characters")
    words = [item.split() for item in (header or "").split(",")]
    ours = [rest for service, *rest in filter(None, words) if service.lower() == SERVICE_TYPE]
    if not ours:
        return OLDEST
    given = " ".join(ours[0])
    if given == "latest" and len(ours) == 1:
        return NEWEST
    found = re.fullmatch(r"(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})", given)
    if len(ours) > 1 or found is None:
        raise InvalidInput(HEADER, header, f"give '{SERVICE_TYPE} {NEWEST}', once")
    version = Microversion(int(found[1]), int(found[2]))
    if not OLDEST <= version <= NEWEST:
        raise UnknownVersion(version)
    return version

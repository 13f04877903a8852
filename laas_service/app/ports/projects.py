# SPDX-License-Identifier: Apache-2.0

"""Projects, as the identity service knows them."""

from typing import Protocol


class Projects(Protocol):
    """Looks projects up."""

    def check(self, project_id: str) -> bool:
        """Whether the project exists and is enabled, with its domain; False if nobody can tell.

        Raises:
            InvalidInput: there is no such project, or it or its domain is disabled.
            Unavailable: the identity service does not answer.
        """

    def is_gone(self, project_id: str) -> bool:
        """Whether the identity service has no such project, as it says; ``Unavailable``."""


class NoProjects:
    """Where no identity service is configured nobody can tell."""

    def check(self, project_id: str) -> bool:
        return False

    def is_gone(self, project_id: str) -> bool:
        return False

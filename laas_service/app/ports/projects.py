# SPDX-License-Identifier: Apache-2.0

"""Projects, as the identity service knows them."""


class Projects:
    """Looks projects up. This one has no identity service, so nobody can tell."""

    def check(self, project_id: str) -> bool:
        """Whether the project exists and is enabled, with its domain; False if nobody can tell.

        Raises:
            InvalidInput: there is no such project, or it or its domain is disabled.
            Unavailable: the identity service does not answer.
        """
        return False

    def is_gone(self, project_id: str) -> bool:
        """Whether the identity service has no such project, as it says; ``Unavailable``."""
        return False

# SPDX-License-Identifier: Apache-2.0

"""Looks projects up in Keystone."""

import logging
from typing import Any
from urllib.parse import quote

from keystoneauth1 import exceptions as keystone_errors
from keystoneauth1.adapter import Adapter

from laas_service.app.ports.projects import Projects
from laas_service.domain.errors import InvalidInput, Unavailable

LOG = logging.getLogger(__name__)

FIX = "name an enabled project in an enabled domain"


class KeystoneProjects(Projects):
    """Projects of Keystone.

    Without the rights ``identity:get_project`` and ``identity:get_domain`` nobody can tell.
    """

    def __init__(self, identity: Adapter) -> None:
        """``identity`` is Keystone's endpoint, whatever version the catalog names."""
        self._identity = identity

    def check(self, project_id: str) -> bool:
        """See ``Projects.check``."""
        project = self._get("projects", "project", project_id)
        if project is None:
            return False
        self._must_be_enabled(project, project_id, "the project")
        domain = self._get("domains", "domain", str(project["domain_id"]))
        if domain is None:
            return False
        self._must_be_enabled(domain, project_id, "its domain")
        return True

    def is_gone(self, project_id: str) -> bool:
        """See ``Projects.is_gone``."""
        try:
            self._get("projects", "project", project_id)
        except InvalidInput:
            return True
        return False

    def _must_be_enabled(self, document: dict[str, Any], project_id: str, what: str) -> None:
        if not document["enabled"]:
            raise InvalidInput("project_id", project_id, f"{what} is disabled; {FIX}")

    def _get(self, kind: str, key: str, id: str) -> dict[str, Any] | None:
        """The document of a project or domain; None if the service may not read it."""
        try:
            return dict(self._identity.get(f"/{kind}/{quote(id, safe='')}").json()[key])
        except keystone_errors.NotFound as error:
            raise InvalidInput("project_id", id, f"Keystone has no such {key}; {FIX}") from error
        except keystone_errors.Forbidden:
            LOG.warning(
                "projects are not checked: give the service's user identity:get_project and "
                "identity:get_domain in Keystone"
            )
            return None
        except keystone_errors.ClientException as error:
            raise Unavailable(f"Keystone did not tell about the {key} {id!r}: {error}") from error
        except (KeyError, TypeError, ValueError) as error:
            raise Unavailable(f"Keystone's answer about the {key} is invalid: {error!r}") from error

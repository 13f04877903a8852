# SPDX-License-Identifier: Apache-2.0

"""Names and keys that the service gives in Nova and placement; ``nova_filters.laas`` reads them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from laas_service.app.ports.compute import Handover
from laas_service.domain.errors import InvalidInput

OWNER = "filter_tenant_id"
"""The key that every mechanism of every Nova release reads; longer keys add projects."""

NODE = "laas:node:"
"""Prefix of the keys of an aggregate's Ironic nodes: the UUID follows, and the value is the host.

``nova_filters.laas`` reads them. Nova itself knows no nodes in aggregates."""

ALLOCATION = "laas:allocation"
"""Key with the allocation of an aggregate; ``nova_filters.laas`` reads it."""

POOL = "laas:pool"
"""Key of the pool: ``nova_filters.laas`` lets no other aggregate open its hosts."""

DRAINED = "laas:drained"
"""Key of an aggregate whose hosts ``nova_filters.laas`` closes to all projects."""

CLOSING = {DRAINED: "true"}
"""The metadata of the aggregate of closed hosts."""


SLOTS = "laas:slots"
"""Key of an aggregate of class ``shared``: the class of its slots. ``nova_filters.laas`` reads
it."""

SLOT_CLASSES = "CUSTOM_LAAS_SLOT_"
"""The beginning of the resource classes of slots in placement."""


def class_of(allocation_id: str) -> str:
    """The resource class of an allocation's slots."""
    return SLOT_CLASSES + re.sub("[^A-Z0-9]", "_", allocation_id.upper())


def aggregate_name(allocation_id: str) -> str:
    """The name of an allocation's aggregate."""
    return f"laas-{allocation_id}"


@dataclass(frozen=True, slots=True)
class OwnKeys:
    """The names and metadata that the service gives to its aggregates.

    ``pool`` is the name of the first aggregate of the pool. ``sentinel`` is a project id that no
    project has.
    """

    pool: str
    sentinel: str

    @property
    def closed_hosts(self) -> str:
        """The name of the aggregate of hosts that accept no new server."""
        return f"{self.pool}-closed"

    @property
    def fenced(self) -> Mapping[str, str]:
        """The metadata of an allocation's aggregate that accepts no new server."""
        return {OWNER: self.sentinel}

    @property
    def pooled(self) -> Mapping[str, str]:
        """The metadata of the pool's aggregates."""
        return {OWNER: self.sentinel, POOL: "true"}

    def is_part(self, name: str) -> bool:
        """Whether this is the name of one of the pool's aggregates."""
        return bool(re.fullmatch(re.escape(self.pool) + r"(-\d\d)?", name))

    def desired(self, handover: Handover) -> dict[str, str]:
        """The metadata of an allocation's aggregate. Raises: InvalidInput."""
        project, id = handover.project_id, handover.allocation_id
        if not project.strip() or "," in project or len(project) > 255:
            raise InvalidInput("project_id", project, "name one project, up to 255 characters")
        if project == self.sentinel:
            raise InvalidInput("project_id", project, "this id stands for no project")
        if self.is_part(aggregate_name(id)):
            raise InvalidInput("allocation_id", id, "its aggregate would be the pool")
        shared = {SLOTS: class_of(id)} if handover.shared else {}
        return {OWNER: project, ALLOCATION: id, **shared}

# SPDX-License-Identifier: Apache-2.0

"""The store in a relational database: every decision is one transaction."""

from __future__ import annotations

import re

from oslo_db.exception import DBDuplicateEntry

from laas_service.adapters.db import models, schema
from laas_service.adapters.db.desired_state import DesiredState
from laas_service.adapters.db.observations import Observations
from laas_service.adapters.db.placement_changes import PlacementChanges
from laas_service.adapters.db.reimport import Reimports
from laas_service.adapters.db.transitions import Transitions
from laas_service.adapters.documents import inventory_document, topology_document
from laas_service.app.records import FabricRecord
from laas_service.domain.errors import Conflict, InvalidInput, Unavailable
from laas_service.domain.inventory import Inventory
from laas_service.domain.topology import Topology

FABRIC_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
"""A fabric's id is also the name of a directory."""


class SqlStore(PlacementChanges, Transitions, Reimports, Observations, DesiredState):
    """The store ports of ``app.ports``, on SQLite, PostgreSQL or MariaDB; safe to share between
    threads."""

    def check(self) -> None:
        with self._reading() as session:
            revision, head = schema.current(session.connection()), schema.head()
        if revision != head:
            raise Unavailable(
                f"the database is at revision {revision}, this release needs {head}; "
                "run laas-manage db upgrade"
            )

    def add_fabric(self, id: str, topology: Topology, inventory: Inventory) -> FabricRecord:
        if not FABRIC_ID.fullmatch(id):
            fix = "give an id of 1 to 64 of A-Z a-z 0-9 . _ -, not . or - in front"
            raise InvalidInput("fabric", id, fix)
        try:
            with self._writing("add fabric") as session:
                session.add(
                    models.Fabric(
                        id=id,
                        generation=1,
                        routes_generation=1,
                        topology=topology_document(topology),
                        inventory=inventory_document(inventory),
                        created_at=self._now(),
                    )
                )
        except DBDuplicateEntry as error:
            fix = "take another id, or laas-manage fabric reimport, which takes in what changed"
            raise Conflict(f"there is a fabric {id!r} already; {fix}") from error
        return self.fabric(id)

# SPDX-License-Identifier: Apache-2.0

"""JSON-able documents of topologies, inventories, allocations and states, both ways.

They travel on the bus and are stored in the database, so they are exact (reading gives what was
written), stable (equal values give equal documents) and carry a version. GUIDs are
``0x%016x``, masks are hexadecimal, and links have their REST names.
"""

from laas_service.adapters.documents.allocations import allocation_document as allocation_document
from laas_service.adapters.documents.allocations import allocation_from as allocation_from
from laas_service.adapters.documents.allocations import constraints_document as constraints_document
from laas_service.adapters.documents.allocations import constraints_from as constraints_from
from laas_service.adapters.documents.fields import Natural as Natural
from laas_service.adapters.documents.fields import Triple as Triple
from laas_service.adapters.documents.fields import validated as validated
from laas_service.adapters.documents.inventory import inventory_document as inventory_document
from laas_service.adapters.documents.inventory import inventory_from as inventory_from
from laas_service.adapters.documents.snapshots import SnapshotTopology as SnapshotTopology
from laas_service.adapters.documents.snapshots import snapshot as snapshot
from laas_service.adapters.documents.snapshots import snapshot_topology as snapshot_topology
from laas_service.adapters.documents.snapshots import (
    topology_from_snapshot as topology_from_snapshot,
)
from laas_service.adapters.documents.states import HostDocument as HostDocument
from laas_service.adapters.documents.states import features_from as features_from
from laas_service.adapters.documents.states import plane_document as plane_document
from laas_service.adapters.documents.states import plane_from as plane_from
from laas_service.adapters.documents.topology import topology_document as topology_document
from laas_service.adapters.documents.topology import topology_from as topology_from

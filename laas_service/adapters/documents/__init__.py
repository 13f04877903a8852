# SPDX-License-Identifier: Apache-2.0

"""JSON-able documents of topologies, inventories, allocations and states, both ways.

They travel on the bus and are stored in the database, so they are exact (reading gives what was
written), stable (equal values give equal documents) and carry a version. GUIDs are
``0x%016x``, masks are hexadecimal, and links have their REST names.
"""

from laas_service.adapters.documents.allocations import (
    allocation_document,
    allocation_from,
    constraints_document,
    constraints_from,
)
from laas_service.adapters.documents.fields import (
    Natural,
    Triple,
    validated,
)
from laas_service.adapters.documents.inventory import (
    inventory_document,
    inventory_from,
)
from laas_service.adapters.documents.snapshots import (
    SnapshotTopology,
    snapshot,
    snapshot_topology,
    topology_from_snapshot,
)
from laas_service.adapters.documents.states import (
    HostDocument,
    faults_document,
    faults_from,
    features_from,
    plane_document,
    plane_from,
)
from laas_service.adapters.documents.topology import (
    topology_document,
    topology_from,
)

# SPDX-License-Identifier: Apache-2.0

"""The files of a set that concern routing chains, and the judge's verdict on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from laas_service.domain.allocation import Allocation
from laas_service.domain.routing.fabric_tables import ForwardingTables
from laas_service.domain.verification.chains import ChainVerdict, OddLinks, chain_verdict
from laas_service.messages import FabricState
from opensm_writer import desired, render
from opensm_writer.desired import SubnetConfiguration

DIRECTORY = "/var/lib/laas/opensm/site/current"


def chain_texts(state: FabricState, **settings: Any) -> dict[str, str]:
    """The text of each file of a state's set except its tables, partitions and cables."""
    chosen = render.Settings(DIRECTORY, enforcement="chains", **settings)
    chains = desired.chains(state)
    # neither the index nor the chains need the tables, whose making takes most of the time
    tables = ForwardingTables(tuple(state.inventory.lids), {})
    bare = SubnetConfiguration(state, tables, (), chains, None)
    files = {
        "opensm.conf": render.fragment(chosen, chains=True),
        "guid_index.json": render.guid_index(bare),
        **render.chain_files(chains, chosen),
    }
    return {name: "".join(pieces) for name, pieces in files.items()}


def judged(
    state: FabricState,
    files: Mapping[str, str],
    record: Sequence[Allocation] | None = None,
    placements: Mapping[str, Sequence[Allocation]] | None = None,
    **options: Any,
) -> ChainVerdict:
    """The verdict on files, with ``record`` as the recorded allocations (None: as routed)."""
    return chain_verdict(
        state.topology,
        state.inventory,
        [tenant.held for tenant in state.tenants] if record is None else record,
        files,
        OddLinks(state.shared_plane, frozenset(state.moved_links), frozenset(state.failed_links)),
        placements or {},
        **options,
    )

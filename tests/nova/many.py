# SPDX-License-Identifier: Apache-2.0

"""Hosts, nodes and aggregates written straight into the databases of Nova and placement.

Thousands of hosts take seconds this way. The hosts are copies of a running one, without a
nova-compute of their own, so nothing can be started on them. Ironic nodes belong to a nova-compute,
which takes them for those that it made itself.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from nova import context, objects
from nova.db.api import api, models
from nova.db.main import api as cell_api
from nova.db.main import models as cell_models
from placement import db_api as placement_api
from placement.db.sqlalchemy import models as placement_models

Group = tuple[str, Collection[str], Mapping[str, str]]
"""An aggregate: its name, hosts and metadata."""


def write_aggregates(groups: Iterable[Group]) -> None:
    """Make these the only aggregates in Nova's database; placement is not told."""
    admin = context.get_admin_context()
    tables = (models.AggregateMetadata, models.AggregateHost, models.Aggregate)
    with api.context_manager.writer.using(admin):
        for table in tables:
            admin.session.query(table).delete()
        rows = admin.session
        for number, (name, hosts, metadata) in enumerate(groups, 1):
            rows.add(models.Aggregate(id=number, uuid=str(uuid.uuid4()), name=name))
            rows.flush()
            rows.add_all(models.AggregateHost(host=h, aggregate_id=number) for h in hosts)
            rows.add_all(
                models.AggregateMetadata(key=key, value=value, aggregate_id=number)
                for key, value in metadata.items()
            )


def node_of(name: str) -> str:
    """The uuid of a written host's node, and of its resource provider."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


def write_hosts(names: Sequence[str], like: str) -> None:
    """Add compute hosts that are empty and up, each like the host ``like``."""
    admin = context.get_admin_context()
    mapping = objects.HostMapping.get_by_host(admin, like)
    nodes = [node_of(name) for name in names]
    with api.context_manager.writer.using(admin):
        table = models.HostMapping.__table__
        _copy(admin.session.connection(), table, table.c.host == like, [{"host": h} for h in names])
    with (
        context.target_cell(admin, mapping.cell_mapping) as cell,
        cell_api.get_context_manager(cell).writer.using(cell),
    ):
        rows = cell.session.connection()
        table = cell_models.Service.__table__
        where = sa.and_(table.c.host == like, table.c.binary == "nova-compute")
        _copy(rows, table, where, [{"host": h, "uuid": str(uuid.uuid4())} for h in names])
        table = cell_models.ComputeNode.__table__
        named = [
            {"host": h, "hypervisor_hostname": h, "uuid": node}
            for h, node in zip(names, nodes, strict=True)
        ]
        _copy(rows, table, table.c.host == like, named)
    with placement_api.placement_context_manager.writer.get_engine().begin() as rows:
        _write_providers(rows, names, nodes, like)


def write_nodes(nodes: Sequence[str], like: str) -> None:
    """Add Ironic nodes by UUID to the nova-compute that has the node ``like``, as copies of it."""
    admin = context.get_admin_context()
    for mapping in objects.CellMappingList.get_all(admin):
        with (
            context.target_cell(admin, mapping) as cell,
            cell_api.get_context_manager(cell).writer.using(cell),
        ):
            table = cell_models.ComputeNode.__table__
            named = [{"hypervisor_hostname": node, "uuid": node} for node in nodes]
            _copy(cell.session.connection(), table, table.c.uuid == like, named)
    with placement_api.placement_context_manager.writer.get_engine().begin() as rows:
        _write_providers(rows, nodes, nodes, like)


def _write_providers(rows: Any, names: Sequence[str], nodes: Sequence[str], like: str) -> None:
    table = placement_models.ResourceProvider.__table__
    template = rows.execute(sa.select(table.c.id).where(table.c.name == like)).scalar_one()
    first = rows.execute(sa.select(sa.func.max(table.c.id))).scalar_one() + 1
    ids = range(first, first + len(names))
    named = zip(ids, nodes, names, strict=True)
    new = [
        {"id": id, "root_provider_id": id, "uuid": node, "name": name, "generation": 1}
        for id, node, name in named
    ]
    rows.execute(table.insert(), new)
    for model in (placement_models.Inventory, placement_models.ResourceProviderTrait):
        of = model.__table__.c.resource_provider_id
        _copy(rows, model.__table__, of == template, [{"resource_provider_id": id} for id in ids])


def _copy(rows: Any, table: Any, where: Any, changes: Sequence[Mapping[str, object]]) -> None:
    """Insert the rows that match again, once for each of ``changes``."""
    found: list[dict[str, Any]] = [
        dict(row) for row in rows.execute(sa.select(table).where(where)).mappings()
    ]
    for row in found:
        row.pop("id", None)
    if found:
        rows.execute(table.insert(), [{**row, **change} for change in changes for row in found])


def mirror_aggregates(aggregates: Iterable[Any]) -> None:
    """Tell placement which providers are in these aggregates of Nova, as Nova's API does."""
    of = placement_models.ResourceProvider.__table__.c
    with placement_api.placement_context_manager.writer.get_engine().begin() as rows:
        ids = {name: id for id, name in rows.execute(sa.select(of.id, of.name))}
        for aggregate in aggregates:
            table = placement_models.PlacementAggregate.__table__
            made = rows.execute(table.insert(), {"uuid": aggregate.uuid}).inserted_primary_key[0]
            members = [
                {"aggregate_id": made, "resource_provider_id": ids[host]}
                for host in aggregate.hosts
            ]
            rows.execute(placement_models.ResourceProviderAggregate.__table__.insert(), members)

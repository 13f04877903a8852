# SPDX-License-Identifier: Apache-2.0

"""Scheduler filter for Nova: restricts hosts to the project of their allocation.

``[filter_scheduler] available_filters = nova_filters.laas.LaasTenantFilter``

For each request the filter reads from Nova's database the metadata of the aggregates and the
memberships of the candidates, so a message lost between nova-api and nova-scheduler cannot open
a host. Nova skips all filters if an administrator forces a host.

Where the filter is enabled, two functions are among Nova's request filters. With ``hide_pool``
placement returns no host of the service for a project without an allocation. With ``claim_slot``
a server of an allocation of class ``shared`` asks placement for one of its slots, so that the slot
is claimed together with the server's memory.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import sqlalchemy as sa
from nova import conf, exception, objects, version
from nova.scheduler import filters, request_filter, utils
from nova.scheduler.client import report

try:
    from nova.db.api import api as database
    from nova.db.api import models
except ImportError as error:
    raise ImportError(
        f"nova_filters.laas does not fit Nova {version.version_string()}: {error}; install the "
        "release of this package that supports this Nova"
    ) from error

LOG = logging.getLogger(__name__)

OWNER = "filter_tenant_id"
"""Prefix of the keys that list the projects of an aggregate. On hosts of the service only the
key without a suffix counts."""

ALLOCATION = "laas:allocation"
"""Key with the allocation of an aggregate; also the scheduler hint that selects one."""

POOL = "laas:pool"
"""Key of the aggregates of all hosts of the service; others cannot open these hosts."""

SLOTS = "laas:slots"
"""Key of the aggregate of an allocation of class ``shared``: the resource class of its slots. Its
hosts may be in the aggregates of other such allocations as well."""

RESOURCE = "resources:"
"""Prefix of the extra specs of a flavor that ask placement for a resource."""

WITH_FREE = "1.4"
"""First version of placement that lists the providers with a free unit of a resource."""

NODE = "laas:node:"
"""Prefix of the keys that name the Ironic nodes of an aggregate; the UUID of the provider follows.
Nova's aggregates hold compute hosts alone, and one compute host has many nodes."""

IRONIC = "ironic"
"""The type of hypervisor of Ironic's nodes in Nova."""

DRAINED = "laas:drained"
"""Key that, with the value ``true``, closes the hosts of an aggregate to all projects."""

BATCH = 500
"""Hosts in one query; SQLite accepts at least 999 values."""


PARTS_OF_NOVA = (
    (request_filter, "ALL_REQUEST_FILTERS.append"),
    (request_filter, "process_reqspec"),
    (exception, "RequestFilterFailed"),
    (report, "report_client_singleton"),
    (report, "SchedulerReportClient.get"),
    (utils, "request_is_rebuild"),
    (objects, "RequestSpec.get_scheduler_hint"),
    (objects, "Destination.append_forbidden_aggregates"),
    (database, "context_manager.reader"),
    (models, "Aggregate.__table__.c.id"),
    (models, "Aggregate.__table__.c.uuid"),
    (models, "AggregateHost.__table__.c.host"),
    (models, "AggregateHost.__table__.c.aggregate_id"),
    (models, "AggregateMetadata.__table__.c.aggregate_id"),
    (models, "AggregateMetadata.__table__.c.key"),
    (models, "AggregateMetadata.__table__.c.value"),
)
"""What this module uses and Nova does not promise to keep, by module."""


def _check_nova() -> None:
    """Refuse a Nova that lacks a part that is used. Raises: ImportError."""
    objects.register_all()
    lacking = [
        f"{module.__name__}.{path}" for module, path in PARTS_OF_NOVA if not _has(module, path)
    ]
    if lacking:
        raise ImportError(
            f"nova_filters.laas does not fit Nova {version.version_string()}, which lacks "
            f"{', '.join(lacking)}; install the release of this package that supports this Nova"
        )


def _has(module: Any, path: str) -> bool:
    part = module
    for name in path.split("."):
        part = getattr(part, name, None)
        if part is None:
            return False
    return True


_check_nova()


class LaasTenantFilter(filters.BaseHostFilter):
    """Passes the hosts that the request's project may use.

    A host of the service is in the pool or in an allocation. It accepts only the project of
    its allocation, whatever other aggregates and longer keys say; without an allocation it
    accepts no project. On other hosts, aggregates with ``filter_tenant_id`` count as Nova
    reads them. A project that has hosts of either kind gets no others; with the hint
    ``laas:allocation`` it gets only those of that allocation. Hosts that are drained accept no
    project, and so do hosts in the aggregates of two allocations, unless all these are of class
    ``shared``. Hosts of that class accept only servers that have asked placement for a slot
    (``claim_slot``). If the aggregates cannot be read or
    understood, no host passes. A rebuild passes, as its server is on the host already.

    An Ironic node is judged by the UUID of its provider, which the keys ``NODE`` of an aggregate
    name. The aggregates of its compute host can close it and never open it: where that host is in
    the pool, a node that no aggregate names accepts no project.
    """

    run_filter_once_per_request = True
    RUN_ON_REBUILD = True
    """Nova calls the filter for rebuilds too; the filter decides whether a request is one."""

    def __init__(self) -> None:
        super().__init__()
        for ours in (hide_pool, claim_slot):
            if ours not in request_filter.ALL_REQUEST_FILTERS:
                request_filter.ALL_REQUEST_FILTERS.append(ours)
        self._told = False

    def filter_all(self, filter_obj_list: Iterable[Any], spec_obj: Any) -> Iterator[Any]:
        """Yield the hosts that pass."""
        if _is_rebuild(spec_obj):
            yield from filter_obj_list
            return
        self._check_called(spec_obj)
        candidates = list(filter_obj_list)
        try:
            hint = spec_obj.get_scheduler_hint(ALLOCATION)
            hosts = {host_state.host for host_state in candidates}
            nodes = {str(host_state.uuid) for host_state in candidates}
            metadata, memberships, named = _read(spec_obj._context, hosts, nodes)
            judge = _Judge(metadata, spec_obj.project_id, hint, _resources(spec_obj))
            passing = []
            for host_state in candidates:
                of_host = memberships.get(host_state.host, frozenset())
                own = named.get(str(host_state.uuid), frozenset())
                if own or host_state.hypervisor_type == IRONIC:
                    passes = judge.passes_node(own, of_host)
                else:
                    passes = judge.passes(of_host)
                if passes:
                    passing.append(host_state)
        except Exception:
            LOG.exception("no host passes: the aggregates cannot be read or understood")
            return
        yield from passing

    def _check_called(self, spec_obj: Any) -> None:
        """Log once if Nova calls no request filters although it has a list of them."""
        if _CALLED or self._told or utils.request_is_rebuild(spec_obj):
            return
        self._told = True
        LOG.error(
            "Nova %s does not call request filters from ALL_REQUEST_FILTERS: where most hosts "
            "belong to LaaS, other projects may find no host; install the release of "
            "nova_filters that supports this Nova",
            version.version_string(),
        )


_CALLED: set[str] = set()
"""Holds ``hide_pool`` once Nova has called it in this process."""


def hide_pool(context: Any, spec_obj: Any) -> bool:
    """Ask placement for no host of the pool, unless the project has an allocation.

    This saves ordinary projects from candidates that they may not use: placement returns
    ``max_placement_results`` of them at most. It isolates nobody; a failure is logged and the
    request goes on. A project with an allocation is confined to its own hosts by Nova's
    pre-filter (``limit_tenants_to_placement_aggregate``).
    """
    _CALLED.add(hide_pool.__name__)
    if LaasTenantFilter.__name__ not in conf.CONF.filter_scheduler.enabled_filters:
        return False
    try:
        pool = _pool_to_hide(context, spec_obj.project_id)
    except Exception:
        LOG.exception("the pool is not hidden from a request: the aggregates cannot be read")
        return False
    if not pool:
        return False
    if "requested_destination" not in spec_obj or spec_obj.requested_destination is None:
        spec_obj.requested_destination = objects.Destination()
    spec_obj.requested_destination.append_forbidden_aggregates(pool)
    return True


def claim_slot(context: Any, spec_obj: Any) -> bool:
    """Ask placement for a slot, if the server is for an allocation of class ``shared``.

    That is the allocation that the hint ``laas:allocation`` names; without it the project's only
    one. A project with hosts of its own gets those without the hint. Placement alone counts. If the
    aggregates cannot be read, nothing is asked for, and the filter passes no shared host.

    Raises:
        RequestFilterFailed: no slot is free, or it is not clear of which allocation one is wanted;
            the text is shown to the server's owner.
    """
    if LaasTenantFilter.__name__ not in conf.CONF.filter_scheduler.enabled_filters:
        return False
    try:
        hint = spec_obj.get_scheduler_hint(ALLOCATION)
        shared = _slot_classes(context, spec_obj.project_id, hint)
        if not shared:
            return False
        if len(shared) == 1:
            ((allocation, name),) = shared.items()
            taken = _are_taken(name)
    except Exception:
        LOG.exception("no slot is asked for: the aggregates cannot be read or understood")
        return False
    if len(shared) > 1:
        raise exception.RequestFilterFailed(
            reason=f"The project has slots in {len(shared)} allocations "
            f"({', '.join(sorted(shared))}); name one in the scheduler hint {ALLOCATION}."
        )
    if taken:
        raise exception.RequestFilterFailed(
            reason=f"All slots of allocation {allocation} are taken. Delete a server, or ask for "
            f"more slots: laas allocation change-slots {allocation} --slots N."
        )
    flavor = spec_obj.flavor
    extra_specs = flavor.extra_specs if "extra_specs" in flavor else None
    flavor.extra_specs = {**(extra_specs or {}), f"{RESOURCE}{name}": "1"}
    return True


def _are_taken(name: str) -> bool:
    """Whether placement shows no free slot of a class; False if it cannot tell."""
    answer = report.report_client_singleton().get(
        f"/resource_providers?resources={name}:1", version=WITH_FREE
    )
    return answer.status_code == 200 and not answer.json()["resource_providers"]


def _resources(spec_obj: Any) -> set[str]:
    """The classes of which a request asks for one unit."""
    flavor = spec_obj.flavor if "flavor" in spec_obj else None
    if flavor is None or "extra_specs" not in flavor:
        return set()
    return {
        key.removeprefix(RESOURCE)
        for key, value in (flavor.extra_specs or {}).items()
        if key.startswith(RESOURCE) and value == "1"
    }


def _is_rebuild(spec_obj: Any) -> bool:
    """Whether Nova rebuilds a server on its present host.

    The hint alone proves nothing: before the fix of CVE-2026-46448 any user could give it
    when creating a server. Nova's rebuild also forces the present host, and only an
    administrator can force a host when creating a server.
    """
    forced = "force_hosts" in spec_obj and spec_obj.force_hosts
    return bool(forced) and bool(utils.request_is_rebuild(spec_obj))


class _Judge:
    """Decides which hosts a project may use, from the metadata of all aggregates by their id."""

    def __init__(
        self,
        metadata: Mapping[int, Mapping[str, str]],
        project: str,
        allocation: str | None,
        resources: Collection[str] = (),
    ) -> None:
        """``resources`` are the classes of which the request asks placement for one unit."""
        self._allocated = {id for id, keys in metadata.items() if ALLOCATION in keys}
        self._shared = {id for id in self._allocated if SLOTS in metadata[id]}
        self._pools = {id for id, keys in metadata.items() if POOL in keys}
        self._drained = {id for id, keys in metadata.items() if _is_drained(keys)}
        self._listing = {id for id, keys in metadata.items() if _lists_projects(keys)}
        self._listing -= self._allocated
        own = {id for id in self._allocated if metadata[id].get(OWNER) == project}
        invited = {id for id in self._listing if project in _projects(metadata[id])}
        self._confined = bool(own or invited) or allocation is not None
        self._own = {
            id
            for id in own
            if allocation in (None, metadata[id][ALLOCATION])
            if id not in self._shared or metadata[id][SLOTS] in resources
        }
        self._invited = invited if allocation is None else set()

    def passes(self, aggregates: Collection[int]) -> bool:
        """Whether a host in these aggregates passes."""
        claims = self._allocated.intersection(aggregates)
        if len(claims) > 1 and not claims <= self._shared:
            return False
        if not self._drained.isdisjoint(aggregates):
            return False
        is_ours = bool(claims) or not self._pools.isdisjoint(aggregates)
        if not self._confined:
            return not is_ours and self._listing.isdisjoint(aggregates)
        if is_ours:
            return not self._own.isdisjoint(claims)
        return not self._invited.isdisjoint(aggregates)

    def passes_node(self, own: Collection[int], of_host: Collection[int]) -> bool:
        """Whether an Ironic node passes that the aggregates ``own`` name; its host is in others."""
        if self._allocated.isdisjoint(own) and not self._allocated.isdisjoint(of_host):
            return False
        return self.passes(
            self._allocated.intersection(own).union({*own, *of_host} - self._allocated)
        )


def _lists_projects(metadata: Mapping[str, str]) -> bool:
    return any(key.startswith(OWNER) for key in metadata)


def _projects(metadata: Mapping[str, str]) -> set[str]:
    lists = [value for key, value in metadata.items() if key.startswith(OWNER)]
    return {project.strip() for text in lists for project in text.split(",")}


def _is_drained(metadata: Mapping[str, str]) -> bool:
    return metadata.get(DRAINED, "").strip().lower() == "true"


# -- Nova's database: Nova's own objects would read every host of every aggregate -------------

# The queries take their values when they are executed: a query that is made with 500 values costs
# as much as its rows.


def _where_in(selected: Any, column: Any, values: str) -> Any:
    return selected.where(column.in_(sa.bindparam(values, expanding=True)))


_members, _keys = models.AggregateHost.__table__.c, models.AggregateMetadata.__table__.c
_aggregates = models.Aggregate.__table__.c
MEMBERSHIPS = _where_in(sa.select(_members.host, _members.aggregate_id), _members.host, "hosts")
METADATA = sa.select(_keys.aggregate_id, _keys.key, _keys.value).where(
    _keys.key.not_like(f"{NODE}%")
)
NODES = _where_in(sa.select(_keys.key, _keys.aggregate_id), _keys.key, "keys")
UUIDS = _where_in(sa.select(_aggregates.uuid), _aggregates.id, "ids")


@database.context_manager.reader
def _read(
    context: Any, hosts: Collection[str], nodes: Collection[str]
) -> tuple[dict[int, dict[str, str]], dict[str, set[int]], dict[str, set[int]]]:
    """The metadata of aggregates by their id, and the ids of those of these hosts and nodes."""
    memberships: dict[str, set[int]] = defaultdict(set)
    named: dict[str, set[int]] = defaultdict(set)
    rows = context.session.connection()
    for batch in _batches(hosts):
        for host, id in _rows(rows, MEMBERSHIPS, hosts=batch):
            memberships[host].add(id)
    for batch in _batches([f"{NODE}{node}" for node in nodes]):
        for key, id in _rows(rows, NODES, keys=batch):
            named[key.removeprefix(NODE)].add(id)
    return _metadata(context), memberships, named


def _batches(values: Collection[str]) -> Iterator[list[str]]:
    names = sorted(values)
    for start in range(0, len(names), BATCH):
        yield names[start : start + BATCH]


def _metadata(context: Any) -> dict[int, dict[str, str]]:
    metadata: dict[int, dict[str, str]] = defaultdict(dict)
    for id, key, value in _rows(context.session.connection(), METADATA):
        metadata[id][key] = value
    return metadata


def _rows(connection: Any, query: Any, **values: Any) -> Any:
    """All rows at once: one by one they take twice the processor time."""
    return connection.execute(query, values).fetchall()


@database.context_manager.reader
def _slot_classes(context: Any, project: str, hint: str | None) -> dict[str, str]:
    """By allocation of class ``shared`` that a server may be for, the class of its slots.

    Empty if the server is for hosts of the project's own.
    """
    own = [
        keys
        for keys in _metadata(context).values()
        if ALLOCATION in keys and keys.get(OWNER) == project
        if hint in (None, keys[ALLOCATION])
    ]
    if not all(SLOTS in keys for keys in own):
        return {}
    return {keys[ALLOCATION]: keys[SLOTS] for keys in own}


@database.context_manager.reader
def _pool_to_hide(context: Any, project: str) -> list[str]:
    """The uuids of the pool's aggregates; none for a project with an allocation."""
    metadata = _metadata(context)
    if any(ALLOCATION in keys and keys.get(OWNER) == project for keys in metadata.values()):
        return []
    pool = [id for id, keys in metadata.items() if POOL in keys]
    return sorted(uuid for (uuid,) in _rows(context.session.connection(), UUIDS, ids=pool))

# SPDX-License-Identifier: Apache-2.0

"""Scheduler filter for Nova: restricts hosts to the project of their allocation.

``[filter_scheduler] available_filters = nova_filters.laas.LaasTenantFilter``

The filter reads the aggregates from Nova's database once for each request, so a message lost
between nova-api and nova-scheduler cannot open a host. Nova skips all filters if an
administrator forces a host.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from nova import objects
from nova.scheduler import filters, utils

LOG = logging.getLogger(__name__)

OWNER = "filter_tenant_id"
"""Prefix of the keys that list the projects of an aggregate. On hosts of the service only the
key without a suffix counts."""

ALLOCATION = "laas:allocation"
"""Key with the allocation of an aggregate; also the scheduler hint that selects one."""

POOL = "laas:pool"
"""Key of the aggregate of all hosts of the service; other aggregates cannot open these hosts."""

DRAINED = "laas:drained"
"""Key that, with the value ``true``, closes the hosts of an aggregate to all projects."""


class LaasTenantFilter(filters.BaseHostFilter):
    """Passes the hosts that the request's project may use.

    A host of the service is in the pool or in an allocation. It accepts only the project of
    its allocation, whatever other aggregates and longer keys say; without an allocation it
    accepts no project. On other hosts, aggregates with ``filter_tenant_id`` count as Nova
    reads them. A project that has hosts of either kind gets no others; with the hint
    ``laas:allocation`` it gets only those of that allocation. Hosts that are drained, or in
    the aggregates of two allocations, accept no project. If the aggregates cannot be read or
    understood, no host passes. A rebuild passes, as its server is on the host already.
    """

    run_filter_once_per_request = True
    RUN_ON_REBUILD = True
    """Nova calls the filter for rebuilds too; the filter decides whether a request is one."""

    def filter_all(self, filter_obj_list: Iterable[Any], spec_obj: Any) -> Iterator[Any]:
        """Yield the hosts that pass."""
        if _is_rebuild(spec_obj):
            yield from filter_obj_list
            return
        try:
            aggregates = objects.AggregateList.get_all(spec_obj._context)
            hint = spec_obj.get_scheduler_hint(ALLOCATION)
            judge = _Judge(aggregates, spec_obj.project_id, hint)
        except Exception:
            LOG.exception("no host passes: the aggregates cannot be read or understood")
            return
        for host_state in filter_obj_list:
            if judge.passes(host_state.host):
                yield host_state
            else:
                LOG.debug("%s is not for project %s", host_state, spec_obj.project_id)


def _is_rebuild(spec_obj: Any) -> bool:
    """Whether Nova rebuilds a server on its present host.

    The hint alone proves nothing: before the fix of CVE-2026-46448 any user could give it
    when creating a server. Nova's rebuild also forces the present host, and only an
    administrator can force a host when creating a server.
    """
    forced = "force_hosts" in spec_obj and spec_obj.force_hosts
    return bool(forced) and bool(utils.request_is_rebuild(spec_obj))


class _Judge:
    """Decides which hosts a project may use, from all aggregates of the cloud."""

    def __init__(self, aggregates: Iterable[Any], project: str, allocation: str | None) -> None:
        every = list(aggregates)
        allocated = [a for a in every if ALLOCATION in a.metadata]
        ours = {*_hosts(allocated), *_hosts(a for a in every if POOL in a.metadata)}
        others = [a for a in every if ALLOCATION not in a.metadata and _lists_projects(a)]
        own = [a for a in allocated if a.metadata.get(OWNER) == project]
        invited = [a for a in others if project in _projects(a)]
        self._confined = bool(own or invited) or allocation is not None
        self._own = set(_hosts(a for a in own if allocation in (None, a.metadata[ALLOCATION])))
        if allocation is None:
            self._own.update(set(_hosts(invited)) - ours)
        self._kept = {*ours, *_hosts(others)}
        claims = Counter(_hosts(allocated))
        self._closed = {host for host, count in claims.items() if count > 1}
        self._closed.update(_hosts(a for a in every if _is_drained(a)))

    def passes(self, host: str) -> bool:
        if host in self._closed:
            return False
        return host in self._own if self._confined else host not in self._kept


def _lists_projects(aggregate: Any) -> bool:
    return any(key.startswith(OWNER) for key in aggregate.metadata)


def _projects(aggregate: Any) -> set[str]:
    lists = [value for key, value in aggregate.metadata.items() if key.startswith(OWNER)]
    return {project.strip() for text in lists for project in text.split(",")}


def _is_drained(aggregate: Any) -> bool:
    return bool(aggregate.metadata.get(DRAINED, "").strip().lower() == "true")


def _hosts(aggregates: Iterable[Any]) -> Iterator[str]:
    return (host for aggregate in aggregates for host in aggregate.hosts)

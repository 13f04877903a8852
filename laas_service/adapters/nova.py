# SPDX-License-Identifier: Apache-2.0

"""Compute on Nova: one host aggregate for each allocation, and a pool of hosts for nobody.

What is done here, and in which order, follows from how Nova's schedulers learn of
aggregates (doc/source/install/nova.rst). Every verb starts from what Nova shows now and
ends with a check, so it may be repeated at any time, also after a lost answer.
Nothing depends on the outcome of a single call: a refused call is followed by
another look.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from keystoneauth1 import exceptions as keystone_errors
from keystoneauth1 import loading
from keystoneauth1.adapter import Adapter
from novaclient import client as nova_client
from novaclient import exceptions as nova_errors
from oslo_config import cfg
from tenacity import wait_exponential

from laas_service.app.ports.compute import Handover, Observed, Occupant
from laas_service.app.retries import retrying
from laas_service.domain.errors import (
    Conflict,
    Forbidden,
    HostsBusy,
    InvalidInput,
    LaasError,
    LimitExceeded,
    NotFound,
    Unavailable,
)

LOG = logging.getLogger(__name__)

NOVA_VERSION = "2.87"
"""From 2.88 on the list of hypervisors asks every compute host for its uptime."""

PLACEMENT_VERSION = "1.28"
"""Shows whose a consumer is, and the aggregates of a provider with its generation."""

OWNER = "filter_tenant_id"
"""The one key that every mechanism of every Nova release reads (longer keys widen it)."""

ALLOCATION = "laas:allocation"
"""The allocation that an aggregate stands for; ``nova_filters.laas`` reads it."""

POOL = "laas:pool"
"""Marks the pool: ``nova_filters.laas`` lets no other aggregate open its hosts."""

READ_PAUSE = 0.1
"""Seconds before a call that reads is tried again; doubled once."""

_SHOWN = 5
"""Hosts or servers named in a message before the rest is counted."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Aggregate:
    id: int
    uuid: str
    name: str
    hosts: frozenset[str]
    metadata: Mapping[str, str]

    def isolates_as(self, wanted: Mapping[str, str]) -> bool:
        """The wanted keys are there, and no other key lets projects in."""
        return not self.corrections(wanted)

    @property
    def lets_in(self) -> str:
        """The projects that it lets in, as its keys have them: one, unless somebody added some."""
        keys = sorted(key for key in self.metadata if key.startswith(OWNER))
        return ",".join(self.metadata[key] for key in keys)

    def corrections(self, wanted: Mapping[str, str]) -> dict[str, str | None]:
        """What to set (None: delete) so that it isolates as wanted."""
        stray = {key: None for key in self.metadata if key.startswith(OWNER) and key not in wanted}
        return stray | {k: v for k, v in wanted.items() if self.metadata.get(k) != v}


class Cloud:
    """The calls to Nova and placement that are needed, with their errors translated.

    Calls that read are tried three times. Calls that write are made once and return
    None, or the text of Nova's refusal (400, 404, 409): the caller looks what is so. ``beat`` is
    called before each, and what it raises ends what is being done.

    Errors of all methods:
        Unavailable: time-out, broken connection, 5xx, or an answer that makes no
            sense; a write may have been carried out.
        Forbidden: the service's user lacks the right that the message names.
        LimitExceeded: Nova's limits.
    """

    def __init__(
        self, nova: Any, placement: Adapter, beat: Callable[[], None] = lambda: None
    ) -> None:
        self._nova = nova
        self._placement = placement
        self._beat = beat

    def _read(self, what: str, rule: str, call: Callable[[], T]) -> T:
        self._beat()
        return _read(what, rule, call)

    def _write(self, what: str, rule: str, call: Callable[[], object]) -> str | None:
        self._beat()
        return _write(what, rule, call)

    def aggregates(self) -> dict[str, _Aggregate]:
        """All aggregates of the cloud by name."""

        def read() -> dict[str, _Aggregate]:
            found = [_aggregate(item.to_dict()) for item in self._nova.aggregates.list()]
            return {aggregate.name: aggregate for aggregate in found}

        return self._read("list aggregates", "os_compute_api:os-aggregates:index", read)

    def create(self, name: str) -> str | None:
        """Never in an availability zone: Nova would then refuse busy hosts."""
        return self._write(
            f"create aggregate {name}",
            "os_compute_api:os-aggregates:create",
            lambda: self._nova.aggregates.create(name, None),
        )

    def set_metadata(self, aggregate: _Aggregate, metadata: Mapping[str, str | None]) -> str | None:
        """Merges; None deletes a key."""
        return self._write(
            f"set metadata of aggregate {aggregate.name}",
            "os_compute_api:os-aggregates:set_metadata",
            lambda: self._nova.aggregates.set_metadata(aggregate.id, dict(metadata)),
        )

    def add_host(self, aggregate: _Aggregate, host: str) -> str | None:
        return self._write(
            f"add host {host} to aggregate {aggregate.name}",
            "os_compute_api:os-aggregates:add_host",
            lambda: self._nova.aggregates.add_host(aggregate.id, host),
        )

    def remove_host(self, aggregate: _Aggregate, host: str) -> str | None:
        return self._write(
            f"remove host {host} from aggregate {aggregate.name}",
            "os_compute_api:os-aggregates:remove_host",
            lambda: self._nova.aggregates.remove_host(aggregate.id, host),
        )

    def delete(self, aggregate: _Aggregate) -> str | None:
        return self._write(
            f"delete aggregate {aggregate.name}",
            "os_compute_api:os-aggregates:delete",
            lambda: self._nova.aggregates.delete(aggregate.id),
        )

    def providers(self) -> dict[str, list[str]]:
        """The resource providers of each compute host, by the host's name in Nova."""

        def read() -> dict[str, list[str]]:
            found: dict[str, list[str]] = {}
            marker = None
            while page := self._nova.hypervisors.list(detailed=True, marker=marker):
                for item in (hypervisor.to_dict() for hypervisor in page):
                    found.setdefault(str(item["service"]["host"]), []).append(str(item["id"]))
                marker = page[-1].to_dict()["id"]
            return found

        return self._read("list hypervisors", "os_compute_api:os-hypervisors:list-detail", read)

    def memberships(self, provider: str) -> set[str]:
        """The uuids of the aggregates that placement knows the provider to be in."""
        rule = "placement:resource_providers:aggregates:list"
        path = f"/resource_providers/{provider}/aggregates"
        return self._get(path, rule, lambda found: {str(uuid) for uuid in found["aggregates"]})

    def consumers(self, provider: str) -> dict[str, str]:
        """Project by consumer (server or migration) of all that holds part of a provider."""
        rule = "placement:resource_providers:allocations:list"
        path = f"/resource_providers/{provider}/allocations"
        found = self._get(path, rule, lambda found: list(found["allocations"].keys()))
        owners = {str(consumer): self._owner(str(consumer)) for consumer in found}
        return {consumer: project for consumer, project in owners.items() if project}

    def server_limit(self, project: str) -> int:
        """How many servers the project's quota allows; -1 for any number."""
        return self._read(
            f"read the quota of project {project}",
            "os_compute_api:os-quota-sets:show",
            lambda: int(self._nova.quotas.get(project).instances),
        )

    def _owner(self, consumer: str) -> str | None:
        """None if the consumer is gone meanwhile."""
        return self._get(
            f"/allocations/{consumer}",
            "placement:allocations:list",
            lambda found: str(found["project_id"]) if found["allocations"] else None,
        )

    def _get(self, path: str, rule: str, parse: Callable[[dict[str, Any]], T]) -> T:
        def read() -> T:
            answer = self._placement.get(path, microversion=PLACEMENT_VERSION)
            return parse(answer.json())

        return self._read(f"read {path} of placement", rule, read)


class NovaCompute:
    """The ``Compute`` port on Nova and placement; one writer at a time in this process.

    ``pool`` names the aggregate of all managed hosts, ``sentinel`` is the project
    that is none. Hosts that Nova does not know count as empty, so that a compute
    service that was deleted does not hold up a release; they cannot be pooled or
    handed over (``NotFound``).

    Beyond the errors of the port: ``Conflict`` names aggregates of others that let
    projects in on our hosts, and hosts with several nodes (Ironic), which Nova cannot
    isolate; ``Forbidden`` the right that the service's user lacks; ``InvalidInput``
    a project id that ``filter_tenant_id`` cannot hold.
    """

    def __init__(self, cloud: Cloud, *, pool: str, sentinel: str) -> None:
        self._cloud = cloud
        self._pool_name = pool
        self._closed = {OWNER: sentinel}
        self._pooled = {OWNER: sentinel, POOL: "true"}
        self._writing = threading.Lock()

    # -- the port ---------------------------------------------------------------

    def pool(self, hosts: Collection[str]) -> None:
        """See ``Compute.pool``. Hosts of the pool that nobody holds have to stay empty, too.

        All that can join have joined when an error names those that could not. Servers
        are looked for before joining, and after it for those that were on their way. If
        somebody edited the pool's metadata, they are corrected before any other call.
        """
        with self._writing:
            present = self._cloud.aggregates()
            pool = present.get(self._pool_name)
            if pool and not pool.isolates_as(self._pooled):
                self._set(pool, self._pooled)
            pooled = pool.hosts if pool else frozenset()
            providers = self._cloud.providers()
            known = set(hosts) & providers.keys()
            owned = {h for aggregate in filter(_is_ours, present.values()) for h in aggregate.hosts}
            hindering = self._occupants(known - pooled - owned, providers)
            self._join_pool(known - {o.host for o in hindering}, touch=True)
            busy = {*hindering, *self._occupants(known - owned, providers)}
            foreign = self._foreign(known)
        if busy:
            raise HostsBusy(f"free hosts have to be empty, but {_listed(busy)}")
        if foreign:
            raise Conflict(foreign)
        if unknown := set(hosts) - providers.keys():
            raise NotFound("compute host", _some(unknown))

    def occupants(self, hosts: Collection[str]) -> Sequence[Occupant]:
        """See ``Compute.occupants``; hosts in the order of their names."""
        return self._occupants(hosts, self._cloud.providers())

    def hand_over(self, handover: Handover) -> None:
        """See ``Compute.hand_over``. A second one changes nothing, but heals schedulers.

        An aggregate that is there is corrected before anything is checked, so that an
        error leaves nobody let in who should not be. The hosts join the pool before the
        aggregate, so that they never accept strangers. If a stranger came in between the
        check before and the check after, the aggregate is closed again.
        """
        wanted = self._wanted(handover)
        hosts = set(handover.hosts)
        with self._writing:
            present = self._cloud.aggregates().get(_name(handover.allocation_id))
            in_place = present and present.hosts == hosts and present.isolates_as(wanted)
            if present:
                self._correct(present, hosts, wanted)
            providers = self._cloud.providers()
            if unknown := hosts - providers.keys():
                raise NotFound("compute host", _some(unknown))
            self._check_alone(handover, providers)
            self._join_pool(hosts)
            aggregate = self._ensured(_name(handover.allocation_id), wanted)
            for host in sorted(hosts - aggregate.hosts):
                self._add(aggregate, host)
            self._mirror(aggregate, handover, providers)
            self._set(aggregate, wanted)
            self._check_written(handover, wanted)
            try:
                self._check_alone(handover, providers)
            except Conflict:
                if not in_place:
                    self._close(aggregate)
                raise

    def fence(self, allocation_id: str) -> None:
        """See ``Compute.fence``."""
        with self._writing:
            present = self._cloud.aggregates().get(_name(allocation_id))
            if present is not None:
                self._close(present)

    def take_back(self, handover: Handover) -> None:
        """See ``Compute.take_back``. Closes the hosts first; they fall back to the pool.

        Anybody's servers on the aggregate's hosts hold it up, and the project's own on
        hosts that are in it no more, or not yet.
        """
        with self._writing:
            present = self._cloud.aggregates().get(_name(handover.allocation_id))
            members = present.hosts if present else frozenset()
            if present:
                self._close(present)
            providers = self._cloud.providers()
            self._check_left(handover, members, providers)
            if present:
                self._join_pool(members & providers.keys())
                self._dissolve(present)
                self._check_left(handover, members, providers)

    def handed_over(self) -> Mapping[str, Handover]:
        """See ``Compute.handed_over``; the sentinel is the project of what is fenced."""
        return self._handed_over(self._cloud.aggregates())

    def _handed_over(self, aggregates: Mapping[str, _Aggregate]) -> Mapping[str, Handover]:
        return {
            aggregate.metadata[ALLOCATION]: Handover(
                aggregate.metadata[ALLOCATION], aggregate.lets_in, tuple(sorted(aggregate.hosts))
            )
            for aggregate in aggregates.values()
            if _is_ours(aggregate)
        }

    def observed(self) -> Observed:
        """See ``Compute.observed``: one list of aggregates."""
        aggregates = self._cloud.aggregates()
        pool = aggregates.get(self._pool_name)
        foreign = [
            aggregate
            for name, aggregate in sorted(aggregates.items())
            if name != self._pool_name and not _is_ours(aggregate)
            if any(key.startswith(OWNER) for key in aggregate.metadata)
        ]
        return Observed(
            self._handed_over(aggregates),
            pool.hosts if pool and pool.isolates_as(self._pooled) else frozenset(),
            {host: aggregate.name for aggregate in foreign for host in aggregate.hosts},
        )

    def server_limit(self, project_id: str) -> int | None:
        """See ``Compute.server_limit``."""
        limit = self._cloud.server_limit(project_id)
        return limit if limit >= 0 else None

    # -- what has to be so --------------------------------------------------------

    def _wanted(self, handover: Handover) -> dict[str, str]:
        project, id = handover.project_id, handover.allocation_id
        if not project.strip() or "," in project or len(project) > 255:
            raise InvalidInput("project_id", project, "name one project, up to 255 characters")
        if project == self._closed[OWNER]:
            raise InvalidInput("project_id", project, "this one stands for nobody")
        if _name(id) == self._pool_name:
            raise InvalidInput("allocation_id", id, "its aggregate would be the pool")
        return {OWNER: project, ALLOCATION: id}

    def _check_alone(self, handover: Handover, providers: Mapping[str, list[str]]) -> None:
        """Nobody else is on the hosts, nor let in by another aggregate."""
        found = self._occupants(handover.hosts, providers)
        strangers = [o for o in found if o.project_id != handover.project_id]
        if strangers:
            raise HostsBusy(f"hosts cannot be handed over, {_listed(strangers)}")
        if foreign := self._foreign(handover.hosts, _name(handover.allocation_id)):
            raise Conflict(foreign)

    def _check_left(
        self, handover: Handover, members: Collection[str], providers: Mapping[str, list[str]]
    ) -> None:
        found = self._occupants({*members, *handover.hosts}, providers)
        left = [o for o in found if o.host in members or o.project_id == handover.project_id]
        if left:
            raise HostsBusy(f"hosts cannot be taken back, {_listed(left)}")

    def _check_written(self, handover: Handover, wanted: Mapping[str, str]) -> None:
        name = _name(handover.allocation_id)
        seen = self._cloud.aggregates().get(name)
        if seen is None or seen.hosts != set(handover.hosts) or not seen.isolates_as(wanted):
            raise Unavailable(f"aggregate {name} is not as it was written: somebody changes it")

    def _foreign(self, hosts: Iterable[str], own: str | None = None) -> str | None:
        """Other aggregates that let projects in on these hosts, in a sentence.

        With ``own``, the aggregates of other allocations count as well.
        """
        wanted = set(hosts)
        found = [
            f"aggregate {aggregate.name} has {_some(shared)}"
            for name, aggregate in sorted(self._cloud.aggregates().items())
            if name not in (own, self._pool_name)
            and not (own is None and _is_ours(aggregate))
            and any(key.startswith(OWNER) for key in aggregate.metadata)
            and (shared := aggregate.hosts & wanted)
        ]
        if not found:
            return None
        return (
            f"other aggregates with {OWNER} hold our hosts, remove these from them: "
            + "; ".join(found)
        )

    def _occupants(
        self, hosts: Iterable[str], providers: Mapping[str, list[str]]
    ) -> list[Occupant]:
        found = []
        for host in sorted(set(hosts) & providers.keys()):
            if len(providers[host]) > 1:
                raise Conflict(
                    f"compute host {host} has {len(providers[host])} nodes (Ironic?); "
                    "Nova can only isolate hosts with one"
                )
            for consumer, project in sorted(self._cloud.consumers(providers[host][0]).items()):
                found.append(Occupant(host, consumer, project))
        return found

    # -- how it becomes so --------------------------------------------------------

    def _ensured(self, name: str, wanted: Mapping[str, str]) -> _Aggregate:
        """The aggregate of this name, created if need be, isolating as wanted."""
        present = self._cloud.aggregates().get(name)
        if present is None:
            refusal = self._cloud.create(name)
            present = self._cloud.aggregates().get(name)
            if present is None:
                raise Conflict(f"aggregate {name} cannot be created: {refusal or 'it vanished'}")
        if not present.isolates_as(wanted):
            self._set(present, wanted)
        return present

    def _correct(
        self, aggregate: _Aggregate, hosts: Collection[str], wanted: Mapping[str, str]
    ) -> None:
        """Let in nobody but the wanted project, and on no other hosts than these.

        A closed aggregate stays closed: a stranger may be there. Other hosts leave before
        the metadata let the wanted project in.
        """
        stray = aggregate.hosts - set(hosts)
        closed = aggregate.isolates_as(self._closed)
        if stray and not aggregate.isolates_as(wanted):
            self._close(aggregate)
        elif not closed:
            self._set(aggregate, wanted)
        if stray:
            self._join_pool(stray & self._cloud.providers().keys())
            self._leave(aggregate, stray)
            if not closed:
                self._ensured(aggregate.name, wanted)

    def _set(self, aggregate: _Aggregate, wanted: Mapping[str, str]) -> None:
        """Also where nothing changes: it makes every scheduler take the aggregate anew."""
        refusal = self._cloud.set_metadata(aggregate, {**aggregate.corrections(wanted), **wanted})
        if refusal:
            raise Conflict(f"aggregate {aggregate.name} does not take its metadata: {refusal}")

    def _close(self, aggregate: _Aggregate) -> None:
        self._set(aggregate, self._closed)
        seen = self._cloud.aggregates().get(aggregate.name)
        if seen is not None and not seen.isolates_as(self._closed):
            raise Unavailable(f"aggregate {aggregate.name} is not closed: somebody changes it")

    def _add(self, aggregate: _Aggregate, host: str) -> None:
        refusal = self._cloud.add_host(aggregate, host)
        if refusal and not self._is_member(aggregate, host):
            if host not in self._cloud.providers():
                raise NotFound("compute host", host)
            raise Conflict(f"host {host} cannot join aggregate {aggregate.name}: {refusal}")

    def _leave(self, aggregate: _Aggregate, hosts: Iterable[str]) -> None:
        for host in sorted(hosts):
            self._remove(aggregate, host)

    def _remove(self, aggregate: _Aggregate, host: str) -> None:
        refusal = self._cloud.remove_host(aggregate, host)
        if refusal and self._is_member(aggregate, host):
            raise Conflict(f"host {host} cannot leave aggregate {aggregate.name}: {refusal}")

    def _is_member(self, aggregate: _Aggregate, host: str) -> bool:
        seen = self._cloud.aggregates().get(aggregate.name)
        return seen is not None and host in seen.hosts

    def _join_pool(self, hosts: Collection[str], *, touch: bool = False) -> None:
        """Ends with a touch where a host has joined, or where it is asked for."""
        pool = self._ensured(self._pool_name, self._pooled)
        missing = sorted(set(hosts) - pool.hosts)
        for host in missing:
            self._add(pool, host)
        if missing or touch:
            self._set(pool, self._pooled)

    def _mirror(
        self, aggregate: _Aggregate, handover: Handover, providers: Mapping[str, list[str]]
    ) -> None:
        """Nova answers 200 to adding a host even if telling placement failed: then again."""
        for host in sorted(handover.hosts):
            if not self._is_mirrored(aggregate, providers[host]):
                LOG.warning("placement does not know host %s in %s", host, aggregate.name)
                self._remove(aggregate, host)
                self._add(aggregate, host)
                if not self._is_mirrored(aggregate, providers[host]):
                    raise Unavailable(
                        f"placement does not show host {host} in aggregate {aggregate.name}; "
                        "if this stays so, run nova-manage placement sync_aggregates"
                    )

    def _is_mirrored(self, aggregate: _Aggregate, providers: Sequence[str]) -> bool:
        return all(aggregate.uuid in self._cloud.memberships(provider) for provider in providers)

    def _dissolve(self, aggregate: _Aggregate) -> None:
        self._leave(aggregate, aggregate.hosts)
        refusal = self._cloud.delete(aggregate)
        if aggregate.name in self._cloud.aggregates():
            raise Conflict(
                f"aggregate {aggregate.name} is not deleted: {refusal or 'it came back'}"
            )


def connect(conf: cfg.ConfigOpts, beat: Callable[[], None] = lambda: None) -> NovaCompute:
    """The port as [compute], [nova] and [placement] say; nothing is asked of Nova yet.

    ``beat`` as in ``Cloud``.

    Raises:
        InvalidInput: the options do not say how to log in.
    """
    try:
        auth = loading.load_auth_from_conf_options(conf, "nova")
        own = loading.load_auth_from_conf_options(conf, "placement")
        nova, placement = (
            loading.load_adapter_from_conf_options(
                conf, group, session=loading.load_session_from_conf_options(conf, group), auth=login
            )
            for group, login in (("nova", auth), ("placement", own or auth))
        )
    except keystone_errors.ClientException as error:
        raise InvalidInput("[nova], [placement]", "login", str(error)) from error
    if auth is None:
        raise InvalidInput("[nova] auth_type", None, "set it, for example to password")
    client = nova_client.Client(
        NOVA_VERSION,
        session=nova.session,
        auth=auth,
        endpoint_type=nova.interface,
        **{name: getattr(nova, name) for name in _ADAPTER_OPTIONS},
    )
    return NovaCompute(
        Cloud(client, placement, beat), pool=conf.compute.pool, sentinel=conf.compute.sentinel
    )


_ADAPTER_OPTIONS = (
    "connect_retries",
    "connect_retry_delay",
    "endpoint_override",
    "region_name",
    "service_name",
    "service_type",
    "status_code_retries",
    "status_code_retry_delay",
)


def _name(allocation_id: str) -> str:
    return f"laas-{allocation_id}"


def _is_ours(aggregate: _Aggregate) -> bool:
    return ALLOCATION in aggregate.metadata and aggregate.name == _name(
        aggregate.metadata[ALLOCATION]
    )


def _some(texts: Collection[str]) -> str:
    rest = len(texts) - _SHOWN
    return ", ".join(sorted(texts)[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _listed(occupants: Collection[Occupant]) -> str:
    return _some([f"{o.host} runs {o.consumer} of project {o.project_id}" for o in occupants])


def _aggregate(document: Mapping[str, Any]) -> _Aggregate:
    """Raises: KeyError, TypeError, ValueError on anything else."""
    return _Aggregate(
        int(document["id"]),
        str(document["uuid"]),
        str(document["name"]),
        frozenset(str(host) for host in document["hosts"]),
        {str(key): str(value) for key, value in dict(document["metadata"]).items()},
    )


def _read(what: str, rule: str, call: Callable[[], T]) -> T:
    """Try up to three times; reading changes nothing."""

    def attempt() -> T:
        try:
            return call()
        except Exception as error:
            raise _translated(what, rule, error) from error

    pause = wait_exponential(multiplier=READ_PAUSE)
    return retrying(Unavailable, attempts=3, wait=pause)(attempt)


def _write(what: str, rule: str, call: Callable[[], object]) -> str | None:
    """Try once; the refusal's text if it was refused for what is (not) there."""
    try:
        call()
    except Exception as error:
        if _status(error) in (400, 404, 409):
            return str(error)
        raise _translated(what, rule, error) from error
    return None


def _status(error: Exception) -> int | None:
    if isinstance(error, nova_errors.ClientException):
        return int(error.code)
    return error.http_status if isinstance(error, keystone_errors.HttpError) else None


def _translated(what: str, rule: str, error: Exception) -> LaasError:
    """What an error of the libraries means to us; messages hold no token or password.

    Anything that is no error of theirs comes from an answer they could not digest.
    """
    status = _status(error)
    if status == 403:
        return Forbidden(f"not allowed to {what}: give the service's user a role with {rule}")
    if status in (413, 429):
        return LimitExceeded(f"cannot {what}: {error}")
    if status == 401:
        return Unavailable(f"cannot {what}: Keystone or Nova does not accept the configured login")
    if status is not None or isinstance(error, keystone_errors.ClientException):
        return Unavailable(f"cannot {what}: {error}")
    return Unavailable(
        f"cannot {what}: the answer makes no sense ({type(error).__name__}: {error})"
    )

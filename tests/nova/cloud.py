# SPDX-License-Identifier: Apache-2.0

"""A real Nova and placement in one process, for several tests, in memory or over TCP.

nova-api, scheduler, conductor, placement and nova-compute (with Nova's fake driver)
are real; only Keystone, images and networks are stubbed.
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any

import fixtures
import waitress.server
import wsgi_intercept
from keystoneauth1 import plugin, session
from keystoneauth1.adapter import Adapter
from nova import context, objects, test
from nova.conf import CONF
from nova.tests import fixtures as nova_fixtures
from nova.tests.functional import fixtures as functional_fixtures
from novaclient import client
from novaclient import exceptions as refused
from oslo_db.exception import DBDeadlock
from oslo_db.sqlalchemy import engines, exc_filters
from sqlalchemy import event
from sqlalchemy.engine import Engine
from sqlalchemy.exc import OperationalError

from laas_service.adapters.nova import NovaCompute
from laas_service.adapters.nova.cloud import NOVA_VERSION, Cloud
from tests.story import site
from tests.waiting import PATIENCE, eventually

IMAGE = "155d900f-4e14-4e4c-a73d-069cbf4541e6"
POOL, NOBODY = "laas-pool", "laas-nobody"

STOCK = ["ComputeFilter", "AggregateMultiTenancyIsolation"]
"""Filters of a Nova without our service; its own tenant filter among them."""

OURS = [*STOCK, "LaasTenantFilter"]
"""Filters that ``doc/source/install/nova.rst`` requires, together with the pre-filter."""


class Login(plugin.BaseAuthPlugin):
    """Sends the headers that Nova's test fixture reads in place of Keystone."""

    def __init__(
        self, url: str, project: str, *, admin: bool = False, role: str | None = None
    ) -> None:
        super().__init__()
        self.url = url
        self.headers = headers(project, admin)
        if role:
            self.headers["X-Roles"] += f",{role}"

    def get_headers(self, session, **kwargs):
        return self.headers

    def get_endpoint(self, session, **kwargs):
        return self.url


def headers(project: str, admin: bool) -> dict[str, str]:
    return {
        "X-Auth-Token": "admin",
        "X-Auth-User": "admin" if admin else "user",
        "X-Auth-Project-Id": project,
        "X-Roles": "reader,member" + (",admin" if admin else ""),
    }


class CellLock(nova_fixtures.ReaderWriterLock):
    """The lock of Nova's fixture of cells, whose readers do not wait for a writer that waits.

    A thread takes it to read while it has the lock of a database. If it waited for a writer then,
    and the writer for a reader that waits for the database, all three would wait for ever.
    """

    @property
    def has_pending_writers(self) -> bool:
        return False


class Nova(test.TestCase):
    """The services of a cloud. ``setUp`` starts them, and ``stop`` ends them."""

    hosts: Sequence[str] = ()
    """Compute hosts; with ``NUMBER_OF_CELLS`` above 1 one after the other joins the next cell."""

    def runTest(self) -> None:
        """Do nothing: the class is a test case only because Nova's fixtures need one."""

    def setUp(self) -> None:
        module = sys.modules[nova_fixtures.CellDatabases.__module__]
        lock = fixtures.MockPatchObject(module, "ReaderWriterLock", CellLock)
        lock.setUp()
        self.addCleanup(lock.cleanUp)
        super().setUp()
        self._calm()
        event.listen(Engine, "connect", _suit_tests)
        self.addCleanup(event.remove, Engine, "connect", _suit_tests)
        paste = os.path.join(sys.prefix, "etc/nova/api-paste.ini")
        self.flags(group="wsgi", api_paste_config=paste)
        self.flags(compute_driver="fake.MediumFakeDriver")
        self.flags(group="api", response_validation="ignore")
        self.flags(group="quota", instances=-1, cores=-1, ram=-1)
        self.policy = self.useFixture(nova_fixtures.RealPolicyFixture())
        self.useFixture(nova_fixtures.GlanceFixture(self))
        self.useFixture(nova_fixtures.NeutronFixture(self))
        self.placement_api = self.useFixture(functional_fixtures.PlacementFixture())
        self.osapi = self.useFixture(nova_fixtures.OSAPIFixture(api_version="v2.1"))
        self.start_service("conductor")
        self.scheduler: Any = None
        self.filter_with(OURS)
        for number, host in enumerate(self.hosts):
            self._start_compute(host, f"cell{number % self.NUMBER_OF_CELLS + 1}")
        self.placement = Adapter(
            session.Session(Login(self.placement_api.endpoint, "service", admin=True)),
            service_type="placement",
            endpoint_override=self.placement_api.endpoint,
        )
        self.admin = self.client("service", admin=True)

    def _calm(self) -> None:
        """Poll and report less often, as the idle threads of many services slow a test down."""
        logging.disable(logging.INFO)
        patience = SimpleNamespace(time=time.time, sleep=lambda pause: time.sleep(4 * pause))
        self.useFixture(fixtures.MonkeyPatch("oslo_messaging._drivers.impl_fake.time", patience))
        self.useFixture(fixtures.MonkeyPatch("futurist._thread.ThreadWorker.MAX_IDLE_FOR", 1.0))
        self.flags(report_interval=120, service_down_time=1200, rpc_response_timeout=600)

    def stop(self) -> None:
        logging.disable(logging.NOTSET)
        self.doCleanups()

    def filter_with(self, filters: Sequence[str], *, pre_filter: bool = True) -> None:
        """Start the scheduler anew with these filters.

        One thread of the scheduler handles the messages about aggregates, so that it handles
        them in the order of the calls.
        """
        if self.scheduler is not None:
            self.scheduler.stop()
        self.flags(
            group="filter_scheduler",
            available_filters=[
                "nova.scheduler.filters.all_filters",
                "nova_filters.laas.LaasTenantFilter",
            ],
            enabled_filters=list(filters),
        )
        self.flags(group="scheduler", limit_tenants_to_placement_aggregate=pre_filter)
        usual = CONF.executor_thread_pool_size
        self.flags(executor_thread_pool_size=1)
        self.scheduler = self.start_service("scheduler")
        self.flags(executor_thread_pool_size=usual)

    @contextmanager
    def deaf_scheduler(self) -> Iterator[Any]:
        """Run a second scheduler that never hears of a change; it decides every other request.

        Its name is new, as the messaging driver for tests keeps what it sent to a stopped service
        for the next one of the same name, which would hear it before it is deaf.

        It decides the first one. The two decide by turns whichever of them gets the message: the
        messaging driver for tests gives it to the one that polls first, which may always be the
        same.

        Its fixture is cleaned up with the others: until then it keeps the end of this service from
        shutting down the executors of the whole process.
        """
        name = f"deaf-{uuid.uuid4()}"
        second = self.useFixture(nova_fixtures.ServiceFixture("scheduler", name)).service
        for message in ("update_aggregates", "delete_aggregate"):
            setattr(second.manager.host_manager, message, lambda *args: None)
        managers = second.manager, self.scheduler.manager
        turns = itertools.cycle([manager.select_destinations for manager in managers])
        for manager in managers:
            manager.select_destinations = lambda *args, **more: next(turns)(*args, **more)
        try:
            yield second
        finally:
            for manager in managers:
                del manager.select_destinations
            second.stop()

    def scheduler_knows(self) -> None:
        """Wait until the scheduler knows the aggregates; the API answers before that."""
        known = self.scheduler.manager.host_manager.aggs_by_id
        wanted = {a.id: (set(a.hosts), a.metadata) for a in self.admin.aggregates.list()}
        eventually(
            lambda: wanted == {id: (set(a.hosts), a.metadata) for id, a in list(known.items())},
            "the scheduler learns of aggregates",
        )

    @contextmanager
    def dead(self, host: str) -> Iterator[str]:
        """Stop the compute service of a host, and start it anew in the end; yields its id.

        Its last report is old: Nova shows it as down. The end waits for a new report, which comes
        seconds after the start: the scheduler passes the host over until then.
        """
        long_ago = datetime(2020, 1, 1, tzinfo=UTC)
        stopped = self.computes[host]
        stopped.stop()
        with self._service(host) as service:
            service.last_seen_up = long_ago
            service.save()
            id = service.uuid
        try:
            yield id
        finally:
            self.computes[host] = self.restart_compute_service(stopped)
            eventually(lambda: self._last_report(host) > long_ago, f"{host} reports to Nova")

    def _last_report(self, host: str) -> datetime:
        with self._service(host) as service:
            reported: datetime = service.last_seen_up
        return reported

    @contextmanager
    def _service(self, host: str) -> Iterator[Any]:
        """Nova's record of the compute service of a host, in the cell of the host."""
        cell = self.host_mappings[host].cell_mapping
        with context.target_cell(context.get_admin_context(), cell) as inside:
            yield objects.Service.get_by_compute_host(inside, host)

    def clear(self) -> None:
        """Delete all servers and aggregates; wait until placement and the scheduler know."""
        eventually(lambda: not self._clear_once(), "the cloud gets empty", pause=0.2)
        self.scheduler_knows()

    def _clear_once(self) -> bool:
        """Delete servers and aggregates; True if anything was left to delete."""
        self.delete_servers({})
        aggregates = self.admin.aggregates.list()
        for aggregate in aggregates:
            with suppress(refused.ClientException):  # the next call deletes the rest
                for host in aggregate.hosts:
                    self.admin.aggregates.remove_host(aggregate, host)
                self.admin.aggregates.delete(aggregate)
        return bool(aggregates) or any(
            self._held(f"/resource_providers/{hypervisor.id}/allocations")
            for hypervisor in self.admin.hypervisors.list()
        )

    def delete_servers(self, search: Mapping[str, str]) -> None:
        """Delete the servers that match; return when placement has freed their resources."""
        self._wait_until_freed(site.delete_all(self.admin, search))

    def delete_servers_of(self, ids: Set[str]) -> None:
        """The same for servers by id, all at once."""
        for id in ids:
            self.admin.servers.delete(id)
        listed = partial(self.admin.servers.list, search_opts={"all_tenants": 1})
        eventually(lambda: not ids & {one.id for one in listed()}, f"{ids} are gone")
        self._wait_until_freed(ids)

    def _wait_until_freed(self, gone: Set[str]) -> None:
        eventually(
            lambda: not any(self._held(f"/allocations/{id}") for id in gone),
            f"placement has the room of {gone} back",
        )

    def _held(self, path: str) -> bool:
        return bool(self.placement.get(path).json()["allocations"])

    def client(self, project: str, *, admin: bool = False, role: str | None = None) -> Any:
        """A novaclient that acts for a project, with a further role."""
        url = self.osapi.base_url
        login = Login(url, project, admin=admin, role=role)
        return client.Client(
            NOVA_VERSION, session=session.Session(login), auth=login, endpoint_override=url
        )

    def compute(self, role: str | None = None, *, shared_disks: bool = False) -> NovaCompute:
        """A new adapter of the service; with ``role`` its user in Nova has that, else all rights.

        It has no state of earlier calls.
        """
        nova = self.client("service", role=role) if role else self.admin
        cloud = Cloud(nova, self.placement)
        return NovaCompute(cloud, pool=POOL, sentinel=NOBODY, shared_disks=shared_disks)


def _suit_tests(connection: Any, record: object) -> None:
    """Let SQLite wait for another thread, which a busy machine may hold up for long.

    After SQLite's usual five seconds a call to placement would fail, and leave its server in error.
    The databases end with the test, so nothing waits for the disk.
    """
    connection.execute(f"PRAGMA busy_timeout = {1000 * PATIENCE:.0f}")
    connection.execute("PRAGMA synchronous = OFF")


engines._thread_yield = lambda *args: None
"""oslo.db lets other processes run after every transaction, which on a busy machine takes long."""


@exc_filters.filters("sqlite", OperationalError, r".*database is locked")  # type: ignore[untyped-decorator]
def _retried(error: OperationalError, *_: object) -> None:
    """Let Nova repeat a transaction that lost a race, as it does with the databases of a cloud.

    SQLite refuses to write at once if another transaction wrote after this one had begun to read.
    """
    raise DBDeadlock(error)


@contextmanager
def started(hosts: Sequence[str], cells: int = 1) -> Iterator[Nova]:
    nova = Nova()
    nova.hosts = hosts
    nova.NUMBER_OF_CELLS = cells
    try:
        nova.setUp()
        yield nova
    finally:
        nova.stop()


@contextmanager
def served(nova: Nova, gate: threading.Event | None = None) -> Iterator[str]:
    """Serve Nova and placement on a TCP port, below ``/compute`` and ``/placement``.

    A token is ``PROJECT`` or ``PROJECT:admin``. Requests to Nova wait while ``gate`` is not set.
    """
    apps = {"compute": nova.osapi.app(), "placement": _placement_app(nova)}

    def application(environ, start_response):
        service, _, path = environ["PATH_INFO"].lstrip("/").partition("/")
        if gate is not None and service == "compute":
            gate.wait(PATIENCE)
        environ["SCRIPT_NAME"], environ["PATH_INFO"] = f"/{service}", f"/{path}"
        project, _, role = environ.get("HTTP_X_AUTH_TOKEN", "").partition(":")
        for name, value in headers(project, role == "admin").items():
            environ["HTTP_" + name.upper().replace("-", "_")] = value
        return apps[service](environ, start_response)

    server = waitress.server.create_server(application, host="127.0.0.1", port=0, threads=8)
    threading.Thread(target=server.run, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.effective_port}"
    finally:
        server.close()


def _placement_app(nova: Nova) -> Any:
    host = nova.placement_api.endpoint.split("/")[2]
    return wsgi_intercept._wsgi_intercept[host, 80][0]()


def remote_client(url: str, project: str, *, admin: bool = False) -> Any:
    """A novaclient that acts for a project over TCP."""
    login = Token(f"{url}/compute/v2.1", project, admin)
    return client.Client(
        NOVA_VERSION, session=session.Session(login), auth=login, endpoint_override=login.url
    )


class Token(plugin.BaseAuthPlugin):
    """Sends a token in the form that ``served`` accepts."""

    def __init__(self, url: str, project: str, admin: bool) -> None:
        super().__init__()
        self.url = url
        self.token = f"{project}:admin" if admin else project

    def get_token(self, session, **kwargs):
        return self.token

    def get_endpoint(self, session, **kwargs):
        return self.url

# SPDX-License-Identifier: Apache-2.0

"""The WSGI application: all routes, and the request pipeline around each view."""

import functools
import math
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote
from wsgiref.types import WSGIApplication

from flask import Flask, Response, g, request
from oslo_config import cfg
from oslo_context.context import RequestContext
from oslo_log import log as logging
from oslo_middleware import HTTPProxyToWSGI, RequestId
from pydantic import BaseModel
from werkzeug.exceptions import (
    BadRequest,
    HTTPException,
    MethodNotAllowed,
    NotFound,
    RequestEntityTooLarge,
)

from laas_service.api import (
    agents,
    allocations,
    audit,
    errors,
    fabrics,
    leaves,
    microversions,
    openapi,
    quota,
    schemas,
    sessions,
    system,
)
from laas_service.api.auth import LOCAL, NOBODY, Gate
from laas_service.api.metrics import ServiceMetrics
from laas_service.api.policies import METRICS
from laas_service.api.proxies import Proxies
from laas_service.api.rate_limit import CHANGES, Buckets
from laas_service.api.rendering import Rendering, response
from laas_service.api.request_parsing import parsed
from laas_service.api.resource import Answer, Call, Operation
from laas_service.api.session_cookies import VISIT
from laas_service.api.sharing import allocations as sharing_allocations
from laas_service.api.sharing import fabrics as sharing_fabrics
from laas_service.api.sharing import schemas as sharing_schemas
from laas_service.api.sharing.metrics import PromiseGauges
from laas_service.app.use_cases import UseCases
from laas_service.domain.errors import LaasError, NotSupported, TooManyRequests, Unavailable
from laas_service.domain.wording import alike

LOG = logging.getLogger(__name__)

LOGGED = 2000
"""Characters of an address that the log shows."""

MAX_BODY = 65536
"""Bytes of the longest request body; longer ones are refused unread. Requests have a few short
fields, so a higher limit would only help attackers."""

READY = 1.0
"""Seconds between two checks whether the tables are those of this release."""

FABRIC = "/v1/fabrics/<fabric_id>"
SWITCH = f"{FABRIC}/switches/<path:switch_id>"
ALLOCATION = "/v1/allocations/<allocation_id>"


def _get(
    path: str, view: Callable[..., Answer], rule: str | None, shape: type[BaseModel]
) -> Operation:
    return Operation("GET", path, view, rule, {200: shape})


def _patch(path: str, view: Callable[..., Answer], rule: str, shape: type[BaseModel]) -> Operation:
    return Operation("PATCH", path, view, rule, {200: shape})


def _document(call: Call) -> Answer:
    """Describe the interface in OpenAPI 3.1."""
    return Answer(200, schemas.Document({**_described(), "servers": [{"url": call.root}]}))


@functools.cache
def _described() -> dict[str, Any]:
    """The document of all routes, which never changes; only the server depends on the request."""
    return openapi.document(ROUTES, "")


ROUTES = (
    _get("/", system.versions, None, schemas.Versions),
    _get("/healthcheck", system.health, None, schemas.Health),
    Operation("GET", "/metrics", system.metrics, METRICS, {200: schemas.Text}, nobody=True),
    _get("/view", system.view, None, schemas.Html),
    Operation(
        "GET", "/view/<name>", system.module, None, {200: schemas.Script, 304: schemas.Unchanged}
    ),
    Operation("POST", "/v1/session", sessions.sign_in, None, {201: schemas.SessionAnswer}),
    Operation("DELETE", "/v1/session", sessions.sign_out, None, {200: schemas.SessionEnded}),
    _get("/v1", system.version_1, None, schemas.OneVersion),
    _get("/v1/openapi.json", _document, None, schemas.Document),
    _get("/v1/fabrics", fabrics.index, "laas:fabric:get", schemas.FabricList),
    _get(FABRIC, fabrics.show, "laas:fabric:get", schemas.Fabric),
    Operation(
        "DELETE",
        FABRIC,
        fabrics.delete,
        "laas:fabric:delete",
        {200: schemas.FabricSummary, 409: schemas.Problem},
    ),
    _get(
        f"{FABRIC}/utilization", fabrics.utilization, "laas:fabric:get", schemas.UtilizationAnswer
    ),
    _get(f"{FABRIC}/fit", fabrics.fit, "laas:fabric:get", schemas.FitAnswer),
    Operation(
        "GET",
        f"{FABRIC}/map",
        fabrics.show_map,
        "laas:fabric:map",
        {200: schemas.FabricMap, 304: schemas.Unchanged},
    ),
    _get(f"{FABRIC}/make-room", fabrics.show_room, "laas:fabric:make_room", schemas.QueueRoomShown),
    Operation(
        "POST",
        f"{FABRIC}/make-room",
        fabrics.make_room,
        "laas:fabric:make_room",
        {200: schemas.RoomPlanAnswer, 202: schemas.RoomPlanAnswer, 409: schemas.Problem},
    ),
    Operation(
        "POST",
        f"{FABRIC}/sleep",
        fabrics.let_sleep,
        "laas:fabric:make_room",
        {200: schemas.SleepPlanAnswer, 202: schemas.SleepPlanAnswer},
    ),
    Operation(
        "POST",
        f"{FABRIC}/consolidate",
        sharing_fabrics.consolidate,
        "laas:fabric:make_room",
        {
            200: sharing_schemas.ConsolidationPlanAnswer,
            202: sharing_schemas.ConsolidationPlanAnswer,
        },
    ),
    Operation(
        "POST",
        f"{FABRIC}/evacuate",
        fabrics.evacuate,
        "laas:fabric:evacuate",
        {200: schemas.EvacuationAnswer, 202: schemas.EvacuationAnswer},
    ),
    _get(f"{FABRIC}/routing", fabrics.routing, "laas:fabric:inventory", schemas.RoutingAnswer),
    _get(f"{FABRIC}/switches", fabrics.switches, "laas:fabric:inventory", schemas.SwitchList),
    _get(SWITCH, leaves.show, "laas:fabric:inventory", leaves.Leaf),
    _patch(SWITCH, leaves.change, "laas:fabric:update", leaves.Leaf),
    _get(f"{FABRIC}/hosts", fabrics.hosts, "laas:fabric:inventory", schemas.HostList),
    _get(f"{FABRIC}/links", fabrics.links, "laas:fabric:inventory", schemas.LinkList),
    _get(
        f"{FABRIC}/promises",
        sharing_fabrics.promises,
        "laas:fabric:inventory",
        sharing_schemas.PromiseList,
    ),
    _get(f"{FABRIC}/idle", fabrics.idle, "laas:fabric:inventory", schemas.IdleAnswer),
    _get(f"{FABRIC}/crossed", fabrics.crossed, "laas:fabric:inventory", schemas.Crossed),
    _get(f"{FABRIC}/plane", fabrics.show_plane, "laas:fabric:inventory", schemas.SharedPlaneAnswer),
    Operation(
        "PUT",
        f"{FABRIC}/plane",
        fabrics.set_plane,
        "laas:fabric:update",
        {200: schemas.SharedPlaneAnswer, 409: schemas.Problem},
    ),
    _patch(f"{FABRIC}/hosts/<path:name>", fabrics.set_host, "laas:fabric:update", schemas.Host),
    _get(
        f"{FABRIC}/links/<path:link_id>", fabrics.show_link, "laas:fabric:inventory", schemas.Link
    ),
    _patch(f"{FABRIC}/links/<path:link_id>", fabrics.set_link, "laas:fabric:update", schemas.Link),
    _get(
        f"{FABRIC}/observation",
        fabrics.observation,
        "laas:fabric:inventory",
        schemas.ObservationAnswer,
    ),
    _patch(
        f"{FABRIC}/observation",
        fabrics.set_observation,
        "laas:fabric:update",
        schemas.ObservationAnswer,
    ),
    _get(f"{FABRIC}/agents", agents.index, "laas:fabric:inventory", schemas.AgentList),
    Operation(
        "PUT",
        f"{FABRIC}/agents/<agent>",
        agents.report,
        "laas:agent:report",
        {200: schemas.AgentOrders},
    ),
    Operation(
        "DELETE",
        f"{FABRIC}/agents/<agent>",
        agents.forget,
        "laas:fabric:update",
        {200: schemas.AgentAnswer, 409: schemas.Problem},
    ),
    _get(f"{FABRIC}/file-set", agents.file_set, "laas:agent:fetch", schemas.FileSetAnswer),
    Operation(
        "GET",
        f"{FABRIC}/file-set/<generation>/<path:file>",
        agents.file,
        "laas:agent:fetch",
        {200: schemas.Octets, 206: schemas.Octets},
    ),
    Operation(
        "POST",
        "/v1/allocations",
        allocations.create,
        "laas:allocation:create",
        {202: schemas.AllocationAnswer, 200: schemas.DryRun, 409: schemas.Problem},
    ),
    _get("/v1/allocations", allocations.index, "laas:allocation:get", schemas.AllocationList),
    _get("/v1/quota", quota.show, "laas:quota:get", schemas.QuotaAnswer),
    _get(ALLOCATION, allocations.show, "laas:allocation:get", schemas.AllocationAnswer),
    _get(
        f"{ALLOCATION}/promise",
        sharing_fabrics.promise,
        "laas:allocation:get",
        sharing_schemas.OwnPromises,
    ),
    _get(
        f"{ALLOCATION}/history", allocations.history, "laas:allocation:get", schemas.HistoryAnswer
    ),
    _get(
        f"{ALLOCATION}/certificate",
        allocations.certificate,
        "laas:allocation:get",
        schemas.Certificate,
    ),
    Operation(
        "PATCH",
        ALLOCATION,
        sharing_allocations.change,
        "laas:allocation:update",
        {202: schemas.AllocationAnswer, 200: schemas.Changed, 409: schemas.Problem},
    ),
    Operation(
        "DELETE",
        ALLOCATION,
        allocations.release,
        "laas:allocation:release",
        {202: schemas.AllocationAnswer},
    ),
    Operation(
        "POST",
        f"{ALLOCATION}/repair",
        allocations.repair,
        "laas:allocation:repair",
        {202: schemas.AllocationAnswer, 200: schemas.AllocationAnswer, 409: schemas.Problem},
    ),
    Operation(
        "POST",
        f"{ALLOCATION}/replace-hosts",
        allocations.replace_hosts,
        "laas:allocation:replace_hosts",
        {202: schemas.AllocationAnswer, 200: schemas.Changed, 409: schemas.Problem},
    ),
    Operation(
        "POST",
        f"{ALLOCATION}/retry",
        allocations.retry,
        "laas:allocation:retry",
        {202: schemas.AllocationAnswer, 200: schemas.AllocationAnswer, 409: schemas.Problem},
    ),
)


def create_app(
    use_cases: UseCases,
    conf: cfg.ConfigOpts,
    authenticate: Callable[[WSGIApplication], WSGIApplication],
) -> Flask:
    """The application behind ``authenticate``, a middleware as ``auth.middleware`` gives.

    Of the options in ``conf``, those that may change while a process runs are read anew for each
    request.

    Raises:
        InvalidInput: a trusted proxy is no address.
    """
    app = Flask("laas")
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY
    app.url_map.strict_slashes = False
    app.url_map.merge_slashes = False
    pipeline = RequestPipeline(
        use_cases, Gate(conf), ServiceMetrics(use_cases, PromiseGauges(use_cases)), conf
    )
    for route in ROUTES:
        app.add_url_rule(
            route.path,
            endpoint=f"{route.method} {route.path}",
            view_func=functools.partial(pipeline.answer, route),
            methods=[route.method],
        )
    app.before_request(pipeline.opened)
    app.after_request(pipeline.closed)
    app.register_error_handler(LaasError, _our_error)
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(Exception, _unexpected)
    guarded = HTTPProxyToWSGI(authenticate(app.wsgi_app), conf)
    app.wsgi_app = Proxies(RequestId(guarded), conf.api.trusted_proxies)  # type: ignore[method-assign]
    return app


class RequestPipeline:
    """Around every view: authenticates, limits the rate, parses, counts and logs."""

    def __init__(
        self, use_cases: UseCases, gate: Gate, metrics: ServiceMetrics, conf: cfg.ConfigOpts
    ) -> None:
        self._use_cases = use_cases
        self._gate = gate
        self._metrics = metrics
        self._conf = conf
        self._buckets = Buckets(lambda: (conf.limits.rate, conf.limits.burst), time.monotonic)
        self._change_buckets = Buckets(lambda: CHANGES, time.monotonic)
        self._check_again = -math.inf
        self._rendering = Rendering()

    def opened(self) -> None:
        """Start the clock, and give the log the request's context.

        Raises:
            BadRequest: a NUL in the address, which databases treat differently.
        """
        g.started = time.perf_counter()
        RequestContext.from_environ(request.environ)
        if "\0" in request.path or any("\0" in value for value in request.args.values()):
            raise BadRequest("leave out the NUL")

    def answer(self, route: Operation, **variables: str) -> Response:
        if route.versioned:
            g.microversion = microversions.OLDEST
            g.microversion = microversions.asked(request.headers.get(microversions.HEADER))
        caller = self._gate.caller(request.environ, route) if route.rule else NOBODY
        if caller.project_id:
            self._buckets.take(caller.project_id)
            if route.changes_an_allocation:
                self._change_buckets.take(caller.project_id)
        if route.rule and route.path.startswith("/v1/"):
            self._check_tables()
        call = Call(
            use_cases=self._use_cases,
            caller=caller,
            root=request.root_url.rstrip("/"),
            url=request.base_url,
            arguments=request.args.to_dict(),
            max_wait=self._conf.api.max_wait,
            version=g.get("microversion", microversions.OLDEST),
            local=LOCAL in request.environ,
            visit=request.environ.get(VISIT),
            require=functools.partial(self._gate.require, request.environ),
            scrape=self._metrics.text,
        )
        answer = route.view(call, **variables, **parsed(route))
        if isinstance(answer.body, schemas.Problem) and answer.body.reason:
            self._metrics.refused(answer.body.reason.value)
        return self._rendering.response(answer)

    def _check_tables(self) -> None:
        """Check the tables, unless a check succeeded within ``READY`` seconds."""
        if time.monotonic() >= self._check_again:
            self._use_cases.fabrics.ready()
            self._check_again = time.monotonic() + READY

    def closed(self, response: Response) -> Response:
        """Count and log the request, without its headers, which carry tokens."""
        if "microversion" in g:
            response.headers[microversions.HEADER] = (
                f"{microversions.SERVICE_TYPE} {g.microversion}"
            )
            response.vary.add(microversions.HEADER)
        seconds = time.perf_counter() - g.started
        route = request.url_rule.rule if request.url_rule else "unknown"
        self._metrics.answered(request.method, route, response.status_code, seconds)
        if self._conf.api.audit:
            audit.record(request, response, _address(), datetime.now(UTC))
        LOG.info(
            "%(method)s %(path)s answered %(status)d in %(ms).1f ms",
            {
                "method": request.method,
                "path": _address(),
                "status": response.status_code,
                "ms": seconds * 1000,
            },
        )
        return response


def _address() -> str:
    """The requested address, quoted so that it is one line of the log."""
    text = f"{request.path}?{request.query_string.decode('latin-1')}".rstrip("?")
    return quote(text, safe="/?&=%+,:;@~!*'()$")[:LOGGED]


def _problem(document: schemas.Problem, headers: Mapping[str, str]) -> Response:
    return response(Answer(document.status, document, headers), document)


def _our_error(error: LaasError) -> Response:
    document = errors.of_error(error)
    if document.status >= 500 and not isinstance(error, NotSupported):
        LOG.warning("%s", error)
    return _problem(document, _retry_after(error))


def _retry_after(error: LaasError) -> dict[str, str]:
    """A ``Retry-After`` header in whole seconds, where repeating may help."""
    if isinstance(error, TooManyRequests):
        return {"Retry-After": str(math.ceil(error.after))}
    return {"Retry-After": "5"} if isinstance(error, Unavailable) else {}


def _http_error(error: HTTPException) -> Response | HTTPException:
    if error.code is None or error.code < 400:
        return error
    if isinstance(error, RequestEntityTooLarge):
        error.description = (
            f"a body may have {request.max_content_length} bytes; send a shorter one"
        )
    headers = {name: value for name, value in error.get_headers() if name != "Content-Type"}
    detail = ""
    if isinstance(error, NotFound):
        known = sorted({one.path for one in ROUTES if not re.search("[<.]", one.path)})
        fix = alike(request.path, known, "the service") + "; all are in /v1/openapi.json"
        if "/v1/" in request.path[1:]:
            fix = "leave out what is in front of /v1 there, or in the endpoint"
        detail = f"there is nothing at {request.path}; {fix}"
    elif isinstance(error, MethodNotAllowed):
        allowed = ", ".join(sorted(set(error.valid_methods or ()) - {"OPTIONS", "HEAD"}))
        detail = f"{request.path} has no {request.method}; it has {allowed}"
    return _problem(errors.of_http(error, detail), headers)


def _unexpected(error: Exception) -> Response:
    LOG.error("Unexpected error", exc_info=error)
    return _problem(
        errors.problem(500, "internal_error", "unexpected error; see the log for this request"),
        {},
    )

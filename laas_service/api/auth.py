# SPDX-License-Identifier: Apache-2.0

"""Authentication by Keystone, or none on loopback alone; authorization by oslo.policy.

Both ways put the caller's identity into the WSGI environment as keystonemiddleware does, and
all later code reads it from there.
"""

import functools
import json
import math
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import webob
from keystoneauth1.adapter import Adapter
from keystoneauth1.exceptions import (
    ClientException,
    ConnectFailure,
    DiscoveryFailure,
    MissingRequiredOptions,
    RequestTimeout,
)
from keystoneauth1.loading import get_plugin_loader
from keystoneauth1.plugin import AUTH_INTERFACE
from keystonemiddleware.auth_token import AuthProtocol
from keystonemiddleware.auth_token._exceptions import InvalidToken, ServiceError
from oslo_config import cfg
from oslo_context.context import RequestContext
from oslo_log import log as logging
from oslo_policy import policy
from webob.exc import HTTPServiceUnavailable

from laas_service.api import policies
from laas_service.api.errors import problem
from laas_service.api.microversions import SERVICE_TYPE
from laas_service.api.resource import Operation
from laas_service.api.schemas import Problem
from laas_service.api.session_cookies import SessionCookies, foreign
from laas_service.app.loopback import is_loopback
from laas_service.app.records import Caller
from laas_service.domain.errors import Forbidden, InvalidInput, Unauthenticated

LOG = logging.getLogger(__name__)

REQUEST_ID = "openstack.request_id"
"""The key of the request's id, which oslo.middleware puts into the WSGI environment."""

LOCAL_PROJECT = "local"
"""The project of a local caller that names none in ``X-Project-Id``."""

LOCAL = "laas.local"
"""The key in the WSGI environment of requests that need no authentication."""

AUTHTOKEN = "keystone_authtoken"

_ALWAYS = {
    "delay_auth_decision": True,  # the routes decide
    "service_token_roles_required": True,
    "service_type": SERVICE_TYPE,
}
"""Settings that [keystone_authtoken] cannot change."""


class Keystone(AuthProtocol):  # type: ignore[misc]
    """Checks ``X-Auth-Token``; answers a problem document while Keystone cannot be reached.

    A request without a valid token passes as unauthenticated: the routes decide,
    so that versions, health and metrics need none.

    Raises:
        InvalidInput: [keystone_authtoken] lacks a required option.
    """

    def __init__(self, app: WSGIApplication, conf: cfg.ConfigOpts) -> None:
        try:
            super().__init__(app, {"oslo_config_config": conf, **_ALWAYS})
        except MissingRequiredOptions as error:
            names = ", ".join(option.name for option in error.options)
            raise InvalidInput("[keystone_authtoken]", None, f"say {names}") from error
        for option, use in (
            ("auth_type", "how the service itself logs in, such as password"),
            ("www_authenticate_uri", "where callers get their tokens"),
        ):
            if not self._conf.get(option):
                raise InvalidInput(f"[keystone_authtoken] {option}", None, f"say {use}")

    def logins(self) -> Adapter:
        """Keystone's endpoint for logins, reached as the service itself reaches it."""
        return Adapter(
            self._session,
            auth=self._auth,
            service_type="identity",
            interface=AUTH_INTERFACE,  # type: ignore[arg-type]
            min_version="3",
            max_version="3.latest",
            connect_retries=0,
        )

    def secrets(self) -> str:
        """What the service itself logs in with, all secrets of its login; empty if it has none."""
        group = self._conf.get("auth_section") or AUTHTOKEN
        options = get_plugin_loader(self._conf.get("auth_type", group=group)).get_options()
        given = {o.dest: self._conf.get(o.dest, group=group) for o in options if o.secret}
        return json.dumps(given) if any(given.values()) else ""

    def fetch_token(self, token: str, allow_expired: bool = False) -> Any:
        """As the middleware does, but an unreachable Keystone does not make a token invalid."""
        try:
            return super().fetch_token(token, allow_expired=allow_expired)
        except InvalidToken as error:
            if isinstance(error.__context__, _KEYSTONE_IS_AWAY):
                raise HTTPServiceUnavailable from error
            raise

    def process_request(self, request: Any) -> Any:
        try:
            return super().process_request(request)
        except (HTTPServiceUnavailable, ClientException) as error:
            LOG.error("Keystone cannot be reached: %s", error)
            document = problem(
                503,
                "unavailable",
                "Keystone did not answer; try again later",
                request_id=request.environ.get(REQUEST_ID),
            )
            response = _response(document)
            response.headers["Retry-After"] = "5"
            return response


def _response(document: Problem) -> webob.Response:
    return webob.Response(
        document.model_dump_json(exclude_none=True).encode(),
        status=document.status,
        content_type="application/problem+json",
    )


_KEYSTONE_IS_AWAY = (ConnectFailure, DiscoveryFailure, RequestTimeout, ServiceError)


def identified(environ: WSGIEnvironment) -> bool:
    """Whether the caller's token is valid, and the service's token, if one was given.

    A request with a service token is exempt from the access rules of an application
    credential, so an invalid service token must not be accepted.
    """
    statuses = (
        environ.get("HTTP_X_IDENTITY_STATUS"),
        environ.get("HTTP_X_SERVICE_IDENTITY_STATUS", "Confirmed"),
    )
    return statuses == ("Confirmed", "Confirmed")


class Loopback:
    """Treats every caller as an administrator; ``X-Project-Id`` may name a project.

    Only for a service that listens on loopback: see ``middleware``. A request for
    another host name is refused: a browser sends such a request if a web page had its own name
    resolve to this machine (DNS rebinding), or if a page of another site tries to act here
    (``session_cookies.foreign``). A request that a proxy passed on is refused on every
    path: behind a proxy on this machine any stranger would be an administrator.
    """

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Any:
        text = foreign(environ)
        if passed_on(environ):
            text = (
                "a proxy passed this request on, and without authentication this service answers "
                "to its own machine only; set [api] auth_strategy = keystone, or put no proxy "
                "in front"
            )
        elif not is_loopback(urlsplit(f"//{environ.get('HTTP_HOST', '')}").hostname or ""):
            text = "without authentication this service answers to localhost only"
        if text:
            refusal = problem(403, "forbidden", text, request_id=environ.get(REQUEST_ID))
            return _response(refusal)(environ, start_response)
        project = environ.get("HTTP_X_PROJECT_ID") or LOCAL_PROJECT
        for name in [name for name in environ if name.startswith(_IDENTITY)]:
            del environ[name]
        environ[LOCAL] = True
        environ.update(
            HTTP_X_IDENTITY_STATUS="Confirmed",
            HTTP_X_ROLES="admin,member,reader",
            HTTP_X_PROJECT_ID=project,
            HTTP_X_USER_ID="local",
        )
        return self._app(environ, start_response)


_IDENTITY = (
    "HTTP_X_IDENTITY",
    "HTTP_X_AUTH",
    "HTTP_X_USER",
    "HTTP_X_PROJECT",
    "HTTP_X_ROLE",
    "HTTP_X_DOMAIN",
    "HTTP_X_SERVICE",
    "HTTP_X_IS_ADMIN",
    "HTTP_X_TENANT",
    "HTTP_X_SYSTEM",
    "HTTP_OPENSTACK_SYSTEM_SCOPE",
)
"""Headers that a client could forge if no token is checked."""


_FORWARDED = ("HTTP_X_FORWARDED", "HTTP_X_ORIGINAL", "HTTP_X_ENVOY")
"""Common beginnings of the names of proxy headers."""

_FORWARDING = frozenset(
    {
        "HTTP_FORWARDED",
        "HTTP_VIA",
        "HTTP_X_REAL_IP",
        "HTTP_X_CLIENT_IP",
        "HTTP_X_CLUSTER_CLIENT_IP",
        "HTTP_X_PROXYUSER_IP",
        "HTTP_X_SCRIPT_NAME",
        "HTTP_CLIENT_IP",
        "HTTP_TRUE_CLIENT_IP",
        "HTTP_CF_CONNECTING_IP",
        "HTTP_FASTLY_CLIENT_IP",
        "HTTP_FRONT_END_HTTPS",
        "HTTP_PROXY_CONNECTION",
    }
)
"""Other headers that proxies add, by RFC 9110, RFC 7239 and habit."""


def passed_on(environ: WSGIEnvironment) -> bool:
    """Whether a header, even an empty one, says that a proxy passed the request on."""
    return any(name in _FORWARDING or name.startswith(_FORWARDED) for name in environ)


def middleware(
    strategy: str, bind_host: str, conf: cfg.ConfigOpts
) -> Callable[[WSGIApplication], WSGIApplication]:
    """The authentication middleware for the application.

    Raises:
        InvalidInput: an unknown strategy, or none although other machines could reach the service.
    """
    if strategy == "keystone":
        return functools.partial(_with_sessions, conf=conf)
    if strategy != "none":
        raise InvalidInput("auth_strategy", strategy, "use keystone or none")
    if not is_loopback(bind_host):
        raise InvalidInput(
            "bind_host",
            bind_host,
            "without authentication use 127.0.0.1; for others set [api] auth_strategy = keystone",
        )
    return Loopback


def _with_sessions(app: WSGIApplication, conf: cfg.ConfigOpts) -> WSGIApplication:
    checked = Keystone(app, conf)
    return SessionCookies(checked, checked.logins(), checked.secrets())


NOBODY = Caller(project_id="", user_id="", admin=False, request_id="")
"""The caller of a route that needs no token."""


LOOK = 1.0
"""Seconds between two looks for changed policy files."""


class _Enforcer(policy.Enforcer):
    """The rules, read again when their files change; oslo.policy would look at each use."""

    _look_again = -math.inf

    def load_rules(self, force_reload: bool = False) -> None:
        now = time.monotonic()
        if force_reload or now >= self._look_again:
            super().load_rules(force_reload)
            self._look_again = now + LOOK


class Gate:
    """Authorizes requests by the rules of oslo.policy."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._enforcer = _Enforcer(conf)
        self._enforcer.register_defaults(policies.list_rules())

    def caller(self, environ: WSGIEnvironment, route: Operation) -> Caller:
        """The caller, if the route's rule admits it.

        Raises:
            Unauthenticated: there is no valid token.
            Forbidden: the rule refuses the caller.
        """
        rule = route.rule or ""
        if not identified(environ):
            if route.nobody and self._allows(rule, RequestContext(overwrite=False)):
                return NOBODY
            raise Unauthenticated("give a valid token in X-Auth-Token")
        context = RequestContext.from_environ(environ)
        if not self._allows(rule, context):
            raise Forbidden(f"policy {rule} does not let you do this")
        return Caller(
            project_id=context.project_id or "",
            user_id=context.user_id or "",
            admin=self._allows(policies.ANY_PROJECT, context),
            request_id=context.request_id or "",
        )

    def require(self, environ: WSGIEnvironment, rule: str) -> None:
        """Raises: Forbidden."""
        if not self._allows(rule, RequestContext.from_environ(environ)):
            raise Forbidden(f"policy {rule} does not let you do this")

    def _allows(self, rule: str, context: RequestContext) -> bool:
        target = {"project_id": context.project_id} if context.project_id else {}
        return bool(self._enforcer.enforce(rule, target, context))

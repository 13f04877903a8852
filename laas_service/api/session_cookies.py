# SPDX-License-Identifier: Apache-2.0

"""Sessions of the fabric page: a Keystone token, encrypted in a cookie that no script reads.

The service keeps no session. ``SessionCookies`` stands in front of the check of tokens: it takes
the token out of the cookie, and only for a request of the page itself, which sends the session's
secret in the header ``X-LaaS-Session``. Other sites can send neither that header nor read it.
"""

import hashlib
import json
import secrets
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from cryptography.fernet import Fernet, InvalidToken
from keystoneauth1 import exceptions as keystone_errors
from keystoneauth1.adapter import Adapter
from werkzeug.http import parse_cookie

from laas_service.api.proxies import CLIENT
from laas_service.api.rate_limit import SIGN_INS, Buckets
from laas_service.app.loopback import is_loopback
from laas_service.domain.errors import Forbidden, InvalidInput, Unauthenticated, Unavailable

HEADER = "X-LaaS-Session"
"""The header with the session's secret, without which the cookie is not read."""

COOKIE = "__Host-laas-session"
"""Browsers take a cookie of such a name from a secure origin alone, for exactly that host."""

LONGEST = 3600.0
"""Seconds after which a session ends although its token is still valid."""

LARGEST = 3500
"""Bytes of the largest cookie; browsers drop those of more than 4,096 with name and attributes."""

VISIT = "laas.visit"
"""The key of the ``Visit`` in the WSGI environment."""

_OF_PAGE = f"HTTP_{HEADER.upper().replace('-', '_')}"
_OF_CLIENT = "HTTP_X_AUTH_TOKEN"
_SALT = b"laas fabric page, sessions, 1"


@dataclass(frozen=True, slots=True)
class Session:
    """A session that has begun; ``secret`` is for the page, ``cookie`` for the browser."""

    secret: str
    cookie: str
    user: str
    project: str
    roles: tuple[str, ...]
    expires_at: datetime


def own_origin(environ: WSGIEnvironment) -> str:
    """Scheme, host and port that the request was sent to."""
    return f"{environ.get('wsgi.url_scheme')}://{environ.get('HTTP_HOST', '')}".lower()


def foreign(environ: WSGIEnvironment) -> str:
    """Why a browser sends this request for another site; empty: it does not, or is no browser.

    A link from elsewhere that a person follows is none: such a request only reads, and the other
    site does not see the answer.
    """
    origin = environ.get("HTTP_ORIGIN")
    if origin is not None and origin.lower() != own_origin(environ):
        return f"a page of {origin[:100]} sent this request, and not one of this service"
    followed = environ.get("HTTP_SEC_FETCH_MODE") == "navigate"
    if followed and environ.get("REQUEST_METHOD") in ("GET", "HEAD"):
        return ""
    if environ.get("HTTP_SEC_FETCH_SITE", "none") not in ("none", "same-origin"):
        return "a page of another site sent this request, and not one of this service"
    return ""


class SessionCookies:
    """Gives requests of the page the token in their cookie; signs in and out.

    ``identity`` is Keystone's endpoint for logins. ``seed`` is a secret that all API processes
    share and that nobody else knows: the key of the cookies is derived from it.
    """

    def __init__(
        self,
        app: WSGIApplication,
        identity: Adapter,
        seed: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._app = app
        self._identity = identity
        self._seed = seed
        self._clock = clock
        self._rate = Buckets(lambda: SIGN_INS, time.monotonic)
        self._ended: dict[str, float] = {}  # digest of a secret -> when its cookie expires
        self._lock = threading.Lock()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Any:
        environ[VISIT] = Visit(self, environ)
        if _OF_CLIENT not in environ and _OF_PAGE in environ and not foreign(environ):
            content = self.content(environ)
            if content is not None:
                environ[_OF_CLIENT] = content["token"]
        return self._app(environ, start_response)

    @cached_property
    def _fernet(self) -> Fernet:
        """Slow on purpose: who has a cookie may guess at the seed."""
        key = hashlib.scrypt(
            self._seed.encode(), salt=_SALT, n=2**15, r=8, p=1, dklen=32, maxmem=2**26
        )
        return Fernet(urlsafe_b64encode(key))

    def content(self, environ: WSGIEnvironment) -> dict[str, Any] | None:
        """What the request's cookie holds; None unless the cookie, secret and address agree."""
        sealed = parse_cookie(environ).get(COOKIE)
        if sealed is None or not self._seed:
            return None
        try:
            content: dict[str, Any] = json.loads(self._fernet.decrypt(sealed.encode()))
        except (InvalidToken, ValueError):
            return None
        digest = _digest(environ.get(_OF_PAGE, ""))
        agreed = (
            secrets.compare_digest(digest, content["secret"])
            and content["origin"] == own_origin(environ)
            and self._clock() < content["expires"]
            and digest not in self._ended
        )
        return content if agreed else None

    def begin(self, environ: WSGIEnvironment, login: Mapping[str, Any]) -> Session:
        """Sign in.

        ``login`` is ``auth`` of Keystone's ``POST /v3/auth/tokens``, or ``{"token": ...}``.

        Raises:
            Forbidden: another site sent it, or it would cross the network in the clear.
            TooManyRequests: too many logins came from this address.
            Unauthenticated: Keystone refuses it.
            Unavailable: Keystone does not answer.
        """
        if text := foreign(environ) or _unsafe(environ):
            raise Forbidden(text)
        if not self._seed:
            raise Forbidden(
                "nobody can sign in here: [keystone_authtoken] has no password or other secret "
                "to encrypt sessions with; use laas view"
            )
        self._rate.take("")
        self._rate.take(environ.get(CLIENT, ""))
        token, shown = self._shown(login)
        if "project" not in shown:
            raise Forbidden("the token is for no project; sign in to one")
        expires = min(_seconds(shown["expires_at"]), self._clock() + LONGEST)
        secret = secrets.token_urlsafe(32)
        content = {
            "token": token,
            "secret": _digest(secret),
            "origin": own_origin(environ),
            "expires": expires,
        }
        sealed = self._fernet.encrypt(json.dumps(content).encode()).decode()
        if len(sealed) > LARGEST:
            raise Forbidden("the token is too long for a cookie; use laas view")
        return Session(
            secret=secret,
            cookie=_cookie(sealed, max(0, int(expires - self._clock()))),
            user=shown["user"]["name"],
            project=shown["project"]["name"],
            roles=tuple(sorted(role["name"] for role in shown.get("roles", ()))),
            expires_at=datetime.fromtimestamp(expires, UTC),
        )

    def end(self, environ: WSGIEnvironment) -> str:
        """Sign out: revoke the token, and forget the session; the cookie that removes the old one.

        Raises:
            Unauthenticated: there is no session.
            Unavailable: Keystone does not answer; this process refuses the session all the same.
        """
        content = None if foreign(environ) else self.content(environ)
        if content is None:
            raise Unauthenticated("there is no session here, or it has ended")
        with self._lock:
            now = self._clock()
            self._ended = {name: end for name, end in self._ended.items() if end > now}
            self._ended[content["secret"]] = content["expires"]
        self._asked("DELETE", content["token"])
        return _cookie("", 0)

    def _shown(self, login: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """A token, and what Keystone tells about it."""
        if "token" in login:
            token = login["token"]
            answer = self._asked("GET", token)
        else:
            answer = self._asked("POST", json={"auth": login})
            token = answer.headers["X-Subject-Token"]
        try:
            return token, dict(answer.json()["token"])
        except (KeyError, TypeError, ValueError) as error:
            raise Unavailable(f"Keystone's answer to a login is invalid: {error!r}") from error

    def _asked(self, method: str, token: str | None = None, **more: Any) -> Any:
        """Ask Keystone about the token, with the token itself and never with the service's."""
        headers = {"X-Auth-Token": token, "X-Subject-Token": token} if token else {}
        try:
            return self._identity.request(
                "/auth/tokens", method, authenticated=False, headers=headers, log=False, **more
            )
        except keystone_errors.HttpError as error:
            if error.http_status >= 500:
                raise Unavailable(f"Keystone did not take the login: {error}") from error
            if error.response is not None and "Openstack-Auth-Receipt" in error.response.headers:
                raise Unauthenticated(
                    "Keystone wants a further factor; paste a token from openstack token issue"
                ) from None
            raise Unauthenticated("Keystone refuses this login") from None
        except keystone_errors.ClientException as error:
            raise Unavailable(f"Keystone did not answer: {error}") from error


@dataclass(frozen=True, slots=True)
class Visit:
    """One request, to the views that sign in and out."""

    _cookies: SessionCookies
    _environ: WSGIEnvironment

    def begin(self, login: Mapping[str, Any]) -> Session:
        """See ``SessionCookies.begin``."""
        return self._cookies.begin(self._environ, login)

    def end(self) -> str:
        """See ``SessionCookies.end``."""
        return self._cookies.end(self._environ)


def login_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """A login as Keystone takes it, of the fields that a person fills in.

    Raises:
        InvalidInput: fields are missing, or those of two ways to sign in are mixed.
    """
    fields = {name for name, value in given.items() if value is not None}
    if fields == {"token"}:
        return {"token": given["token"]}
    if fields == {"application_credential_id", "application_credential_secret"}:
        credential = {"id": given["application_credential_id"]}
        credential["secret"] = given["application_credential_secret"]
        methods = ["application_credential"]
        return {"identity": {"methods": methods, "application_credential": credential}}
    password = {"username", "password", "project"}
    if not password <= fields <= {*password, "user_domain", "project_domain"}:
        raise InvalidInput(
            "sign-in",
            sorted(fields),
            "give username, password and project, with user_domain and project_domain unless they "
            "are Default; or application_credential_id and application_credential_secret; or token",
        )
    domain = given.get("user_domain") or "Default"
    user = {"name": given["username"], "domain": {"name": domain}, "password": given["password"]}
    project_domain = given.get("project_domain") or domain
    return {
        "identity": {"methods": ["password"], "password": {"user": user}},
        "scope": {"project": {"name": given["project"], "domain": {"name": project_domain}}},
    }


def _unsafe(environ: WSGIEnvironment) -> str:
    """Why a login would be readable on its way; empty: it is not."""
    if environ.get("wsgi.url_scheme") == "https":
        return ""
    host = urlsplit(f"//{environ.get('HTTP_HOST', '')}").hostname or ""
    if is_loopback(host) and is_loopback(environ.get(CLIENT, "")):
        return ""
    return (
        "signing in needs TLS, or a browser on the service's own machine; behind a proxy set "
        "[oslo_middleware] enable_proxy_headers_parsing and have it send X-Forwarded-Proto"
    )


def _cookie(value: str, seconds: int) -> str:
    return f"{COOKIE}={value}; Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite=Strict"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()

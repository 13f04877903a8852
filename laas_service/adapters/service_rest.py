# SPDX-License-Identifier: Apache-2.0

"""The service over REST, as an agent on another machine asks it, by a keystoneauth session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any
from urllib.parse import quote

from keystoneauth1 import exceptions as keystone_errors
from keystoneauth1 import loading
from keystoneauth1.adapter import Adapter
from keystoneauth1.noauth import NoAuth
from oslo_config import cfg
from requests import RequestException

from laas_service.app.opensm_agent import Orders
from laas_service.domain.errors import Conflict, Forbidden, InvalidInput, NotFound, Unavailable
from laas_service.messages import AgentReport

GROUP = "laas"
CHUNK = 1 << 20


def connect(conf: cfg.ConfigOpts) -> Adapter:
    """A session as [laas] says; nothing is asked yet.

    Raises:
        InvalidInput: the options do not say how to log in, or where the service is.
    """
    try:
        auth = loading.load_auth_from_conf_options(conf, GROUP)
        if auth is None:
            if not conf.laas.endpoint_override:
                raise InvalidInput(
                    "[laas] auth_type",
                    None,
                    "set it, for example to password; on the service's own machine without "
                    "Keystone set endpoint_override alone",
                )
            auth = NoAuth(conf.laas.endpoint_override)
        session = loading.load_session_from_conf_options(conf, GROUP)
        return loading.load_adapter_from_conf_options(
            conf, GROUP, session=session, auth=auth, user_agent="laas-opensm-agent"
        )
    except keystone_errors.ClientException as error:
        raise InvalidInput("[laas]", "login", str(error)) from error


class ServiceRest:
    """``app.agent.Service`` and ``opensm_writer.fetch.Source``, for one agent of one fabric.

    Without ``fabric`` it is the only one that the service has.
    """

    def __init__(self, adapter: Adapter, name: str, fabric: str | None = None) -> None:
        self._adapter, self._name, self._fabric = adapter, name, fabric

    @property
    def fabric(self) -> str:
        """The id of the fabric.

        Raises:
            InvalidInput: there are several, and none was named.
        """
        if self._fabric is None:
            known = [fabric["id"] for fabric in self._json("GET", "/v1/fabrics")["fabrics"]]
            if len(known) != 1:
                raise InvalidInput(
                    "[opensm] agent_fabric", None, f"name one of: {', '.join(known) or 'none yet'}"
                )
            self._fabric = str(known[0])
        return self._fabric

    def report(self, seen: AgentReport) -> Orders:
        answer = self._json("PUT", self._path("agents", self._name), asdict(seen))
        try:
            return Orders(
                answer["role"] == "active", int(answer["wanted"]), float(answer["lease_seconds"])
            )
        except (KeyError, TypeError, ValueError) as error:
            raise _nonsense(error) from error

    def described(self) -> Mapping[str, Any]:
        document = self._json("GET", self._path("file-set"))
        if not isinstance(document, dict):
            raise _nonsense(document)
        return document

    def contents(self, generation: int, name: str, start: int, size: int) -> Iterator[bytes]:
        if size == 0:
            return
        path = self._path("file-set", str(generation), *name.split("/"))
        headers = {
            "Accept": "application/octet-stream",
            "Accept-Encoding": "identity",
            "Range": f"bytes={start}-{start + size - 1}",
        }
        answer = self._ask("GET", path, headers=headers, stream=True)
        try:
            if answer.status_code != 206 and start:
                raise Unavailable(f"{path} was asked for a part and answered with everything")
            yield from answer.iter_content(CHUNK)
        except RequestException as error:
            raise Unavailable(f"{path}: {error}") from error
        finally:
            answer.close()

    def _path(self, *parts: str) -> str:
        return "/".join(["/v1/fabrics", *(quote(part, safe="") for part in (self.fabric, *parts))])

    def _json(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        try:
            return self._ask(method, path, json=body).json()
        except ValueError as error:
            raise _nonsense(error) from error

    def _ask(self, method: str, path: str, **options: Any) -> Any:
        """The answer. Raises: NotFound, Forbidden, Conflict, Unavailable."""
        try:
            answer = self._adapter.request(path, method, raise_exc=False, **options)
        except (keystone_errors.ClientException, RequestException) as error:
            raise Unavailable(f"{method} {path}: {error}") from error
        if answer.status_code < 400:
            return answer
        why = f"{method} {path}: {_sentence(answer)}"
        if answer.status_code == 404:
            raise NotFound("resource", path, why)
        if answer.status_code == 403:
            raise Forbidden(why)
        if answer.status_code == 409:
            raise Conflict(why)
        raise Unavailable(why)


def _sentence(answer: Any) -> str:
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"{answer.status_code} {answer.reason}"


def _nonsense(what: object) -> Unavailable:
    return Unavailable(f"the service's answer makes no sense: {what!r}")

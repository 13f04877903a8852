# SPDX-License-Identifier: Apache-2.0

"""REST client of the OpenSM agent, on a keystoneauth session.

Sends nothing by plain http to another machine: anybody on the path could read the agent's token
and answer in place of the service.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import quote, urlsplit

from keystoneauth1 import exceptions as keystone_errors
from keystoneauth1 import loading
from keystoneauth1.adapter import Adapter
from keystoneauth1.noauth import NoAuth
from keystoneauth1.session import TCPKeepAliveAdapter
from oslo_config import cfg
from oslo_log import log as logging
from requests import PreparedRequest, RequestException, Response

from laas_service.app.loopback import is_loopback
from laas_service.domain.errors import Conflict, Forbidden, InvalidInput, NotFound, Unavailable
from laas_service.domain.faults.counters import SwitchCounters
from laas_service.domain.faults.reading import EndReading, FabricReading
from laas_service.domain.grouping import grouped
from laas_service.domain.inventory import PortRef
from laas_service.domain.wording import listed
from laas_service.messages import SET_FORM, AgentReport, Orders
from laas_service.version import user_agent

LOG = logging.getLogger(__name__)

GROUP = "laas"
RUNNING = {"engine", "master"}
"""Fields of a report that a service of a release refuses that does not show what runs."""

SPENT = {"spent"}
"""The same of a release that does not tell an agent's time apart."""

STAMPS = {"stamp", "published_stamp"}
"""Fields of a report that a service of a release without stamps refuses."""

CHUNK = 1 << 20

KNOWN_FORM = {"Laas-Set-Form": str(SET_FORM)}
"""The header that says which form of a set the agent knows."""

LONGEST_BODY = 65_000
"""Bytes of a report, with port counters; the service takes 65,536 by default."""

LONGEST_READING = 40_000
"""Bytes of the reading in a report; by default the service takes bodies of 65,536 bytes."""


def connect(conf: cfg.ConfigOpts) -> Adapter:
    """A session with the options of [laas]; the address of the service may come from Keystone.

    Raises:
        InvalidInput: the options do not say how to log in or where the service is, or the
            address of Keystone or the service has http and another machine, which
            [opensm] agent_plain_http does not allow.
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
        agent = user_agent("laas-opensm-agent")
        session = loading.load_session_from_conf_options(conf, GROUP, user_agent=agent)
        if conf.opensm.agent_plain_http:
            LOG.warning(
                "[opensm] agent_plain_http is on: the agent sends its password and its token over "
                "connections that others may read and change"
            )
        else:
            session.mount("http://", _WithinTheMachine())
        adapter = loading.load_adapter_from_conf_options(
            conf, GROUP, session=session, auth=auth, user_agent=agent
        )
    except keystone_errors.ClientException as error:
        raise InvalidInput("[laas]", "login", str(error)) from error
    if conf.opensm.agent_plain_http:
        return adapter
    if auth_url := getattr(auth, "auth_url", None):
        _check_address(f"[{conf.laas.auth_section or GROUP}] auth_url", auth_url)
    if conf.laas.endpoint_override:
        _check_address("[laas] endpoint_override", conf.laas.endpoint_override)
    else:
        _check_catalogue(adapter)
    return adapter


class _WithinTheMachine(TCPKeepAliveAdapter):
    """Refuses plain http to other machines, also after a redirection or a change in Keystone."""

    def send(self, request: PreparedRequest, *args: Any, **options: Any) -> Response:
        _check_address("[laas] address of a request", request.url or "")
        return super().send(request, *args, **options)


def _check_catalogue(adapter: Adapter) -> None:
    """Check the endpoint in Keystone's catalogue.

    If Keystone does not answer now, ``_WithinTheMachine`` checks each request.
    """
    try:
        endpoint = adapter.get_endpoint()
    except (keystone_errors.ClientException, RequestException) as error:
        LOG.warning(
            "Keystone does not answer, the endpoint of the service is not known yet: %s", error
        )
        return
    if endpoint:
        _check_address(
            "[laas] valid_interfaces (the endpoint in Keystone's catalogue)",
            endpoint,
            "; correct the catalogue, or set [laas] endpoint_override to an address with https",
        )


def _check_address(option: str, url: str, more: str = "") -> None:
    """Check that an address has https, or is on loopback.

    Raises:
        InvalidInput: names the option, the address and what to do.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError as error:
        raise InvalidInput(option, url, str(error)) from error
    if parts.scheme == "https" and host:
        return
    if parts.scheme != "http" or not is_loopback(host):
        raise InvalidInput(
            option,
            url,
            f"use https; http is for this machine's loopback only{more} "
            "([opensm] agent_plain_http overrides this)",
        )


class ServiceRest:
    """``app.opensm_agent.Report`` and ``opensm_writer.fetch.Source``, for one agent of one fabric.

    ``fabric`` may be omitted if the service has only one. ``now`` is seconds since the epoch, by
    the clock of the readings.
    """

    def __init__(
        self,
        adapter: Adapter,
        name: str,
        fabric: str | None = None,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._adapter, self._name, self._fabric, self._now = adapter, name, fabric, now

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
                    "[opensm] agent_fabric", None, f"name one of: {listed(known) or 'none yet'}"
                )
            self._fabric = str(known[0])
        return self._fabric

    def report(self, seen: AgentReport) -> Orders:
        path, body = self._path("agents", self._name), _report(seen, self._now())
        answer = self._answered(path, body)
        try:
            return Orders(
                answer["role"] == "active",
                str(answer["active"]),
                int(answer["wanted"]),
                float(answer["lease_seconds"]),
                str(answer.get("stamp") or ""),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise _unexpected(error) from error

    def _answered(self, path: str, body: dict[str, Any]) -> Any:
        """The answer to a report, without fields that an earlier release refuses."""
        for unknown in (SPENT, RUNNING, STAMPS):
            try:
                return self._json("PUT", path, body)
            except InvalidInput:
                if body.keys().isdisjoint(SPENT | RUNNING | STAMPS):
                    raise
                body = {key: value for key, value in body.items() if key not in unknown}
        return self._json("PUT", path, body)

    def described(self) -> Mapping[str, Any]:
        document = self._json("GET", self._path("file-set"), headers=KNOWN_FORM)
        if not isinstance(document, dict):
            raise _unexpected(document)
        return document

    def contents(self, generation: int, name: str, start: int, size: int) -> Iterator[bytes]:
        if size == 0:
            return
        path = self._path("file-set", str(generation), *name.split("/"))
        headers = {
            **KNOWN_FORM,
            "Accept": "application/octet-stream",
            "Accept-Encoding": "identity",
            "Range": f"bytes={start}-{start + size - 1}",
        }
        answer = self._ask("GET", path, headers=headers, stream=True)
        try:
            if answer.status_code != 206 and start:
                raise Unavailable(f"{path}: the answer ignores the Range of the request")
            yield from answer.iter_content(CHUNK)
        except RequestException as error:
            raise Unavailable(f"{path}: {error}") from error
        finally:
            answer.close()

    def _path(self, *parts: str) -> str:
        return "/".join(["/v1/fabrics", *(quote(part, safe="") for part in (self.fabric, *parts))])

    def _json(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, **options: Any
    ) -> Any:
        try:
            return self._ask(method, path, json=body, **options).json()
        except ValueError as error:
            raise _unexpected(error) from error

    def _ask(self, method: str, path: str, **options: Any) -> Any:
        """The answer. Raises: NotFound, Forbidden, Conflict, InvalidInput, Unavailable."""
        try:
            answer = self._adapter.request(path, method, raise_exc=False, **options)
        except (keystone_errors.ClientException, RequestException) as error:
            raise Unavailable(f"{method} {path}: {error}") from error
        if answer.status_code < 400:
            return answer
        why = f"{method} {path}: {_reason(answer)}"
        refusals = {403: Forbidden(why), 404: NotFound("resource", path, why), 409: Conflict(why)}
        if answer.status_code == 400:
            raise InvalidInput("request", path, why)
        raise refusals.get(answer.status_code, Unavailable(why))


def _report(seen: AgentReport, now: float) -> dict[str, Any]:
    """The body of a report; without fields that earlier services do not know, if they are empty.

    ``now`` is of the clock of the readings, in seconds since the epoch.
    """
    body: dict[str, Any] = {
        "condition": seen.condition,
        "detail": seen.detail,
        "generation": seen.generation,
        "published": seen.published,
    }
    if seen.stamp:
        body["stamp"] = seen.stamp
    if seen.published_stamp:
        body["published_stamp"] = seen.published_stamp
    if seen.running.engine is not None:
        body["engine"] = seen.running.engine
    if master := seen.running.master:
        body["master"] = {**asdict(master), "guid": _guid(master.guid)}
    if seen.spent:
        body["spent"] = {span.value: round(seconds, 3) for span, seconds in seen.spent.items()}
    if seen.without or seen.unconfirmed:
        body["without"] = [_guid(switch) for switch in seen.without]
        body["unconfirmed"] = [_guid(switch) for switch in seen.unconfirmed]
    if seen.reading is not None:
        body["reading"] = _reading(seen.reading, now)
    left = LONGEST_BODY - len(json.dumps(body))
    for switch in seen.counters:
        document = _counters(switch, now)
        left -= len(json.dumps(document)) + 2
        if left < 0:
            break
        body.setdefault("counters", []).append(document)
    return body


def _counters(switch: SwitchCounters, now: float) -> dict[str, Any]:
    """The body's counters of a switch, each number once."""
    names = sorted({name for port in switch.ports.values() for name in port.values})
    body: dict[str, Any] = {
        "guid": _guid(switch.guid),
        "age": max(0.0, now - switch.at),
        "names": names,
        "ports": [
            " ".join((str(number), *(str(port.values.get(name, "-")) for name in names)))
            for number, port in switch.ports.items()
        ],
    }
    rates = {
        str(number): port.bit_error_rate
        for number, port in switch.ports.items()
        if port.bit_error_rate is not None
    }
    return body | ({"bit_error_rates": rates} if rates else {})


def _reading(reading: FabricReading, now: float) -> dict[str, Any]:
    """The body's reading; lists fewer ends if the body would be too long for the service."""
    left_out = reading.ends_left_out
    ends = reading.ends
    while True:
        body = {
            "age": max(0.0, now - reading.at),
            **_ends(ends),
            "ends_left_out": left_out + len(reading.ends) - len(ends),
            "observer": _port(reading.observer) if reading.observer is not None else None,
            "nodes_read": reading.nodes_read,
            "switches_read": reading.switches_read,
            "unknown_switches": [
                {"guid": _guid(guid), "name": name} for guid, name in reading.unknown_switches
            ],
            "unknown_cables": [
                f"{_port(first)} {_port(second)}" for first, second in reading.unknown_cables
            ],
        }
        if not ends or len(json.dumps(body)) <= LONGEST_READING:
            return body
        ends = ends[: len(ends) * 3 // 4]


def _ends(ends: Sequence[EndReading]) -> dict[str, list[str]]:
    grouped_ends = grouped(((end.guid, state), end.port) for end, state, other in ends if not other)
    return {
        "ends": [
            f"{_guid(guid)} {state.value} {' '.join(map(str, ports))}"
            for (guid, state), ports in grouped_ends.items()
        ],
        "moved": [f"{_port(end)} {_port(other)}" for end, _, other in ends if other],
    }


def _port(port: PortRef) -> str:
    return f"{_guid(port.guid)} {port.port}"


def _guid(guid: int) -> str:
    return f"{guid:#018x}"


def _reason(answer: Any) -> str:
    """The reason of an error answer."""
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"{answer.status_code} {answer.reason}"


def _unexpected(what: object) -> Unavailable:
    return Unavailable(f"unexpected answer of the service: {what!r}")

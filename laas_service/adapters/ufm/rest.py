# SPDX-License-Identifier: Apache-2.0

"""A client of UFM's REST interface.

Sources are NVIDIA's REST API Guides 6.11.1 to 6.24.2, the clients of ib-kubernetes and of NVIDIA's
infra controller, and the scripts of NVIDIA's SDK. Only calls that both clients rely on change
partitions. Nothing is retried here: the caller reads again what is so.
"""

import os
import stat
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import requests

from laas_service.app.loopback import is_loopback
from laas_service.domain.errors import InvalidInput, Unavailable
from laas_service.domain.faults.reading import UnhealthyPort
from laas_service.domain.inventory import PortRef
from laas_service.domain.wording import printable
from laas_service.version import user_agent

GUIDS_A_CALL = 500
"""GUIDs in the body of one request."""

PORTS_A_CALL = 100
"""Ports in the body of one request."""

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""Seconds between two looks at a job."""


@dataclass(frozen=True, slots=True)
class UfmSettings:
    """How to reach a UFM: by the token in a file, or by a client certificate and its key.

    ``url`` is scheme, host and port. ``ca_file`` has the authorities of its certificate, None
    for those of the system. ``timeout`` and ``job_timeout`` are in seconds.

    Raises:
        InvalidInput: the address has http and is not on loopback, there is not exactly one way
            to log in, or others may read a secret.
    """

    url: str
    token_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    ca_file: Path | None = None
    timeout: float = 10.0
    job_timeout: float = 60.0

    def __post_init__(self) -> None:
        _check_address(self.url)
        if (self.token_file is None) == (self.cert_file is None):
            fix = "set it, or cert_file and key_file, not both"
            raise InvalidInput("[ufm] token_file", str(self.token_file), fix)
        if (self.cert_file is None) != (self.key_file is None):
            fix = "a certificate needs its key, and a key its certificate"
            raise InvalidInput("[ufm] key_file", str(self.key_file), fix)
        if self.token_file is not None:
            read_secret(self.token_file, "token_file")
        if self.key_file is not None:
            read_secret(self.key_file, "key_file")
        for name in ("cert_file", "ca_file"):
            path = getattr(self, name)
            if path is not None and not path.is_file():
                raise InvalidInput(f"[ufm] {name}", str(path), "give a file that exists")


def _check_address(url: str) -> None:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise InvalidInput("[ufm] url", url, str(error)) from error
    if parts.username or parts.password or parts.query or parts.path.strip("/"):
        raise InvalidInput("[ufm] url", parts.hostname, "give scheme, host and port alone")
    if not host or parts.scheme not in ("https", "http"):
        raise InvalidInput("[ufm] url", url, "give an address such as https://ufm.example.org")
    if parts.scheme == "http" and not is_loopback(host):
        raise InvalidInput("[ufm] url", url, "use https; http is for this machine's loopback only")


def read_secret(path: Path, option: str) -> str:
    """The text of a file that only its owner may read. No error shows the text.

    Raises:
        InvalidInput: there is no such file, others may read it, or it is empty.
    """
    name = f"[ufm] {option}"
    try:
        with path.open() as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(100_000).strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no text"
        fix = f"give a file that can be read ({reason.lower()})"
        raise InvalidInput(name, str(path), fix) from error
    if not stat.S_ISREG(mode) or mode & 0o077:
        raise InvalidInput(name, str(path), "only its owner may read it: chmod 600")
    if not text:
        raise InvalidInput(name, str(path), "it is empty")
    return text


class Member(NamedTuple):
    """How a port is a member of a partition."""

    full: bool
    index0: bool


TENANTS = Member(full=True, index0=True)
"""The membership of tenants' ports; GASNet and NVSHMEM use the key at index 0."""


@dataclass(frozen=True, slots=True)
class UfmPartitions:
    """UFM's answer about its partitions: members by key (without the membership bit) and GUID.

    ``default_is_full`` says that each port is a full member of the default partition; None if
    UFM does not tell, as releases before 6.19.
    """

    members: Mapping[int, Mapping[int, Member]]
    default_is_full: bool | None = None


DEFAULT_KEY = 0x7FFF


class UfmRest:
    """One UFM. ``sleep`` and ``clock`` serve the waiting for jobs.

    Every method raises ``Unavailable`` if UFM does not answer, refuses, or answers nonsense.
    """

    def __init__(
        self,
        settings: UfmSettings,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._sleep, self._clock = settings, sleep, clock
        self._host = urlsplit(settings.url).hostname
        self._session = requests.Session()
        self._session.trust_env = False  # a password in .netrc would replace the token
        self._session.headers["User-Agent"] = user_agent("laas-worker")
        self._session.verify = str(settings.ca_file) if settings.ca_file is not None else True
        if settings.cert_file is not None:
            self._session.cert = (str(settings.cert_file), str(settings.key_file))
        prefix = "/ufmRestV3" if settings.token_file is not None else "/ufmRest"
        self._base = settings.url.rstrip("/") + prefix

    def release(self) -> str:
        """The release of UFM, such as ``6.23.1-6``."""
        return str(self._object("/app/ufm_version").get("ufm_release_version", ""))

    def partitions(self) -> UfmPartitions:
        """All partitions and their members."""
        answer = self._object("/resources/pkeys?guids_data=true")
        try:
            members = {int(key, 16): _members(partition) for key, partition in answer.items()}
            default = {int(key, 16): partition for key, partition in answer.items()}
            given = default.get(DEFAULT_KEY, {}).get("membership")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Unavailable(f"{self._name} shows partitions in an unknown form") from error
        members.pop(DEFAULT_KEY, None)
        return UfmPartitions(members, None if given is None else _word(given) != "limited")

    def systems(self) -> list[dict[str, Any]]:
        """Switches, hosts and routers."""
        return self._list("/resources/systems")

    def ports(self) -> list[dict[str, Any]]:
        """Ports of all systems, also those without a link and those that are disabled."""
        return self._list("/resources/ports?show_disabled=true")

    def unhealthy_ports(self) -> list[UnhealthyPort]:
        """The ports that UFM or somebody in it holds unhealthy."""
        rows = self._list("/app/unhealthy_ports")
        try:
            return [_unhealthy(row) for row in rows]
        except (KeyError, TypeError, ValueError) as error:
            raise Unavailable(f"{self._name} shows unhealthy ports in an unknown form") from error

    def set_unhealthy(self, ports: Collection[PortRef], unhealthy: bool) -> None:
        """Have the subnet manager isolate ports, or no longer; it does so a little later."""
        names = [f"{port.guid:016x}_{port.port}" for port in sorted(ports)]
        policy = {"ports_policy": "UNHEALTHY", "action": "isolate"}
        for at in range(0, len(names), PORTS_A_CALL):
            body: dict[str, Any] = {"ports": names[at : at + PORTS_A_CALL]}
            body |= policy if unhealthy else {"ports_policy": "HEALTHY"}
            self.wait(self._change("PUT", "/app/unhealthy_ports", body))

    def removed_links(self) -> list[tuple[PortRef, PortRef]]:
        """Links that the last comparison with the master topology misses; none without one."""
        path = "/reports/last_report/Topology_Compare"
        answer = self._request("GET", path)
        document = self._json(answer, path) if answer.status_code != 404 else {}
        try:
            rows = document["removed"]["links"] if document else []
            return [_ends(row["name"]) for row in rows]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Unavailable(f"{self._name} shows a comparison in an unknown form") from error

    def add(self, pkey: int, guids: Collection[int], *, ip_over_ib: bool) -> str | None:
        """Make ports full members with the key at index 0; a partition is made if needed.

        At most ``GUIDS_A_CALL``. Returns the job, for ``wait``; None if it is done.
        """
        body = {
            "pkey": f"{pkey:#x}",
            "ip_over_ib": ip_over_ib,
            "index0": True,
            "membership": "full",
            "guids": _texts(guids),
        }
        return self._change("POST", "/resources/pkeys", body)

    def remove(self, pkey: int, guids: Collection[int]) -> str | None:
        """End memberships, as ``add``; UFM deletes a partition with its last member."""
        body = {"pkey": f"{pkey:#x}", "guids": _texts(guids)}
        return self._change("POST", "/actions/remove_guids_from_pkey", body)

    def delete(self, pkey: int) -> None:
        """Delete a partition that has no members."""
        self.wait(self._change("DELETE", f"/resources/pkeys/{pkey:#x}"))

    @property
    def job_timeout(self) -> float:
        """Seconds in which UFM carries out what it accepted, as configured."""
        return self._settings.job_timeout

    def runs(self, job: str) -> bool:
        """Whether a job has not ended. UFM may have forgotten one that has."""
        document = self._json(self._request("GET", f"/jobs/{job}"), f"/jobs/{job}")
        return isinstance(document, dict) and bool(document) and not _ended(_status(document))

    # -- requests --------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return f"UFM {self._host}"

    def _request(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> requests.Response:
        headers = {}
        if self._settings.token_file is not None:
            token = read_secret(self._settings.token_file, "token_file")
            headers["Authorization"] = f"Basic {token}"
        try:
            answer = self._session.request(
                method,
                self._base + path,
                json=body,
                headers=headers,
                timeout=self._settings.timeout,
                allow_redirects=False,
            )
        except requests.RequestException as error:
            # the text of some errors shows headers
            kind = type(error).__name__
            raise Unavailable(f"{self._name} does not answer ({kind}, {method} {path})") from None
        except ValueError:
            raise Unavailable(f"{self._name} cannot be asked: a header is malformed") from None
        status = answer.status_code
        if status in (401, 403):
            fix = "check [ufm] token_file or cert_file, and the rights of their user"
            raise Unavailable(f"{self._name} refuses {method} {path} ({status}); {fix}")
        if status == 429:
            after = printable(str(answer.headers.get("Retry-After", "?"))[:20])
            raise Unavailable(f"{self._name} has too many requests; it says: after {after} s")
        if not (200 <= status < 300 or status == 404):
            text = printable(answer.text[:200])
            raise Unavailable(f"{self._name} answers {status} to {method} {path}: {text}")
        return answer

    def _json(self, answer: requests.Response, path: str) -> Any:
        try:
            return answer.json()
        except ValueError:
            raise Unavailable(f"{self._name} does not answer {path} with JSON") from None

    def _object(self, path: str) -> dict[str, Any]:
        """An object; empty if UFM has none, which it tells by 404 or by an empty object."""
        answer = self._request("GET", path)
        document = {} if answer.status_code == 404 else self._json(answer, path)
        if not isinstance(document, dict):
            raise Unavailable(f"{self._name} answers {path} in an unknown form")
        return document

    def _list(self, path: str) -> list[dict[str, Any]]:
        answer = self._request("GET", path)
        document = [] if answer.status_code == 404 else self._json(answer, path)
        if not isinstance(document, list) or not all(isinstance(row, dict) for row in document):
            raise Unavailable(f"{self._name} answers {path} in an unknown form")
        return document

    def _change(self, method: str, path: str, body: dict[str, Any] | None = None) -> str | None:
        """Have something changed; the job that does it, if it is one. 404: it is gone already."""
        answer = self._request(method, path, body)
        if answer.status_code == 202 and (place := answer.headers.get("Location")):
            return place.rstrip("/").rpartition("/")[2]
        if answer.status_code != 404 and answer.content:
            self._json(answer, path)
        return None

    def wait(self, job: str | None) -> None:
        """Return when a job has ended well; at once if there is none."""
        if job is None:
            return
        until, pause = self._clock() + self._settings.job_timeout, FIRST_PAUSE
        while True:
            document = self._object(f"/jobs/{job}")
            status = _status(document)
            if status == "Completed":
                return
            if _ended(status) or not document or self._clock() + pause > until:
                summary = printable(str(document.get("Summary", ""))[:200])
                raise Unavailable(f"{self._name}: job {job} is {status!r}: {summary}")
            self._sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


def _members(partition: Mapping[str, Any]) -> dict[int, Member]:
    return {
        int(row["guid"], 16): Member(_word(row["membership"]) == "full", _flag(row["index0"]))
        for row in partition["guids"]
    }


_FLAGS = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0", "none", ""), False),
}
"""What releases and proxies of UFM write for true and false, in lower case."""


def _flag(value: object) -> bool:
    """A boolean, also as a number or a text. Raises: ValueError."""
    word = _word(value)
    if word not in _FLAGS:
        raise ValueError(f"{word!r} is no boolean")
    return _FLAGS[word]


def _word(value: object) -> str:
    return str(value).strip().lower()


def _texts(guids: Collection[int]) -> list[str]:
    """GUIDs as UFM takes them."""
    return [f"{guid:016x}" for guid in sorted(guids)]


def _status(document: Mapping[str, Any]) -> str:
    return str(document.get("Status", "unknown"))


def _ended(status: str) -> bool:
    return any(word in status.lower() for word in ("error", "fail", "abort", "completed"))


def _unhealthy(row: Mapping[str, Any]) -> UnhealthyPort:
    """The condition is one word, or a list of words in later releases."""
    given = row["Condition"]
    words = given if isinstance(given, list) else [given]
    port = PortRef(int(row["UnhealthyGUID"], 16), int(row["UnhealthyPortNumber"]))
    return UnhealthyPort(port, printable(", ".join(map(str, words))[:100]))


def _ends(name: str) -> tuple[PortRef, PortRef]:
    """The ends of a link by its name, ``GUID_port:GUID_port``."""
    first, second = (end.split("_") for end in name.split(":"))
    return PortRef(int(first[0], 16), int(first[1])), PortRef(int(second[0], 16), int(second[1]))

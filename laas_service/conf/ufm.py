# SPDX-License-Identifier: Apache-2.0

"""[ufm]: the UFM whose partitions the service makes, with [opensm] reached_by = ufm."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from oslo_config import cfg

from laas_service.domain.errors import InvalidInput

GROUP = "ufm"

OPTIONS: list[Any] = [
    cfg.StrOpt(
        "url",
        help="""
Address of UFM: scheme, host and port, such as https://ufm.example.org. http is accepted for this
machine's loopback only.

Use the virtual address of a pair of UFMs, which follows the active one.
""",
    ),
    cfg.StrOpt(
        "fabric",
        help="""
Id of the fabric that this UFM manages. Required, also if the service manages one fabric only: ports
of a fabric must never be written to the UFM of another one.
""",
    ),
    cfg.StrOpt(
        "token_file",
        help="""
File with an access token of UFM (its web page, Settings, Access Tokens). Only the user of the
worker may read it (mode 0600). It is read before each request, so replace it when the token
changes.

The token's user needs the right to change partitions. Set this, or cert_file and key_file.
""",
    ),
    cfg.StrOpt(
        "cert_file",
        help="""
File with a client certificate that UFM accepts in place of a token, in PEM form. Needs key_file.
""",
    ),
    cfg.StrOpt(
        "key_file",
        help="""
File with the key of cert_file. Only the user of the worker may read it (mode 0600).
""",
    ),
    cfg.StrOpt(
        "ca_file",
        help="""
File with the authorities that may have signed UFM's certificate, in PEM form; by default those of
the system. UFM's certificate is always verified: give its own certificate here if it signed itself.
""",
    ),
    cfg.FloatOpt(
        "job_timeout",
        default=60.0,
        min=0.1,
        help="""
Seconds to wait for a job of UFM that changes a partition. A job that ends later does no harm: what
it would undo is not confirmed before its end.

If UFM's answer to a request is lost, nothing that the request would undo is confirmed for as long.
Raise it if UFM carries out requests later than that.
""",
    ),
    cfg.FloatOpt(
        "ports_interval",
        default=10.0,
        min=0.1,
        help="""
Seconds after which a worker reads the states of all ports from UFM, to notice failed links.

After a change the ports are read again at once. At most a tenth of the time is spent in it. Keep it
well below [faults] reading_lifetime.
""",
    ),
    cfg.BoolOpt(
        "agent",
        default=False,
        help="""
Have laas-opensm-agent on UFM's machine take the files of routes, in place of a worker.

Set it for the API and the workers if the workers cannot write where UFM's subnet manager reads. A
generation is then confirmed only while the active agent reports that its files are current and
whole. The agent has reached_by = ufm, too, and the same [opensm] directory and enforcement.
""",
    ),
    cfg.BoolOpt(
        "mark_unhealthy",
        default=False,
        help="""
Mark both ends of a link unhealthy in UFM while the service has the link in quarantine.

UFM's subnet manager then routes nothing over the link (action 'isolate'). The mark is taken back
when the quarantine ends; ports that somebody else marked are left alone. The token's user needs the
right to do so.
""",
    ),
]


@dataclass(frozen=True, slots=True)
class UfmOptions:
    """The options of [ufm] by their names; all times are seconds."""

    url: str
    fabric: str | None
    token_file: Path | None
    cert_file: Path | None
    key_file: Path | None
    ca_file: Path | None
    job_timeout: float
    ports_interval: float
    agent: bool
    mark_unhealthy: bool

    @classmethod
    def of(cls, conf: cfg.ConfigOpts) -> Self:
        options = conf.ufm
        values = {option.dest: options[option.dest] for option in OPTIONS}
        files = {n: Path(v) if v else None for n, v in values.items() if n.endswith("_file")}
        return cls(**{**values, **files, "url": options.url or ""})

    @property
    def managed(self) -> str:
        """The fabric that UFM manages. Raises: InvalidInput: none is named."""
        if not self.fabric:
            raise InvalidInput("[ufm] fabric", self.fabric, "name the fabric that UFM manages")
        return self.fabric

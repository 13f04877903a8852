# SPDX-License-Identifier: Apache-2.0

"""[ufm]: the UFM whose partitions the service makes, with [opensm] reached_by = ufm."""

from pathlib import Path

from oslo_config import cfg

from laas_service.conf.group import Group, optional_path, setting
from laas_service.domain.errors import InvalidInput

GROUP = "ufm"


class UfmOptions(Group, name=GROUP):
    """The options of [ufm]; all times are seconds."""

    url: str = setting(cfg.StrOpt, read=lambda url: url or "")
    """Address of UFM: scheme, host and port, such as https://ufm.example.org. http is accepted for
    this machine's loopback only.

    Use the virtual address of a pair of UFMs, which follows the active one."""

    fabric: str | None = setting(cfg.StrOpt)
    """Id of the fabric that this UFM manages. Required, also if the service manages one fabric
    only: ports of a fabric must never be written to the UFM of another one. Set it wherever url is
    set."""

    token_file: Path | None = setting(cfg.StrOpt, read=optional_path)
    """File with an access token of UFM (its web page, Settings, Access Tokens). Only the user of
    the worker may read it (mode 0600). It is read before each request, so replace it when the token
    changes.

    The token's user needs the right to change partitions. Set this, or cert_file and key_file."""

    cert_file: Path | None = setting(cfg.StrOpt, read=optional_path)
    """File with a client certificate that UFM accepts in place of a token, in PEM form. Needs
    key_file. Set it if UFM has no access tokens, or your site issues certificates."""

    key_file: Path | None = setting(cfg.StrOpt, read=optional_path)
    """File with the key of cert_file. Only the user of the worker may read it (mode 0600). Set it
    together with cert_file."""

    ca_file: Path | None = setting(cfg.StrOpt, read=optional_path)
    """File with the authorities that may have signed UFM's certificate, in PEM form; by default
    those of the system. UFM's certificate is always verified: give its own certificate here if it
    signed itself."""

    job_timeout: float = setting(cfg.FloatOpt, 60.0, min=0.1)
    """Seconds to wait for a job of UFM that changes a partition. A job that ends later does no
    harm: what it would undo is not confirmed before its end.

    If UFM's answer to a request is lost, nothing that the request would undo is confirmed for as
    long. Raise it if UFM carries out requests later than that."""

    ports_interval: float = setting(cfg.FloatOpt, 10.0, min=0.1)
    """Seconds after which a worker reads the states of all ports from UFM, to notice failed links.

    After a change the ports are read again at once. At most a tenth of the time is spent in it.
    Keep it well below [faults] reading_lifetime."""

    agent: bool = setting(cfg.BoolOpt, False)
    """Have laas-opensm-agent on UFM's machine take the files of routes, in place of a worker.

    Set it for the API and the workers if the workers cannot write where UFM's subnet manager reads.
    A generation is then confirmed only while the active agent reports that its files are current
    and whole. The agent has reached_by = ufm, too, and the same [opensm] directory and enforcement.
    """

    mark_unhealthy: bool = setting(cfg.BoolOpt, False)
    """Mark both ends of a link unhealthy in UFM while the service has the link in quarantine.

    UFM's subnet manager then routes nothing over the link (action 'isolate'). The mark is taken
    back when the quarantine ends; ports that somebody else marked are left alone. The token's user
    needs the right to do so. Set it if UFM's own routing should leave such links too."""

    @property
    def managed(self) -> str:
        """The fabric that UFM manages. Raises: InvalidInput: none is named."""
        if not self.fabric:
            raise InvalidInput("[ufm] fabric", self.fabric, "name the fabric that UFM manages")
        return self.fabric

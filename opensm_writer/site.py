# SPDX-License-Identifier: Apache-2.0

"""Site settings: the options of OpenSM that a site may set, and the files that carry its keys.

The set of files comes from the service and has no secret in it. Beside the sets, the process on
OpenSM's machine writes two files that only its user may read:

* ``DIRECTORY/FABRIC/opensm.conf``: the fragment of the current set, then the site settings. OpenSM
  is started on it, and reads it again in every sweep.
* ``DIRECTORY/diags.conf``: the M_Key for the tools of ``infiniband-diags`` (``-z``).
"""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from laas_service.domain.errors import InvalidInput
from opensm_writer import fileset
from opensm_writer.desired import guid_text

MAX_MANAGERS = 16
"""Allowed managers, at most: OpenSM reads lines of up to 1,022 bytes."""

_KEY = re.compile(r"0x[0-9a-fA-F]{1,16}")
_RANDOM = 0xFFFFFFFFFFFFFFFF
"""With this M_Key the vendor's OpenSM draws one that nobody else knows."""

_RANGES = {
    "m_key_protection_level": (0, 3),
    "m_key_lease_period": (0, 0xFFFF),
    "sm_priority": (0, 15),
    "sminfo_polling_timeout": (100, 600_000),
    "polling_retry_number": (1, 100),
    "sa_etm_max_num_mcgs": (0, 0xFFFF),
    "sa_etm_max_num_srvcs": (0, 0xFFFF),
    "sa_etm_max_num_event_subs": (0, 0xFFFF),
    "virt_enabled": (0, 2),
}


@dataclass(frozen=True, slots=True)
class SiteSettings:
    """Options of OpenSM by their names there; None and () leave OpenSM's own default.

    ``directory`` is the root of the sets. The three ``..._file`` name files with a key of 64 bits
    in hexadecimal, which only this user may read.

    Raises:
        InvalidInput: a value is out of range, or an option needs another one.
    """

    directory: Path
    m_key_file: Path | None = None
    m_key_protection_level: int | None = None
    m_key_lease_period: int | None = None  # seconds; 0 is for ever
    m_key_lookup: bool | None = None
    sm_key_file: Path | None = None
    sa_key_file: Path | None = None
    sm_priority: int | None = None
    sminfo_polling_timeout: int | None = None  # milliseconds
    polling_retry_number: int | None = None
    # known to the vendor's OpenSM only
    m_key_per_port: bool | None = None
    allowed_sm_guids: tuple[int, ...] = ()
    sa_enhanced_trust_model: bool | None = None
    sa_etm_max_num_mcgs: int | None = None
    sa_etm_max_num_srvcs: int | None = None
    sa_etm_max_num_event_subs: int | None = None
    virt_enabled: int | None = None

    def __post_init__(self) -> None:
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise InvalidInput(_option(name), value, f"use {least} to {most}")
        if self.m_key_file is None:
            self._refuse("m_key_protection_level", "m_key_lease_period", needs="m_key_file")
            self._refuse("m_key_lookup", "m_key_per_port", needs="m_key_file")
        if not self.sa_enhanced_trust_model:
            limits = (name for name in _RANGES if name.startswith("sa_etm_"))
            self._refuse(*limits, needs="sa_enhanced_trust_model")
        guids = self.allowed_sm_guids
        if len(guids) > MAX_MANAGERS or not all(0 < guid < 1 << 64 for guid in guids):
            fix = f"give at most {MAX_MANAGERS} GUIDs such as 0x1b"
            raise InvalidInput(_option("allowed_sm_guids"), len(guids), fix)

    def _refuse(self, *names: str, needs: str) -> None:
        for name in names:
            if getattr(self, name) is not None:
                raise InvalidInput(_option(name), getattr(self, name), f"set {needs} too")

    @property
    def protection(self) -> int | None:
        """The protection level that ports have if there is an M_Key."""
        return None if self.m_key_file is None else self.m_key_protection_level or 0

    def write(self, home: Path) -> None:
        """Bring OpenSM's configuration of the fabric in ``home`` up to date.

        Raises:
            InvalidInput: a file with a key cannot be used.
            OSError: the set cannot be read, or the file not written.
        """
        fragment = (home / "current" / "opensm.conf").read_text()
        replace_private(home / "opensm.conf", "".join(self.configuration(fragment)))

    def configuration(self, fragment: str) -> Iterator[str]:
        """OpenSM's configuration: the fragment of a set, and the site settings after it.

        Raises: InvalidInput.
        """
        yield fragment
        yield "# Of this site: [opensm_site]\n"
        for name in sorted(self.__slots__):
            value = getattr(self, name)
            if name.endswith("_file") and value is not None:
                yield f"{name.removesuffix('_file')} {read_key(value, _option(name)):#018x}\n"
            elif isinstance(value, bool):
                yield f"{name} {'TRUE' if value else 'FALSE'}\n"
            elif isinstance(value, int):
                yield f"{name} {value}\n"
            elif isinstance(value, tuple) and value:
                yield f"{name} {','.join(map(guid_text, value))}\n"

    def for_tools(self) -> tuple[str, ...]:
        """Arguments by which a tool of ``infiniband-diags`` gets the M_Key; () without one.

        Raises: InvalidInput, OSError.
        """
        if self.m_key_file is None:
            return ()
        path = self.directory / "diags.conf"
        replace_private(path, f"m_key={read_key(self.m_key_file, _option('m_key_file')):#018x}\n")
        return ("-z", str(path))

    def for_readers(self) -> tuple[str, ...]:
        """Arguments by which ``laas-opensm-keys`` and ``-tables`` get the M_Key; () without one."""
        return () if self.m_key_file is None else ("--mkey-file", str(self.m_key_file))


def _option(name: str) -> str:
    return f"[opensm_site] {name}"


def read_key(path: Path, option: str) -> int:
    """The key in the file of an option. No error shows what is in the file.

    Raises:
        InvalidInput: there is no such file, others may read it, or it holds no key.
    """
    try:
        with path.open() as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(100)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no text"
        fix = f"give a file that can be read ({reason.lower()})"
        raise InvalidInput(option, str(path), fix) from error
    if not stat.S_ISREG(mode) or mode & 0o077:
        raise InvalidInput(option, str(path), "only its owner may read it: chmod 600")
    key = int(text, 16) if _KEY.fullmatch(text.strip()) else 0
    if key in (0, _RANDOM):
        fix = "write one key of 64 bits in it, such as 0x1b; neither 0 nor all ones"
        raise InvalidInput(option, str(path), fix)
    return key


def replace_private(path: Path, text: str) -> None:
    """Replace a file that only its owner may read, in one step; does nothing if it is the same."""
    private = path.is_file() and path.stat().st_mode & 0o777 == 0o600
    if private and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    fileset.write(draft, [text])
    draft.replace(path)
    fileset.sync(path.parent)

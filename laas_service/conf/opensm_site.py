# SPDX-License-Identifier: Apache-2.0

"""[opensm_site]: options of OpenSM itself that a site sets, where OpenSM runs."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from oslo_config import cfg

from laas_service.conf.gone import GONE, still_set
from laas_service.conf.group import Group, setting
from laas_service.domain.errors import InvalidInput
from opensm_writer.site import SiteSettings, read_key

GROUP = "opensm_site"


class OpenSmSiteGroup(Group, name=GROUP):
    """The options of [opensm_site]."""

    m_key_file: str | None = setting(cfg.StrOpt)
    """File with the M_Key of the fabric, in hexadecimal such as 0x1b. Only the user of the process
    beside OpenSM may read it (mode 0600).

    A port with an M_Key refuses changes, and from protection level 2 on readings, by anybody who
    does not know the key, other subnet managers included; so the specification, and the simulator
    that the project is tested with has no M_Keys. The process beside OpenSM passes the key on in
    files of mode 0600: OpenSM's configuration DIRECTORY/FABRIC/opensm.conf, and
    DIRECTORY/diags.conf, which it gives to dump_lfts, iblinkinfo and perfquery as '-z FILE'. Set
    the same key for each of your subnet managers. See the page on a second subnet manager before
    you change it."""

    sm_key_file: str | None = setting(cfg.StrOpt)
    """File with the SM_Key, like m_key_file. Set the same key for each of your subnet managers.

    A subnet manager ignores others that have another SM_Key: it does not hand over to one with a
    higher priority, and stays master beside it. Without an M_Key the other one still writes to the
    switches."""

    sa_key_file: str | None = setting(cfg.StrOpt)
    """File with the key of trusted questions to the subnet administrator, like m_key_file. Set it
    if others reach the administrator. Tools of the site then need it ('saquery --smkey', sa_key in
    ibdiag.conf)."""

    option: list[str] = setting(cfg.MultiStrOpt, [])
    """An option of OpenSM by its name there, and its value: 'option = sm_priority 15'. Give the
    line once for each. Only these are known, and OpenSM's own default holds for the others:

    * sm_priority (0 to 15): 15 for the master and 14 for a standby; another one in force is
      reported.
    * m_key_protection_level (0 to 3), m_key_lease_period (seconds, 0 to 65535; with 0, whoever
      loses the key has to reset the ports) and m_key_lookup (TRUE; FALSE if the file guid2mkey is
      not kept). They need m_key_file. Levels 0 and 1 protect from changes only, 2 and 3 from
      readings too: use 2.
    * sminfo_polling_timeout (100 to 600000 milliseconds) and polling_retry_number (1 to 100): a
      standby takes over after so many unanswered questions to the master, by default after about 45
      seconds. Lower them for a shorter time, at the price of more false alarms.

    Known to the vendor's OpenSM only; the upstream one says 'Unrecognized token' and goes on:

    * m_key_per_port (TRUE): each port has an M_Key of its own. No tool can ask all ports then: use
      [opensm] dump_file.
    * allowed_sm_guids: GUIDs of ports, at most 16 and separated by commas, of the subnet managers
      that may be master.
    * sa_enhanced_trust_model (TRUE): limits what the administrator answers without the SA key, with
      sa_etm_max_num_mcgs, sa_etm_max_num_srvcs and sa_etm_max_num_event_subs (0 to 65535 each).
    * virt_enabled (0 to 2): 2 enables virtual ports, which [opensm] virtual_ports needs."""


_KEY_FILES = ("m_key_file", "sm_key_file", "sa_key_file")

_TYPES = {
    field.name: field.type
    for field in fields(SiteSettings)
    if field.name not in ("directory", *_KEY_FILES)
}
"""The options of OpenSM that ``option`` may have."""


def site(conf: cfg.ConfigOpts) -> SiteSettings | None:
    """What [opensm_site] sets; None if it sets nothing.

    Raises:
        InvalidInput: an option is wrong, or has gone: these protect the fabric, so a start without
            them would be worse than none.
    """
    for name in still_set(conf, GROUP):
        raise InvalidInput(f"[{GROUP}] {name}", "", f"it has gone: {GONE[GROUP, name]}")
    values: dict[str, Any] = {}
    directory = Path(conf.opensm.directory).absolute()
    for name in _KEY_FILES:
        if text := conf.opensm_site[name]:
            values[name] = Path(text)
            read_key(values[name], f"[{GROUP}] {name}")
    for line in conf.opensm_site.option:
        name, _, text = line.strip().partition(" ")
        if name not in _TYPES:
            fix = f"begin with one of {', '.join(sorted(_TYPES))}"
            raise InvalidInput(f"[{GROUP}] option", line, fix)
        if name in values:
            raise InvalidInput(f"[{GROUP}] option", line, f"{name} is given twice")
        values[name] = _value(name, text.strip())
    made = SiteSettings(directory, **values)
    return None if made == SiteSettings(directory) else made


def _value(name: str, text: str) -> int | bool | tuple[int, ...]:
    """The value that an option of OpenSM has by its type there. Raises: InvalidInput."""
    kind = str(_TYPES[name])
    fix = "give a number"
    try:
        if "bool" in kind:
            fix = "give TRUE or FALSE"
            return {"TRUE": True, "FALSE": False}[text.upper()]
        if "tuple" in kind:
            fix = "give GUIDs such as 0x1b, separated by commas"
            return tuple(int(guid, 16) for guid in text.split(","))
        return int(text)
    except (KeyError, ValueError) as error:
        raise InvalidInput(f"[{GROUP}] option", f"{name} {text}", fix) from error

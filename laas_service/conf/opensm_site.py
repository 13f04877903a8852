# SPDX-License-Identifier: Apache-2.0

"""[opensm_site]: options of OpenSM itself that a site sets, where OpenSM runs."""

from typing import Any

from oslo_config import cfg

GROUP = "opensm_site"

VENDOR = """
Known to the vendor's OpenSM only; the upstream one says 'Unrecognized token' on its output and
goes on without it.
"""

OPTIONS: list[Any] = [
    cfg.StrOpt(
        "m_key_file",
        help="""
File with the M_Key of the fabric, in hexadecimal such as 0x1b. Only the user of the process beside
OpenSM may read it (mode 0600).

A port with an M_Key refuses changes, and from protection level 2 on readings, by anybody who does
not know the key, other subnet managers included; so the specification, and the simulator that the
project is tested with has no M_Keys. The process beside OpenSM passes the key on in
files of mode 0600: OpenSM's configuration DIRECTORY/FABRIC/opensm.conf, and DIRECTORY/diags.conf,
which it gives to dump_command, links_command and counters_command as '-z FILE'. Set the same key
for each of your subnet managers. See the page on a second subnet manager before you change it.
""",
    ),
    cfg.IntOpt(
        "m_key_protection_level",
        min=0,
        max=3,
        help="""
M_Key protection level of all ports; OpenSM's default is 0. Needs m_key_file.

0 and 1 protect from changes only, 2 and 3 from readings too: use 2.
""",
    ),
    cfg.IntOpt(
        "m_key_lease_period",
        min=0,
        max=65535,
        help="""
Seconds after which a port gives up its M_Key if no subnet manager that knows it was seen; 0 is
never, OpenSM's default. Needs m_key_file.

With 0, whoever loses the key has to reset the ports. A port whose lease has run out belongs to
whoever comes first.
""",
    ),
    cfg.BoolOpt(
        "m_key_lookup",
        help="""
Let OpenSM try for a port the key that its file guid2mkey has; OpenSM's default is TRUE. Needs
m_key_file. Set it to false if that file is not kept.
""",
    ),
    cfg.StrOpt(
        "sm_key_file",
        help="""
File with the SM_Key, like m_key_file. Set the same key for each of your subnet managers.

A subnet manager ignores others that have another SM_Key: it does not hand over to one with a
higher priority, and stays master beside it. Without an M_Key the other one still writes to the
switches.
""",
    ),
    cfg.StrOpt(
        "sa_key_file",
        help="""
File with the key of trusted questions to the subnet administrator, like m_key_file. Tools of the
site then need it ('saquery --smkey', sa_key in ibdiag.conf).
""",
    ),
    cfg.IntOpt(
        "sm_priority",
        min=0,
        max=15,
        help="""
Priority of this subnet manager; OpenSM's default is 0. The one with the highest becomes master.

Set 15 for the master and 14 for a standby. keys_command reports if OpenSM runs with another one.
""",
    ),
    cfg.IntOpt(
        "sminfo_polling_timeout",
        min=100,
        max=600000,
        help="""
Milliseconds between two questions of a standby to the master; OpenSM's default is 10000.

A standby takes over after polling_retry_number questions without an answer: about 45 seconds by
default. Lower it for a shorter time, and at the price of more false alarms.
""",
    ),
    cfg.IntOpt(
        "polling_retry_number",
        min=1,
        max=100,
        help="""
Unanswered questions to the master after which a standby takes over; OpenSM's default is 4.
""",
    ),
    cfg.BoolOpt(
        "m_key_per_port",
        help=f"""
Give each port an M_Key of its own, derived from the one in m_key_file.
{VENDOR}
One M_Key then opens no second port: use dump_file instead of dump_command, and neither
blocks_command nor links_command nor keys_command.
""",
    ),
    cfg.ListOpt(
        "allowed_sm_guids",
        default=[],
        help=f"""
Port GUIDs (0x...) of the subnet managers that may be master, at most 16.
{VENDOR}""",
    ),
    cfg.BoolOpt(
        "sa_enhanced_trust_model",
        help=f"""
Limit what the subnet administrator answers to questions without the SA key.
{VENDOR}""",
    ),
    cfg.IntOpt(
        "sa_etm_max_num_mcgs",
        min=0,
        max=65535,
        help=f"""
Multicast groups that one port may join by such questions. Needs sa_enhanced_trust_model.
{VENDOR}""",
    ),
    cfg.IntOpt(
        "sa_etm_max_num_srvcs",
        min=0,
        max=65535,
        help=f"""
Services that one port may register by such questions. Needs sa_enhanced_trust_model.
{VENDOR}""",
    ),
    cfg.IntOpt(
        "sa_etm_max_num_event_subs",
        min=0,
        max=65535,
        help=f"""
Events to which one port may subscribe by such questions. Needs sa_enhanced_trust_model.
{VENDOR}""",
    ),
    cfg.IntOpt(
        "virt_enabled",
        min=0,
        max=2,
        help=f"""
Virtual ports of adapters: 0 leaves them as they are, 1 disables, 2 enables them. [opensm]
virtual_ports needs 2.
{VENDOR}""",
    ),
]

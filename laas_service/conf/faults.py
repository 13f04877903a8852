# SPDX-License-Identifier: Apache-2.0

"""[faults]: how readings of ports become failed links."""

from typing import Any

from oslo_config import cfg

GROUP = "faults"
OPTIONS: list[Any] = [
    cfg.StrOpt(
        "mode",
        default="act",
        choices=[
            ("act", "record failed links, and replace those of allocations"),
            ("observe", "tell what would be recorded, and change nothing"),
            ("frozen", "the same; the worker replaces no links and publishes no routes"),
        ],
        help="""
What the observation of links may change, on fabrics for which no administrator chose a mode
(laas fabric observation --mode).

Choose observe while you adopt a live cluster: laas fabric observation then shows what the
service would do. Choose frozen to keep all routes as they are.
""",
    ),
    cfg.FloatOpt(
        "hold_down",
        default=5.0,
        min=0.0,
        help="""
Seconds that a cable is seen down before its link has failed.

A cable that trains again within this time changes nothing. Tenants of a cut cable wait this long
for other links. Lower it where cables never blink.
""",
    ),
    cfg.IntOpt(
        "flaps",
        default=3,
        min=2,
        help="""
How often a link goes down within flap_window until it is quarantined.

A quarantined link has failed until it stayed up for the time of quarantine, or until an
administrator repairs it (laas link repair).
""",
    ),
    cfg.FloatOpt(
        "flap_window",
        default=600.0,
        min=1.0,
        help="""
Seconds in which the times that a link goes down are counted, see flaps.
""",
    ),
    cfg.FloatOpt(
        "quarantine",
        default=1800.0,
        min=0.0,
        help="""
Seconds that a quarantined link has to stay up before it is usable again.
""",
    ),
    cfg.IntOpt(
        "breaker_switches",
        default=1,
        min=0,
        help="""
The most switches that may be lost in one window without an alarm.

If more are lost, something else than a switch has probably failed: power, or the observer's own
way to the fabric. Nothing is recorded then until an administrator acknowledges the alarm (laas
fabric observation --acknowledge) or the fabric is as before.
""",
    ),
    cfg.FloatOpt(
        "breaker_share",
        default=0.05,
        min=0.0,
        max=1.0,
        help="""
The largest share of all links, 0 to 1, that may be lost in one window without an alarm. Links of
a dead switch do not count, and one link is always allowed.
""",
    ),
    cfg.FloatOpt(
        "breaker_window",
        default=60.0,
        min=0.0,
        help="""
Seconds in which lost links and switches count together, see breaker_switches and breaker_share.
""",
    ),
    cfg.FloatOpt(
        "reading_lifetime",
        default=60.0,
        min=1.0,
        help="""
Age in seconds from which a reading of the ports decides nothing.

Keep it above [opensm] links_interval and, with agents, above [opensm] agent_poll_interval.
""",
    ),
]

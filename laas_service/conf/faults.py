# SPDX-License-Identifier: Apache-2.0

"""[faults]: how readings of ports become failed links."""

from dataclasses import dataclass
from typing import Any, Self

from oslo_config import cfg

from laas_service.domain.faults.counters import (
    DEFAULT_THRESHOLDS,
    CounterRules,
    Tolerance,
    thresholds_from,
)
from laas_service.domain.faults.observation import Mode, Rules

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
    cfg.StrOpt(
        "counters",
        default="propose",
        choices=[
            ("off", "account no port counters"),
            ("propose", "tell of links with too many errors"),
            ("mark", "the same; quarantine them, as links that go down too often"),
        ],
        help="""
What follows from the port counters that perfquery reads (see [opensm] tools).

With mark, links beyond error_thresholds are recorded as failed under the rules of observation:
the mode, the circuit breaker and the time of quarantine. Start with propose, and look at laas
fabric observation for some days.
""",
    ),
    cfg.DictOpt(
        "error_thresholds",
        default=DEFAULT_THRESHOLDS,
        help="""
The largest growth of the error counters of a port, as COUNTER:N/PERIOD, separated by commas.

COUNTER is a name that perfquery prints, PERIOD is second, minute, hour or day. Counters that are
not listed have no threshold. PortXmitWait shows congestion, no fault. SymbolErrorCounter does not
count at ports with forward error correction; PortFECUncorrectableBlockCtr does. Raise a threshold
if sound cables exceed it.
""",
    ),
    cfg.FloatOpt(
        "audit_bytes_per_second",
        default=1e6,
        min=0.0,
        help="""
Data of others that the audit tolerates on each link of a tenant, in each direction.

Packets of the subnet manager and administrator, and those that read counters, cross the links of
tenants. Raise it where storage or other services share the fabric with tenants: their packets
take default routes, which lead over tenants' links.
""",
    ),
]


@dataclass(frozen=True, slots=True)
class FaultOptions:
    """How [faults] has readings judged."""

    rules: Rules
    """Of the ports."""
    counters: str
    """What follows from the counters: ``off``, ``propose`` or ``mark``."""
    counter_rules: CounterRules

    @classmethod
    def of(cls, conf: cfg.ConfigOpts) -> Self:
        """Raises: InvalidInput."""
        options = conf.faults
        rules = Rules(
            mode=Mode(options.mode),
            hold_down=options.hold_down,
            flaps=options.flaps,
            flap_window=options.flap_window,
            quarantine=options.quarantine,
            breaker_switches=options.breaker_switches,
            breaker_share=options.breaker_share,
            breaker_window=options.breaker_window,
        )
        counter_rules = CounterRules(
            thresholds_from(options.error_thresholds),
            tolerance=Tolerance(options.audit_bytes_per_second),
        )
        return cls(rules, options.counters, counter_rules)

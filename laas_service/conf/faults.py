# SPDX-License-Identifier: Apache-2.0

"""[faults]: how readings of ports become failed links."""

from dataclasses import fields

from oslo_config import cfg

from laas_service.conf.group import Group, setting
from laas_service.domain.faults.counters import (
    DEFAULT_THRESHOLDS,
    CounterRules,
    Threshold,
    Tolerance,
    thresholds_from,
)
from laas_service.domain.faults.observation import Mode, Rules

GROUP = "faults"


class FaultOptions(Group, name=GROUP):
    """The options of [faults]."""

    mode: Mode = setting(
        cfg.StrOpt,
        "act",
        read=Mode,
        choices=[
            ("act", "record failed links, and replace those of allocations"),
            ("observe", "tell what would be recorded, and change nothing"),
            ("frozen", "the same; the worker replaces no links and publishes no routes"),
        ],
    )
    """What the observation of links may change, on fabrics for which no administrator chose a mode
    (laas fabric observation --mode).

    Choose observe while you adopt a live cluster: laas fabric observation then shows what the
    service would do. Choose frozen to keep all routes as they are."""

    hold_down: float = setting(cfg.FloatOpt, 5.0, min=0.0)
    """Seconds that a cable is seen down before its link has failed.

    A cable that trains again within this time changes nothing. Tenants of a cut cable wait this
    long for other links. Lower it where cables never blink."""

    flaps: int = setting(cfg.IntOpt, 3, min=2)
    """How often a link goes down within 600 seconds until it is quarantined.

    A quarantined link has failed until it stayed up for the time of quarantine, or until an
    administrator repairs it (laas link repair). Raise it where cables often train again after
    maintenance; lower it if a tenant must not meet a bad cable twice."""

    quarantine: float = setting(cfg.FloatOpt, 1800.0, min=0.0)
    """Seconds that a quarantined link has to stay up before it is usable again. Raise it if cables
    that flapped come back and flap again."""

    breaker_switches: int = setting(cfg.IntOpt, 1, min=0)
    """The most switches that may be lost within 60 seconds without an alarm.

    If more are lost, something else than a switch has probably failed: power, or the observer's own
    way to the fabric. Nothing is recorded then until an administrator acknowledges the alarm (laas
    fabric observation --acknowledge) or the fabric is as before. Raise it if your switches share a
    power supply, and are lost together."""

    breaker_share: float = setting(cfg.FloatOpt, 0.05, min=0.0, max=1.0)
    """The largest share of all links, 0 to 1, that may be lost within 60 seconds without an alarm.
    Links of a dead switch do not count, and one link is always allowed. Raise it on small fabrics,
    where a few cables are a large share."""

    counters: str = setting(
        cfg.StrOpt,
        "propose",
        choices=[
            ("off", "account no port counters"),
            ("propose", "tell of links with too many errors"),
            ("mark", "the same; quarantine them, as links that go down too often"),
        ],
    )
    """What follows from the port counters that perfquery reads (see [opensm] tools).

    With mark, links beyond error_thresholds are recorded as failed under the rules of observation:
    the mode, the circuit breaker and the time of quarantine. Start with propose, and look at laas
    fabric observation for some days."""

    error_thresholds: tuple[Threshold, ...] = setting(
        cfg.DictOpt, DEFAULT_THRESHOLDS, read=thresholds_from
    )
    """The largest growth of the error counters of a port, as COUNTER:N/PERIOD, separated by commas.

    COUNTER is a name that perfquery prints, PERIOD is second, minute, hour or day. Counters that
    are not listed have no threshold. PortXmitWait shows congestion, no fault. SymbolErrorCounter
    does not count at ports with forward error correction; PortFECUncorrectableBlockCtr does. Raise
    a threshold if sound cables exceed it."""

    audit_bytes_per_second: float = setting(cfg.FloatOpt, 1e6, min=0.0)
    """Data of others that the audit tolerates on each link of a tenant, in each direction.

    Packets of the subnet manager and administrator, and those that read counters, cross the links
    of tenants. Raise it where storage or other services share the fabric with tenants: their
    packets take default routes, which lead over tenants' links."""

    @property
    def rules(self) -> Rules:
        """How readings of ports are judged."""
        names = {part.name for part in fields(Rules)} & vars(self).keys()
        return Rules(**{name: getattr(self, name) for name in names})

    @property
    def counter_rules(self) -> CounterRules:
        """How their counters are judged."""
        tolerance = Tolerance(self.audit_bytes_per_second)
        return CounterRules(self.error_thresholds, tolerance=tolerance)

# SPDX-License-Identifier: Apache-2.0

"""The subnet-manager port for an OpenSM on the worker's machine, or for files alone."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from laas_service.domain.errors import InvalidFile, InvalidInput, Unavailable
from laas_service.domain.faults.counters import SwitchCounters
from laas_service.domain.faults.reading import FabricReading
from laas_service.domain.inventory import PortRef
from laas_service.messages import Applied, Condition, ConfirmedBy, FabricState, Span, Standing
from opensm_writer import fileset, health, publish, render
from opensm_writer.desired import subnet_configuration
from opensm_writer.driver import OpenSmDriver
from opensm_writer.opensm import OpenSm
from opensm_writer.site import SiteSettings

LOADED = "loaded"
"""In a fabric's directory: the generation that an operator says the switches run."""

LOG_PAUSE = 0.5
"""The longest pause in seconds between two looks into OpenSM's log."""

TABLES_PAUSE = 2.0
"""The longest pause in seconds between two readings of tables that are not as published."""


class LocalSubnetManager:
    """Publishes sets into a directory; with ``opensm``, also has them read and reads back.

    Without ``opensm``, a generation counts as applied when its set is current and undamaged.
    With ``opensm``, it counts as applied only when OpenSM is healthy and the table of every
    switch, read back, equals the file. Right after publishing, ``applied`` waits up to
    ``patience`` seconds for that.

    ``confirmed_by`` is what a generation is confirmed by. ``dump_file`` of ``opensm`` does not
    show the switches. ``attended`` says that somebody has a subnet manager read the directory.

    The directory of ``settings`` has one directory for each fabric; a path stands for the default
    settings there. ``keep`` is how many older sets stay. ``site`` has the site settings without
    ``opensm``, which has its own.

    Raises:
        InvalidInput: a setting is wrong, or ``opensm`` is given with enforcement ``chains``:
            the vendor's OpenSM computes those tables, so that there is no file to compare.
    """

    def __init__(
        self,
        settings: render.Settings | Path,
        opensm: OpenSm | None = None,
        *,
        keep: int = 3,
        site: SiteSettings | None = None,
        attended: bool = False,
        patience: float = 10,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if isinstance(settings, Path):
            settings = render.Settings(str(settings.absolute()))
        if opensm is not None and settings.enforcement != "file":
            raise InvalidInput("enforcement", settings.enforcement, "reading back needs 'file'")
        if opensm is not None and opensm.dump_command:
            self.confirmed_by = ConfirmedBy.SWITCHES
        else:
            unread = opensm is not None or attended
            self.confirmed_by = ConfirmedBy.FILES if unread else ConfirmedBy.NOBODY
        self._directory = Path(settings.directory)
        self._opensm = opensm
        self._settings = settings
        self._keep = keep
        self._site = site
        self._patience = patience
        self._sleep = sleep
        self._clock = clock
        self._drivers: dict[str, OpenSmDriver] = {}
        self._reloaded_at: dict[str, float] = {}  # fabric -> clock, until it is read back

    def publish(self, state: FabricState) -> Mapping[Span, float]:
        """See ``laas_service.app.ports.subnet_manager.SubnetManager``.

        Raises:
            Conflict, LimitExceeded: see ``publish.publish_set``.
            Unavailable: the directory cannot be written, or OpenSM cannot be signalled. In the
                second case the new files are current, and OpenSM reads them when it starts.
        """
        driver = self._driver(state.fabric)
        begun = self._clock()
        try:
            driver.publish(state, self._settings_of(state.fabric))
            rendered = self._clock()
            driver.reload()
        except OSError as error:
            raise Unavailable(f"{self._directory}: {error}") from error
        reloaded = self._reloaded_at[state.fabric] = self._clock()
        return {Span.RENDER: rendered - begun, Span.RELOAD: reloaded - rendered}

    def rehearse(self, state: FabricState) -> list[str]:
        """Render as ``publish`` would, without writing; ids of allocations it would disturb.

        Raises:
            LimitExceeded: see ``publish.publish_set``.
        """
        settings = self._settings_of(state.fabric)
        configuration = subnet_configuration(state, enforcement=settings.enforcement)
        for pieces in render.set_files(configuration, settings).values():
            for _ in pieces:
                pass
        return publish.disturbed(configuration, self._directory)

    def on_disk(self, fabric: str) -> tuple[int, str] | None:
        """See ``laas_service.app.ports.subnet_manager.SubnetManager``."""
        current = fileset.readable(self._directory, fabric)
        return (current.generation, current.stamp) if current is not None else None

    def marks_differ(self, fabric: str, wanted: frozenset[PortRef]) -> bool:
        """No: links in quarantine are avoided, and nothing isolates their ports."""
        return False

    def mark_ports(self, fabric: str, wanted: frozenset[PortRef]) -> None:
        """Nothing, see ``marks_differ``."""

    def standing(self, fabric: str) -> Standing | None:
        """See ``laas_service.app.ports.subnet_manager.SubnetManager``."""
        driver = self._driver(fabric)
        try:
            current = driver.current
        except OSError:
            return None
        if current is None or not self.confirmed_by.was_read:
            return None
        return Standing(current.generation, driver.standing(), self.confirmed_by)

    def prepared(self, fabric: str) -> bool:
        """See ``laas_service.app.ports.subnet_manager.SubnetManager``."""
        return self._driver(fabric).prepared()

    def _loaded(self, fabric: str) -> int | None:
        """The generation that an operator says the switches run; None: none. InvalidFile."""
        file = self._directory / fabric / LOADED
        try:
            return int(file.read_text("utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise InvalidFile(str(file), 1, "write a generation, such as 57") from error

    def applied(self, fabric: str) -> Applied:
        """See ``laas_service.app.ports.subnet_manager.SubnetManager``."""
        driver, now = self._driver(fabric), self._clock()
        wait_until = self._reloaded_at.pop(fabric, now - self._patience) + self._patience
        pause = 0.1
        while True:
            try:
                report = health.report(self._observation(driver), timeout=math.inf)
                if report.condition is not Condition.SWEEPING and driver.is_to_follow:
                    driver.reload()
                    report = replace(report, condition=Condition.SWEEPING, generation=None)
            except (OSError, Unavailable) as error:
                return Applied(None, f"{self._directory}: {error}")
            if report.condition is Condition.APPLIED:
                return Applied(
                    report.generation,
                    without=report.without,
                    unconfirmed=report.unconfirmed,
                    by=self.confirmed_by,
                    condition=report.condition,
                    stamp=report.stamp,
                    running=report.running,
                    loaded=None if self.confirmed_by.was_read else self._loaded(fabric),
                )
            waiting_helps = report.condition is not Condition.STARTING
            if not waiting_helps or self._clock() + pause > wait_until:
                return Applied(
                    None, report.detail, condition=report.condition, running=report.running
                )
            self._sleep(pause)
            sweeps = report.condition is Condition.SWEEPING  # only the log is read
            pause = min(2 * pause, LOG_PAUSE if sweeps else TABLES_PAUSE)

    def _observation(self, driver: OpenSmDriver) -> health.OpenSMState:
        """``reading`` reads the ports; here only if a switch does not answer."""
        return driver.observe(driver.note.mark, reuse_ports=True)

    def reading(self, fabric: str) -> FabricReading | None:
        """See ``laas_service.app.ports.subnet_manager.SubnetManager``."""
        return self._driver(fabric).look()

    def counters(self, fabric: str) -> tuple[SwitchCounters, ...]:
        """See ``laas_service.app.ports.subnet_manager.SubnetManager``."""
        return self._driver(fabric).counters()

    def _driver(self, fabric: str) -> OpenSmDriver:
        if fabric not in self._drivers:
            self._drivers[fabric] = OpenSmDriver(
                self._directory, fabric, self._opensm, keep=self._keep, site=self._site
            )
        return self._drivers[fabric]

    def _settings_of(self, fabric: str) -> render.Settings:
        return replace(self._settings, directory=str(self._directory / fabric / "current"))

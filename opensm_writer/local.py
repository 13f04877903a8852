# SPDX-License-Identifier: Apache-2.0

"""The subnet-manager port on this machine: a directory of files, and an OpenSM beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from laas_service.domain.errors import InvalidFile, InvalidInput, Unavailable
from laas_service.messages import Applied, FabricState
from opensm_writer import fileset, parse, publish, reload, render
from opensm_writer.desired import subnet_configuration
from opensm_writer.opensm import OpenSm


class LocalSubnetManager:
    """Publishes files into a directory; with an OpenSM given, also has them read.

    Without ``opensm`` a generation counts as applied when its files are current,
    complete and undamaged: for a site that loads them by hand, and for planning. With
    one it counts only when the tables read back from OpenSM or the switches equal the
    file, switch by switch; right after publishing, ``applied`` waits up to ``patience``
    seconds for that.

    ``directory`` holds one directory a fabric. ``enforcement``, ``multicast``, ``services``
    and ``one_rule_per_group`` are described at ``files.Settings``. ``keep`` is how many old
    sets stay.

    Raises:
        InvalidInput: a setting is wrong. Tables that the vendor's OpenSM makes from
            chains cannot be compared with a file, so ``chains`` goes without ``opensm``.
    """

    def __init__(
        self,
        directory: Path,
        opensm: OpenSm | None = None,
        *,
        enforcement: str = "file",
        multicast: bool = False,
        services: Collection[int] = (),
        one_rule_per_group: bool = False,
        keep: int = 3,
        patience: float = 10,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if opensm is not None and enforcement != "file":
            raise InvalidInput("enforcement", enforcement, "reading back needs 'file'")
        self._directory = directory.absolute()
        self._opensm = opensm
        self._enforcement = enforcement
        self._multicast = multicast
        self._services = tuple(sorted(services))
        self._one_rule_per_group = one_rule_per_group
        self._keep = keep
        self._patience = patience
        self._sleep = sleep
        self._clock = clock
        self._told: dict[str, float] = {}
        self._last: dict[str, publish.PublishedSet] = {}
        self._intact: dict[str, fileset.Signature] = {}
        self._meant: dict[str, Mapping[int, bytes]] = {}
        self._settings("any")  # so that a wrong setting shows at the start

    def publish(self, state: FabricState) -> None:
        """See ``laas_service.app.ports.subnet_manager.SubnetManager``.

        Raises:
            Conflict, LimitExceeded: see ``writer.publish``.
            Unavailable: the directory cannot be written, or OpenSM cannot be told; in the
                second case the new files are current and OpenSM reads them at its start.
        """
        last = self._last.get(state.fabric)
        configuration = subnet_configuration(
            state, last.configuration if last is not None else None
        )
        try:
            self._last[state.fabric] = publish.publish_set(
                configuration, self._settings(state.fabric), self._directory, self._keep, last
            )
            if self._opensm is not None:
                reload.tell(self._directory / state.fabric, self._opensm)
                self._told[state.fabric] = self._clock()
        except OSError as error:
            raise Unavailable(f"{self._directory}: {error}") from error

    def rehearse(self, state: FabricState) -> list[str]:
        """Render as ``publish`` would, and write nothing; ids of allocations that it would disturb.

        Raises:
            LimitExceeded: see ``writer.publish``.
        """
        configuration = subnet_configuration(state)
        for pieces in render.set_files(configuration, self._settings(state.fabric)).values():
            for _ in pieces:
                pass
        return publish.disturbed(configuration, self._directory)

    def applied(self, fabric: str) -> Applied:
        """See ``laas_service.app.ports.subnet_manager.SubnetManager``."""
        try:
            return self._applied(fabric)
        except InvalidFile as error:
            return Applied(None, str(error))
        except OSError as error:
            return Applied(None, f"{self._directory}: {error}")

    def _applied(self, fabric: str) -> Applied:
        manifest = fileset.current(self._directory, fabric)
        if manifest is None:
            return Applied(None, "nothing has been published yet")
        home = self._directory / fabric / "current"
        signature = fileset.signature(home)
        if self._intact.get(fabric) != signature:  # nobody has read it yet
            if damaged := fileset.damaged(home, manifest):
                return Applied(None, f"files differ from the manifest: {', '.join(damaged)}")
            self._meant.pop(fabric, None)
            self._intact[fabric] = signature
        if self._opensm is None:
            return Applied(manifest.generation)
        if fabric not in self._meant:
            read = parse.switch_tables(
                parse.file_pieces(home / "lfts"), "lfts", self._known(fabric)
            )
            self._meant[fabric] = {table.guid: table.row for table in read}
        meant = self._meant[fabric]
        mark = reload.told(self._directory / fabric).mark
        patient_until = self._told.pop(fabric, self._clock() - self._patience) + self._patience
        pause = 0.1
        while (problem := self._opensm.problem(meant, mark)) is not None:
            if self._clock() + pause > patient_until:
                return Applied(None, problem)
            self._sleep(pause)
            pause = min(2 * pause, 2.0)
        return Applied(manifest.generation)

    def _known(self, fabric: str) -> dict[bytes, parse.SwitchTable]:
        last = self._last.get(fabric)
        return {table.digest: table for table in last.tables} if last is not None else {}

    def _settings(self, fabric: str) -> render.Settings:
        where = self._directory / fabric / "current"
        return render.Settings(
            str(where), self._enforcement, self._multicast, self._services, self._one_rule_per_group
        )

# SPDX-License-Identifier: Apache-2.0

"""Sets of files rendered for OpenSM on other machines, whose agents fetch them from here.

They are kept as ``writer`` keeps them, with ``.served.json`` in each: what it was made from,
the sizes of its files, and the pieces of those that are fetched piece by piece. All of it is
a cache: whatever is missing, damaged or of another configuration is rendered again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from laas_service.domain.errors import Conflict, NotFound, Unavailable
from laas_service.messages import FabricState, FileSet
from opensm_writer import fileset, publish, render
from opensm_writer.desired import plan

LOG = logging.getLogger(__name__)

INDEX = ".served.json"


@dataclass(frozen=True, slots=True)
class _Kept:
    """A set that is here; ``made_from`` tells one of another state or configuration apart."""

    directory: Path
    made_from: str
    files: FileSet

    @property
    def generation(self) -> int:
        return int(self.files.manifest["generation"])


class ServedSets:
    """The sets of files of all fabrics, in one directory for all processes of a machine.

    ``routed`` gives a fabric's wanted state; ``settings`` what else its files depend on, by
    fabric. ``keep`` sets stay beside the newest, for agents that still fetch them.
    """

    def __init__(
        self,
        directory: Path,
        routed: Callable[[str], FabricState],
        settings: Callable[[str], render.Settings],
        *,
        keep: int = 2,
    ) -> None:
        self._directory = directory.absolute()
        self._routed = routed
        self._settings = settings
        self._keep = keep
        self._last: dict[str, publish.Published] = {}
        self._sound: dict[str, Path] = {}  # fabric -> directory of a set that was checked
        settings("any")  # so that a wrong one shows at the start

    def wanted(self, fabric: str) -> FileSet:
        """The set for the fabric's present state, rendered if it is not here yet.

        Raises:
            NotFound: there is no such fabric.
            Conflict, LimitExceeded: see ``writer.publish``.
            Unavailable: the directory cannot be written.
        """
        return self._wanted(fabric).files

    def file(self, fabric: str, generation: str, name: str) -> Path:
        """A file of the wanted set, or of one wanted a short while ago.

        Raises:
            NotFound: no set of this generation is kept, or its manifest does not name the file.
        """
        kept = next((one for one in self._all(fabric) if str(one.generation) == generation), None)
        if kept is None:
            kept = self._wanted(fabric)
        if str(kept.generation) != generation:
            fix = f"generation {kept.generation} is wanted now"
            raise NotFound("file set of generation", generation, fix)
        if name not in kept.files.sizes:
            raise NotFound("file of this set", name, "its manifest names all there are")
        return kept.directory / name

    def _wanted(self, fabric: str) -> _Kept:
        state = self._routed(fabric)
        try:
            kept = self._found(state)
            if kept is None:
                with self._rendering(fabric):
                    state = self._routed(fabric)  # it may have changed, or others rendered it
                    kept = self._found(state) or self._render(state)
        except OSError as error:
            raise Unavailable(f"{self._directory}: {error}") from error
        return kept

    def _found(self, state: FabricState) -> _Kept | None:
        """The newest set if it is made from this state, and whole: looked at once a process."""
        kept = _read(self._home(state.fabric) / "current")
        if kept is None or kept.made_from != self._origin(state):
            return None
        if self._sound.get(state.fabric) != kept.directory:
            manifest = fileset.read_manifest(kept.directory)
            if damaged := fileset.damaged(kept.directory, manifest):
                LOG.warning("fabric %s: rendering anew: %s is damaged", state.fabric, damaged)
                return None
            self._sound[state.fabric] = kept.directory
        return kept

    def _render(self, state: FabricState) -> _Kept:
        fabric = state.fabric
        published = self._publish(state)
        self._last[fabric] = published
        parts = {"lfts": tuple((table.size, table.digest.hex()) for table in published.tables)}
        directory = published.directory
        sizes = {name: (directory / name).stat().st_size for name in published.manifest.files}
        index = {"made_from": self._origin(state), "sizes": sizes, "parts": parts}
        fileset.replace_file(directory / INDEX, json.dumps(index))
        self._sound[fabric] = directory
        kept = _read(directory)
        if kept is None:
            raise Unavailable(f"{directory} was removed while it was made")
        return kept

    def _publish(self, state: FabricState) -> publish.Published:
        """What is kept here is no measure for what may follow it: agents hold each set against
        the one that OpenSM has. A database from a backup, or a release that routes otherwise,
        starts anew."""
        settings, last = self._settings(state.fabric), self._last.get(state.fabric)
        planned = plan(state, last.plan if last is not None else None)
        try:
            return publish.publish(planned, settings, self._directory, self._keep, last)
        except Conflict as error:
            LOG.warning("fabric %s: starting anew: %s", state.fabric, error)
            shutil.rmtree(self._home(state.fabric))
            return publish.publish(plan(state), settings, self._directory, self._keep)

    def _origin(self, state: FabricState) -> str:
        """What a set is made from: a state, as databases restored from a backup give numbers
        of generations twice, the configuration, and the form that this release gives files."""
        made_from = (render.FORM, state, self._settings(state.fabric))
        return hashlib.sha256(repr(made_from).encode()).hexdigest()

    def _all(self, fabric: str) -> Iterator[_Kept]:
        """The sets that are here, the newest one first."""
        home = self._home(fabric)
        others = sorted(home.glob("gen-*"), key=_age, reverse=True)
        return filter(None, map(_read, [home / "current", *others]))

    def _home(self, fabric: str) -> Path:
        return self._directory / fabric

    @contextmanager
    def _rendering(self, fabric: str) -> Iterator[None]:
        """One at a time, of all threads and processes; who waited finds what was rendered."""
        self._directory.mkdir(parents=True, exist_ok=True)
        with (self._directory / f".{fabric}.rendering").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _age(directory: Path) -> int:
    try:
        return directory.stat().st_mtime_ns
    except OSError:
        return 0  # it has been removed just now


def _read(directory: Path) -> _Kept | None:
    """A set and its index; None if either is not there, or not readable."""
    try:
        directory = directory.resolve(strict=True)
        index = json.loads((directory / INDEX).read_text())
        manifest = json.loads((directory / fileset.MANIFEST).read_text())
        parts = {
            name: tuple((int(size), str(digest)) for size, digest in pieces)
            for name, pieces in index["parts"].items()
        }
        int(manifest["generation"])
        return _Kept(directory, index["made_from"], FileSet(manifest, index["sizes"], parts))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None

# SPDX-License-Identifier: Apache-2.0

"""Serves sets of files that agents on other machines fetch.

``publish`` writes the sets. ``.served.json`` in each set says what it was made from, the sizes
of its files, and the size and sha256 of each table. All of this is a cache: a set that is
missing, damaged or of another configuration is rendered again. Sets for agents that know no
tables without port GUIDs are in ``WITH_GUIDS``, and rendered when such an agent asks.
"""

import fcntl
import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path

from laas_service.domain.errors import Conflict, NotFound, Unavailable
from laas_service.domain.inventory import Inventory
from laas_service.domain.topology import Topology
from laas_service.domain.wording import listed
from laas_service.messages import FabricState, FileSet
from opensm_writer import fileset, publish, render
from opensm_writer.desired import subnet_configuration

LOG = logging.getLogger(__name__)

INDEX = ".served.json"

HARDWARE = ("topology", "inventory")
"""Fields of a state that take long to hash, and that few generations change."""

WITH_GUIDS = ".with-port-guids"
"""A directory beside those of the fabrics, whose names do not begin with a dot."""


@dataclass(frozen=True, slots=True)
class _ServedSet:
    """A set on disk."""

    directory: Path
    made_from: str  # sha256 of the state, the configuration and the form
    files: FileSet

    @property
    def generation(self) -> int:
        return int(self.files.manifest["generation"])


class ServedSets:
    """The sets of files of all fabrics, in one directory for all processes of a machine.

    ``routed`` returns a fabric's desired state, and ``settings`` the other values that its files
    depend on. ``keep`` older sets stay, for agents that are still fetching one.
    """

    def __init__(
        self,
        directory: Path,
        routed: Callable[[str], FabricState],
        settings: Callable[[str], render.Settings],
        *,
        keep: int = 2,
    ) -> None:
        settings("any")  # raises InvalidInput at the start if an option is wrong
        root = directory.absolute()

        def with_bare(bare: bool) -> Callable[[str], render.Settings]:
            return lambda fabric: replace(settings(fabric), bare=bare)

        self._bare = _Sets(root, routed, with_bare(True), keep)
        self._named = _Sets(root / WITH_GUIDS, routed, with_bare(False), keep)

    def wanted(self, fabric: str, form: int = fileset.FORM) -> FileSet:
        """The set for the fabric's desired state; rendered if it is not on disk.

        Its manifest is in the newest form up to ``form``, which is the newest that the agent
        knows. The files of forms 4 and 5 are the same.

        Raises:
            NotFound: there is no such fabric.
            Conflict, LimitExceeded: see ``publish.publish_set``.
            Unavailable: the directory cannot be written.
        """
        files = self._of(form).wanted(fabric).files
        manifest = fileset.in_form(files.manifest, min(form, files.manifest.get("form", 4)))
        return replace(files, manifest=manifest)

    def file(self, fabric: str, generation: str, name: str, form: int = fileset.FORM) -> Path:
        """A file of the desired set, or of an older set that is still on disk.

        Raises:
            NotFound: no set of this generation is on disk, or its manifest does not name the
                file.
        """
        return self._of(form).file(fabric, generation, name)

    def _of(self, form: int) -> "_Sets":
        return self._bare if form >= fileset.BARE else self._named


class _Sets:
    """The sets with or without port GUIDs; the arguments are described at ``ServedSets``."""

    def __init__(
        self,
        directory: Path,
        routed: Callable[[str], FabricState],
        settings: Callable[[str], render.Settings],
        keep: int,
    ) -> None:
        self._directory = directory
        self._routed = routed
        self._settings = settings
        self._keep = keep
        self._last: dict[str, publish.PublishedSet] = {}
        self._hardware_of: dict[str, tuple[Topology, Inventory, str]] = {}
        self._undamaged: dict[str, Path] = {}  # fabric -> directory of a set that was checked

    def file(self, fabric: str, generation: str, name: str) -> Path:
        """See ``ServedSets.file``."""
        sets = (served for served in self._on_disk(fabric) if str(served.generation) == generation)
        served = next(sets, None) or self.wanted(fabric)
        if str(served.generation) != generation:
            fix = f"generation {served.generation} is wanted now"
            raise NotFound("file set of generation", generation, fix)
        if name not in served.files.sizes:
            raise NotFound("file of this set", name, "its manifest names all files")
        return served.directory / name

    def wanted(self, fabric: str) -> _ServedSet:
        """See ``ServedSets.wanted``."""
        state = self._routed(fabric)
        try:
            served = self._current(state)
            if served is None:
                with self._rendering(fabric):
                    state = self._routed(fabric)  # it may have changed while waiting
                    served = self._current(state) or self._render(state)
        except OSError as error:
            raise Unavailable(f"{self._directory}: {error}") from error
        return served

    def _current(self, state: FabricState) -> _ServedSet | None:
        """The current set if it was made from this state and is undamaged.

        Each process checks the files of a set once.
        """
        served = _read(self._home(state.fabric) / "current")
        if served is None or served.made_from != self._made_from(state):
            return None
        if self._undamaged.get(state.fabric) != served.directory:
            manifest = fileset.read_manifest(served.directory)
            if damaged := fileset.damaged(served.directory, manifest):
                LOG.warning(
                    "fabric %s: damaged files are rendered again: %s", state.fabric, listed(damaged)
                )
                return None
            self._undamaged[state.fabric] = served.directory
        return served

    def _render(self, state: FabricState) -> _ServedSet:
        fabric = state.fabric
        published = self._publish(state)
        self._last[fabric] = published
        parts = {"lfts": tuple((table.size, table.digest.hex()) for table in published.tables)}
        directory = published.directory
        sizes = {name: (directory / name).stat().st_size for name in published.manifest.files}
        index = {"made_from": self._made_from(state), "sizes": sizes, "parts": parts}
        fileset.replace_file(directory / INDEX, json.dumps(index))
        self._undamaged[fabric] = directory
        served = _read(directory)
        if served is None:
            raise Unavailable(f"{directory} was removed while it was rendered")
        return served

    def _publish(self, state: FabricState) -> publish.PublishedSet:
        """Publish a set, also one that may not follow the current one.

        After a restored backup, or an upgrade that changes routing, the sets on disk are
        removed. Each agent checks a set against the one that its OpenSM has.
        """
        settings, last = self._settings(state.fabric), self._last.get(state.fabric)
        known, enforcement = last.configuration if last is not None else None, settings.enforcement
        configuration = subnet_configuration(state, known, enforcement=enforcement)
        try:
            return publish.publish_set(configuration, settings, self._directory, self._keep, last)
        except Conflict as error:
            LOG.warning("fabric %s: all sets on disk are removed: %s", state.fabric, error)
            shutil.rmtree(self._home(state.fabric))
            configuration = subnet_configuration(state, enforcement=enforcement)
            return publish.publish_set(configuration, settings, self._directory, self._keep)

    def _made_from(self, state: FabricState) -> str:
        """sha256 of all values that a set depends on.

        The generation alone does not identify a state: after a backup was restored, the
        database uses numbers of generations again.
        """
        others = [getattr(state, each.name) for each in fields(state) if each.name not in HARDWARE]
        made_from = (fileset.FORM, self._hardware(state), others, self._settings(state.fabric))
        return hashlib.sha256(repr(made_from).encode()).hexdigest()

    def _hardware(self, state: FabricState) -> str:
        """sha256 of ``HARDWARE``; computed anew only for other objects."""
        *known, digest = self._hardware_of.get(state.fabric, (None, None, ""))
        if known[0] is not state.topology or known[1] is not state.inventory:
            text = repr((state.topology, state.inventory))
            digest = hashlib.sha256(text.encode()).hexdigest()
            self._hardware_of[state.fabric] = state.topology, state.inventory, digest
        return digest

    def _on_disk(self, fabric: str) -> Iterator[_ServedSet]:
        """All readable sets: the current one, then the others from the newest on."""
        home = self._home(fabric)
        others = sorted(home.glob("gen-*"), key=_modified, reverse=True)
        return filter(None, map(_read, [home / "current", *others]))

    def _home(self, fabric: str) -> Path:
        return self._directory / fabric

    @contextmanager
    def _rendering(self, fabric: str) -> Iterator[None]:
        """Lock a fabric against other threads and processes that would render its set."""
        self._directory.mkdir(parents=True, exist_ok=True)
        with (self._directory / f".{fabric}.rendering").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _modified(directory: Path) -> int:
    try:
        return directory.stat().st_mtime_ns
    except OSError:
        return 0  # it has just been removed


def _read(directory: Path) -> _ServedSet | None:
    """A set and its index; None if either is missing or cannot be read."""
    try:
        directory = directory.resolve(strict=True)
        index = json.loads((directory / INDEX).read_text())
        manifest = json.loads((directory / fileset.MANIFEST).read_text())
        parts = {
            name: tuple((int(size), str(digest)) for size, digest in pieces)
            for name, pieces in index["parts"].items()
        }
        int(manifest["generation"])
        return _ServedSet(directory, index["made_from"], FileSet(manifest, index["sizes"], parts))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None

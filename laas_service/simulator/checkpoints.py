# SPDX-License-Identifier: Apache-2.0

"""Files from which an interrupted simulation goes on: checkpoints and results of finished runs.

A checkpoint is the state of one simulation between two simulated times. Its first line is JSON:
the run that it belongs to, and the length and SHA-256 of the state that follows. The state is a
pickle of objects of this package. Reading one makes objects of no other package, so that a file
from elsewhere cannot run code.

Files are replaced as a whole. A process that is killed leaves the previous file or the new one.
"""

import hashlib
import io
import json
import os
import pickle
import time
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from laas_service.domain.errors import InvalidInput
from laas_service.domain.ledger.free import ReaderCache, ReaderCaches
from laas_service.version import VERSION

T = TypeVar("T")

Identity = Mapping[str, Any]
"""JSON data that names a run: equal for runs that give equal results."""

EVERY = 60.0
"""Seconds between two checkpoints, by default."""

_FORM = 1
"""Number of the present form of the files."""

_PACKAGES = ("laas_service.domain.", "laas_service.simulator.")
_OTHER_CLASSES = {("collections", "deque"), ("builtins", "set"), ("builtins", "frozenset")}
"""Classes of the standard library that a state holds."""


class Checkpoint:
    """A file that holds the state of one simulation.

    ``every`` is in seconds of ``clock``; 0 saves whenever a state is offered.
    """

    def __init__(
        self, path: Path, every: float = EVERY, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.path = path
        self._every = every
        self._clock = clock
        self._saved_at = clock()

    def due(self) -> bool:
        """Whether the last checkpoint is ``every`` seconds old."""
        return self._clock() - self._saved_at >= self._every

    def save(self, belongs_to: Identity, state: object, outside: Mapping[str, object]) -> None:
        """Replace the file.

        The objects of ``outside`` are not saved: ``load`` puts those that it is given in their
        places.

        Raises:
            InvalidInput: the file cannot be written.
        """
        body = io.BytesIO()
        _Pickler(body, outside).dump(state)
        digest = hashlib.sha256(body.getvalue()).hexdigest()
        header = {
            "belongs_to": _described(belongs_to),
            "bytes": len(body.getvalue()),
            "sha256": digest,
        }
        _replace_file(self.path, json.dumps(header).encode() + b"\n" + body.getvalue())
        self._saved_at = self._clock()

    def load(self, belongs_to: Identity, kind: type[T], outside: Mapping[str, object]) -> T | None:
        """The saved state, a ``kind``; None if there is no file.

        Raises:
            InvalidInput: the file cannot be read, is damaged, or belongs to another run.
        """
        try:
            with self.path.open("rb") as file:
                first, body = file.readline(), file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._refused(f"cannot be read: {error}") from error
        try:
            header = json.loads(first)
            owner, size, digest = header["belongs_to"], header["bytes"], header["sha256"]
        except (ValueError, KeyError, TypeError) as error:
            raise self._refused("is no checkpoint of laas-simulate") from error
        if size != len(body) or digest != hashlib.sha256(body).hexdigest():
            raise self._refused("is damaged: its content is not what its first line states")
        _check_owner(self.path, owner, belongs_to)
        try:
            state = _Unpickler(io.BytesIO(body), outside).load()
        except Exception as error:  # a pickle may raise anything
            raise self._refused(f"cannot be restored: {error}") from error
        if not isinstance(state, kind):
            raise self._refused("holds another kind of state")
        return state

    def remove(self) -> None:
        """Remove the file, as the run has ended and its result is written."""
        self.path.unlink(missing_ok=True)
        _draft(self.path).unlink(missing_ok=True)

    def _refused(self, why: str) -> InvalidInput:
        return _refused(self.path, why)


class Results:
    """A directory with the result of each finished run, and checkpoints of unfinished ones."""

    def __init__(self, directory: Path, every: float = EVERY) -> None:
        self._directory = directory
        self._every = every

    def result(self, belongs_to: Identity, run: Callable[[Checkpoint], Mapping[str, Any]]) -> Any:
        """The result of a run, from its file if it has finished before.

        Raises:
            InvalidInput: a file cannot be read or written, is damaged, or belongs to another run.
        """
        name = hashlib.sha256(_canonical(_described(belongs_to))).hexdigest()[:32]
        path = self._directory / f"{name}.json"
        try:
            document = json.loads(path.read_bytes())
            owner, result = document["belongs_to"], document["result"]
        except FileNotFoundError:
            pass
        except OSError as error:
            raise _refused(path, f"cannot be read: {error}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise _refused(path, "is no result of laas-simulate") from error
        else:
            _check_owner(path, owner, belongs_to)
            return result
        checkpoint = Checkpoint(self._directory / f"{name}.checkpoint", self._every)
        result = run(checkpoint)
        document = {"belongs_to": _described(belongs_to), "result": result}
        _replace_file(path, json.dumps(document).encode())
        checkpoint.remove()
        return result


def file_digest(path: str) -> str:
    """SHA-256 of a file's content.

    Raises:
        InvalidInput: the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InvalidInput("trace", path, f"cannot be read: {error}") from error


def _described(belongs_to: Identity) -> dict[str, Any]:
    """The identity with the release, as JSON would give it back."""
    described: dict[str, Any] = json.loads(
        json.dumps({"form": _FORM, "release": VERSION, **belongs_to})
    )
    return described


def _check_owner(path: Path, owner: object, belongs_to: Identity) -> None:
    expected = _described(belongs_to)
    if owner == expected:
        return
    found = owner if isinstance(owner, dict) else {}
    differing = [key for key in expected if found.get(key) != expected[key]]
    shown = ", ".join(f"{key} {found.get(key)!r}, not {expected[key]!r}" for key in differing)
    raise _refused(path, f"belongs to another run: {shown or 'it names more'}")


def _refused(path: Path, why: str) -> InvalidInput:
    return InvalidInput("checkpoint", str(path), f"the file {why}; remove it or name another")


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _draft(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


def _replace_file(path: Path, content: bytes) -> None:
    """Replace a file atomically, also should the machine lose power.

    Raises:
        InvalidInput: the file cannot be written.
    """
    draft = _draft(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise InvalidInput("checkpoint", str(path), f"cannot be written: {error}") from error


class _Pickler(pickle.Pickler):
    """Writes names in place of the objects of ``outside``."""

    def __init__(self, file: io.BytesIO, outside: Mapping[str, object]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._names = {id(value): name for name, value in outside.items()}

        self._outside = outside

    def persistent_id(self, value: object) -> str | None:
        return self._names.get(id(value))

    def reducer_override(self, value: object) -> Any:
        """Leave out caches that hold functions; a reader fills an empty one again.

        A member of an enumeration is saved by its value: Python 3.11.2 would save it by
        ``getattr``, which ``_Unpickler`` refuses.
        """
        if isinstance(value, Enum):
            return type(value), (value.value,)
        if isinstance(value, ReaderCaches):
            kept = {kind: cache for kind, cache in value.items() if self._can_save(cache)}
            return ReaderCaches, (kept,)
        return NotImplemented

    def _can_save(self, cache: ReaderCache) -> bool:
        try:
            _Pickler(io.BytesIO(), self._outside).dump(cache)
        except (pickle.PicklingError, AttributeError, TypeError):
            return False
        return True


class _Unpickler(pickle.Unpickler):
    """Puts the objects of ``outside`` in place of their names; makes objects of this package."""

    def __init__(self, file: io.BytesIO, outside: Mapping[str, object]) -> None:
        super().__init__(file)
        self._outside = outside

    def persistent_load(self, name: str) -> object:
        return self._outside[name]

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _OTHER_CLASSES or module.startswith(_PACKAGES):
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is no class of a state")

# SPDX-License-Identifier: Apache-2.0

"""A file set as the service offers it to an agent, for tests to modify."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from laas_service.messages import FabricState
from opensm_writer import fileset, parse, publish, render
from opensm_writer.desired import subnet_configuration


class Offer:
    """``opensm_writer.fetch.Source`` over values in memory.

    ``files`` are the contents by name, ``manifest`` is the document of ``manifest.json``.
    ``asked`` records each request: name, start and size in bytes.
    """

    def __init__(self, state: FabricState, made_in: Path, home: Path, **settings: Any) -> None:
        """The file set of a state, for an OpenSM that reads ``home``/current."""
        chosen = render.Settings(str(home / "current"), **settings)
        configuration = subnet_configuration(state, enforcement=chosen.enforcement)
        directory = publish.publish_set(configuration, chosen, made_in).directory
        self.manifest: dict[str, Any] = json.loads((directory / fileset.MANIFEST).read_text())
        self.files = {name: (directory / name).read_bytes() for name in self.manifest["files"]}
        self.asked: list[tuple[str, int, int]] = []

    def describe(self, **changes: Any) -> None:
        """Change values in the manifest."""
        self.manifest |= changes

    def rewrite(self, name: str, text: bytes) -> None:
        """Change the contents of a file, and its checksum in the manifest."""
        self.files[name] = text
        digest = hashlib.sha256(text)
        if name == "lfts" and self.manifest.get("form") == fileset.BARE:
            digest = hashlib.sha256(b"".join(bytes.fromhex(part) for _, part in self.parts()))
        self.manifest["files"][name] = digest.hexdigest()

    def drop(self, name: str) -> None:
        del self.files[name], self.manifest["files"][name]

    def described(self) -> Mapping[str, Any]:
        return {
            "manifest": self.manifest,
            "sizes": {name: len(text) for name, text in self.files.items()},
            "parts": {"lfts": self.parts()},
        }

    def parts(self) -> list[list[Any]]:
        text = self.files["lfts"]
        starts = [at for at in range(len(text)) if text.startswith(b"Unicast", at)] or [0]
        ends = [*starts[1:], len(text)]
        blocks = [text[start:end] for start, end in zip(starts, ends, strict=True)]
        return [[len(block), hashlib.sha256(block).hexdigest()] for block in blocks]

    def contents(self, generation: int, name: str, start: int, size: int) -> Iterator[bytes]:
        assert generation == self.manifest["generation"]
        self.asked.append((name, start, size))
        wanted = self.files[name][start : start + size]
        for at in range(0, len(wanted), 1000):
            yield wanted[at : at + 1000]

    def rows(self) -> dict[int, bytes]:
        """The forwarding tables of the set, by switch GUID."""
        return parse.dumped_tables(self.files["lfts"].decode().splitlines())


def everything(home: Path) -> dict[str, bytes | str]:
    """Contents of all files and targets of all links below a directory, except the lock."""
    found: dict[str, bytes | str] = {}
    for path in sorted(home.rglob("*")):
        if path.is_symlink():
            found[str(path)] = str(path.readlink())
        elif path.is_file() and path.name != ".lock":
            found[str(path)] = path.read_bytes()
    return found

# SPDX-License-Identifier: Apache-2.0

"""Makes the file of tables that OpenSM reads from tables without port GUIDs: beside OpenSM.

``lfts`` of a set of form ``fileset.BARE`` is right only while the ports have the LIDs that it was
made for. With the GUIDs of ``guid2lid`` it is the file that the service writes in form
``fileset.NAMED``, byte for byte, and OpenSM finds the LIDs by itself.
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from laas_service.domain.errors import InvalidFile
from opensm_writer import fileset, parse, render
from opensm_writer.fileset import MANIFEST, Manifest
from opensm_writer.render import TABLES


def name_ports(
    source: Path, target: Path, manifest: Manifest, known: Mapping[bytes, parse.SwitchTable]
) -> Manifest:
    """Write the tables of a bare set with port GUIDs to the file ``target``; the new manifest.

    ``source`` is the directory of the set, ``known`` is described at ``parse.switch_tables``.

    Raises:
        InvalidFile: the set is damaged, or the new file does not parse back to the same tables.
        OSError: a file cannot be read or written.
    """
    lids = parse.guid2lid((source / "guid2lid").read_text(), "guid2lid")
    bare = fileset.checked_tables(source, manifest, known)
    parse.by_guid(bare, lids, TABLES)
    names = render.GuidNames(lids)

    def pieces() -> Iterator[bytes]:
        return map(names.named, parse.blocks(parse.file_pieces(source / TABLES)))

    draft = target.with_name(f".{target.name}.named")
    digest = fileset.write(draft, pieces())
    named = replace(manifest, form=fileset.NAMED, files={**manifest.files, TABLES: digest})
    written = parse.switch_tables(parse.file_pieces(draft), TABLES, known)
    rows = {table.guid: table.row for table in parse.by_guid(written, lids, TABLES).values()}
    if rows != {table.guid: table.row for table in bare}:
        raise InvalidFile(TABLES, 1, "with port GUIDs it does not parse back to the same tables")
    draft.replace(target)
    return named


def name_ports_of_current(home: Path, keep: int, known: Mapping[bytes, parse.SwitchTable]) -> None:
    """Replace the current set, if it is bare, by one with the same tables that name port GUIDs.

    ``keep`` is described at ``fileset.make_current``.

    Raises: as ``name_ports``.
    """
    with fileset.changing(home):
        current = fileset.current_set(home)
        manifest = fileset.read_manifest(current)
        if manifest.form != fileset.BARE:
            return
        draft = fileset.draft(home)
        try:
            for name in manifest.files.keys() - {TABLES}:
                (draft / name).parent.mkdir(parents=True, exist_ok=True)
                os.link(current / name, draft / name)
            named = name_ports(current, draft / TABLES, manifest, known)
            fileset.write(draft / MANIFEST, [fileset.text(named)])
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        fileset.make_current(home, draft, manifest.generation, keep)


def is_named(
    home: Path,
    current: Manifest,
    wanted: Manifest,
    bare_digests: Iterable[bytes],
) -> bool:
    """Whether the current set is undamaged and has, with port GUIDs, the tables of a bare one.

    ``wanted`` is the manifest of the bare set; ``bare_digests`` are the sha256 of the tables of
    the current set without port GUIDs.
    """
    files = {**wanted.files, TABLES: current.files.get(TABLES, "")}
    named = replace(wanted, form=current.form, files=files)
    return (
        (current.form, wanted.form) == (fileset.NAMED, fileset.BARE)
        and fileset.digest_of_tables(bare_digests) == wanted.files[TABLES]
        and fileset.is_current(home, current, fileset.text(named))
    )

# SPDX-License-Identifier: Apache-2.0

"""Text of a fabric file: decompresses gzip, bzip2, xz and zip, decodes, and limits the size.

What cannot be read as one text is named for what it is. At most ``MOST`` bytes are held, however
large the file, and whatever it decompresses to.
"""

import bz2
import gzip
import io
import lzma
import stat
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from laas_service.adapters.fabric_import.refusal import ImportRefusal
from laas_service.domain.errors import InvalidFile, InvalidInput
from laas_service.domain.wording import listed, printable

MOST = 128 * 2**20
"""Bytes of a text at most; the dump of 11,664 hosts has 6.5 million."""

_OPENERS: dict[bytes, tuple[str, Callable[[io.BytesIO], Any]]] = {
    b"\x1f\x8b": ("gzip", lambda data: gzip.GzipFile(fileobj=data)),
    b"BZh": ("bzip2", bz2.BZ2File),
    b"\xfd7zXZ\0": ("xz", lzma.LZMAFile),
}

_PACKED = {
    b"\x28\xb5\x2f\xfd": ("a zstd file", "unzstd"),
    b"\x04\x22\x4d\x18": ("an lz4 file", "unlz4"),
    b"\x1f\x9d": ("a compress file", "uncompress"),
    b"7z\xbc\xaf\x27\x1c": ("a 7-Zip archive", "7z x"),
    b"Rar!": ("a RAR archive", "unrar"),
}
"""Compressed files that are not read, by their first bytes: what each is, and what unpacks it."""

_BINARY = {
    b"\x7fELF": "a program",
    b"%PDF": "a PDF document",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"SQLite format 3\0": "an SQLite database",
}
"""Other binary files, by their first bytes."""

_GIVE = "give the output of ibnetdiscover"
_DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, RuntimeError)
"""What decompressors raise for a damaged or encrypted file."""


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        InvalidFile: it holds no text, or one that is too large; ``code`` says what it is.
        InvalidInput: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            about = path.stat()
            if stat.S_ISREG(about.st_mode) and about.st_size > MOST:
                raise _too_large(path.name, f"{about.st_size:,} bytes")
            return read_stream(file, path.name)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        fix = f"give a file that can be read ({reason.lower()})"
        raise InvalidInput("fabric", str(path), fix) from error


def read_stream(stream: IO[bytes], source: str) -> str:
    """The text of an open file, which errors call ``source``. Raises: InvalidFile, OSError."""
    return decoded(_bounded(stream, source), source)


def decoded(data: bytes, source: str) -> str:
    """The text in the bytes of a file. Raises: InvalidFile."""
    data = _decompressed(data, source)
    encoding = _encoding(data)
    if data[257:262] == b"ustar":
        raise _refused(source, ImportRefusal.COMPRESSED, "is a tar archive; unpack it (tar -xf)")
    if not data.strip(b" \t\r\n\f\v\0"):
        raise _refused(source, ImportRefusal.EMPTY, f"is empty; {_GIVE}")
    kind = next((kind for magic, kind in _BINARY.items() if data.startswith(magic)), None)
    if kind or (encoding == "utf-8-sig" and b"\0" in data):
        what = f"is {kind}" if kind else "is a binary file"
        raise _refused(source, ImportRefusal.NOT_A_DUMP, f"{what} and no text; {_GIVE}")
    return data.decode(encoding, errors="replace")


def _bounded(stream: IO[bytes], source: str, inside: str = "") -> bytes:
    data = stream.read(MOST + 1)
    if len(data) > MOST:
        raise _too_large(source, f"more than {MOST:,} bytes{inside}")
    return data


def _too_large(source: str, size: str) -> InvalidFile:
    why = (
        f"has {size}; a fabric file has at most {MOST:,} (the dump of 11,664 hosts has 6.5 "
        f"million); {_GIVE} alone"
    )
    return _refused(source, ImportRefusal.TOO_LARGE, why)


def _refused(source: str, refusal: ImportRefusal, why: str) -> InvalidFile:
    return InvalidFile(source, 0, why, refusal)


def _decompressed(data: bytes, source: str) -> bytes:
    """The content of a compressed file, or the data as they are."""
    for magic, (what, unpack) in _PACKED.items():
        if data.startswith(magic):
            why = f"is {what}, which is not read; unpack it ({unpack}), or pack it with gzip"
            raise _refused(source, ImportRefusal.COMPRESSED, why)
    if data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _from_zip(data, source)
    for magic, (name, opener) in _OPENERS.items():
        if data.startswith(magic):
            try:
                with opener(io.BytesIO(data)) as stream:
                    return _flat(_bounded(stream, source, " unpacked"), source, name)
            except _DAMAGE as error:
                raise _damaged(source, name, error) from error
    return data


def _from_zip(data: bytes, source: str) -> bytes:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            files = [entry for entry in archive.infolist() if not entry.is_dir()]
            if len(files) != 1:
                names = listed([printable(entry.filename) for entry in files[:3]]) or "none"
                more = ", ..." if len(files) > 3 else ""
                why = f"is a zip archive of {len(files)} files ({names}{more}); give one of them"
                raise _refused(source, ImportRefusal.COMPRESSED, why)
            with archive.open(files[0]) as stream:
                return _flat(_bounded(stream, source, " unpacked"), source, "zip")
    except (*_DAMAGE, NotImplementedError) as error:
        raise _damaged(source, "zip", error) from error


def _flat(data: bytes, source: str, name: str) -> bytes:
    """The content of an archive, which is no archive again."""
    magics = (*_OPENERS, *_PACKED, b"PK\x03\x04")
    if data.startswith(magics):
        why = f"is a {name} file with a compressed file inside; unpack it once"
        raise _refused(source, ImportRefusal.COMPRESSED, why)
    return data


def _damaged(source: str, name: str, error: Exception) -> InvalidFile:
    reason = str(error).rstrip(".").lower() or type(error).__name__
    why = f"is a {name} file that cannot be unpacked ({reason}); copy or pack it again"
    return _refused(source, ImportRefusal.COMPRESSED, why)


def _encoding(data: bytes) -> str:
    """UTF-16 by its mark, or by the zeros of ASCII characters; else UTF-8."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    start = data[:256]
    for encoding, zeros, others in (("utf-16-le", start[1::2], start[::2]),
                                    ("utf-16-be", start[::2], start[1::2])):  # fmt: skip
        if len(start) > 3 and not zeros.strip(b"\0") and b"\0" not in others:
            return encoding
    return "utf-8-sig"

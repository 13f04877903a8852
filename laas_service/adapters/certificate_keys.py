# SPDX-License-Identifier: Apache-2.0

"""Signs certificates: a JWS (RFC 7515) by Ed25519 (RFC 8037) around canonical JSON (RFC 8785).

The directory holds a private key in each ``NAME.pem``; the last by name signs. A key whose file is
renamed to ``NAME.revoked`` signs no more, and the public set says so. ``public.json`` is the set
of all public keys (RFC 7517), for tenants.
"""

import hashlib
import json
import os
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from laas_service.app.requests import Envelope
from laas_service.domain.errors import Unavailable

TYPE = "laas-certificate+jws"
FIRST = "0001.pem"
PUBLIC = "public.json"


class CertificateKeys:
    """The keys in a directory, which is read again at each signature. A first key is made."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def sign(self, statement: Mapping[str, Any]) -> Envelope:
        """Raises: Unavailable, if a key cannot be read or written."""
        try:
            key = self._current()
        except (OSError, ValueError, TypeError) as error:
            raise Unavailable(f"the keys in {self.directory} cannot be used: {error}") from error
        header = {"alg": "EdDSA", "kid": _thumbprint(key), "typ": TYPE}
        protected, payload = _encoded(_canonical(header)), _encoded(_canonical(statement))
        signature = _encoded(key.sign(f"{protected}.{payload}".encode()))
        return Envelope(payload, protected, signature)

    def _current(self) -> Ed25519PrivateKey:
        """The key that signs; the public set on disk is brought up to date."""
        if not any(self.directory.glob("*.pem")):
            self._make_first()
        files = sorted((*self.directory.glob("*.pem"), *self.directory.glob("*.revoked")))
        keys = {path: _read(path) for path in files}
        public = [
            {**_public(key), "kid": _thumbprint(key), "alg": "EdDSA", "use": "sig"}
            | ({"revoked": True} if path.suffix == ".revoked" else {})
            for path, key in keys.items()
        ]
        self._write_public(json.dumps({"keys": public}, indent=1, sort_keys=True) + "\n")
        return keys[max(path for path in keys if path.suffix == ".pem")]

    def _make_first(self) -> None:
        """Make a key, unless another process is faster."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if any(self.directory.glob("*.revoked")):
            raise ValueError("all keys are revoked; make another one (openssl genpkey)")
        text = Ed25519PrivateKey.generate().private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
        draft = self.directory / f".{os.getpid()}.draft"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, self.directory / FIRST)
        except FileExistsError:
            pass
        finally:
            draft.unlink()

    def _write_public(self, text: str) -> None:
        path = self.directory / PUBLIC
        if not path.exists() or path.read_text() != text:
            draft = self.directory / f".{os.getpid()}.public"
            draft.write_text(text)
            draft.replace(path)


def _read(path: Path) -> Ed25519PrivateKey:
    """Raises: OSError, ValueError."""
    key = load_pem_private_key(path.read_bytes(), None)
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"{path.name} is no Ed25519 key")
    return key


def _public(key: Ed25519PrivateKey) -> dict[str, str]:
    return {"crv": "Ed25519", "kty": "OKP", "x": _encoded(key.public_key().public_bytes_raw())}


def _thumbprint(key: Ed25519PrivateKey) -> str:
    """Name of a key (RFC 7638)."""
    return _encoded(hashlib.sha256(_canonical(_public(key))).digest())


def _canonical(value: Mapping[str, Any]) -> bytes:
    """RFC 8785, for values without fractions, whose names are ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")

"""The pepper: the secret that keys every namespace digest, one 0600 file in the data folder.

Without it the namespaces of a database cannot be found again, so it is made once and then only read.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from app.errors import SettingsError

# 256 bits: the digests must not be reversible by guessing API keys, whatever their format.
PEPPER_BYTES = 32


@dataclass(frozen=True, slots=True)
class Pepper:
    """The secret itself, never shown. `digest_of` is the only use."""

    secret: bytes

    def __repr__(self) -> str:
        return "Pepper(...)"

    def digest_of(self, *parts: str) -> bytes:
        """HMAC-SHA256 over the parts, each length-prefixed so that no two lists collide."""
        mac = hmac.new(self.secret, digestmod=hashlib.sha256)
        for part in parts:
            encoded = part.encode("utf-8", "surrogatepass")
            mac.update(len(encoded).to_bytes(8, "big"))
            mac.update(encoded)
        return mac.digest()

    @property
    def fingerprint(self) -> bytes:
        """Names the pepper without telling it: stored in the database to notice a mismatch."""
        return self.digest_of("palimpsest pepper fingerprint")


def load_pepper(path: Path) -> Pepper:
    """The pepper in the file; made, 0600, when there is none. SettingsError when others can read it."""
    try:
        return _create(path)
    except FileExistsError:
        return _read(path)
    except OSError as error:
        raise SettingsError(f"The pepper cannot be made at {path}: {error.strerror}.") from error


def _create(path: Path) -> Pepper:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    secret = secrets.token_bytes(PEPPER_BYTES)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secret)
        file.flush()
        os.fsync(file.fileno())
    return Pepper(secret)


def _read(path: Path) -> Pepper:
    if path.stat().st_mode & 0o077:
        raise SettingsError(f"The pepper {path} can be read by others: run `chmod 600 {path}`.")
    secret = path.read_bytes()
    if len(secret) != PEPPER_BYTES:
        raise SettingsError(f"The pepper {path} is damaged ({len(secret)} bytes): restore it from a backup.")
    return Pepper(secret)

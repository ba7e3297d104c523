"""The secrets of a server: the operator's key, and the pepper, neither of which is shown, logged or sent on.

The admin key is recognized without being kept: it is held as a digest. Under the pepper callers' credentials
become the digests that namespaces are found by. It is created once and then only read: without it the
namespaces of a database cannot be found again.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import tempfile
from base64 import b64decode
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from urllib.parse import unquote_to_bytes

from palimpsest.core.urls import decoded
from palimpsest.errors import SettingsError

_Headers = Sequence[tuple[bytes, bytes]]


class AdminKey:
    """The key; `repr` does not show it."""

    def __init__(self, key: str) -> None:
        self._size, self._sum = len(key), sum(key.encode())
        self._digest = _digest(key.encode())

    def opens(self, headers: _Headers) -> bool:
        """True when the request presents the key as its one bearer token.

        It takes the same time for anything else, whatever its length.
        """
        given = [value for name, value in headers if name == b"authorization"]
        scheme, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        is_same = hmac.compare_digest(_digest(token.strip()), self._digest)
        return is_same and scheme.lower() == b"bearer"

    def is_in(self, headers: _Headers, target: str) -> bool:
        """True when the key stands anywhere in a header or in the target: a path and query.

        In headers as spelled, and behind percent-encoding or the coding of Basic. Digests only windows whose
        bytes have the key's sum: 0.1 ms a kilobyte.
        """
        texts = [decoded(target).encode()]
        for _, value in headers:
            texts += {value, unquote_to_bytes(value)}
            scheme, _, coded = value.partition(b" ")
            if scheme.lower() == b"basic":
                with suppress(ValueError):
                    texts.append(b64decode(coded))
        for text in texts:
            sums = [0, *accumulate(text)]
            for at, (before, after) in enumerate(zip(sums, sums[self._size :], strict=False)):
                window = text[at : at + self._size]
                if after - before == self._sum and hmac.compare_digest(_digest(window), self._digest):
                    return True
        return False


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


# 256 bits: the digests must not be reversible by guessing API keys, whatever their format.
PEPPER_BYTES = 32
_RESTORE = (
    "restore that file from the backup that belongs to the database. Nobody's conversations are found"
    " without it."
)


@dataclass(frozen=True, slots=True)
class Pepper:
    """The secret. `repr` hides it; use `digest_of`."""

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
        """Identifies the pepper without revealing it; stored in the database to detect a mismatch."""
        return self.digest_of("palimpsest pepper fingerprint")


def load_pepper(path: Path, bound: bytes | None) -> Pepper:
    """The pepper in the file, for a database made with the one of the fingerprint `bound`; None: a new one.

    For a new database a missing file is created, with mode 0600. SettingsError when the file is not the
    database's, when other users can read it, or when it is damaged or cannot be created.
    """
    if bound is not None and not path.exists():
        raise SettingsError(f"The pepper {path} is missing, and the database was made with one: {_RESTORE}")
    try:
        pepper = _read(path) if path.exists() else _create(path)
    except OSError as error:
        verb = "read" if path.is_file() else "made"
        raise SettingsError(f"The pepper {path} cannot be {verb}: {error.strerror}.") from error
    if bound not in (None, pepper.fingerprint):
        raise wrong_pepper(path)
    return pepper


def wrong_pepper(path: Path) -> SettingsError:
    """The error for a pepper of another database."""
    return SettingsError(f"The pepper {path} is not the one this database was made with: {_RESTORE}")


def _create(path: Path) -> Pepper:
    """A new pepper, or the one that another server makes at the same moment."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    secret = secrets.token_bytes(PEPPER_BYTES)
    # Made with mode 0600 under a name of its own. A link is refused when the name is taken, and shows the
    # file whole: servers on one folder may start for the first time at the same moment.
    descriptor, making = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secret)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(making, path)
    finally:
        Path(making).unlink()
    return _read(path)


def _read(path: Path) -> Pepper:
    if not path.is_file():
        raise SettingsError(f"The pepper {path} is no file: remove it, or {_RESTORE}")
    if path.stat().st_mode & 0o077:
        raise SettingsError(f"The pepper {path} can be read by others: run `chmod 600 {path}`.")
    secret = path.read_bytes()
    if len(secret) != PEPPER_BYTES:
        raise SettingsError(f"The pepper {path} is damaged ({len(secret)} bytes): restore it from a backup.")
    return Pepper(secret)

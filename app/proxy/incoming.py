"""A client's request as the shell sees it: line, headers and whole body, nothing decided yet.

Knows nothing of FastAPI, of the store or of the upstream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.errors import RepeatedHeader

Headers = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Incoming:
    """One HTTP request: `target` is path and query below `/v1`, `path_session` from `/s/{session}/v1`."""

    method: str
    target: str
    headers: Headers
    body: bytes
    path_session: str | None

    def header(self, name: bytes) -> str | None:
        """The header's first value, latin-1 decoded; `name` in lower case."""
        for key, value in self.headers:
            if key == name:
                return value.decode("latin-1")
        return None

    def only(self, name: bytes) -> str | None:
        """As `header`, but RepeatedHeader when it stands more than once."""
        values = [value for key, value in self.headers if key == name]
        if len(values) > 1:
            raise RepeatedHeader(f"The header {name.decode('latin-1')} stands more than once.")
        return values[0].decode("latin-1") if values else None

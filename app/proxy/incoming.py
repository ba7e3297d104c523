"""A client's request as the shell sees it: line, headers and whole body, nothing decided yet.

Knows nothing of FastAPI, of the store or of what the upstream says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from app.core.wire.chat_request import Wire
from app.errors import BodyTooLarge, InvalidCoding, RepeatedHeader, UnsupportedCoding
from app.upstream.decoding import DECODABLE, Decoder, decoder_for

Headers = Sequence[tuple[bytes, bytes]]

# Fed in steps: what a decoder leaves of a step is copied each time that it is asked for more.
_STEP_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Incoming:
    """One HTTP request: `target` is path and query below `/v1`, `path_session` from `/s/{session}/v1`.

    `wire` is what it speaks, `ident` names the exchange: in the log, the archive and our own errors. `body`
    is as it came, in the client's own content coding: these bytes go on while nothing is changed.
    """

    method: str
    target: str
    headers: Headers
    body: bytes
    path_session: str | None
    wire: Wire = "chat"
    ident: str = ""

    @property
    def asks_for_compaction(self) -> bool:
        """True for what is sent to `/v1/responses/compact`."""
        return self.target.partition("?")[0].rstrip("/") == "/responses/compact"

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


async def plain_body(incoming: Incoming, limit: int) -> bytes:
    """The body with its content coding undone, at most `limit` bytes; without one, the body itself.

    UnsupportedCoding for another coding than we read, or for several at a time: a coding within a coding
    has no bound on what must be read for one byte. InvalidCoding for a body that is not of its coding or
    ends before it, BodyTooLarge beyond the limit.
    """
    if incoming.header(b"content-encoding") is None:
        return incoming.body
    decoder = decoder_for(incoming.headers, limit, most=1)
    if decoder is None:
        read = ", ".join(sorted(DECODABLE))
        raise UnsupportedCoding(
            f"A request's body may be coded in one of {read}, or not at all.", param="Content-Encoding"
        )
    # A small body may be a large one when it is undone, so that its size does not say what it costs.
    return await asyncio.to_thread(_undone, incoming.body, decoder)


def _undone(body: bytes, decoder: Decoder) -> bytes:
    steps = range(0, len(body), _STEP_BYTES)
    plain = b"".join([decoder.feed(body[start : start + _STEP_BYTES]) for start in steps])
    if decoder.failure == "too_large":
        raise BodyTooLarge("The request's body is larger than this proxy accepts.")
    if not decoder.is_complete:
        raise InvalidCoding("The body is not what its Content-Encoding says.", param="Content-Encoding")
    return plain

"""HTTP/1.1 as uvicorn speaks it, but for offers of HTTP/2, trailers and clients that half-close.

Java's own HTTP client makes such an offer with its first request over plain HTTP. A server may ignore it
(RFC 9110, 7.8); uvicorn's parser takes the request to end there, and loses its body. Trailers it takes for
headers, which no trailer is to add to (RFC 9110, 6.5.1).

A client may close its own side behind its request and wait for the answer, as `nc -N` does. To uvicorn, as
to nginx and Node.js, it has left, since a client that has left looks the same: a FIN. What tells them apart
is what they make of bytes: who has left answers with a reset. So such a client is sent bytes that mean
nothing to one that still reads, and is given up when a reset comes. Knows nothing of what is asked.
"""

from __future__ import annotations

import asyncio
import re
import select

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# How often a half-closed connection is looked at: a client that has gone is noticed within this time.
_LOOK_SECONDS = 0.1
# A client must be able to read an interim answer that it did not ask for (RFC 9110, 15.2).
_INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"
# The length of the next chunk may begin with zeros, that of the last one consists of them (RFC 9112, 7.1).
_LEADING_ZERO = b"0"
_RESET = select.POLLHUP | select.POLLERR
_OFFER = re.compile(rb"(?i)\r\nupgrade:[ \t]*h2c[ \t]*(?=\r\n)")


class PlainHttp(HttpToolsProtocol):
    """HTTP/1.1 to the end, its headers those that stand before the body."""

    _is_head = True

    def on_message_begin(self) -> None:
        """As uvicorn does it."""
        self._is_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """As uvicorn does it; a trailer is dropped."""
        if self._is_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """As uvicorn does it."""
        self._is_head = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """As uvicorn does it, without the offer where a request begins with one."""
        if self.cycle is None or self.cycle.response_complete:
            data = without_offer(data)
        super().data_received(data)

    def eof_received(self) -> bool:  # type: ignore[override]
        """True, to keep the connection, while a whole request waits for its answer or gets it."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body:
            return False
        cycle.keep_alive = False
        self._sound()
        self._look()
        return True

    def _sound(self) -> None:
        """Bytes without a meaning go out, where there are any: none within a body of a known length.

        None of several requests, where nobody knows which is being answered; HTTP/1.0 has no interim answers.
        """
        if self.pipeline or self.transport.is_closing():
            return
        if self.cycle.response_started:
            if self.cycle.chunked_encoding and self.cycle.scope["method"] != "HEAD":
                self.transport.write(_LEADING_ZERO)
        elif self.cycle.scope["http_version"] == "1.1":
            self.transport.write(_INTERIM)

    def _look(self) -> None:
        """The connection is given up as soon as its other side has reset it: nobody else would notice."""
        if self.transport.is_closing() or self.cycle.response_complete:
            return
        if _is_reset(self.transport):
            self.transport.abort()
        else:
            self.loop.call_later(_LOOK_SECONDS, self._look)


def _is_reset(transport: asyncio.Transport) -> bool:
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), _RESET)
    return any(events & _RESET for _, events in poll.poll(0))


def without_offer(data: bytes) -> bytes:
    """The beginning of a request, its head without the header that offers HTTP/2; its body is as it was.

    What else the head says of the offer means nothing then.
    """
    end = data.find(b"\r\n\r\n")
    end = len(data) if end < 0 else end + 2
    if data.find(b"h2c", 0, end) < 0:
        return data
    return _OFFER.sub(b"", data[:end]) + data[end:]

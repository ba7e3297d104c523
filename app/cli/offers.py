"""What uvicorn makes of two rare things in a request is not what they mean: offers of HTTP/2, and trailers.

Java's own HTTP client makes such an offer with its first request over plain HTTP. A server may ignore it
(RFC 9110, 7.8); uvicorn's parser takes the request to end there, and loses its body. Trailers it takes for
headers, which no trailer is to add to (RFC 9110, 6.5.1). Knows nothing of what is asked.
"""

from __future__ import annotations

import re

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

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


def without_offer(data: bytes) -> bytes:
    """The beginning of a request, its head without the header that offers HTTP/2; its body is as it was.

    What else the head says of the offer means nothing then.
    """
    end = data.find(b"\r\n\r\n")
    end = len(data) if end < 0 else end + 2
    if data.find(b"h2c", 0, end) < 0:
        return data
    return _OFFER.sub(b"", data[:end]) + data[end:]

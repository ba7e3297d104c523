"""Offers to go on in HTTP/2 are passed over, and the request is answered as it stands.

Java's own HTTP client makes one with its first request over plain HTTP. A server may ignore it (RFC 9110,
7.8); uvicorn's parser takes the request to end there, and loses its body. Knows nothing of what is asked.
"""

from __future__ import annotations

import re

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_OFFER = re.compile(rb"(?i)\r\nupgrade:[ \t]*h2c[ \t]*(?=\r\n)")


class PlainHttp(HttpToolsProtocol):
    """HTTP/1.1 to the end."""

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

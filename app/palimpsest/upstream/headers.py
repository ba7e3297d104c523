"""Which headers cross the proxy, in both directions: pure functions over lists of (name, value) bytes.

Headers not named here are relayed unchanged: bytes, spelling, order and duplicates. Source of the hop-by-hop
rules: RFC 9110, 7.6.1 and RFC 9112, 9.3.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

from palimpsest.core.wire.credentials import FIRST_HEADERS, USUAL_NAMES, CredentialNames, RawHeaders

# For the next hop only. `proxy-connection` is a mistake of old clients, `keep-alive` one of RFC 2068; both
# are still sent.
HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# `host` names this proxy; aiohttp sets the upstream's. Our server has already answered `expect`, and does not
# relay the upstream's 100.
_SET_BY_US = frozenset({b"host", b"expect"})
# Instructions to this program. Session headers of other programs (`x-session-affinity`,
# `x-litellm-session-id`) are relayed: their own upstreams read them.
OWN_CONTROLS = frozenset({b"x-palimpsest", b"x-session-id", b"x-session-mode"})
OWN_PREFIX = b"x-palimpsest-"
# They describe the original bytes of a body: their coding and digests (RFC 1864, 3230, 9530). A decoded or
# replaced body has neither.
OF_THE_BYTES = frozenset({b"content-encoding", b"content-md5", b"content-digest", b"repr-digest", b"digest"})
_CREDENTIAL_HEADERS = frozenset(name.encode() for name in FIRST_HEADERS)
# CORS headers (Fetch standard, 3.3.3).
_CORS_PREFIX = b"access-control-"
# A coding that the client refuses (RFC 9110, 12.4.2).
_REFUSED = re.compile(rb"(?i);[ \t]*q=0(?:\.0*)?[ \t]*$")
# Control characters but the tab. Our server would refuse to send an answer that is already stored and paid
# for.
_CONTROLS = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class UpstreamKey:
    """The operator's key, sent in place of the caller's credentials; `repr` never shows it."""

    value: str = field(repr=False)
    scheme: Literal["bearer", "api-key"] = "bearer"

    @property
    def header(self) -> tuple[bytes, bytes]:
        """The header as sent: `Authorization: Bearer ...`, or Azure's `api-key: ...`."""
        if self.scheme == "api-key":
            return b"api-key", self.value.encode()
        return b"Authorization", b"Bearer " + self.value.encode()


def request_headers(
    received: RawHeaders,
    decodable: Collection[str],
    key: UpstreamKey | None = None,
    names: CredentialNames = USUAL_NAMES,
) -> list[tuple[bytes, bytes]]:
    """The headers of the upstream's request, given those `received` from the client.

    Left out: hop-by-hop headers and those that `Connection` names, `Host`, `Expect`, our own controls; with
    an operator's `key` also every credential of the caller's (`names`), and the key is added last.
    `Accept-Encoding` keeps only the codings in `decodable` ("gzip", "br", ...), because a copy of the answer
    must be read; an absent one stays absent. `Content-Length` stays in its place: `Upstream.open` corrects
    its value.
    """
    received = list(received) if key is None else names.without(received)
    dropped = _named_by_connection(received) | HOP_BY_HOP | _SET_BY_US | OWN_CONTROLS
    sent = [
        (name, _decodable_only(value, decodable) if name.lower() == b"accept-encoding" else value)
        for name, value in received
        if name.lower() not in dropped and not name.lower().startswith(OWN_PREFIX)
    ]
    return sent if key is None else [*sent, key.header]


def answer_headers(
    received: RawHeaders, body: Literal["untouched", "decoded", "replaced"] = "untouched"
) -> list[tuple[bytes, bytes]]:
    """The headers of the client's answer, given those `received` from the upstream.

    Left out: hop-by-hop headers and those that `Connection` names, and CORS headers: the proxy sets its own,
    because its answers reveal more than the upstream's. `Content-Length` stays only with an untouched body; a
    decoded or replaced one also loses `Content-Encoding` and the digests of the coded bytes. Everything else,
    including rate limits, retry hints and cookies, is relayed. Control characters in a value, which may not
    be sent, become spaces (RFC 9110, 5.5).
    """
    received = [header for header in received if not header[0].lower().startswith(_CORS_PREFIX)]
    dropped = _named_by_connection(received) | HOP_BY_HOP
    if body != "untouched":
        dropped |= {b"content-length"} | OF_THE_BYTES
    return [(name, _CONTROLS.sub(b" ", value)) for name, value in received if name.lower() not in dropped]


def _named_by_connection(headers: RawHeaders) -> set[bytes]:
    # RFC 9110 forbids naming fields that are meant for the recipient: `Connection: content-length` or
    # `Connection: authorization` is an attack on the upstream.
    named = {
        token.strip().lower()
        for name, value in headers
        if name.lower() == b"connection"
        for token in value.split(b",")
    }
    return named - {b"content-length", b"content-type", b"cache-control"} - _CREDENTIAL_HEADERS


def _decodable_only(value: bytes, decodable: Collection[str]) -> bytes:
    items = [item.strip() for item in value.split(b",")]
    kept = [item for item in items if _coding(item) in {*decodable, "identity"}]
    if len(kept) == len(items):
        return value
    if not kept and any(_coding(item) == "*" and not _REFUSED.search(item) for item in items):
        return b", ".join(coding.encode() for coding in sorted(decodable))
    return b", ".join(kept) or b"identity"


def _coding(item: bytes) -> str:
    return item.partition(b";")[0].strip().lower().decode("latin-1")

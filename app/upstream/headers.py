"""Which headers cross the proxy, in both directions: pure functions over lists of (name, value) bytes.

Knows nothing of bodies or connections. What is not named here is relayed as it came: bytes, spelling,
order and duplicates. Source of the hop-by-hop rules: RFC 9110, 7.6.1 and RFC 9112, 9.3.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

from app.core.wire.credentials import FIRST_HEADERS, USUAL_NAMES, CredentialNames

RawHeaders = Iterable[tuple[bytes, bytes]]

# Meant for the next hop alone. `proxy-connection` is a mistake of old clients, `keep-alive` one of RFC
# 2068; both are still sent.
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
# `host` names us; the upstream's is set with its URL. Our server has answered `expect` already: sent on,
# it would make the upstream wait for a 100 that nobody relays.
_OURS_TO_SAY = frozenset({b"host", b"expect"})
# What clients say to this program. Session names of other programs (`x-session-affinity`,
# `x-litellm-session-id`) go on: their own upstreams read them.
OWN_CONTROLS = frozenset({b"x-palimpsest", b"x-session-id", b"x-session-mode"})
OWN_PREFIX = b"x-palimpsest-"
# True of a body's bytes as they came: how they are coded, and their digests (RFC 1864, 3230, 9530). What
# is put in their place is neither.
OF_THE_BYTES = frozenset({b"content-encoding", b"content-md5", b"content-digest", b"repr-digest", b"digest"})
_USUAL_KEYS = frozenset(name.encode() for name in FIRST_HEADERS)
# Which pages may read an answer (Fetch standard, 3.3.3).
_CORS_PREFIX = b"access-control-"
# A coding that is not wanted (RFC 9110, 12.4.2).
_REFUSED = re.compile(rb"(?i);[ \t]*q=0(?:\.0*)?[ \t]*$")
# All but the tab. Our server refuses to send them, when the answer has been stored and paid for.
_CONTROLS = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class UpstreamKey:
    """The operator's key, sent in place of whatever the caller presented; `repr` never shows it."""

    value: str
    scheme: Literal["bearer", "api-key"] = "bearer"

    def __repr__(self) -> str:
        return f"UpstreamKey(scheme={self.scheme!r})"

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
    """What the upstream is told, given what the client told us.

    Left out: hop-by-hop headers and those `Connection` names, `Host`, `Expect`, our own controls; with
    an operator's `key` also every credential of the caller's (`names`), the key standing last.
    `Accept-Encoding` keeps the codings in `decodable` ("gzip", "br", ...), since a copy of the answer must
    be read; an absent one stays absent. `Content-Length` stays where it was: `Upstream.open` corrects
    its value.
    """
    received = list(received) if key is None else names.without(received)
    dropped = _named_by_connection(received) | HOP_BY_HOP | _OURS_TO_SAY | OWN_CONTROLS
    sent: list[tuple[bytes, bytes]] = []
    for name, value in received:
        lowered = name.lower()
        if lowered in dropped or lowered.startswith(OWN_PREFIX):
            continue
        sent.append((name, _narrowed(value, decodable) if lowered == b"accept-encoding" else value))
    return sent if key is None else [*sent, key.header]


def answer_headers(
    received: RawHeaders, body: Literal["untouched", "decoded", "replaced"] = "untouched"
) -> list[tuple[bytes, bytes]]:
    """What the client is told, given what the upstream told us.

    Left out: hop-by-hop headers and those `Connection` names, and what says which web pages may read the
    answer: that is the proxy's to say, whose answers hold more. `Content-Length` stays only with an untouched
    body; `Content-Encoding` and the digests of the coded bytes go with a decoded or replaced one. Everything
    else, rate limits, retry hints and cookies included, is relayed; control characters in a value, which may
    not be sent, are spaces (RFC 9110, 5.5).
    """
    received = [header for header in received if not header[0].lower().startswith(_CORS_PREFIX)]
    dropped = _named_by_connection(received) | HOP_BY_HOP
    if body != "untouched":
        dropped |= {b"content-length"} | OF_THE_BYTES
    return [(name, _CONTROLS.sub(b" ", value)) for name, value in received if name.lower() not in dropped]


def _named_by_connection(headers: RawHeaders) -> set[bytes]:
    # `Connection: content-length` or `: authorization` is an attack on the other side, not a hop's
    # business; RFC 9110 forbids naming fields meant for the recipient.
    named = {
        token.strip().lower()
        for name, value in headers
        if name.lower() == b"connection"
        for token in value.split(b",")
    }
    return named - {b"content-length", b"content-type", b"cache-control"} - _USUAL_KEYS


def _narrowed(value: bytes, decodable: Collection[str]) -> bytes:
    items = [item.strip() for item in value.split(b",")]
    kept = [item for item in items if _coding(item) in decodable or _coding(item) == "identity"]
    if len(kept) == len(items):
        return value
    if not kept and any(_coding(item) == "*" and not _REFUSED.search(item) for item in items):
        return b", ".join(coding.encode() for coding in sorted(decodable))
    return b", ".join(kept) or b"identity"


def _coding(item: bytes) -> str:
    return item.partition(b";")[0].strip().lower().decode("latin-1")

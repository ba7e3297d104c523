"""Where a request names its session: headers, the path, body fields.

Knows nothing of sessions that exist, nor of how settings are read: the lists are handed in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from app.errors import InvalidField

OWN_HEADER = "x-session-id"
# opencode's sub-agents send it beside their own name: it is somebody else's session.
_NEVER = frozenset({"x-parent-session-id"})
# Longer than any UUID, ULID or path in use; short enough for an index and a URL.
_NAME_CHARS = 200


@dataclass(frozen=True, slots=True)
class Carriers:
    """What may name a session, in the order in which it counts.

    `headers` are lower-case names or patterns (`*` stands for anything); `codex_headers` count only when the
    user agent says codex, in their place among `headers` or behind them. `body_keys` are fields of the body,
    `metadata_keys` of its metadata.
    """

    headers: tuple[str, ...] = (OWN_HEADER,)
    codex_headers: tuple[str, ...] = ()
    body_keys: tuple[str, ...] = ()
    metadata_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionName:
    """The client's own name for a session, and where it stood.

    `may_append` is true for X-Session-Id and the path: only who speaks to us on purpose sends deltas.
    """

    value: str
    carrier: str
    may_append: bool


def session_name_of(
    headers: Sequence[tuple[bytes, bytes]],
    path_session: str | None,
    body: Mapping[str, Any],
    carriers: Carriers,
) -> SessionName | None:
    """X-Session-Id, else the path, else the first configured header, body field or metadata key.

    Empty values are absent. InvalidField when X-Session-Id or the path is longer than 200 characters
    or not printable; the same in a carrier meant for somebody else is passed over, because the request
    would be fine without us.
    """
    sent = {name.decode("latin-1").lower(): value.decode("latin-1").strip() for name, value in headers}
    for carrier, name in ((OWN_HEADER, sent.get(OWN_HEADER)), ("path", path_session)):
        if name:
            if not is_name(name):
                raise InvalidField(
                    f"A session's name is at most {_NAME_CHARS} printable characters.", param=carrier
                )
            return SessionName(name, carrier, may_append=True)
    for carrier, value in (*_in_headers(sent, carriers), *_in_body(body, carriers)):
        if isinstance(value, str) and is_name(value):
            return SessionName(value, carrier, may_append=False)
    return None


def is_name(value: str) -> bool:
    """True for what a session may be called: 1 to 200 printable characters."""
    return 0 < len(value) <= _NAME_CHARS and value.isprintable()


def _in_headers(sent: Mapping[str, str], carriers: Carriers) -> Iterator[tuple[str, object]]:
    rest = tuple(name for name in carriers.codex_headers if name not in carriers.headers)
    patterns = carriers.headers + rest
    if "codex" not in sent.get("user-agent", "").lower():
        patterns = tuple(name for name in patterns if name not in carriers.codex_headers)
    for pattern in patterns:
        if "*" not in pattern and "?" not in pattern and "[" not in pattern:
            # A plain name, as most are: no need to go through what was sent.
            if pattern in sent and pattern not in _NEVER:
                yield pattern, sent[pattern]
            continue
        for name in sorted(sent):
            if name not in _NEVER and fnmatchcase(name, pattern):
                yield name, sent[name]


def _in_body(body: Mapping[str, Any], carriers: Carriers) -> Iterator[tuple[str, object]]:
    for key in carriers.body_keys:
        yield key, body.get(key)
    metadata = body.get("metadata")
    if isinstance(metadata, Mapping):
        for key in carriers.metadata_keys:
            yield f"metadata.{key}", metadata.get(key)

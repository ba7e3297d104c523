"""Where a request names its session (headers, the path, body fields) and the program that sent it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

from palimpsest.errors import InvalidField

OWN_HEADER = "x-session-id"
# opencode's sub-agents send it beside their own name: it names another session.
_NEVER = frozenset({"x-parent-session-id"})
# Longer than any UUID, ULID or path in use; short enough for an index and a URL.
NAME_CHARS = 200


@dataclass(frozen=True, slots=True)
class SessionSources:
    """Where a session may be named, in order of precedence.

    `headers` are lower-case names or patterns (`*` matches anything). `codex_headers` count only when the
    user agent contains "codex", at their place among `headers` or after them. `body_keys` are fields of the
    body, `metadata_keys` of its metadata.
    """

    headers: tuple[str, ...] = (OWN_HEADER,)
    # Too common names to be trusted from every client.
    codex_headers: tuple[str, ...] = ("session-id", "thread-id")
    # LiteLLM's clients send the session there.
    body_keys: tuple[str, ...] = ("litellm_session_id",)
    # Frameworks put session ids there under these names.
    metadata_keys: tuple[str, ...] = ("session_id", "thread_id", "conversation_id")


@dataclass(frozen=True, slots=True)
class SessionName:
    """The client's own name for a session, and where it was found.

    `may_append` is true for X-Session-Id and the path: only a client made for this proxy sends deltas.
    """

    value: str
    carrier: str
    may_append: bool


def session_name_of(
    headers: Sequence[tuple[bytes, bytes]],
    path_session: str | None,
    body: Mapping[str, Any],
    sources: SessionSources,
) -> SessionName | None:
    """X-Session-Id, else the path, else the first configured header, body field or metadata key.

    Empty values are absent. InvalidField when X-Session-Id or the path is longer than 200 characters or not
    printable. Such a value elsewhere is ignored: it is meant for another program, which would accept the
    request.
    """
    sent = {name.decode("latin-1").lower(): _text(value).strip() for name, value in headers}
    for carrier, name in ((OWN_HEADER, sent.get(OWN_HEADER)), ("path", path_session)):
        if name:
            if not is_name(name):
                raise InvalidField(
                    f"A session's name must be at most {NAME_CHARS} printable characters.", param=carrier
                )
            return SessionName(name, carrier, may_append=True)
    for carrier, value in (*_in_headers(sent, sources), *_in_body(body, sources)):
        if isinstance(value, str) and is_name(value):
            return SessionName(value, carrier, may_append=False)
    return None


def _text(value: bytes) -> str:
    """A header's value: UTF-8, as clients write names, or else the latin-1 of older ones."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


# Products of a user agent that name a language or a browser, and those that name a library for requests.
_NO_PROGRAM = re.compile(
    r"(?:python|node(?:\.js)?|js|deno|bun|runtime|java|ruby|php|go|mozilla|applewebkit|gecko|chrome|safari"
    r"|electron|edg|[\d.]+)(?:/|\Z)",
    re.IGNORECASE,
)
_LIBRARY = re.compile(
    r"(?:(?:async)?openai|axios|node-fetch|undici|aiohttp|(?:python-)?httpx|python-requests|okhttp|reqwest"
    r"|go-http-client|apache-httpclient|java-http-client|got|guzzlehttp|ai-sdk)(?:/|\Z)",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"\([^)]*\)")


def program_of(headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    """The program that sent a request; None where nothing names one.

    By its X-Title; else the first product of its user agent that is no language, browser or library; else the
    site that it was sent from; else its library, or OpenAI's by that one's own headers.
    """
    sent = dict(reversed(headers))
    if title := sent.get(b"x-title"):
        return _text(title)
    products = _COMMENT.sub("", sent.get(b"user-agent", b"").decode("latin-1")).split()
    named = [each for each in products if not _NO_PROGRAM.match(each)]
    for each in named:
        if not _LIBRARY.match(each):
            return each
    try:
        site = urlsplit(sent.get(b"http-referer", sent.get(b"referer", b"")).decode("latin-1")).hostname
    except ValueError:
        site = None
    language, version = (sent.get(b"x-stainless-" + name) for name in (b"lang", b"package-version"))
    library = f"openai-{_text(language)}/{_text(version or b'')}" if language else None
    return site or next(iter([*named, *([library] if library else products)]), None)


def is_name(value: str) -> bool:
    """True for a valid session name: 1 to 200 printable characters."""
    return 0 < len(value) <= NAME_CHARS and value.isprintable()


def _in_headers(sent: Mapping[str, str], sources: SessionSources) -> Iterator[tuple[str, object]]:
    rest = tuple(name for name in sources.codex_headers if name not in sources.headers)
    patterns = sources.headers + rest
    if "codex" not in sent.get("user-agent", "").lower():
        patterns = tuple(name for name in patterns if name not in sources.codex_headers)
    for pattern in patterns:
        if "*" not in pattern and "?" not in pattern and "[" not in pattern:
            # A plain name, as most are: no need to search the headers.
            if pattern in sent and pattern not in _NEVER:
                yield pattern, sent[pattern]
            continue
        for name in sorted(sent):
            if name not in _NEVER and fnmatchcase(name, pattern):
                yield name, sent[name]


def _in_body(body: Mapping[str, Any], sources: SessionSources) -> Iterator[tuple[str, object]]:
    for key in sources.body_keys:
        yield key, body.get(key)
    metadata = body.get("metadata")
    if isinstance(metadata, Mapping):
        for key in sources.metadata_keys:
            yield f"metadata.{key}", metadata.get(key)

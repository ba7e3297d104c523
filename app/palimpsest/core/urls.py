"""Addresses of upstreams and databases: as they may be shown, and whether a version is in them. Pure."""

from __future__ import annotations

import re
from urllib.parse import unquote, unquote_plus, urlsplit

# Up to the user, and the password: the last @ before the path ends it.
_USER_PASSWORD = re.compile(r"\A([^/?#]*://[^/?#:]*):[^/?#]*@")
# Fields of a query that PostgreSQL's clients take secrets from.
_SECRET_FIELDS = frozenset(
    {"password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"}
)

# Servers and the gateways before them decode a path once or twice. 60 kB may be encoded 30,000 times over:
# so many passes took 6 s.
_MOST_DECODINGS = 8


def decoded(text: str) -> str:
    """What stands behind percent-encoding, also where it was encoded again, up to eight times."""
    for _ in range(_MOST_DECODINGS):
        if (plain := unquote(text)) == text:
            break
        text = plain
    return text


def without_query(url: str) -> str:
    """The URL without its query, where some servers take their key."""
    return url.partition("?")[0]


def without_password(url: str, mask: str | None = "***") -> str:
    """The URL with its passwords, those in the query too, replaced by `mask`; None: left out."""
    before, mark, query = url.partition("?")
    before = _USER_PASSWORD.sub(r"\1@" if mask is None else rf"\1:{mask}@", before)
    kept = []
    for field in query.split("&"):
        name, equals, _ = field.partition("=")
        if not equals or unquote_plus(name).strip().lower() not in _SECRET_FIELDS:
            kept.append(field)
        elif mask is not None:
            kept.append(f"{name}={mask}")
    return before + mark * bool(kept) + "&".join(kept)


def has_version_path(base_url: str) -> bool:
    """True when a path segment is a version (`/v1`, `/v1beta/openai`), or the query has Azure's version."""
    parts = urlsplit(base_url)
    is_azure = parts.query.startswith("api-version=") or "&api-version=" in parts.query
    return is_azure or any(part[:1] == "v" and part[1:2].isdigit() for part in parts.path.split("/"))

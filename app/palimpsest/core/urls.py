"""Addresses of upstreams and databases: as they may be shown, and whether a version is in them. Pure."""

from __future__ import annotations

from urllib.parse import urlsplit


def without_query(url: str) -> str:
    """The URL without its query, where some servers take their key."""
    return url.partition("?")[0]


def without_password(url: str) -> str:
    """The URL with its password replaced by ***."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    return parts._replace(netloc=parts.netloc.replace(f":{parts.password}@", ":***@")).geturl()


def has_version_path(base_url: str) -> bool:
    """True when a path segment is a version (`/v1`, `/v1beta/openai`), or the query has Azure's version."""
    parts = urlsplit(base_url)
    is_azure = parts.query.startswith("api-version=") or "&api-version=" in parts.query
    return is_azure or any(part[:1] == "v" and part[1:2].isdigit() for part in parts.path.split("/"))

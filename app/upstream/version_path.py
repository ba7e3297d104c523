"""Whether an upstream's base URL lacks its version path, as a forgotten `/v1` does.

Knows nothing of whom to tell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from app.errors import UpstreamError
from app.upstream.address import without_query
from app.upstream.client import Upstream, UpstreamOptions
from app.upstream.http import Reply, client_over, fetch
from app.upstream.windows import LIST_BYTES, LOOKUP_SECONDS

RawHeaders = Sequence[tuple[bytes, bytes]]
_USUAL = "/v1"


def has_version_path(base_url: str) -> bool:
    """True when a part of the path is a version (`/v1`, `/v1beta/openai`); Azure names it in the query."""
    parts = urlsplit(base_url)
    is_azures = parts.query.startswith("api-version=") or "&api-version=" in parts.query
    return is_azures or any(part[:1] == "v" and part[1:2].isdigit() for part in parts.path.split("/"))


async def models_reply(options: UpstreamOptions, headers: RawHeaders, seconds: float) -> Reply:
    """What `GET /models` is answered. UpstreamError; TimeoutError after so many `seconds`."""
    async with Upstream(options) as upstream, client_over(upstream) as http:
        request = http.build_request("GET", upstream.url("/models"), headers=list(headers))
        async with asyncio.timeout(seconds):
            return await fetch(http, request, LIST_BYTES)


async def versioned(options: UpstreamOptions, headers: RawHeaders) -> str | None:
    """The base URL with `/v1`, where the upstream lists its models there and says 404 without; else None.

    Asks nothing of a base URL that has a version path already.
    """
    if has_version_path(options.base_url):
        return None
    base, mark, query = options.base_url.partition("?")
    longer = base.rstrip("/") + _USUAL
    try:
        if (await models_reply(options, headers, LOOKUP_SECONDS)).status != 404:
            return None
        other = replace(options, base_url=longer + mark + query)
        status = (await models_reply(other, headers, LOOKUP_SECONDS)).status
    except (UpstreamError, TimeoutError):
        return None
    return without_query(longer) if status in (200, 401, 403) else None

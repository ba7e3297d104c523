"""An upstream's base URL with its version path (`/v1`), if that is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from palimpsest.core.urls import has_version_path, without_query
from palimpsest.errors import UpstreamError
from palimpsest.upstream.client import Upstream, UpstreamOptions
from palimpsest.upstream.http import HttpReply, client_over, fetch
from palimpsest.upstream.models import LIST_BYTES, LOOKUP_SECONDS

RawHeaders = Sequence[tuple[bytes, bytes]]
_VERSION_PATH = "/v1"


async def models_reply(options: UpstreamOptions, headers: RawHeaders, seconds: float) -> HttpReply:
    """The answer of `GET /models`. Raises UpstreamError, and TimeoutError after `seconds`."""
    async with Upstream(options) as upstream, client_over(upstream) as http:
        request = http.build_request("GET", upstream.url("/models"), headers=list(headers))
        async with asyncio.timeout(seconds):
            return await fetch(http, request, LIST_BYTES)


async def versioned(options: UpstreamOptions, headers: RawHeaders) -> str | None:
    """The base URL with `/v1` added, if `GET /models` gives 404 without it and a list or 401, 403 with it.

    None otherwise. Sends nothing if the base URL has a version path already.
    """
    if has_version_path(options.base_url):
        return None
    base, mark, query = options.base_url.partition("?")
    longer = base.rstrip("/") + _VERSION_PATH
    try:
        if (await models_reply(options, headers, LOOKUP_SECONDS)).status != 404:
            return None
        other = replace(options, base_url=longer + mark + query)
        status = (await models_reply(other, headers, LOOKUP_SECONDS)).status
    except (UpstreamError, TimeoutError):
        return None
    return without_query(longer) if status in (200, 401, 403) else None

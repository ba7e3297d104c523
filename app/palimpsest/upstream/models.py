"""What is found out about an upstream and its models: its version path, windows, and published data."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from yarl import URL

from palimpsest.core.budget.window import window_from_models_payload
from palimpsest.core.urls import has_version_path, without_query
from palimpsest.core.wire.credentials import USUAL_NAMES, CredentialNames
from palimpsest.errors import UpstreamError
from palimpsest.settings.upstreams import Route, UpstreamSettings
from palimpsest.upstream.client import RawHeaders, Upstream
from palimpsest.upstream.http import HttpReply, fetch

# OpenRouter's list of 400 models has 600 KB.
LIST_BYTES = 8 * 1024 * 1024
# Without a list in this time the window is learned from an overflow, or guessed.
LOOKUP_SECONDS = 5.0


async def window_from_upstream(
    upstream: Upstream,
    model: str,
    headers: RawHeaders,
    deadline_seconds: float = LOOKUP_SECONDS,
    names: CredentialNames = USUAL_NAMES,
) -> int | None:
    """The window of `model` as the upstream states it, in its tokens; None if it does not in time.

    The sources, in order, asked with the caller's key: the list of models, the model's own entry, and
    llama.cpp's `/props` (which has the window that the server was started with). A source that fails or is
    not JSON is skipped. With a deadline of 0 nothing is sent.
    """
    if deadline_seconds <= 0:
        return None
    credentials = names.only(headers)
    with suppress(TimeoutError):
        async with asyncio.timeout(deadline_seconds):
            for address in (
                "/models",
                "/models/" + quote(model, safe="", errors="replace"),
                URL(upstream.origin + "/props"),
            ):
                with suppress(UpstreamError):
                    reply = await fetch(upstream, address, credentials, LIST_BYTES)
                    payload = reply.json() if reply.status == 200 else None
                    window = window_from_models_payload(payload, model)
                    if window is not None:
                        return window
    return None


async def models_reply(
    server: UpstreamSettings | Route,
    how: UpstreamSettings,
    headers: RawHeaders,
    seconds: float = LOOKUP_SECONDS,
) -> HttpReply:
    """The answer of a server's `GET /models`. Raises UpstreamError, and TimeoutError after `seconds`."""
    async with Upstream(server.base_url or "", how, server.headers) as upstream, asyncio.timeout(seconds):
        return await fetch(upstream, "/models", headers, LIST_BYTES)


async def versioned(
    server: UpstreamSettings | Route, how: UpstreamSettings, headers: RawHeaders
) -> str | None:
    """The base URL with `/v1` added, if `GET /models` gives 404 without it and a list or 401, 403 with it.

    None otherwise. Sends nothing if the base URL has a version path already.
    """
    base_url = server.base_url or ""
    if has_version_path(base_url):
        return None
    base, mark, query = base_url.partition("?")
    longer = base.rstrip("/") + "/v1"
    try:
        if (await models_reply(server, how, headers)).status != 404:
            return None
        other = server.model_copy(update={"base_url": longer + mark + query})
        status = (await models_reply(other, how, headers)).status
    except (UpstreamError, TimeoutError):
        return None
    return without_query(longer) if status in (200, 401, 403) else None


def window_from_model_data(model: str) -> int | None:
    """The published window of `model`, in its tokens; None when the data do not have it."""
    return getattr(published(model), "context_window", None)


def published(model: str) -> Any:
    """The published data of a model, offline from the package `genai-prices`; None without any.

    The first call imports the package, which takes 0.17 s and 30 MB: call it in a thread.
    """
    from genai_prices import data_snapshot

    names: list[tuple[str, str | None]] = [(model, None), (model.rpartition("/")[2], None)]
    if "/" in model and model.islower():
        # So OpenRouter spells names; a server of one's own has the model's, which mostly has capitals.
        names.append((model, "openrouter"))
    for name, service in names:
        with suppress(LookupError):
            return data_snapshot.get_snapshot().find_provider_model(name, None, service, None)[1]
    return None

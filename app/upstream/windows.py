"""Where a model's window can be learned: from the upstream's own lists, and from published model data.

Knows nothing of how a list is read (core does) or of what a window is used for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any
from urllib.parse import quote

from app.core.budget.window import window_from_models_payload
from app.core.wire.credentials import USUAL_NAMES, CredentialNames
from app.errors import UpstreamError
from app.upstream.client import Upstream
from app.upstream.http import client_over, fetch

# OpenRouter lists its 400 models in 600 KB.
LIST_BYTES = 8 * 1024 * 1024
# A list that takes longer is not worth waiting for: the window is learned from an overflow, or guessed.
LOOKUP_SECONDS = 5.0


async def model_payloads(
    upstream: Upstream,
    model: str,
    headers: Iterable[tuple[bytes, bytes]],
    names: CredentialNames = USUAL_NAMES,
) -> AsyncIterator[Any]:
    """What the upstream says about its models, as JSON values, one source after the other.

    Asked with the caller's key: the list, the model's own entry, llama.cpp's `/props` (which knows the
    window a server was started with). A source that fails or is no JSON is passed over.
    """
    credentials = names.only(headers)
    async with client_over(upstream) as http:
        for address in (
            upstream.url("/models"),
            upstream.url("/models/" + quote(model, safe="")),
            upstream.origin + "/props",
        ):
            request = http.build_request("GET", address, headers=credentials)
            try:
                reply = await fetch(http, request, LIST_BYTES)
            except UpstreamError:
                continue
            payload = reply.json() if reply.status == 200 else None
            if payload is not None:
                yield payload


async def window_from_upstream(
    upstream: Upstream,
    model: str,
    headers: Iterable[tuple[bytes, bytes]],
    deadline_seconds: float = LOOKUP_SECONDS,
    names: CredentialNames = USUAL_NAMES,
) -> int | None:
    """The window the upstream says `model` has, in its tokens; None when it does not say so in time.

    With a deadline of 0 it is not asked.
    """
    if deadline_seconds <= 0:
        return None
    try:
        async with asyncio.timeout(deadline_seconds):
            async for payload in model_payloads(upstream, model, headers, names):
                window = window_from_models_payload(payload, model)
                if window is not None:
                    return window
    except TimeoutError:
        return None
    return None


def window_from_model_data(model: str) -> int | None:
    """The published window of `model`, in its tokens; None when the data do not know it.

    Offline: the data come with the `genai-prices` package. The first call imports it, which takes
    0.17 s and 30 MB, so ask in a thread, and only when nothing better is known.
    """
    from genai_prices import data_snapshot

    snapshot = data_snapshot.get_snapshot()
    for name in dict.fromkeys((model, model.rpartition("/")[2])):
        try:
            return snapshot.find_provider_model(name, None, None, None)[1].context_window
        except LookupError:
            continue
    return None

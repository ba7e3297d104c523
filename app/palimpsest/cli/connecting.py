"""`palimpsest connect CLIENT` and `palimpsest run PROGRAM`: clients pointed at a running proxy."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from palimpsest.api.clients import CLIENTS, Client
from palimpsest.cli.reading import Json
from palimpsest.cli.running_proxy import Proxy
from palimpsest.errors import SettingsError
from palimpsest.upstream.own_api import own_api

# Between two looks for the client's first request.
_LOOK_SECONDS = 0.5
# The newest sessions: the client's request makes one, or goes on in one.
_LOOKED_AT = 20


def client_named(slug: str) -> Client:
    """The client. SettingsError lists those that are known."""
    for client in CLIENTS:
        if client.slug == slug:
            return client
    raise SettingsError(
        f"command line: {slug} is none of {', '.join(client.slug for client in CLIENTS)}. "
        "Any other client of OpenAI's API needs its base URL set."
    )


def lines_of(client: Client, proxy: Proxy) -> str:
    """What points the client at the proxy."""
    return (client.block or client.line).format(url=_base_url(proxy)).rstrip()


def _base_url(proxy: Proxy) -> str:
    return proxy.url.rstrip("/").removesuffix("/v1") + "/v1"


async def check(proxy: Proxy) -> None:
    """UpstreamError when no proxy answers; one that refuses this key may accept the program's own."""
    async with own_api(*proxy) as api:
        await api.get("sessions?limit=1")


async def seen(proxy: Proxy) -> Mapping[str, int]:
    """The turns of the newest sessions of the key. UpstreamError when the proxy does not answer."""
    return {one["id"]: one["exchanges"] for one in await _newest(proxy)}


async def first_request(proxy: Proxy, before: Mapping[str, int], seconds: float | None) -> Json | None:
    """The session of the first request with this key since `before`; None when none came in `seconds`."""
    until = time.monotonic() + seconds if seconds is not None else None
    while True:
        for one in await _newest(proxy):
            if one["exchanges"] > before.get(one["id"], 0):
                return one
        if until is not None and time.monotonic() >= until:
            return None
        await asyncio.sleep(_LOOK_SECONDS)


async def _newest(proxy: Proxy) -> Sequence[Json]:
    async with own_api(*proxy) as api:
        found = await api.fields(f"sessions?limit={_LOOKED_AT}&details=1&side=1")
        sessions: Sequence[Json] = found["sessions"]
        return sessions


def become(program: str, arguments: Sequence[str], proxy: Proxy) -> None:
    """Replace this process by the program, pointed at the proxy. SettingsError when there is none."""
    path = shutil.which(program)
    if path is None:
        raise SettingsError(f"command line: there is no program {program}.")
    base_url = _base_url(proxy)
    for name, value in variables_of(base_url, proxy.key).items():
        os.putenv(name, value)
    options = codex_options(base_url, proxy.key) if Path(path).stem == "codex" else ()
    try:
        os.execv(path, [program, *options, *arguments])  # noqa: S606 - the program that was asked for
    except OSError as failure:
        raise SettingsError(f"command line: {path} cannot be run: {failure.strerror}.") from failure


def variables_of(base_url: str, key: str | None) -> dict[str, str]:
    """The variables by which OpenAI's SDKs, aider, LiteLLM and opencode find their server."""
    opencode = {"provider": {"openai": {"options": {"baseURL": base_url}}}}
    return {
        "OPENAI_BASE_URL": base_url,
        "OPENAI_API_BASE": base_url,
        "OPENCODE_CONFIG_CONTENT": json.dumps(opencode),
        **({"OPENAI_API_KEY": key} if key else {}),
    }


def codex_options(base_url: str, key: str | None) -> Sequence[str]:
    """Codex takes a server of one run from its options; with a key it sends the one in OPENAI_API_KEY."""
    provider = {"name": "Palimpsest", "base_url": base_url, "wire_api": "responses"}
    if key:
        provider["env_key"] = "OPENAI_API_KEY"
    fields = {f"model_providers.palimpsest.{name}": value for name, value in provider.items()}
    # A string of JSON is one of TOML.
    return [
        word
        for name, value in ({"model_provider": "palimpsest"} | fields).items()
        for word in ("-c", f"{name}={json.dumps(value)}")
    ]

"""`palimpsest connect CLIENT` and `palimpsest run PROGRAM`: clients pointed at a running proxy."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from palimpsest.cli.command import Json, command, proxy_of_caller
from palimpsest.cli.terminal import say
from palimpsest.errors import SettingsError

if TYPE_CHECKING:
    from palimpsest.upstream.own_api import OwnApi

# Between two looks for the client's first request.
_LOOK_SECONDS = 0.5
# The newest sessions: the client's request makes one, or goes on in one.
_LOOKED_AT = 20


@command(proxy_of_caller)
async def connect(
    api: OwnApi,
    client: Annotated[str, typer.Argument(help="codex, aider, openai-python ...; another word lists them.")],
    wait: Annotated[bool, typer.Option(help="Wait for the client's first request.")] = True,
    seconds: Annotated[float | None, typer.Option(min=0, help="Wait at most so long.")] = None,
) -> None:
    """Print what points a client at the proxy, then wait for its first request with this key.

    Exits with 1 when none came in time.
    """
    from asyncio import sleep

    from palimpsest.api.clients import CLIENTS

    known = next((each for each in CLIENTS if each.slug == client), None)
    if known is None:
        raise SettingsError(
            f"command line: {client} is none of {', '.join(each.slug for each in CLIENTS)}. "
            "Any other client of OpenAI's API needs its base URL set."
        )
    say((known.block or known.line).format(url=_base_url(api)).rstrip())
    if not wait:
        return
    before = {one["id"]: one["exchanges"] for one in await _newest(api)}
    say("Waiting for its first request with this key; Ctrl-C ends it.", err=True)
    until = time.monotonic() + seconds if seconds is not None else None
    while True:
        for one in await _newest(api):
            if one["exchanges"] > before.get(one["id"], 0):
                say(f"It is connected: {one['client'] or 'an unknown client'}, session {one['id']}.")
                return
        if until is not None and time.monotonic() >= until:
            say("No request came. Does the client send the same key?", err=True)
            raise typer.Exit(1)
        await sleep(_LOOK_SECONDS)


def _base_url(api: OwnApi) -> str:
    return api.url.rstrip("/").removesuffix("/v1") + "/v1"


async def _newest(api: OwnApi) -> Sequence[Json]:
    return list((await api.fields(f"sessions?limit={_LOOKED_AT}&details=1&side=1"))["sessions"])


@command(proxy_of_caller)
async def run(
    api: OwnApi,
    program: Annotated[str, typer.Argument(help="codex, opencode, aider, llm or any other.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Its own arguments.")] = None,
) -> None:
    """Start a program with the proxy as its OpenAI server, for this run only.

    OpenAI's SDKs, aider and llm find it by variables, Codex by options, opencode by its provider "openai".
    """
    # A proxy that refuses this key may accept the program's own.
    await api.answer("sessions?limit=1")
    path = shutil.which(program)
    if path is None:
        raise SettingsError(f"command line: there is no program {program}.")
    base_url = _base_url(api)
    opencode = {"provider": {"openai": {"options": {"baseURL": base_url}}}}
    os.putenv("OPENAI_BASE_URL", base_url)
    os.putenv("OPENAI_API_BASE", base_url)
    os.putenv("OPENCODE_CONFIG_CONTENT", json.dumps(opencode))
    if api.key:
        os.putenv("OPENAI_API_KEY", api.key)
    options = codex_options(base_url, api.key) if Path(path).stem == "codex" else ()
    try:
        # This process becomes the program.
        os.execv(path, [program, *options, *(arguments or ())])  # noqa: S606 - the program that was asked for
    except OSError as failure:
        raise SettingsError(f"command line: {path} cannot be run: {failure.strerror}.") from failure


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

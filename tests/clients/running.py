"""Every client's conversations: directly with the model server, through a proxy with room, and one without.

What happened is kept as values; nothing is judged here.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from palimpsest.core.wire.responses.items import as_chat
from palimpsest.storage.migrate import migrate

from tests.clients.recorder import Asked, Recorder
from tests.clients.responses.model import BothWires
from tests.clients.roster import Client
from tests.clients.scenario import SYSTEM, Story, script
from tests.house.sources import ROOT
from tests.kit.extract import extract
from tests.kit.model import ModelServer, Seen
from tests.kit.proxy import fronting
from tests.kit.serving import served

Json = dict[str, Any]
MODEL = "test-model"
LARGE = 1_000_000
# All the conversations of one client; the slowest needs a fifth of it on a busy machine.
PATIENCE_SECONDS = 150
# `left` and `right` are held at the same time, under one key, and begin alike.
HOUSES = {"direct": "alder", "large": "alder", "small": "alder", "left": "birch", "right": "cedar"}
TWINS = ("left", "right")
# Only for clients that keep an eye on the window: with a low one, directly and through the proxy.
LOW_HOUSES = {"low-direct": "dogwood", "low": "dogwood"}


@dataclass
class Place:
    """Somewhere to point a client at. `recorder` saw what came in, `model` what reached the model."""

    url: str
    model: ModelServer
    recorder: Recorder
    http: httpx.AsyncClient

    async def reads(self, path: str, key: str) -> Json:
        """An answer of the proxy's own endpoints."""
        reply = await self.http.get(f"/api/{path}", headers={"authorization": f"Bearer {key}"})
        reply.raise_for_status()
        fields: Json = reply.json()
        return fields


@dataclass
class Held:
    """One conversation, or the two under one key, after it was held.

    `told` is what the client had at the end, `asked` what it sent and got, `prompts` what the model was
    shown. `transcripts` (by branch) and `compactions` are the archive's, by session; `archived` is all it
    holds, also what the client has dropped from its list since. Requests for titles stand apart.
    """

    told: Json
    asked: list[Asked]
    prompts: list[Seen]
    titles: list[Asked] = field(default_factory=list)
    title_prompts: list[Seen] = field(default_factory=list)
    transcripts: dict[str, dict[str, list[Json]]] = field(default_factory=dict)
    compactions: dict[str, list[Json]] = field(default_factory=dict)
    archived: list[Json] = field(default_factory=list)
    default_transcripts: list[list[Json]] = field(default_factory=list)


@dataclass
class Run:
    """All conversations of one client by name, and whom it tried to reach besides."""

    client: Client
    stories: dict[str, Story]
    held: dict[str, Held]
    strangers: list[str]


@asynccontextmanager
async def places(window: int, folder: Path) -> AsyncIterator[dict[str, Place]]:
    """The model server itself, a proxy whose window is never reached, one with a window of so many tokens."""
    async with (
        _bare() as direct,
        _proxied(LARGE, folder / "large") as large,
        _proxied(window, folder / "small") as small,
    ):
        yield {
            **{"direct": direct, "low-direct": direct, "large": large, "low": large},
            **{"small": small, "left": small, "right": small},
        }


async def migrated(folder: Path) -> None:
    """The databases of both proxies lie in `folder`. One after the other: Alembic's context is global."""
    for name in ("large", "small"):
        (folder / name).mkdir()
        await migrate(f"sqlite:///{folder / name / 'palimpsest.db'}")


def _model(window: int) -> BothWires:
    return BothWires(window=window, names=(MODEL,), summary=extract, script=script)


@asynccontextmanager
async def _bare() -> AsyncIterator[Place]:
    model = _model(LARGE)
    recorder = Recorder(model, model.items)
    async with served(recorder, lifespan="off") as url, httpx.AsyncClient(trust_env=False) as http:
        yield Place(url, model, recorder, http)


@asynccontextmanager
async def _proxied(window: int, folder: Path) -> AsyncIterator[Place]:
    model = _model(window)
    recorder = Recorder(None, model.items)

    def around(app: Any) -> Recorder:
        recorder.app = app
        return recorder

    async with (
        served(model, lifespan="off") as upstream,
        fronting(f"{upstream}/v1", folder, around=around, migrates=False) as front,
    ):
        yield Place(front.url, model, recorder, front.http)


async def run(client: Client, folder: Path, *, twins: bool = True) -> Run:
    """The client has held all its conversations, at the same time. `folder` is as `migrated` leaves it."""
    async with places(client.window, folder) as where, strangers() as (proxy, called):
        houses = HOUSES | (LOW_HOUSES if client.limit else {})
        if not twins:
            houses = {name: house for name, house in houses.items() if name not in TWINS}
        stories = {name: story_of(client, house) for name, house in houses.items()}
        talks = [
            _talk(name, story, where[name].url, folder / f"work-{place}")
            for place, (name, story) in enumerate(stories.items())
        ]
        for talk in talks:
            talk["limit"] = client.limit if talk["name"] in LOW_HOUSES else None
        told = await _driven(client, talks, folder, proxy)
        held = {}
        for name in stories:
            held[name] = _held(client, told.get(name, told), where[name], _key(name))
            if not name.endswith("direct"):
                await _read_archive(held[name], where[name], _key(name))
        return Run(client, stories, held, called)


def _key(name: str) -> str:
    return "key-twins" if name in TWINS else f"key-{name}"


def story_of(client: Client, house: str) -> Story:
    """What the client is told to say."""
    return Story(house, alike=not client.writes, writes=client.writes)


def _talk(name: str, story: Story, url: str, folder: Path) -> Json:
    folder.mkdir()
    return {
        "name": name,
        "base_url": f"{url}/v1",
        "key": _key(name),
        "model": MODEL,
        "system": SYSTEM,
        "says": story.says,
        "records": story.records,
        "folder": str(folder),
    }


def _held(client: Client, told: Json, place: Place, key: str) -> Held:
    """Requests for titles apart from the conversation's own, with which they run at the same time."""
    asked = place.recorder.chats(key)
    prompts = [seen for seen in place.model.prompts if seen.headers["authorization"] == f"Bearer {key}"]
    held = Held(told, asked, prompts)
    if client.titles:
        held.titles = [one for one in asked if "tools" not in json.loads(one.body)]
        held.title_prompts = [one for one in prompts if "tools" not in one.body]
        held.asked = [one for one in asked if one not in held.titles]
        held.prompts = [one for one in prompts if one not in held.title_prompts]
    return held


async def _read_archive(held: Held, place: Place, key: str) -> None:
    for session in (await place.reads("sessions?limit=500", key))["sessions"]:
        id_ = session["id"]
        held.transcripts[id_] = {}
        for branch in (await place.reads(f"sessions/{id_}", key))["branches"]:
            path = f"sessions/{id_}/messages?limit=1000&branch={branch['branch']}"
            rows = (await place.reads(path, key))["messages"]
            on_path = [as_chat(row["message"]) for row in rows if row["in_path"]]
            held.transcripts[id_][branch["branch"]] = on_path
            held.archived += [as_chat(row["message"]) for row in rows]
            if branch["is_default"]:
                held.default_transcripts.append(on_path)
        held.compactions[id_] = (await place.reads(f"sessions/{id_}/compactions", key))["compactions"]


async def _driven(client: Client, talks: list[Json], folder: Path, proxy: str) -> Json:
    """What the driver told; a driver that fails tells an error for all."""
    process = await asyncio.create_subprocess_exec(
        *client.command,
        cwd=ROOT,
        env=closed_home(folder, proxy) | dict(client.variables),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            out, err = await process.communicate(json.dumps({"talks": talks}).encode())
    except TimeoutError:
        process.kill()
        out, err = await process.communicate()
        return {"error": f"not done after {PATIENCE_SECONDS} s\n{err.decode()[-4000:]}"}
    if process.returncode != 0:
        return {"error": f"exit code {process.returncode}\n{err.decode()[-4000:]}"}
    told: Json = json.loads(out.decode().splitlines()[-1])
    return told


def closed_home(folder: Path, proxy: str) -> dict[str, str]:
    """Nothing of the caller's but the path; whoever asks for another host ends at `proxy`."""
    home = folder / "home"
    home.mkdir()
    given = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "NO_PROXY": "127.0.0.1,localhost",
        "HTTP_PROXY": proxy,
        "HTTPS_PROXY": proxy,
    }
    return given | {name.lower(): given[name] for name in ("NO_PROXY", "HTTP_PROXY", "HTTPS_PROXY")}


@asynccontextmanager
async def strangers() -> AsyncIterator[tuple[str, list[str]]]:
    """The address of a proxy that reaches nobody, and whom it was asked to reach."""
    asked: list[str] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readline()).decode("latin-1").strip())
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}", asked

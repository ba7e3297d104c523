"""What a running proxy has, for a terminal: `sessions`, `show`, `view`, `search`, `compact`, `undo`.

They call the proxy by HTTP and open no database, so the key's access is the same. One function reads,
another beside it makes the lines for people.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

from palimpsest.cli.running_proxy import Proxy
from palimpsest.cli.terminal import (
    ago,
    counted,
    effect_of,
    figure,
    lines_of_message,
    money,
    outcome_of,
    table,
    text_of,
)
from palimpsest.core.wire.responses.items import as_chat
from palimpsest.errors import NotFound
from palimpsest.upstream.own_api import OwnApi, content_of, fields_of, own_api, session_path

Json = Mapping[str, Any]
# Characters of a name or title in a table.
_NAME_CHARS = 44


@asynccontextmanager
async def _session(proxy: Proxy, name: str) -> AsyncIterator[tuple[OwnApi, str]]:
    """The proxy's endpoints and the path of the session. NotFound when there is no such session."""
    async with own_api(*proxy) as api:
        yield api, session_path(name)


async def sessions(proxy: Proxy, only: Mapping[str, str | None], limit: int) -> Json:
    """The newest sessions, those with all that `only` gives."""
    asked = urlencode({name: value for name, value in only.items() if value} | {"limit": limit, "details": 1})
    async with own_api(*proxy) as api:
        return await api.fields(f"sessions?{asked}")


def lines_of_sessions(told: Json) -> Iterator[str]:
    """A table, newest first."""
    if not told["sessions"]:
        yield "There are no such sessions."
        return
    rows = [("SESSION", "CLIENT", "MODEL", "TURNS", "SENT/SAID", "FOLDS", "COST", "FAILED", "LAST", "ID")]
    for one in told["sessions"]:
        said, sent = one["tokens_full"], one["tokens_sent"]
        rows.append(
            (
                _cut(one["name"] or one["title"] or "Unnamed"),
                one["client"] or "?",
                one["model"],
                f"{one['exchanges']:,}",
                "?" if said is None else f"{said if sent is None else sent:,}/{said:,}",
                f"{one['compactions']:,}",
                money(one["cost"]),
                f"{one['failed']:,}",
                ago(one["updated_at"]),
                one["id"],
            )
        )
    yield from table(rows, right=(3, 4, 5, 6, 7))
    if told["next"]:
        yield "There are older ones: --limit shows up to 500."


async def show(proxy: Proxy, name: str, limit: int) -> Json:
    """A session with its newest turns and its compactions."""
    async with _session(proxy, name) as (api, path):
        found = await api.fields(path)
        turns = (await api.fields(f"{path}/exchanges?limit={limit}"))["exchanges"]
        made = await _compactions(api, path)
    return {"session": found, "turns": turns, "compactions": made}


async def _compactions(api: OwnApi, path: str) -> list[Json]:
    """All compactions of the session, oldest first."""
    made: list[Json] = []
    after = ""
    while after is not None:
        page = await api.fields(f"{path}/compactions?limit=500&after={after}")
        made, after = made + page["compactions"], page["next"]
    return made


def lines_of_show(told: Json) -> Iterator[str]:
    """The session, its compactions, then its turns, newest first."""
    session = told["session"]
    yield f"{session['name'] or 'Unnamed'} ({session['id']}), {session['model']}"
    branches = len(session["branches"])
    said = [counted(session["messages"], "message"), counted(session["exchanges"], "turn")]
    yield ", ".join([*said, f"{branches} branches"] if branches > 1 else said)
    for one in told["compactions"]:
        undone = ", undone" if one["undone_at"] else ""
        yield f"  {one['id']}: {effect_of(one)}: {one['reason']}{undone}"
    rows = [("TURN", "AT (UTC)", "SENT/SAID", "CACHED", "COST", "SECONDS", "OUTCOME")]
    rows += [
        (
            str(one["n"]),
            datetime.fromisoformat(one["started_at"]).strftime("%Y-%m-%d %H:%M:%S"),
            f"{figure(one['tokens'])}/{figure(one['tokens_full'])}",
            figure(one["cached_tokens"]),
            money(one["cost"] and one["cost"]["total"]),
            figure(one["seconds"], 1),
            outcome_of(one),
        )
        for one in told["turns"]
    ]
    yield from table(rows, right=(0, 2, 3, 4, 5))


@asynccontextmanager
async def _turn(proxy: Proxy, name: str, at: int | None) -> AsyncIterator[tuple[OwnApi, str]]:
    """The proxy's endpoints and the path of the turn, by default of the newest one."""
    async with _session(proxy, name) as (api, path):
        if at is None:
            newest = (await api.fields(f"{path}/exchanges?limit=1"))["exchanges"]
            if not newest:
                raise NotFound("The session has no turn yet.")
            at = newest[0]["n"]
        yield api, f"{path}/exchanges/{at}"


async def view(proxy: Proxy, name: str, at: int | None) -> Json:
    """What the model was sent at a turn, by default the newest one."""
    async with _turn(proxy, name, at) as (api, path):
        return await api.fields(path)


async def body(proxy: Proxy, name: str, at: int | None) -> bytes:
    """The bytes of the request that was sent upstream at a turn."""
    async with _turn(proxy, name, at) as (api, path):
        return await api.content(f"{path}/body")


def lines_of_view(told: Json) -> Iterator[str]:
    """The prompt, message by message, each with what it is."""
    yield f"Turn {told['n']}: {figure(told['tokens'])} of {figure(told['tokens_full'])} tokens were sent."
    shares = ", ".join(f"{name} {tokens:,}" for name, tokens in told["shares"].items() if tokens)
    yield f"Of them {shares}."
    for part in told["parts"]:
        kind = "masked" if part["masked"] else part["kind"]
        yield from lines_of_message(as_chat(part["message"]), kind, part["tokens"])


async def diff(proxy: Proxy, name: str, at: int | None, against: str) -> Json:
    """How a turn's prompt differs from that of the turn before, or from what was said."""
    async with _turn(proxy, name, at) as (api, path):
        told: Json = (await api.fields(f"{path}?against={against}"))["difference"]
        return told


def lines_of_diff(told: Json) -> Iterator[str]:
    """What is gone and what is new."""
    yield f"  {counted(told['same_before'], 'message')} unchanged at the beginning"
    for sign, messages in (("-", told["gone"]), ("+", told["new"])):
        for message in map(as_chat, messages):
            first, *rest = text_of(message).split("\n")
            yield f"{sign} {message.get('role', 'item')}: {first}"
            yield from (f"{sign}   {line}" for line in rest)
    if told["same_after"]:
        yield f"  {counted(told['same_after'], 'message')} unchanged at the end"


async def search(proxy: Proxy, words: str, name: str | None, limit: int) -> Json:
    """Exact quotes of one session, or of all."""
    async with own_api(*proxy) as api:
        if name is None:
            newest = (await api.fields("sessions?limit=1"))["sessions"]
            if not newest:
                raise NotFound("Nothing is stored for this key yet.")
            path, scope = session_path(newest[0]["id"]), "namespace"
        else:
            path, scope = session_path(name), "session"
        asked = urlencode({"q": words, "limit": limit, "scope": scope})
        return await api.fields(f"{path}/search?{asked}")


def lines_of_search(told: Json) -> Iterator[str]:
    """Each hit with its place."""
    for hit in told["results"]:
        yield f"--- {hit['role']}, {hit['time']}, {hit['id']}, session {hit.get('session', told['session'])}"
        yield hit["text"]
        yield ""
    if not told["results"]:
        yield "Nothing that was said has these words."


async def compact(proxy: Proxy, name: str, focus: str | None) -> Json:
    """Compact the session now."""
    async with _session(proxy, name) as (api, path):
        return fields_of(await api.post(f"{path}/compact", {"focus": focus} if focus else {}))


def lines_of_compact(told: Json) -> Iterator[str]:
    """What was folded, or why nothing was."""
    if not told["compacted"]:
        yield "Nothing was compacted: there is nothing to fold yet."
        return
    made = told["compaction"]
    yield f"{effect_of(made)} ({made['id']})."


async def undo(proxy: Proxy, name: str) -> Json:
    """Undo the session's newest compaction in force. NotFound when there is none."""
    async with _session(proxy, name) as (api, path):
        made = await _compactions(api, path)
        standing = [one["id"] for one in made if not one["undone_at"]]
        if not standing:
            raise NotFound("No compaction of the session is in force.")
        return fields_of(await api.post(f"{path}/compactions/{standing[-1]}/undo", {}))


def lines_of_undo(told: Json) -> Iterator[str]:
    """What was undone, and what is in force now."""
    yield f"Undone. In force now: {told['restored'] or 'nothing, all messages are sent'}."


async def pins(proxy: Proxy, name: str, add: str | None, remove: str | None) -> Json:
    """The session's pins, after one was added or removed."""
    async with _session(proxy, name) as (api, path):
        warning = fields_of(await api.post(f"{path}/pins", {"message": add}))["warning"] if add else None
        if remove:
            content_of(await api.delete(f"{path}/pins/{quote(remove, safe='')}"))
        return {**await api.fields(f"{path}/pins"), "warning": warning}


def lines_of_pins(told: Json) -> Iterator[str]:
    """A line for each pinned message."""
    for pin in told["pins"]:
        room = "" if pin["is_kept"] else ", no room: newer ones come first"
        yield f"{pin['message']}  {pin['created_at'][:19]}  by {pin['origin']}{room}"
    if not told["pins"]:
        yield "No message is pinned."
    if told["warning"]:
        yield told["warning"]


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _NAME_CHARS else line[: _NAME_CHARS - 1] + "…"

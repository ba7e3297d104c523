"""The commands that read and change the sessions of a running proxy: `sessions`, `show`, `view`, `search` ...

They call the proxy by HTTP and open no database, so the key's access is the same. One function asks, another
beside it makes the lines for people.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from itertools import count
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import quote, urlencode

import typer

from palimpsest.cli.command import Json, all_of, command, proxy_of_caller, proxy_of_reader, session_path
from palimpsest.cli.terminal import (
    ago,
    counted,
    effect_of,
    figure,
    money,
    outcome_of,
    say,
    table,
    text_of,
    write,
)
from palimpsest.errors import NotFound

if TYPE_CHECKING:
    from palimpsest.upstream.own_api import OwnApi

Session = Annotated[str, typer.Argument(help="Id or name of the session.")]
At = Annotated[int | None, typer.Option("--at", min=1, help="Number of the turn; default: the newest.")]
Limit = Annotated[int, typer.Option(min=1, max=500, help="At most so many.")]
# Characters of a name or title in a table.
_NAME_CHARS = 44
# `tail`: between two looks, as a turn takes seconds; the newest sessions that are looked at, and the newest
# turns of one; the width of a name.
_LOOK_SECONDS = 1.0
_SESSIONS, _TURNS = 50, 50
_TAIL_NAME_CHARS = 24


def lines_of_sessions(told: Json) -> Iterator[str]:
    """A table, newest first."""
    if not told["sessions"]:
        yield "There are no such sessions."
        return
    rows = [("SESSION", "CLIENT", "MODEL", "TURNS", "SENT/SAID", "FOLDS", "COST", "FAILED", "LAST", "ID")]
    for one in told["sessions"]:
        name = " ".join((one["name"] or one["title"] or "Unnamed").split())
        said, sent = one["tokens_full"], one["tokens_sent"]
        rows.append(
            (
                name if len(name) <= _NAME_CHARS else name[: _NAME_CHARS - 1] + "…",
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


@command(proxy_of_reader, lines_of_sessions)
async def sessions(
    api: OwnApi,
    named: Annotated[str | None, typer.Argument(help="Beginning of a name or id.")] = None,
    client: Annotated[str | None, typer.Option(help="Those of this client, as the table names it.")] = None,
    model: Annotated[str | None, typer.Option(help="Those with a turn of this model.")] = None,
    error: Annotated[str | None, typer.Option(help="Those with this error: a code or a status.")] = None,
    limit: Limit = 25,
) -> Json:
    """List sessions, newest first: client, tokens sent of those said, compactions, money, failures."""
    only = {"named": named, "client": client, "model": model, "error": error}
    asked = urlencode({name: value for name, value in only.items() if value} | {"limit": limit, "details": 1})
    return await api.fields(f"sessions?{asked}")


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


@command(proxy_of_reader, lines_of_show)
async def show(api: OwnApi, session: Session, limit: Limit = 20) -> Json:
    """Show a session: its compactions with their reasons, and its newest turns."""
    path = session_path(session)
    found = await api.fields(path)
    turns = (await api.fields(f"{path}/exchanges?limit={limit}"))["exchanges"]
    made = await all_of(api, f"{path}/compactions", "compactions")
    return {"session": found, "turns": turns, "compactions": made}


def lines_of_view(told: Json) -> Iterator[str]:
    """The prompt, message by message, each with what it is; of a difference what is gone and what is new."""
    from palimpsest.core.wire.responses.items import as_chat

    if "parts" in told:
        yield f"Turn {told['n']}: {figure(told['tokens'])} of {figure(told['tokens_full'])} tokens were sent."
        shares = ", ".join(f"{name} {tokens:,}" for name, tokens in told["shares"].items() if tokens)
        yield f"Of them {shares}."
        for part in told["parts"]:
            message = as_chat(part["message"])
            kind = "masked" if part["masked"] else part["kind"]
            yield f"\n--- {message.get('role', 'item')}, {kind}, {part['tokens']:,} tokens"
            yield text_of(message)
        return
    yield f"  {counted(told['same_before'], 'message')} unchanged at the beginning"
    for sign, messages in (("-", told["gone"]), ("+", told["new"])):
        for message in map(as_chat, messages):
            first, *rest = text_of(message).split("\n")
            yield f"{sign} {message.get('role', 'item')}: {first}"
            yield from (f"{sign}   {line}" for line in rest)
    if told["same_after"]:
        yield f"  {counted(told['same_after'], 'message')} unchanged at the end"


@command(proxy_of_reader, lines_of_view)
async def view(
    api: OwnApi,
    session: Session,
    at: At = None,
    body: Annotated[bool, typer.Option("--body", help="The bytes of the request, as sent.")] = False,
    against: Annotated[
        Literal["previous", "said"] | None,
        typer.Option(help="How it differs from the turn before, or from what the client said."),
    ] = None,
) -> Json | None:
    """Print what the model was sent at a turn, message by message."""
    path = f"{session_path(session)}/exchanges"
    if at is None:
        newest = (await api.fields(f"{path}?limit=1"))["exchanges"]
        if not newest:
            raise NotFound("The session has no turn yet.")
        at = newest[0]["n"]
    if against is not None:
        return dict((await api.fields(f"{path}/{at}?against={against}"))["difference"])
    if body:
        write(await api.content(f"{path}/{at}/body"))
        return None
    return await api.fields(f"{path}/{at}")


def lines_of_search(told: Json) -> Iterator[str]:
    """Each hit with its place."""
    for hit in told["results"]:
        yield f"--- {hit['role']}, {hit['time']}, {hit['id']}, session {hit.get('session', told['session'])}"
        yield hit["text"]
        yield ""
    if not told["results"]:
        yield "Nothing that was said has these words."


@command(proxy_of_reader, lines_of_search)
async def search(
    api: OwnApi,
    words: Annotated[str, typer.Argument(help="What was said, word for word or in your own words.")],
    session: Annotated[str | None, typer.Option(help="Id or name of one session; default: all.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=50, help="At most so many.")] = 10,
) -> Json:
    """Find exact quotes in what was said, best first."""
    scope = "session"
    if session is None:
        newest = (await api.fields("sessions?limit=1"))["sessions"]
        if not newest:
            raise NotFound("Nothing is stored for this key yet.")
        session, scope = newest[0]["id"], "namespace"
    asked = urlencode({"q": words, "limit": limit, "scope": scope})
    return await api.fields(f"{session_path(session)}/search?{asked}")


def lines_of_compact(told: Json) -> Iterator[str]:
    """What was folded, or why nothing was."""
    if not told["compacted"]:
        why = "compaction is off" if told["reason"] == "off" else "there is nothing to fold yet"
        yield f"Nothing was compacted: {why}."
        return
    made = told["compaction"]
    yield f"{effect_of(made)} ({made['id']})."


@command(proxy_of_caller, lines_of_compact)
async def compact(
    api: OwnApi,
    session: Session,
    focus: Annotated[str | None, typer.Option(help="What the summary should pay attention to.")] = None,
) -> Json:
    """Compact a session now."""
    return await api.fields(f"{session_path(session)}/compact", "POST", {"focus": focus} if focus else {})


@command(
    proxy_of_caller,
    lambda told: [f"Undone. In force now: {told['restored'] or 'nothing, all messages are sent'}."],
)
async def undo(api: OwnApi, session: Session) -> Json:
    """Undo a session's newest compaction."""
    path = session_path(session)
    made = await all_of(api, f"{path}/compactions", "compactions")
    standing = [one["id"] for one in made if not one["undone_at"]]
    if not standing:
        raise NotFound("No compaction of the session is in force.")
    return await api.fields(f"{path}/compactions/{standing[-1]}/undo", "POST", {})


def lines_of_pins(told: Json) -> Iterator[str]:
    """A line for each pinned message."""
    for pin in told["pins"]:
        room = "" if pin["is_kept"] else ", no room: newer ones come first"
        yield f"{pin['message']}  {pin['created_at'][:19]}  by {pin['origin']}{room}"
    if not told["pins"]:
        yield "No message is pinned."
    if told["warning"]:
        yield told["warning"]


@command(proxy_of_caller, lines_of_pins)
async def pins(
    api: OwnApi,
    session: Session,
    add: Annotated[str | None, typer.Option(help="Id of a message to keep word for word.")] = None,
    remove: Annotated[str | None, typer.Option(help="Id of a message to keep no longer.")] = None,
) -> Json:
    """List a session's pinned messages, after adding or removing one; `search` prints the ids of messages."""
    path = f"{session_path(session)}/pins"
    warning = (await api.fields(path, "POST", {"message": add}))["warning"] if add else None
    if remove:
        await api.content(f"{path}/{quote(remove, safe='')}", "DELETE")
    return {**await api.fields(path), "warning": warning}


@command(proxy_of_reader)
async def tail(
    api: OwnApi,
    session: Annotated[str | None, typer.Argument(help="Id or name of one session; default: all.")] = None,
    last: Annotated[int, typer.Option(min=0, max=50, help="First so many that have ended already.")] = 5,
    most: Annotated[int | None, typer.Option(min=1, help="End after so many turns.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object a line.")] = False,
) -> None:
    """Print turns as they end, until Ctrl-C."""
    from asyncio import sleep

    known: dict[str, Json] = {}
    seen: set[str] = set()
    for look in count():
        new = await _ended(api, session, known, seen)
        for turn in new if look else new[max(0, len(new) - last) :]:
            sizes = f"{figure(turn['tokens'])}/{figure(turn['tokens_full'])}"
            view = f", {turn['view']}" if turn["view"] else ""
            name = f"{(turn['name'] or turn['session'])[:_TAIL_NAME_CHARS]:{_TAIL_NAME_CHARS}}"
            head = f"{turn['started_at'][:19]}  {name}  turn {turn['n']}"
            line = f"{head}: {sizes} tokens{view}, {figure(turn['seconds'], 1)} s, {outcome_of(turn)}"
            say(json.dumps(turn, ensure_ascii=False) if as_json else line)
            most = None if most is None else most - 1
            if most == 0:
                return
        await sleep(_LOOK_SECONDS)


async def _ended(api: OwnApi, name: str | None, known: dict[str, Json], seen: set[str]) -> list[Json]:
    """The turns that have ended since the last look, oldest first: of a session, or of the newest of the key.

    `known` has the sessions as they were at the last look, `seen` the ids of turns that were given.
    """
    if name is not None:
        newest = [await api.fields(session_path(name))]
    else:
        newest = (await api.fields(f"sessions?limit={_SESSIONS}"))["sessions"]
    found: list[Json] = []
    for session in newest:
        if known.get(session["id"]) == session:
            continue
        page = (await api.fields(f"sessions/{session['id']}/exchanges?limit={_TURNS}"))["exchanges"]
        ended = [turn for turn in page if turn["state"] != "open"]
        # One that is open is looked for again.
        if len(ended) == len(page):
            known[session["id"]] = session
        about = {"session": session["id"], "name": session["name"]}
        found += [{**turn, **about} for turn in ended if turn["id"] not in seen]
        seen.update(turn["id"] for turn in ended)
    return sorted(found, key=lambda turn: str(turn["started_at"]))

"""`palimpsest tail`: the turns of a running proxy as they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from urllib.parse import urlencode

from palimpsest.cli.reading import Json
from palimpsest.cli.running_proxy import Proxy
from palimpsest.cli.terminal import figure, outcome_of
from palimpsest.upstream.own_api import OwnApi, own_api, session_path

# Between two looks: a turn takes seconds.
_LOOK_SECONDS = 1.0
# The newest sessions that are looked at, and the newest turns of one that has changed.
_SESSIONS, _TURNS = 50, 50
_NAME_CHARS = 24


async def turns(proxy: Proxy, name: str | None, last: int, most: int | None) -> AsyncIterator[Json]:
    """Each turn that ends from now on, with its `session` and `name`; before them the `last` newest ones.

    Of the session, or of the newest fifty of the key. Ends after `most` turns; None: not by itself.
    """
    seen, given = _Seen(), 0
    async with own_api(*proxy) as api:
        for look in count():
            new = [turn async for turn in seen.ended(api, name)]
            new.sort(key=lambda turn: str(turn["started_at"]))
            for turn in new if look else new[max(0, len(new) - last) :]:
                yield turn
                given += 1
                if given == most:
                    return
            await asyncio.sleep(_LOOK_SECONDS)


class _Seen:
    """The turns that were given, and the sessions as they were at the last look."""

    def __init__(self) -> None:
        self._turns: set[str] = set()
        self._sessions: dict[str, Json] = {}

    async def ended(self, api: OwnApi, name: str | None) -> AsyncIterator[Json]:
        """The turns that have ended since the last look."""
        for session in await _newest(api, name):
            if self._sessions.get(session["id"]) == session:
                continue
            page = (await api.fields(f"sessions/{session['id']}/exchanges?limit={_TURNS}"))["exchanges"]
            # One that is open is looked for again.
            if all(turn["state"] != "open" for turn in page):
                self._sessions[session["id"]] = session
            for turn in page:
                if turn["state"] != "open" and turn["id"] not in self._turns:
                    self._turns.add(turn["id"])
                    yield {**turn, "session": session["id"], "name": session["name"]}


async def _newest(api: OwnApi, name: str | None) -> list[Json]:
    if name is not None:
        return [await api.fields(session_path(name))]
    asked = urlencode({"limit": _SESSIONS})
    found: list[Json] = (await api.fields(f"sessions?{asked}"))["sessions"]
    return found


def line_of(turn: Json) -> str:
    """A turn's line."""
    sizes = f"{figure(turn['tokens'])}/{figure(turn['tokens_full'])}"
    view = f", {turn['view']}" if turn["view"] else ""
    name = f"{(turn['name'] or turn['session'])[:_NAME_CHARS]:{_NAME_CHARS}}"
    head = f"{turn['started_at'][:19]}  {name}  turn {turn['n']}"
    return f"{head}: {sizes} tokens{view}, {figure(turn['seconds'], 1)} s, {outcome_of(turn)}"

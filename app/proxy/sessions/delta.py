"""Requests that carry only what is new: the stored transcript is loaded and put before them (rules 9, 10).

The decisions are `app.core.history.append`; here the transcript is read and the appends of one
session take turns.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from app.core.history.append import (
    Mode,
    ModeFacts,
    NeedsTranscript,
    Repeat,
    appended_of,
    mode_of,
    waits_its_turn,
)
from app.core.history.carriers import SessionName
from app.core.history.chain import conversation_of, seed_of
from app.core.history.conversation import Conversation
from app.core.history.message import Message
from app.core.wire.responses.instructions import messages_in
from app.errors import Conflict
from app.proxy.incoming import Incoming
from app.proxy.sessions.reader import MessageReader
from app.storage.contract import Store
from app.storage.naming import AnsweredAs, NamedSession

_NOTHING = Conversation((), (), ())


@dataclass(frozen=True, slots=True)
class Named:
    """The session a request names, the stored one, and whether the request was sent before."""

    name: SessionName | None
    row: NamedSession | None
    repeat: Repeat


class Deltas:
    """Reads a request as the conversation it stands for."""

    def __init__(
        self,
        store: Store,
        reader: MessageReader,
        *,
        default_mode: Literal["append", "full", "detect"],
        waiting_appends: int,
    ) -> None:
        self._store = store
        self._reader = reader
        self._default_mode: Literal["append", "full", "detect"] = default_mode
        self._waiting_appends = waiting_appends
        self._locks: dict[str, asyncio.Lock] = {}
        self._holders: Counter[str] = Counter()

    async def read(
        self,
        namespace: str,
        incoming: Incoming,
        sent: Conversation,
        named: Named,
        model: str,
    ) -> tuple[Mode, Conversation]:
        """How the request is read, and the whole conversation then."""
        name, row = named.name, named.row
        facts = ModeFacts(
            header=incoming.header(b"x-session-mode"),
            default=self._default_mode,
            may_append=name is not None and name.may_append,
            exists=row is not None,
            full_history=row is not None and row.full_history,
            appends=row is not None and row.appends,
        )
        mode = mode_of(sent, facts, None)
        if mode == "full" or mode == "new":
            return mode, sent
        stored = await self._transcript(namespace, row, model)
        if isinstance(mode, NeedsTranscript):
            mode = mode_of(sent, facts, stored)
        if mode != "append":
            return "full", sent
        return mode, appended_of(stored, sent, named.repeat).conversation

    async def behind(
        self, namespace: str, answer: AnsweredAs, sent: Conversation, model: str
    ) -> tuple[Mode, Conversation]:
        """As `read`, for what goes on from a stored answer."""
        rows = await self._store.bodies(namespace, answer.session, answer.chain)
        raws = await self._store.preamble(namespace, answer.session, answer.preamble)
        stored = await self._reader.read_stored([*messages_in(raws), *(row.body for row in rows)], model)
        return "append", conversation_of([*stored, *sent.preamble, *sent.messages], seed_of(namespace))

    @asynccontextmanager
    async def in_turn(
        self, namespace: str, incoming: Incoming, name: SessionName | None, messages: Sequence[Message]
    ) -> AsyncIterator[None]:
        """Requests that may append to one session go one after the other; Conflict when too many wait."""
        header = incoming.header(b"x-session-mode")
        waits = waits_its_turn(messages, header, self._default_mode)
        if name is None or not name.may_append or not waits:
            yield
            return
        key = f"{namespace}\0{name.value}"
        if self._holders[key] > self._waiting_appends:
            raise Conflict("Too many requests wait for this session; send them one after the other.")
        self._holders[key] += 1
        try:
            async with self._locks.setdefault(key, asyncio.Lock()):
                yield
        finally:
            self._holders[key] -= 1
            if not self._holders[key]:
                del self._holders[key]
                del self._locks[key]

    async def _transcript(self, namespace: str, row: NamedSession | None, model: str) -> Conversation:
        """The default branch of the session, as the model should see it; empty for a new one."""
        heads = await self._store.heads(namespace, row.id) if row else ()
        if row is None or not heads:
            return _NOTHING
        head = heads[0]
        rows = await self._store.bodies(namespace, row.id, head.chain)
        raws = await self._store.preamble(namespace, row.id, head.preamble)
        messages = await self._reader.read_stored([*messages_in(raws), *(row.body for row in rows)], model)
        # Rows of a rebased list are stored under other digests than those that name this list's past.
        return conversation_of(messages, seed_of(namespace))

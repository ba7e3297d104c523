"""Sessions as lists show them: their first words, sizes against the window, compactions, money, errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from palimpsest.core.budget.upstream_counts import as_theirs
from palimpsest.core.wire.json_text import decoded
from palimpsest.errors import InvalidJson
from palimpsest.proxy.compacting.windows import Windows
from palimpsest.proxy.overview import Overviews, Sums
from palimpsest.proxy.token_counts import Calibrations
from palimpsest.storage.exchange_log import LoggedExchange
from palimpsest.storage.history import SessionRow
from palimpsest.storage.store import Store

_TITLE_CHARS = 80
# A text of a message's JSON, as far as it goes.
_SAID = re.compile(rb'"(?:content|text)"\s*:\s*"((?:[^"\\]|\\.)*)')


@dataclass(frozen=True, slots=True)
class ListedSession:
    """A session of a list. Tokens are the model's.

    `title`: its first words, "" where there are none. `tokens`: its newest whole prompt, and `sent_tokens`
    what was sent of it; None without an answered request. `compacted_at`: how large the whole prompt was at
    each compaction, ascending.
    """

    row: SessionRow
    title: str
    tokens: int | None
    sent_tokens: int | None
    window_tokens: int
    compacted_at: Sequence[int]
    newest: LoggedExchange | None
    sums: Sums


@dataclass(frozen=True, slots=True)
class SessionLists:
    """Reads what lists show of sessions beside their rows."""

    store: Store
    overviews: Overviews
    calibrations: Calibrations
    windows: Windows

    async def of(self, namespace: str, rows: Sequence[SessionRow]) -> list[ListedSession]:
        """The sessions of a page of a list, in their order."""
        names = [row.id for row in rows]
        log = self.store.exchange_log
        asked = await self.store.exchanges.newest_finished(namespace, names)
        newest = await log.newest(namespace, names)
        openings = await log.openings(namespace, names)
        compacted = await log.compacted_at(namespace, names)
        sums = await self.overviews.of_sessions(namespace, names)
        listed = []
        for row in rows:
            last = asked.get(row.id)
            model = last.model if last else row.model
            sent, counted = (last.tokens_forwarded, last.prompt_tokens) if last else (None, None)
            ratio = self.calibrations.ratio_in(namespace, model, counted, sent)
            listed.append(
                ListedSession(
                    row=row,
                    title=title_of(openings.get(row.id)),
                    tokens=as_theirs(last.tokens_full, ratio) if last else None,
                    sent_tokens=None if sent is None else as_theirs(sent, ratio),
                    window_tokens=self.windows.known(model, namespace).tokens,
                    compacted_at=[as_theirs(tokens, ratio) for tokens in compacted.get(row.id, ())],
                    newest=newest.get(row.id),
                    sums=sums.get(row.id) or Sums(),
                )
            )
        return listed


def title_of(opening: bytes | None) -> str:
    """The first words of a session, from the beginning of its first user message; "" without any."""
    found = _SAID.search(opening or b"")
    if found is None:
        return ""
    try:
        text = str(decoded(b'"' + found[1] + b'"'))
    except InvalidJson:
        # Cut within a letter or an escape.
        text = found[1].decode("utf-8", "replace")
    line = " ".join(text.split())
    return line if len(line) <= _TITLE_CHARS else line[: _TITLE_CHARS - 1].rstrip() + "…"

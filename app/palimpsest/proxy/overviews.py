"""What turns add up to: a caller's of the last days, those of listed sessions, and those of namespaces.

Tokens, money, waiting, and whose fault failures were; of namespaces, which the operator sees, also sizes,
and no text of any conversation.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

from palimpsest.core.budget.upstream_counts import as_theirs
from palimpsest.core.history.quotes import title_in
from palimpsest.core.utc import DAY, day_of
from palimpsest.core.view.clients import first_words
from palimpsest.core.view.compaction import Author
from palimpsest.core.wire.json_text import decoded
from palimpsest.errors import InvalidJson
from palimpsest.proxy.model_facts import Calibrations, Windows
from palimpsest.storage.accounts import KeyRow
from palimpsest.storage.exchange_log import LoggedExchange, Total
from palimpsest.storage.history import SessionRow
from palimpsest.storage.journal import TokensSpent
from palimpsest.storage.namespaces import FailedTurn, NamespaceRow, Stored, Turns
from palimpsest.storage.store import Store

# How a failure with this code is cured, and one of a party without a line of its own.
_CURES: Mapping[str, str] = {
    "upstream_unreachable": "Is the model server up, and upstream.base_url right? `palimpsest doctor` looks.",
    "upstream_timeout": "The model server took longer than upstream's timeouts allow; is it overloaded?",
    "upstream_cut": "The model server broke off its answer: look at its log for the same minute.",
    "upstream_status": "The model server refused the request; its own words went to the client unchanged.",
    "error_in_stream": "The model server sent an error within its stream; it went to the client unchanged.",
    "no_answer": "The model server answered 200 without an answer: is upstream.base_url a model server's?",
    "context_length_exceeded": "What must stay word for word does not fit the window: unpin messages, or set "
    "the model's window if it is larger than assumed.",
    "answer_too_long_to_store": "The answer is longer than limits.answer_bytes: relayed, not stored.",
    "store_unavailable": "The database could not be written: /readyz says why.",
    "answer_not_stored": "The database could not be written: /readyz says why.",
}
# By the status with which the model server refused a request, or by its first digit.
_STATUS_CURES: Mapping[int, str] = {
    401: "The model server does not take the key: the client's own, or upstream.api_key where that is set.",
    403: "The model server does not allow this key that.",
    404: "The model server has no such model or path: is upstream.base_url right, and the model's name?",
    413: "The model server takes no body so large.",
    429: "The model server limits how much is asked: ask less at once, or raise the limit there.",
    5: "The model server failed: its log has the cause. Clients see its own words.",
}
_BY_PARTY = {
    "client": "The request itself was refused; the client's error says which part.",
    "proxy": "A fault of this proxy: its log has the line, by the request's id.",
    "upstream": "A fault of the model server or the way to it: its log has the cause.",
}


@dataclass(slots=True)
class Durations:
    """How long something took, in seconds: the sum, how often, and the longest."""

    seconds: float = 0.0
    times: int = 0
    longest: float = 0.0

    @property
    def mean(self) -> float | None:
        """The mean; None when it never happened."""
        return self.seconds / self.times if self.times else None

    def add(self, seconds: float, times: int, longest: float) -> None:
        """Add others."""
        self.seconds += seconds
        self.times += times
        self.longest = max(self.longest, longest)


# What `Sums` take from a total as it is.
_SUMMED = (
    *("turns", "compacted", "prompt_tokens", "completion_tokens"),
    *("cached_tokens", "written_tokens", "stated_cache"),
)


@dataclass(slots=True)
class Sums:
    """Sums over turns. Tokens are the model's; `cost` and `saved` are None when those of no turn are known.

    `overhead`: from a request's arrival until the upstream was asked, of turns that waited for no compaction;
    `compaction_waits`: how long the others waited.
    """

    turns: int = 0
    compacted: int = 0
    failed: int = 0
    tokens_full: int = 0
    tokens: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    written_tokens: int = 0
    stated_cache: int = 0
    cost: float | None = None
    saved: float | None = None
    first_byte: Durations = field(default_factory=Durations)
    overhead: Durations = field(default_factory=Durations)
    compaction_waits: Durations = field(default_factory=Durations)

    @property
    def first_byte_seconds(self) -> float | None:
        """The mean time to an answer's first byte; None without answers."""
        return self.first_byte.mean

    @property
    def cached_share(self) -> float | None:
        """The share of prompt tokens that the upstream served from its cache; None where it stated none."""
        if not (self.prompt_tokens and self.stated_cache):
            return None
        return min(1.0, self.cached_tokens / self.prompt_tokens)

    def add(self, total: Total, ratio: float) -> None:
        """Add the sums of one day, model and end; `ratio`: the model's tokens for one of ours."""
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(total, name))
        self.failed += total.turns if total.state not in ("done", "open") else 0
        self.tokens_full += round(total.tokens_full * ratio)
        self.tokens += round(total.tokens_forwarded * ratio)
        self.first_byte.add(total.first_byte, total.answered, 0.0)
        self.overhead.add(total.prepared, total.plain, total.most_prepared)
        self.compaction_waits.add(total.waited, total.waits, total.most_waited)
        if total.cost is not None:
            self.cost = (self.cost or 0.0) + total.cost
            self.saved = (self.saved or 0.0) + (total.saved or 0.0)


@dataclass(frozen=True, slots=True)
class FailureCount:
    """How often turns ended with one error, by whose fault, and how that is cured.

    `status`: the upstream's, where that is all there is to tell such errors apart.
    """

    cause: str
    code: str
    status: int | None
    turns: int
    cure: str


@dataclass(frozen=True, slots=True)
class Overview:
    """The sums of the last `days`: of all turns, by day (newest first, YYYY-MM-DD) and by model.

    With `days` 0 those of all turns ever, not by day, and what is `stored`.
    `summaries`: compactions made, also undone ones, by who wrote the summary; `spent`: what the calls for
    them took, failed ones included.
    """

    days: int
    whole: Sums
    by_day: Mapping[str, Sums]
    by_model: Mapping[str, Sums]
    summaries: Mapping[Author, int]
    spent: TokensSpent
    failures: Sequence[FailureCount] = field(default=())
    stored: Stored | None = None


@dataclass(frozen=True, slots=True)
class Overviews:
    """Adds up turns: a caller's, those of sessions in a list, and, for the operator, those of namespaces."""

    store: Store
    calibrations: Calibrations
    windows: Windows

    async def of(self, namespace: str, days: int, now: float) -> Overview:
        """The turns of the last `days` days, today (UTC) included; 0: all there have been."""
        # From where the last `days` days begin, today (UTC) included.
        since = now - now % DAY - (days - 1) * DAY if days else 0.0
        totals = await self.store.exchange_log.totals(namespace, since if days else None)
        stored = None if days else (await self.store.namespaces.stored([namespace])).get(namespace, Stored())
        written = await self.store.compactions.authors(namespace, since)
        spent = await self.store.journal.spending(namespace, day_of(since))
        summaries: dict[Author, int] = {author: written.get(author, 0) for author in get_args(Author)}
        whole = Sums()
        by_day: defaultdict[str, Sums] = defaultdict(Sums)
        by_model: defaultdict[str, Sums] = defaultdict(Sums)
        for total in totals:
            ratio = self._ratio_of(namespace, total)
            dated = [by_day[day_of(total.day * DAY)]] if days else []
            for sums in (whole, by_model[total.model], *dated):
                sums.add(total, ratio)
        return Overview(days, whole, by_day, by_model, summaries, spent, _failures(totals), stored)

    async def listed(self, namespace: str, rows: Sequence[SessionRow]) -> list[ListedSession]:
        """The sessions of a page of a list, in their order."""
        names = [row.id for row in rows]
        log = self.store.exchange_log
        asked = await self.store.exchanges.newest_finished(namespace, names)
        newest = await log.newest(namespace, names)
        openings = await log.openings(namespace, names)
        asked_beside = await log.asked_beside(namespace, names)
        compacted = await log.compacted_at(namespace, names)
        totals = await log.totals_of(namespace, names)
        listed = []
        for row in rows:
            last, sums = asked.get(row.id), Sums()
            for total in totals.get(row.id, ()):
                sums.add(total, self._ratio_of(namespace, total))
            model = last.model if last else row.model
            sent, counted = (last.tokens_forwarded, last.prompt_tokens) if last else (None, None)
            ratio = self.calibrations.ratio_in(namespace, model, counted, sent)
            listed.append(
                ListedSession(
                    row=row,
                    title=title_of(openings.get(row.id, ()), asked_beside.get(row.id, ())),
                    tokens=as_theirs(last.tokens_full, ratio) if last else None,
                    sent_tokens=None if sent is None else as_theirs(sent, ratio),
                    window_tokens=self.windows.known(model, namespace).tokens,
                    compacted_at=[as_theirs(tokens, ratio) for tokens in compacted.get(row.id, ())],
                    newest=newest.get(row.id),
                    sums=sums,
                )
            )
        return listed

    async def namespaces(self, after: str, limit: int, now: float) -> list[NamespaceView]:
        """The namespaces with ids after `after`, in the order of their ids."""
        return await self._views(await self.store.namespaces.page(after, limit), now)

    async def namespace(self, ident: str, now: float) -> tuple[NamespaceView, Sequence[FailedTurn]] | None:
        """The namespace with this id, and its newest failures of the last 24 hours; None: there is none."""
        row = await self.store.namespaces.named(ident)
        if row is None:
            return None
        (view,) = await self._views([row], now)
        return view, await self.store.namespaces.failures(ident, now - DAY, MOST_FAILURES)

    async def _views(self, rows: Sequence[NamespaceRow], now: float) -> list[NamespaceView]:
        there, ids, today = self.store.namespaces, [row.id for row in rows], now - now % DAY
        if not ids:
            return []
        keys: defaultdict[str, list[KeyRow]] = defaultdict(list)
        for key in await self.store.accounts.keys():
            keys[key.namespace].append(key)
        stored = await there.stored(ids)
        sizes = await there.sizes()
        turns = await there.turns(ids, now - DAY, today)
        return [
            NamespaceView(
                row,
                keys[row.id],
                stored.get(row.id, Stored()),
                sizes.get(row.id, 0),
                turns.get(row.id, Turns()),
            )
            for row in rows
        ]

    def _ratio_of(self, namespace: str, total: Total) -> float:
        counted = total.prompt_tokens if total.priced == total.turns else None
        return self.calibrations.ratio_in(namespace, total.model, counted, total.tokens_forwarded)


def _failures(totals: Iterable[Total]) -> list[FailureCount]:
    """The failures, most frequent first; a client that left before its answer began has no code."""
    counts: defaultdict[tuple[str, str, int | None], int] = defaultdict(int)
    for total in totals:
        if total.state not in ("done", "open"):
            status = total.status if total.code == "upstream_status" else None
            counts[total.cause or "client", total.code or "client_left", status] += total.turns
    found = []
    for (cause, code, status), turns in sorted(counts.items(), key=lambda item: -item[1]):
        by_status = _STATUS_CURES.get(status or 0) or _STATUS_CURES.get((status or 0) // 100)
        cure = by_status or _CURES.get(code) or _BY_PARTY.get(cause, "")
        found.append(FailureCount(cause, code, status, turns, cure))
    return found


_TITLE_CHARS = 80
# A text of a message's JSON, as far as it goes.
_SAID = re.compile(rb'"(?:content|text|instructions)"\s*:\s*"((?:[^"\\]|\\.)*)')


@dataclass(frozen=True, slots=True)
class ListedSession:
    """A session of a list. Tokens are the model's.

    `title`: see `title_of`. `tokens`: its newest whole prompt, and `sent_tokens`
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


def title_of(openings: Iterable[bytes], asked_beside: Iterable[Sequence[bytes]]) -> str:
    """The title that the client was answered when it asked for one, else a person's first words; "" without.

    `openings` are the beginnings of the first user messages, `asked_beside` those of requests: instructions,
    the newest message, the answer.
    """
    titles = [title for texts in asked_beside if (title := title_in(*map(_text_in, texts)))]
    line = " ".join((titles[-1] if titles else first_words([*map(_text_in, openings)])).split())
    return line if len(line) <= _TITLE_CHARS else line[: _TITLE_CHARS - 1].rstrip() + "…"


def _text_in(body: bytes) -> str:
    """The texts of a message's JSON, which may be cut."""
    texts = []
    for found in _SAID.finditer(body):
        try:
            texts.append(str(decoded(b'"' + found[1] + b'"')))
        except InvalidJson:
            # Cut within a letter or an escape.
            texts.append(found[1].decode("utf-8", "replace"))
    return "\n".join(texts)


MOST_FAILURES = 50


@dataclass(frozen=True, slots=True)
class NamespaceView:
    """A namespace with its issued keys, newest first.

    `size` counts each text once, in bytes. `turns` are those of the last 24 hours, their tokens and cost
    those of today (UTC).
    """

    row: NamespaceRow
    keys: Sequence[KeyRow]
    stored: Stored
    size: int
    turns: Turns

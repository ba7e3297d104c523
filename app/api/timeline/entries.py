"""What the pages show, as values: sessions of a list, the head of one, its events.

Pure. Knows nothing of markup; every text in it is as it was stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import groupby
from typing import Any

from app.api.timeline.sentences import Payload, Told, number_of, text_of, told_of, why_of, writer_of
from app.core.budget.calibration import as_theirs
from app.core.summary.outline import Outline, outline_of
from app.core.wire.json_text import decoded
from app.errors import InvalidJson
from app.proxy.compacting.scene import Scene
from app.storage.contract import SessionRow
from app.storage.exchange.asked import Asked
from app.storage.journal import StoredEvent

SUMMARIZED = "context_summarized"
# (seconds, word): the largest that fits is told.
_AGES = ((86_400, "day"), (3_600, "hour"), (60, "minute"))


@dataclass(frozen=True, slots=True)
class Listed:
    """A session of the list. `tokens`: its newest whole prompt as the model counts; None without one."""

    row: SessionRow
    tokens: int | None
    at: datetime
    age: str


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of the picture of the window, in percent of its width (0 to 100)."""

    name: str
    label: str
    tokens: int
    share: float
    width: float


@dataclass(frozen=True, slots=True)
class Use:
    """How much of the window is used; all tokens as the model counts. `marks` are places, as in `Bar`."""

    model: str
    strategy: str
    window_tokens: int
    bars: tuple[Bar, ...]
    marks: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Summarized:
    """A compaction's entry (A23, A25): the event's own numbers, None for one that it does not have."""

    freed: int | None
    removed: int | None
    before: int | None
    after: int | None
    is_proactive: bool
    writer: str
    why: str
    compaction: str
    outline: Outline


@dataclass(frozen=True, slots=True)
class Entry:
    """An event, told. `note` is a text that came with it."""

    seq: int
    kind: str
    at: datetime
    told: Told
    note: str = ""
    summarized: Summarized | None = None


def listed_of(
    rows: Sequence[SessionRow], asked: Mapping[str, Asked], now: float, ratio_of: Callable[[str], float]
) -> list[Listed]:
    """The sessions of a page of the list; `ratio_of`: a model's tokens for one of ours."""
    sizes = {name: as_theirs(one.tokens_full, ratio_of(one.model)) for name, one in asked.items()}
    return [
        Listed(
            row,
            sizes.get(row.id),
            moment(row.updated_at),
            age_of(now - row.updated_at),
        )
        for row in rows
    ]


def age_of(seconds: float) -> str:
    """How long ago, in the largest whole unit."""
    for unit, word in _AGES:
        if (count := int(seconds // unit)) > 0:
            return f"{count:,} {word}{'s' if count > 1 else ''} ago"
    return "just now"


def moment(seconds: float) -> datetime:
    """The time in UTC; the beginning of time for one that no calendar has."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)


def use_of(scene: Scene) -> Use:
    """The whole conversation and what the model is shown of it, against the window."""
    budget = scene.budget
    whole = budget.for_model(scene.turn.tokens)
    shown = budget.for_model(scene.under(scene.current).tokens)
    window = budget.window.tokens
    most = max(window, whole, shown, 1)

    def bar(name: str, label: str, tokens: int) -> Bar:
        return Bar(
            name, label, tokens, round(100 * tokens / max(window, 1), 1), round(100 * tokens / most, 2)
        )

    return Use(
        model=scene.turn.model,
        strategy=scene.policy.name,
        window_tokens=window,
        bars=(
            bar("whole", "Whole conversation", whole),
            bar("shown", "Shown to the model", shown),
        ),
        marks=(
            bar("target", "Target", budget.for_model(budget.target_tokens)),
            bar("trigger", "Trigger", budget.for_model(budget.trigger_tokens)),
            bar("window", "Window", window),
        ),
    )


def entry_of(stored: StoredEvent) -> Entry:
    """An event for people."""
    event = stored.event
    payload = _payload(event.payload)
    if payload is None:
        told = Told(event.type, "What was stored of it cannot be read.", "warning")
        return Entry(stored.seq, event.type, moment(event.created_at), told)
    return Entry(
        stored.seq,
        event.type,
        moment(event.created_at),
        told_of(event.type, payload),
        note=text_of(payload, "text") if event.type == "flush" else "",
        summarized=_summarized(payload) if event.type == SUMMARIZED else None,
    )


def days_of(entries: Sequence[Entry]) -> list[tuple[date, list[Entry]]]:
    """The entries in their order, those of one day (UTC) that follow each other together."""
    return [(day, list(told)) for day, told in groupby(entries, key=lambda entry: entry.at.date())]


def _summarized(payload: Payload) -> Summarized:
    return Summarized(
        freed=number_of(payload, "tokensFreed"),
        removed=number_of(payload, "removedCount"),
        before=number_of(payload, "tokensBefore"),
        after=number_of(payload, "tokensAfter"),
        is_proactive=payload.get("proactive") is True,
        writer=writer_of(payload),
        why=why_of(payload),
        compaction=text_of(payload, "compactionId"),
        outline=outline_of(text_of(payload, "summary")),
    )


def _payload(raw: bytes) -> dict[str, Any] | None:
    try:
        value = decoded(raw)
    except InvalidJson:
        return None
    return value if isinstance(value, dict) else None

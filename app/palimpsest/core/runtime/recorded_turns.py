"""The turns of an exported session, and the facts they were decided by: what a replay needs. Pure.

They are events of the document beside its messages. An import leaves them out: they describe what happened
elsewhere. A document without them has a turn for each answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, TypeVar

import msgspec

from palimpsest.core.budget.budget import Window
from palimpsest.core.budget.economy import Costs, Prices
from palimpsest.core.budget.upstream_counts import MAX_RATIO, MIN_RATIO
from palimpsest.core.policy import Policy
from palimpsest.core.runtime.session_import import COMPACTION, FACTS, LATEST, TURN, RecordedEvent
from palimpsest.core.view.compaction import Author, CompactionKind, Trigger
from palimpsest.core.wire.json_text import encoded
from palimpsest.errors import InvalidParameter

_T = TypeVar("_T")
# No session has more tokens, messages or seconds; what is read must not exceed what can be computed with.
_Count = Annotated[int, msgspec.Meta(ge=0, le=10**12)]
_Time = Annotated[float, msgspec.Meta(ge=0, le=LATEST)]
_Ratio = Annotated[float, msgspec.Meta(ge=MIN_RATIO, le=MAX_RATIO)]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


@dataclass(frozen=True, slots=True)
class RecordedTools:
    """What our tools added to a request, as in `Replay`; all 0 and false where they were not offered."""

    schema_tokens: _Count = 0
    is_recorded: bool = False
    as_recorded: bool = False
    result_tokens: _Count = 0


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """A request of the conversation as it was made.

    `n`: its number in the session. `messages`: how many messages of the document it had, instructions apart.
    `instructions`: those that it had, as JSON texts; None: those of the turn before, at first the document's.
    `fixed_tokens` (tools and framing) are in our count, and so is `tokens_sent`; the tokens that the upstream
    stated are in its own, None where it stated none. Times are UTC seconds. `compaction`: the id of the one
    in force. `compact_threshold`: the client's own, 0 without one.
    """

    n: _Count
    messages: _Count
    model: str
    fixed_tokens: _Count
    started_at: _Time
    finished_at: _Time | None = None
    max_output_tokens: _Count | None = None
    compact_threshold: _Count = 0
    instructions: tuple[str, ...] | None = None
    tools: RecordedTools = RecordedTools()
    compaction: str | None = None
    tokens_sent: _Count | None = None
    prompt_tokens: _Count | None = None
    cached_tokens: _Count | None = None
    written_tokens: _Count | None = None


@dataclass(frozen=True, slots=True)
class RecordedPin:
    """A pin of a message of the document, by its index; `is_lifted`: its own text's pin was taken back."""

    message: _Count
    at: _Time
    is_lifted: bool = False


@dataclass(frozen=True, slots=True)
class RecordedMemory:
    """An entry of the session's memory block, or (`is_block`) the summary of earlier ones."""

    text: str
    at: _Time
    is_block: bool = False


@dataclass(frozen=True, slots=True)
class RecordedCompaction:
    """What happened at a compaction, of its record in the document."""

    id: str
    kind: CompactionKind
    trigger: Trigger
    author: Author
    messages_folded: _Count
    tokens_before: _Count
    tokens_after: _Count
    reason: str


@dataclass(frozen=True, slots=True)
class ReplayFacts:
    """What turns are decided by beside their messages, as known when the session was exported.

    `ratio`: the model's tokens for one of ours. `prices` are those of a token, or None where nobody has
    stated them; `asks_model` and `cache_seconds` as in `Costs`. `counted_as`: the model's name at its server,
    by which tokens are counted, and `encoding` an encoding set for it. `breaker_seconds`: how long a session
    that was folded in three turns in a row is not folded.
    """

    policy: Policy
    window: Window
    ratio: _Ratio = 1.0
    prices: Prices | None = None
    asks_model: bool = True
    cache_seconds: _Count = 0
    counted_as: str = ""
    encoding: str | None = None
    text_pins_share: _Share = 0.0
    breaker_seconds: _Count = 300
    pins: tuple[RecordedPin, ...] = ()
    memory: tuple[RecordedMemory, ...] = ()

    @property
    def costs(self) -> Costs:
        """The costs that marks are derived from; typical ratios where prices are unknown."""
        return Costs(self.prices or Prices(), self.asks_model, self.cache_seconds)


def facts_event(facts: ReplayFacts, at: float) -> RecordedEvent:
    """The facts as an event of the document."""
    return RecordedEvent("", FACTS, encoded(asdict(facts)), at)


def turn_event(turn: RecordedTurn) -> RecordedEvent:
    """The turn as an event of the document; what it does not state is left out."""
    fields = {name: value for name, value in asdict(turn).items() if value is not None}
    return RecordedEvent("", TURN, encoded(fields), turn.started_at)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a document has for a replay, oldest first; `facts` is None where it has none."""

    facts: ReplayFacts | None
    turns: Sequence[RecordedTurn]
    compactions: Sequence[RecordedCompaction]


def recorded_in(events: Sequence[RecordedEvent]) -> Recorded:
    """What the document has. InvalidParameter for an event in another form."""
    facts = _all(events, FACTS, ReplayFacts)
    return Recorded(
        facts[-1] if facts else None,
        _all(events, TURN, RecordedTurn),
        _all(events, COMPACTION, RecordedCompaction),
    )


def _all(events: Sequence[RecordedEvent], name: str, kind: type[_T]) -> list[_T]:
    return [_read(event, at, kind) for at, event in enumerate(events) if event.type == name]


def _read(event: RecordedEvent, at: int, kind: type[_T]) -> _T:
    where = f"events[{at}].payload"
    try:
        return msgspec.json.decode(event.payload, type=kind)
    except msgspec.DecodeError as refused:
        raise InvalidParameter(f"{where}: {refused}.", param=where) from None


def derived_turns(said: Sequence[tuple[str, float]], model: str, fixed_tokens: int) -> list[RecordedTurn]:
    """A turn for each answer, and for messages at the end that have none.

    `said`: role and time of each message, instructions apart.
    """
    turns: list[RecordedTurn] = []
    first = RecordedTurn(0, 0, model, fixed_tokens, 0.0)
    for place, (role, at) in enumerate(said):
        if role == "assistant" and place:
            started = said[place - 1][1]
            turns.append(replace(first, n=len(turns) + 1, messages=place, started_at=started, finished_at=at))
    if said and said[-1][0] != "assistant":
        turns.append(replace(first, n=len(turns) + 1, messages=len(said), started_at=said[-1][1]))
    return turns

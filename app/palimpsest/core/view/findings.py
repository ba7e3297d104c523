"""What makes a session dearer than it need be, and what followed a compaction: what was done again. Pure.

The latter is measured from the conversation alone. A repeated call is not always a loss, and without a
repetition one cannot know what would have been done: these are counts, not judgements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from palimpsest.core.history.message import RESULT_ROLES, Conversation
from palimpsest.core.notes.effects import effects_of
from palimpsest.core.notes.note import Action, Command, FileChange
from palimpsest.core.text.message_text import calls_of, text_of, tool_name
from palimpsest.core.view.compaction import Compaction, context_id
from palimpsest.core.view.view import folded_in
from palimpsest.core.wire.json_text import decoded, encoded
from palimpsest.errors import InvalidJson

Finding = Literal["large_result", "unused_tools", "cold_cache"]
# A result counts as large from this share of the window on.
_LARGE_SHARE = 0.05
# Tools count as unused after so many turns of tool calls.
_LEAST_TURNS = 10
# The least time that most services keep an unused prompt in their cache.
_CACHE_SECONDS = 300
# A prompt counts as read anew when less than this share of it came from the cache.
_WARM_SHARE = 0.1
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Found:
    """One finding. `tokens`: what it takes, in our count; `names` are messages, tools or turns, at most five.

    `times`: how many there are; for tools, in how many turns they were sent.
    """

    kind: Finding
    times: int
    tokens: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TurnCost:
    """What the findings need of a turn: its number, when it began (s), and the upstream's counts."""

    number: int
    at: float
    prompt_tokens: int | None
    cached_tokens: int | None


def findings_of(
    talk: Conversation,
    tools: bytes | None,
    turns: Sequence[TurnCost],
    window_tokens: int,
    count_tools: Callable[[bytes], int],
) -> list[Found]:
    """The findings of a session; `turns` in their order, `tools` those of its newest request."""
    found = [_large_results(talk, window_tokens), _unused(talk, tools, len(turns), count_tools)]
    return [one for one in (*found, _cold(turns)) if one is not None]


def _large_results(talk: Conversation, window_tokens: int) -> Found | None:
    least = _LARGE_SHARE * window_tokens
    large = [
        (message.tokens, talk.names[at])
        for at, message in enumerate(talk.messages)
        if message.role in RESULT_ROLES and message.tokens >= least
    ]
    if not large:
        return None
    names = tuple(context_id(name) for _, name in sorted(large, reverse=True)[:_MOST_NAMED])
    return Found("large_result", len(large), sum(tokens for tokens, _ in large), names)


def _unused(
    talk: Conversation, tools: bytes | None, turns: int, count_tools: Callable[[bytes], int]
) -> Found | None:
    if tools is None or turns < _LEAST_TURNS:
        return None
    try:
        listed = decoded(tools)
    except InvalidJson:
        return None
    called = {call.name for message in talk.messages for call in calls_of(message)}
    offered = [(tool, tool_name(tool)) for tool in (listed if isinstance(listed, list) else ())]
    unused = [(tool, name) for tool, name in offered if name and name not in called]
    if not called or not unused:
        # Where no tool is ever called, having none is the client's choice to make.
        return None
    tokens = count_tools(encoded([tool for tool, _ in unused]))
    return Found("unused_tools", turns, tokens, tuple(name for _, name in unused[:_MOST_NAMED]))


def _cold(turns: Sequence[TurnCost]) -> Found | None:
    """Prompts that were read anew after a pause in which the upstream's cache has expired."""
    cold = [
        turn
        for before, turn in pairwise(turns)
        if turn.at - before.at >= _CACHE_SECONDS
        and turn.prompt_tokens
        and turn.cached_tokens is not None
        and turn.cached_tokens < _WARM_SHARE * turn.prompt_tokens
    ]
    if not cold:
        return None
    names = tuple(str(turn.number) for turn in cold[-_MOST_NAMED:])
    return Found("cold_cache", len(cold), sum(turn.prompt_tokens or 0 for turn in cold), names)


@dataclass(frozen=True, slots=True)
class Aftermath:
    """The messages from the first one under a compaction to the next compaction.

    `calls`: tool calls until the first that changed something, that one included; None while none has.
    `repeated`: calls with the name and arguments of a folded one, whose results take `repeated_tokens` (our
    count).
    """

    messages: int
    all_calls: int
    calls: int | None
    repeated: int
    repeated_tokens: int


def aftermath_of(talk: Conversation, made: Compaction, start: int, end: int) -> Aftermath:
    """What the messages `[start:end]` did under the compaction."""
    said = talk.messages[start:end]
    results = {each.answers: each for each in said if each.role in RESULT_ROLES and each.answers}
    # Spaces and the order in a call's JSON do not count.
    folded = (call for at in folded_in(made, talk) for call in calls_of(talk.messages[at]))
    known = {(call.name, call.values()) for call in folded}
    calls = [call for message in said for call in calls_of(message)]
    again = [call for call in calls if (call.name, call.values()) in known]
    changed = (
        place
        for place, call in enumerate(calls, 1)
        for effect in effects_of(call, text_of(results[call.id]) if call.id in results else None)
        if isinstance(effect, FileChange | Action) or (isinstance(effect, Command) and effect.does == "more")
    )
    return Aftermath(
        messages=max(0, end - start),
        all_calls=len(calls),
        calls=next(changed, None),
        repeated=len(again),
        repeated_tokens=sum(results[call.id].tokens for call in again if call.id in results),
    )

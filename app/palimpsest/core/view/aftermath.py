"""What followed a compaction: how soon the work went on, and what was done again. Pure.

Measured from the conversation alone. A repeated call is not always a loss, and without a repetition one
cannot know what would have been done: these are counts, not judgements.
"""

from __future__ import annotations

from dataclasses import dataclass

from palimpsest.core.history.message import RESULT_ROLES, Conversation
from palimpsest.core.notes.effects import effects_of
from palimpsest.core.notes.note import Action, Command, FileChange
from palimpsest.core.text.message_text import calls_of, text_of
from palimpsest.core.view.compaction import Compaction
from palimpsest.core.view.view import folded_in


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

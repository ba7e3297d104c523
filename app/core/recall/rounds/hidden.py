"""What a model was told behind a client's back, as it is kept beside the answer and told again (rule 31).

Pure. Knows nothing of stores nor of how a view is made. The messages are never read for what they say, and
never changed: a later prompt holds them byte for byte, so that the upstream's prompt cache holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from app.core.history.conversation import Conversation
from app.core.history.message import Message
from app.core.recall.rounds.calls import ids_of_others
from app.core.recall.rounds.items import unsaid
from app.core.view.outcomes import View
from app.core.wire.chat_request import Wire
from app.core.wire.responses.telling import told_in


@dataclass(frozen=True, slots=True)
class HiddenRounds:
    """What stands before, and partly in the place of, one answer that the client has.

    `before` are calls of our tools and their results, in order, `tokens` theirs. `written` is the answer as
    the model wrote it where it calls the client's tools and ours, None elsewhere; `results` answer those of
    ours, None where they are not known. `written_tokens` are those of both. Without any of these the answer
    is only known to be another than what the upstream keeps under its id.
    """

    before: tuple[bytes, ...] = ()
    tokens: int = 0
    written: bytes | None = None
    results: tuple[bytes, ...] | None = None
    written_tokens: int = 0

    def replaces(self, answer: Message) -> bool:
        """Whether the answer is told as the model wrote it: only where each of its calls is answered."""
        if self.written is None or self.results is None:
            return False
        return ids_of_others(self.written) == answer.calls

    def in_place_of(self, answer: Message) -> tuple[bytes, ...]:
        """The messages of a prompt that stand for the answer."""
        if self.written is not None and self.results is not None and self.replaces(answer):
            return (*self.before, self.written, *self.results)
        rest = unsaid(answer.raw, self.before)
        return self.before if rest is None else (*self.before, rest)

    def unseen(self) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """What the client has not: before the answer, with that as the model wrote it, and behind it."""
        written = () if self.written is None else (self.written,)
        return (*self.before, *written), self.results or ()

    def tokens_with(self, answer: Message) -> int:
        """Tokens of `in_place_of`."""
        return self.tokens + (self.written_tokens if self.replaces(answer) else answer.tokens)


def told_rounds(hidden: HiddenRounds, wire: Wire) -> HiddenRounds | None:
    """The rounds in the form of `wire`, also those told on the other; None where they have none there."""

    def told(messages: Sequence[bytes]) -> list[bytes]:
        return [said for raw in messages if (said := told_in(raw, wire)) is not None]

    written = [] if hidden.written is None else [hidden.written]
    before, answer, results = told(hidden.before), told(written), told(hidden.results or ())
    is_whole = (len(before), len(answer), len(results)) == (
        len(hidden.before),
        len(written),
        len(hidden.results or ()),
    )
    if not is_whole:
        return None
    found = None if hidden.results is None else tuple(results)
    return replace(hidden, before=tuple(before), written=next(iter(answer), None), results=found)


def weighed(talk: Conversation, rounds: Mapping[int, HiddenRounds]) -> Conversation:
    """The conversation whose answers take the room that their rounds take with them.

    So they count wherever messages are counted, and are folded with their answer and not without.
    """
    if not rounds:
        return talk
    messages = list(talk.messages)
    for index, hidden in rounds.items():
        messages[index] = replace(messages[index], tokens=hidden.tokens_with(messages[index]))
    return replace(talk, messages=tuple(messages))


def replayed(view: View, talk: Conversation, rounds: Mapping[int, HiddenRounds]) -> Sequence[bytes]:
    """The messages of the view, with the rounds of the answers that stand in it where they happened."""
    messages: list[bytes] = []
    for part in view.parts:
        hidden = rounds.get(part.index) if part.index is not None else None
        if hidden is None or part.index is None:
            messages.append(part.raw)
        else:
            messages += hidden.in_place_of(talk.messages[part.index])
    return messages

"""Hidden rounds: recall calls and their results, which the model sees and the client does not (rule 31).

They are stored with the answer that they led to, and repeated in later prompts byte for byte, so that the
upstream's prompt cache stays valid. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from palimpsest.core.history.message import Conversation, Message
from palimpsest.core.recall.rounds.calls import ids_of_others
from palimpsest.core.recall.rounds.frames import ChatClientAnswer, ClientAnswer
from palimpsest.core.recall.rounds.responses import ResponsesClientAnswer, without_repeated_items
from palimpsest.core.view.outcomes import View
from palimpsest.core.wire.chat import CHAT
from palimpsest.core.wire.chat_answers import Usage
from palimpsest.core.wire.request import Wire
from palimpsest.core.wire.responses.request import RESPONSES

_CLIENT_ANSWERS: Mapping[Wire, Callable[[], ClientAnswer]] = {
    CHAT: ChatClientAnswer,
    RESPONSES: ResponsesClientAnswer,
}


def client_answer(wire: Wire) -> ClientAnswer:
    """An empty `ClientAnswer` for an answer on `wire`."""
    return _CLIENT_ANSWERS[wire]()


@dataclass(frozen=True, slots=True)
class HiddenRounds:
    """The hidden rounds of one answer that the client has.

    `before` are calls of our tools and their results, in order; `tokens` is their size. `written` is the
    answer as the model wrote it, if it calls both the client's tools and ours, else None; `results` answer
    our calls in it, None when they are not known. `written_tokens` is the size of both. If all are empty, the
    answer is only known to differ from the one that the upstream keeps under its id. `usages`: what each
    round took, which is not stored.
    """

    before: tuple[bytes, ...] = ()
    tokens: int = 0
    written: bytes | None = None
    results: tuple[bytes, ...] | None = None
    written_tokens: int = 0
    usages: Sequence[Usage] = ()

    def replaces(self, answer: Message) -> bool:
        """Whether prompts show the answer as the model wrote it: only when each of its calls is answered."""
        if self.written is None or self.results is None:
            return False
        return ids_of_others(self.written) == answer.calls

    def in_place_of(self, answer: Message) -> tuple[bytes, ...]:
        """The messages that replace the answer in a prompt."""
        if self.written is not None and self.results is not None and self.replaces(answer):
            return (*self.before, self.written, *self.results)
        rest = without_repeated_items(answer.raw, self.before)
        return self.before if rest is None else (*self.before, rest)

    def unseen(self) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """What the client does not have: up to and including `written`, and the results after it."""
        written = () if self.written is None else (self.written,)
        return (*self.before, *written), self.results or ()

    def tokens_with(self, answer: Message) -> int:
        """Tokens of `in_place_of`."""
        return self.tokens + (self.written_tokens if self.replaces(answer) else answer.tokens)

    def translated(self, wire: Wire) -> HiddenRounds | None:
        """The rounds translated to `wire`; None when a message has no exact counterpart there."""
        before, results = self.unseen()
        said = [wire.translated(raw) for raw in (*before, *results)]
        whole = [raw for raw in said if raw is not None]
        if len(whole) < len(said):
            return None
        start, end = len(self.before), len(before)
        written = whole[start] if end > start else None
        found = None if self.results is None else tuple(whole[end:])
        return replace(self, before=tuple(whole[:start]), written=written, results=found)


def weighed(talk: Conversation, rounds: Mapping[int, HiddenRounds]) -> Conversation:
    """The conversation with the tokens of hidden rounds added to their answers.

    So rounds count wherever messages are counted, and are folded together with their answer.
    """
    if not rounds:
        return talk
    messages = list(talk.messages)
    for index, hidden in rounds.items():
        messages[index] = replace(messages[index], tokens=hidden.tokens_with(messages[index]))
    return replace(talk, messages=tuple(messages))


def replayed(view: View, talk: Conversation, rounds: Mapping[int, HiddenRounds]) -> Sequence[bytes]:
    """The messages of the view, with the hidden rounds of its answers in place."""
    messages: list[bytes] = []
    for part in view.parts:
        hidden = rounds.get(part.index) if part.index is not None else None
        if hidden is None or part.index is None:
            messages.append(part.raw)
        else:
            messages += hidden.in_place_of(talk.messages[part.index])
    return messages

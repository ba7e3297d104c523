"""Hidden rounds, which a client does not see: collected in one request, replayed in the next (rule 31).

They are replayed only in requests that offer our tools: an upstream may refuse calls of tools that are not
declared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from palimpsest.core.history.message import Conversation
from palimpsest.core.recall.rounds.hidden import HiddenRounds, translated_rounds, weighed
from palimpsest.core.recall.rounds.offer import schemas
from palimpsest.core.recall.tool_calls import DESCRIBE
from palimpsest.core.view.compaction import Compaction
from palimpsest.core.view.view import cut_in, kept_in
from palimpsest.core.wire.chat import CHAT
from palimpsest.core.wire.json_text import decoded
from palimpsest.core.wire.request import Wire
from palimpsest.core.wire.responses.items import as_chat
from palimpsest.proxy.lookups.offering import ToolOfferPolicy
from palimpsest.proxy.token_counts import ModelTokens
from palimpsest.proxy.turn import Subject
from palimpsest.storage.exchanges import Exchanges

Json = Mapping[str, Any]


class HiddenRoundLog:
    """Collects the hidden rounds of one attempt. `room_tokens`: by how much the prompt may grow."""

    def __init__(self, count: Callable[[Json], int], room_tokens: int) -> None:
        self._count = count
        self._left = room_tokens
        self._before: list[bytes] = []
        self._tokens = 0
        self._written: bytes | None = None
        self._differs = False

    @property
    def rounds(self) -> HiddenRounds | None:
        """The rounds to store; None if nothing was hidden."""
        if not self._before and self._written is None and not self._differs:
            return None
        written = self.tokens_of([self._written]) if self._written is not None else 0
        return HiddenRounds(tuple(self._before), self._tokens, self._written, None, written)

    @property
    def left_tokens(self) -> int:
        """The room left in the prompt, at least 0."""
        return max(0, self._left)

    def tokens_of(self, messages: Sequence[bytes]) -> int:
        """The tokens of the messages in a prompt."""
        return sum([self._count(as_chat(decoded(message))) for message in messages])

    def add(self, messages: Sequence[bytes]) -> None:
        """Add messages that were appended to the prompt."""
        tokens = self.tokens_of(messages)
        self._before += messages
        self._tokens += tokens
        self._left -= tokens

    def clear(self) -> None:
        """Drop the messages so far: the model is asked again without them."""
        self._before.clear()
        self._tokens = 0

    def mark_different(self) -> None:
        """Note that the client's answer is not what the upstream keeps under the answer's id."""
        self._differs = True

    def keep_answer(self, message: bytes) -> None:
        """Keep the model's own answer, which calls both the client's tools and ours."""
        self._written = message


# Tool results are mostly quoted prose.
_CHARS_A_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Replay:
    """What our tools add to a conversation: `rounds` are the hidden rounds by the index of their answer.

    `schema_tokens`: tokens of our tools, 0 if they are not offered. `is_recorded`: a compaction made now
    records that they go with its view. `as_recorded`: they are sent only if the compaction in force records
    that. `talk`: the conversation with the tokens of the rounds added to their answers, None without rounds.
    `result_tokens`: the most that one look-up may take. Everything is in the form of `wire`.
    """

    schema_tokens: int = 0
    is_recorded: bool = False
    as_recorded: bool = False
    rounds: Mapping[int, HiddenRounds] = field(default_factory=dict)
    talk: Conversation | None = None
    result_tokens: int = 0
    wire: Wire = CHAT

    @property
    def offers(self) -> bool:
        """True when our tools may be sent with the request, once something is folded."""
        return self.schema_tokens > 0

    @property
    def reads_by(self) -> str:
        """The tool with which a model reads what is shown shortened; "" without one."""
        return DESCRIBE if self.offers else ""

    def goes_with(self, compaction: Compaction | None) -> bool:
        """True when our tools are sent with a view under this compaction; never before the first one."""
        return self.offers and compaction is not None and (not self.as_recorded or compaction.offers_tools)


NOTHING = Replay()


class Replays:
    """Loads what our tools add to conversations."""

    def __init__(
        self,
        exchanges: Exchanges,
        tokens: ModelTokens,
        offering: ToolOfferPolicy,
        result_chars: int,
        tools_share: float,
    ) -> None:
        self._exchanges = exchanges
        self._tokens = tokens
        self._offering = offering
        self._result_tokens = result_chars // _CHARS_A_TOKEN
        self._tools_share = tools_share

    def offered(self, subject: Subject, own_settings: bytes | None, window_tokens: int) -> Replay:
        """The tokens of our tools, without rounds; nothing is read from the store.

        They are not offered if they would take too much of the window beside the client's own tools.
        """
        offered = self._offering.offers(subject, own_settings)
        is_recorded = self._offering.is_recorded(own_settings)
        if not offered:
            return Replay(is_recorded=is_recorded)
        tokens = max(1, self._tokens.schema_tokens(subject.model, schemas(subject.wire)))
        if tokens > self._tools_share * (window_tokens - subject.fixed_tokens):
            return Replay(is_recorded=is_recorded)
        as_recorded = offered == "as_recorded"
        return Replay(tokens, is_recorded, as_recorded, result_tokens=self._result_tokens, wire=subject.wire)

    async def read(self, subject: Subject, offered: Replay, current: Compaction | None) -> Replay:
        """`offered` with the rounds of the answers that `current` leaves in the view. StoreError."""
        if not offered.offers:
            return offered
        talk = subject.conversation
        shown = (*kept_in(current, talk), *range(cut_in(current, talk), len(talk.messages)))
        answers = {talk.chains[index]: index for index in shown if talk.messages[index].role == "assistant"}
        if not answers:
            return offered
        found = await self._exchanges.hidden_rounds(subject.namespace, subject.session, list(answers))
        if not found:
            return offered
        replayed = {
            answers[chain]: translated_rounds(hidden, offered.wire) for chain, hidden in found.items()
        }
        rounds = {index: hidden for index, hidden in replayed.items() if hidden is not None}
        return replace(offered, rounds=rounds, talk=weighed(talk, rounds))

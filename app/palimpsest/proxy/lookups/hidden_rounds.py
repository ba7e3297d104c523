"""Offers our tools to models; collects and replays hidden rounds, which no client sees (rule 31).

Rounds are replayed only in requests that offer our tools: an upstream may refuse calls of tools that are not
declared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from palimpsest.core.history.message import Conversation
from palimpsest.core.recall.rounds.hidden import HiddenRounds, weighed
from palimpsest.core.recall.rounds.offer import may_offer, schemas
from palimpsest.core.recall.tool_calls import DESCRIBE
from palimpsest.core.view.compaction import Compaction
from palimpsest.core.view.view import cut_in, kept_in
from palimpsest.core.wire.chat import CHAT
from palimpsest.core.wire.chat_answers import Usage
from palimpsest.core.wire.json_text import decoded
from palimpsest.core.wire.request import Wire
from palimpsest.core.wire.responses.items import as_chat
from palimpsest.errors import InvalidField
from palimpsest.proxy.incoming import Incoming
from palimpsest.proxy.kept_answers import RefusalMemory
from palimpsest.proxy.token_counts import ModelTokens
from palimpsest.proxy.turn import Subject, Turn
from palimpsest.settings.compacting import RecallSettings
from palimpsest.storage.exchanges import Exchanges

Json = Mapping[str, Any]
_HEADER = b"x-palimpsest-recall"


class HiddenRoundLog:
    """Collects the hidden rounds of one attempt. `room_tokens`: by how much the prompt may grow."""

    def __init__(self, count: Callable[[Json], int], room_tokens: int) -> None:
        self._count = count
        self._left = room_tokens
        self._before: list[bytes] = []
        self._tokens = 0
        self._written: bytes | None = None
        self._differs = False
        # What the upstream states of each round.
        self.usages: list[Usage] = []

    @property
    def rounds(self) -> HiddenRounds | None:
        """The rounds to store; None if nothing was hidden."""
        if not self._before and self._written is None and not self._differs:
            return None
        written = self.tokens_of([self._written]) if self._written is not None else 0
        return HiddenRounds(tuple(self._before), self._tokens, self._written, None, written, self.usages)

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


@dataclass(frozen=True, slots=True)
class Replays:
    """Decides whether our tools are offered (rule 31), and loads what they add to conversations.

    `is_enabled` and `is_chosen` read a session's own settings; `how` applies if it has chosen nothing.
    Nothing is offered while recall is not enabled, whatever a request asks for (C03), nor where the upstream
    is among those `refusing`.
    """

    exchanges: Exchanges
    tokens: ModelTokens
    refusing: RefusalMemory
    is_enabled: Callable[[bytes | None], bool]
    is_chosen: Callable[[bytes | None], bool | None]
    how: RecallSettings

    def offered(self, subject: Subject, own_settings: bytes | None, window_tokens: int) -> Replay:
        """The tokens of our tools, without rounds; nothing is read from the store.

        They are offered at once by the request's header or else the session's settings (C02), by the
        deployment's only if the compaction in force was made with them (rule 14). Never for a stored branch,
        which no model is asked about, and not if they would take too much of the window beside the client's
        own tools.
        """
        how, chosen = self.how, self.is_chosen(own_settings)
        is_enabled = self.is_enabled(own_settings)
        without = Replay(is_recorded=is_enabled and (how.tools if chosen is None else chosen))
        if not isinstance(subject, Turn) or (subject.namespace, subject.model) in self.refusing:
            return without
        asked = asked_for(subject.incoming)
        wanted = asked != "off" if asked else chosen
        if (
            not is_enabled
            or subject.incoming.asks_for_compaction
            or not (how.tools if wanted is None else wanted)
            or not may_offer(subject.request, without_tools=how.tools_for_all or asked == "always")
        ):
            return without
        tokens = max(1, self.tokens.schema_tokens(subject.model, schemas(subject.wire)))
        if tokens > how.tools_share * (window_tokens - subject.fixed_tokens):
            return without
        results = how.result_chars // _CHARS_A_TOKEN
        return Replay(tokens, without.is_recorded, wanted is None, result_tokens=results, wire=subject.wire)

    async def read(self, subject: Subject, offered: Replay, current: Compaction | None) -> Replay:
        """`offered` with the rounds of the answers that `current` leaves in the view. StoreError."""
        if not offered.offers:
            return offered
        talk = subject.conversation
        rounds = await rounds_shown(
            self.exchanges, subject.namespace, subject.session, talk, current, offered.wire
        )
        return replace(offered, rounds=rounds, talk=weighed(talk, rounds)) if rounds else offered


async def rounds_shown(
    exchanges: Exchanges,
    namespace: str,
    session: str,
    talk: Conversation,
    current: Compaction | None,
    wire: Wire,
) -> Mapping[int, HiddenRounds]:
    """The hidden rounds of the answers that `current` leaves in the view, in the form of `wire`.

    By the index of their answer; those without a form on that wire are left out. StoreError.
    """
    shown = (*kept_in(current, talk), *range(cut_in(current, talk), len(talk.messages)))
    answers = {talk.chains[index]: index for index in shown if talk.messages[index].role == "assistant"}
    found = await exchanges.hidden_rounds(namespace, session, list(answers)) if answers else {}
    rounds = {answers[chain]: hidden.translated(wire) for chain, hidden in found.items()}
    return {index: hidden for index, hidden in rounds.items() if hidden is not None}


def asked_for(incoming: Incoming) -> str:
    """The X-Palimpsest-Recall header: on, always, off, or "" without one. InvalidField for another value.

    "always": also if the client sent no tools. RepeatedHeader when it occurs twice.
    """
    asked = (incoming.only(_HEADER) or "").strip().lower()
    if asked not in ("", "on", "always", "off"):
        raise InvalidField("X-Palimpsest-Recall is on, always or off.", param="X-Palimpsest-Recall")
    return asked

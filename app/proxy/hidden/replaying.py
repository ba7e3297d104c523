"""What our tools add to a prompt: their schemas, and what was looked up in earlier turns (rule 31).

Nothing of it where they are not offered in the request: an upstream may refuse calls of tools that it is not
told of. Knows nothing of how rounds are carried out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from app.core.history.conversation import Conversation
from app.core.recall.rounds.hidden import HiddenRounds, told_rounds, weighed
from app.core.recall.rounds.offer import schemas
from app.core.recall.tool_schemas import DESCRIBE
from app.core.view.compaction import Compaction
from app.core.view.view import cut_in, kept_in
from app.core.wire.chat_request import Wire
from app.proxy.compacting.model_tokens import ModelTokens
from app.proxy.recall.offering import Offering
from app.proxy.subject import Subject
from app.proxy.turn import Turn
from app.storage.contract import Store

# Quotes are prose more often than not.
_CHARS_A_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Replay:
    """What goes with a conversation where our tools are offered: `rounds` by the index of their answer.

    `schema_tokens` are those of our tools; 0 where they are not offered. `is_recorded`: a
    compaction that is made now says that they go with its view; `as_recorded`: they go with the request only
    where the one in force says so. `talk` is the conversation whose
    answers take the room of their rounds, None without any. One look-up may take `result_tokens`. All of it
    is told on `wire`.
    """

    schema_tokens: int = 0
    is_recorded: bool = False
    as_recorded: bool = False
    rounds: Mapping[int, HiddenRounds] = field(default_factory=dict)
    talk: Conversation | None = None
    result_tokens: int = 0
    wire: Wire = "chat"

    @property
    def offers(self) -> bool:
        """True where our tools may go with the request, once something is folded."""
        return self.schema_tokens > 0

    @property
    def reads_by(self) -> str:
        """The tool by which a model reads what is shown shortened; "" where it has none."""
        return DESCRIBE if self.offers else ""

    def goes_with(self, compaction: Compaction | None) -> bool:
        """True where they go with the request under this compaction; never before the first."""
        return self.offers and compaction is not None and (not self.as_recorded or compaction.offers_tools)


NOTHING = Replay()


class Replays:
    """One for the application."""

    def __init__(
        self, store: Store, tokens: ModelTokens, offering: Offering, result_chars: int, tools_share: float
    ) -> None:
        self._store = store
        self._tokens = tokens
        self._offering = offering
        self._result_tokens = result_chars // _CHARS_A_TOKEN
        self._tools_share = tools_share

    def offered(self, subject: Subject, own_settings: bytes | None, window_tokens: int) -> Replay:
        """What our tools cost, without any rounds; nothing is read.

        They are not offered where they would take too much of what the window leaves beside the client's.
        """
        is_recorded = self._offering.is_recorded(own_settings)
        if not (offered := self._offering.offers(subject, own_settings)):
            return Replay(is_recorded=is_recorded)
        wire = subject.request.wire if isinstance(subject, Turn) else "chat"
        tokens = max(1, self._tokens.schema_tokens(subject.model, schemas(wire)))
        if tokens > self._tools_share * (window_tokens - subject.fixed_tokens):
            return Replay(is_recorded=is_recorded)
        as_recorded = offered == "as_recorded"
        return Replay(tokens, is_recorded, as_recorded, result_tokens=self._result_tokens, wire=wire)

    async def read(self, subject: Subject, offered: Replay, current: Compaction | None) -> Replay:
        """With the rounds of the answers that `current` leaves in the view. StoreError."""
        if not offered.offers:
            return offered
        talk = subject.conversation
        shown = (*kept_in(current, talk), *range(cut_in(current, talk), len(talk.messages)))
        answers = {talk.chains[index]: index for index in shown if talk.messages[index].role == "assistant"}
        if not answers:
            return offered
        found = await self._store.hidden_rounds(subject.namespace, subject.session, list(answers))
        if not found:
            return offered
        told = {answers[chain]: told_rounds(hidden, offered.wire) for chain, hidden in found.items()}
        rounds = {index: hidden for index, hidden in told.items() if hidden is not None}
        return replace(offered, rounds=rounds, talk=weighed(talk, rounds))

"""The values that describe one exchange: the resolved request, the view that is forwarded, the outcome.

Beside the turn stands the stored branch, which views and compactions outside a request work on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from palimpsest.core.budget.upstream_counts import as_theirs
from palimpsest.core.history.branches import Mark
from palimpsest.core.history.message import Conversation, Message
from palimpsest.core.history.resolve import withdrawn_of
from palimpsest.core.history.stored_points import Placement
from palimpsest.core.recall.rounds.hidden import HiddenRounds
from palimpsest.core.view.outcomes import View
from palimpsest.core.wire.chat import CHAT
from palimpsest.core.wire.chat_answers import Usage
from palimpsest.core.wire.compaction_items import MANAGEMENT, threshold_in
from palimpsest.core.wire.request import ChatRequest, Wire
from palimpsest.core.wire.responses.request import RESPONSES
from palimpsest.proxy.incoming import Headers, Incoming
from palimpsest.proxy.jobs import MESSAGE_WEIGHT
from palimpsest.proxy.quotas import Quota
from palimpsest.storage.exchange_units import ExchangeState
from palimpsest.storage.history import MessageRow, SessionRow

_TOKEN_WEIGHT = 4
_NO_USAGE = Usage()
Mode = Literal["full", "append", "new"]


@dataclass(frozen=True, slots=True)
class Turn:
    """A resolved request.

    `conversation`: the request's messages, in append mode after the stored transcript. `session` is our id;
    `takes_name`: it takes over a name that another session had. `instructions`: those stored as such, the
    instruction messages and the request's `instructions` field. `fixed_tokens` are the tool schemas and the
    framing, `tokens` the whole prompt as the client sent it (append mode: as it would be), both in our count.
    `carrier`: where the session's name was found, "" without one. `mark`: set for a side request.
    `continues_hidden`: the answer that it continues from has hidden rounds, which the upstream keeps.
    `begins_unseen`: the beginning of the conversation never passed through here; only the upstream has it.
    `ratio`: the model's tokens for one of ours, as known when the request arrived.
    """

    namespace: str
    incoming: Incoming
    request: ChatRequest
    conversation: Conversation
    placement: Placement
    session: str
    exchange: str
    external_id: str | None
    takes_name: bool
    mode: Mode
    instructions: tuple[Message, ...]
    fixed_tokens: int
    started_at: float
    carrier: str = ""
    mark: Mark = ""
    continues_hidden: bool = False
    begins_unseen: bool = False
    ratio: float = 1.0
    tokens: int = field(init=False)

    def __post_init__(self) -> None:
        talk = self.conversation
        said = sum([m.tokens for m in talk.preamble]) + sum([m.tokens for m in talk.messages])
        object.__setattr__(self, "tokens", self.fixed_tokens + said)

    @property
    def is_new(self) -> bool:
        """True when the session begins with this request."""
        return self.placement.session is None

    @property
    def model(self) -> str:
        """The model asked for."""
        return self.request.model

    @property
    def wire(self) -> Wire:
        """The API of its requests."""
        return self.request.wire

    @property
    def max_output_tokens(self) -> int | None:
        """The request's own limit."""
        return self.request.max_output_tokens

    @property
    def compact_threshold(self) -> int:
        """The client's compaction threshold in tokens; 0 if the upstream handles it."""
        if MANAGEMENT not in self.request.dropped:
            return 0
        return threshold_in(self.request.management)

    @property
    def headers(self) -> Headers:
        """The request's headers, the caller's key among them."""
        return self.incoming.headers

    @property
    def quota(self) -> Quota | None:
        """What the caller may use in a day; None: unlimited."""
        return self.incoming.bill.quota if self.incoming.bill is not None else None

    @property
    def tools(self) -> bytes | None:
        """The tool schemas, raw; not the legacy `functions`, which have another name."""
        return self.request.tools if self.request.shape.last("functions") is None else None

    @property
    def withdrawn(self) -> Sequence[bytes]:
        """The chains of new messages: they leave the path if the upstream rejects the request."""
        return withdrawn_of(self.placement)

    @property
    def is_apart(self) -> bool:
        """True for a whole list under a stored session's name that shares no beginning with it."""
        place = self.placement
        is_named = place.found_by == "id" and not (self.is_new or self.mark)
        return is_named and self.mode == "full" and not (place.base or place.rebase)

    @property
    def is_delta(self) -> bool:
        """True when the request does not contain the whole conversation."""
        return self.mode == "append"


@dataclass(frozen=True, slots=True)
class ForwardedView:
    """The view forwarded in one attempt, and its tokens in our count.

    `has_our_tools`: our tools are sent with it. Then `replayed` are the messages of the view with the hidden
    rounds of earlier turns, `tokens` includes both, and new rounds may take `room_tokens`. `ratio`: the
    model's tokens for one of ours. `window_tokens`: the model's window in its tokens, 0 if not looked up.
    `waited_seconds`: how long the request waited for a compaction, None when none was made for it. `is_off`:
    nothing is compacted, so that an error "too long" passes through (rule 39).
    """

    view: View
    tokens: int
    has_our_tools: bool = False
    replayed: Sequence[bytes] = ()
    room_tokens: int = 0
    ratio: float = 1.0
    window_tokens: int = 0
    waited_seconds: float | None = None
    is_off: bool = False

    def for_model(self, tokens: int) -> int:
        """Tokens of our count as the model counts them, for people."""
        return as_theirs(tokens, self.ratio)

    @property
    def is_original(self) -> bool:
        """True when nothing is folded or masked."""
        return self.view.compaction is None


def original(turn: Turn, *, is_off: bool = False) -> ForwardedView:
    """The original view: what the client sent (append mode: the whole conversation)."""
    return ForwardedView(View((), None), turn.tokens, ratio=turn.ratio, is_off=is_off)


@dataclass(frozen=True, slots=True)
class ReadBranch:
    """A stored branch: the subject of a view or a compaction outside a chat request.

    `fixed_tokens` are those of the newest request on it; its answer limit is not stored. `rows` are its
    messages as stored. `stated`: the field `instructions` of the Responses API as a message.
    """

    namespace: str
    row: SessionRow
    conversation: Conversation
    headers: Headers
    quota: Quota | None
    model: str
    fixed_tokens: int
    rows: Sequence[MessageRow]
    stated: Sequence[Message] = ()
    max_output_tokens: None = None
    tools: None = None

    @property
    def session(self) -> str:
        """Our id."""
        return self.row.id

    @property
    def wire(self) -> Wire:
        """Chat Completions if it has a form for every message as stored, else the Responses API."""
        said = (message.raw for message in self.conversation.messages)
        return CHAT if all(CHAT.translated(raw) == raw for raw in said) else RESPONSES

    @property
    def tokens(self) -> int:
        """The whole prompt without folds, in our count."""
        talk = self.conversation
        return self.fixed_tokens + sum(m.tokens for m in (*talk.preamble, *talk.messages))


# One conversation of a session, and the rest of its prompt: what compactions and views work on.
Subject: TypeAlias = Turn | ReadBranch


def weight_of(subject: Subject) -> int:
    """The weight of work that visits every message of a conversation, for `offload`."""
    return _TOKEN_WEIGHT * subject.tokens + MESSAGE_WEIGHT * len(subject.conversation.messages)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an exchange ended. `answers`: the upstream's answer, one message a choice.

    `response_id`: the upstream's id of the answer, from which a later request may continue. `hidden`: the
    rounds before the answer that the client did not see (rule 31). `by_upstream` is false for an answer made
    by the proxy.
    """

    state: ExchangeState
    status: int | None
    answers: Sequence[Message] = ()
    answer_state: Literal["live", "incomplete"] = "live"
    finish_reason: str | None = None
    usage: Usage = _NO_USAGE
    response_id: str | None = None
    hidden: HiddenRounds | None = None
    by_upstream: bool = True

    @property
    def hidden_tokens(self) -> int:
        """Tokens by which hidden rounds have extended the prompt."""
        return self.hidden.tokens if self.hidden else 0

    @property
    def answer_tokens(self) -> int:
        """Tokens of the answer, in our count."""
        return sum([message.tokens for message in self.answers])

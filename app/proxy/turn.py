"""One exchange on its way through the proxy: what the request is, and where its messages belong.

A value. It is made by resolving and read by everything after it; how the exchange ends is not in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from app.core.budget.calibration import as_theirs
from app.core.history.branches import Mark
from app.core.history.conversation import Conversation
from app.core.history.known import Placement
from app.core.history.message import Message
from app.core.history.resolve import withdrawn_of
from app.core.view.outcomes import View
from app.core.wire.chat_request import ChatRequest, Wire
from app.core.wire.responses.compacting import MANAGEMENT, threshold_in
from app.proxy.incoming import Headers, Incoming

Mode = Literal["full", "append", "new"]


@dataclass(frozen=True, slots=True)
class Turn:
    """A resolved request.

    `conversation` is what the model is to be told about: the request's messages, in append mode with
    the stored transcript before them. `session` is our id; `takes_name`: it begins under a name
    that another session had until now. `instructions` are what is stored as such: those that
    are messages, and what the request says beside its messages.
    `fixed_tokens` are the tool schemas and the framing, `tokens` the whole prompt as the client sent it
    (append mode: as it would be), both in our count. `carrier` is where the session's name stood, "" where
    there is none. `mark` says that it stands beside a conversation. `goes_on_unseen`: of the answer that it
    goes on from the upstream keeps what the client was not shown. `begins_unseen`: how the conversation
    began never came through here, and only the upstream can tell. `ratio`: the model's tokens for one of
    ours, as far as that was known when the request came.
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
    goes_on_unseen: bool = False
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
        """The API that it speaks."""
        return self.request.wire

    @property
    def max_output_tokens(self) -> int | None:
        """The request's own limit."""
        return self.request.max_output_tokens

    @property
    def compact_threshold(self) -> int:
        """Tokens from which the client wants its conversation compacted; 0 where that is the upstream's."""
        if MANAGEMENT not in self.request.dropped:
            return 0
        return threshold_in(self.request.members((MANAGEMENT,)).get(MANAGEMENT))

    @property
    def headers(self) -> Headers:
        """The request's headers, the caller's key among them."""
        return self.incoming.headers

    @property
    def tools(self) -> bytes | None:
        """The tool schemas, raw; not the legacy `functions`, which go under another name."""
        return self.request.tools if self.request.shape.last("functions") is None else None

    @property
    def withdrawn(self) -> Sequence[bytes]:
        """The chains this exchange brought: they leave the path when the upstream refuses it."""
        return withdrawn_of(self.placement)

    @property
    def is_apart(self) -> bool:
        """True for a whole list under the name of a stored session that begins with nothing of it."""
        place = self.placement
        is_named = place.found_by == "id" and not (self.is_new or self.mark)
        return is_named and self.mode == "full" and not (place.base or place.rebase)

    @property
    def is_delta(self) -> bool:
        """True when the request's own bytes are not the whole conversation."""
        return self.mode == "append"


@dataclass(frozen=True, slots=True)
class Shown:
    """What the model is shown in one attempt: the view and what it costs, in our count.

    `has_our_tools`: tools of ours go with it. Then `replayed` are the messages of the view with what was
    looked up in earlier turns, both in `tokens`, and what is looked up now may take `room_tokens`.
    `ratio`: the model's tokens for one of ours; `window_tokens`: its window, in its tokens, 0 where nobody
    looked.
    """

    view: View
    tokens: int
    has_our_tools: bool = False
    replayed: Sequence[bytes] = ()
    room_tokens: int = 0
    ratio: float = 1.0
    window_tokens: int = 0

    def for_model(self, tokens: int) -> int:
        """Tokens of our count as the model counts them: what people are shown."""
        return as_theirs(tokens, self.ratio)

    @property
    def is_original(self) -> bool:
        """True when nothing is folded or masked."""
        return self.view.compaction is None


def original(turn: Turn) -> Shown:
    """What the client sent (append mode: what it stands for), as it is."""
    return Shown(View((), None), turn.tokens, ratio=turn.ratio)

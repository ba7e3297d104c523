"""What a view or a compaction is about: a request on its way, or a branch that is read back.

Knows nothing of how either came to be, nor of what is decided about it.
"""

from __future__ import annotations

from typing import Protocol

from app.core.history.conversation import Conversation
from app.core.wire.chat_request import Wire
from app.proxy.incoming import Headers


class Subject(Protocol):
    """One conversation of one session, and what its prompt holds besides messages."""

    @property
    def namespace(self) -> str:
        """Whose it is."""

    @property
    def session(self) -> str:
        """Our id."""

    @property
    def model(self) -> str:
        """The model it is for; "" when the client names none."""

    @property
    def wire(self) -> Wire:
        """The API that it speaks."""

    @property
    def conversation(self) -> Conversation:
        """What the model is to be told about."""

    @property
    def fixed_tokens(self) -> int:
        """Tool schemas and framing, in our count."""

    @property
    def max_output_tokens(self) -> int | None:
        """The most the model may answer, in its tokens; None when nobody said."""

    @property
    def tools(self) -> bytes | None:
        """The tool schemas of its requests as raw JSON; None without any, or when they are not known."""

    @property
    def tokens(self) -> int:
        """The whole prompt with nothing folded, in our count."""

    @property
    def headers(self) -> Headers:
        """The caller's: its key is among them."""

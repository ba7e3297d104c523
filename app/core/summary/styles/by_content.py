"""The style `by_content`: slots noted by code for work with tools, one summary by a model for talk (D24).

Chooses at each fold, by what is folded then. Knows nothing of how either way works; both go on from the
same working state and the same previous block, so that a change of ways loses nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from app.core.history.message import Message
from app.core.summary.acceptance import SummaryReply
from app.core.summary.prompt import SummaryLimits, SummaryRequest
from app.core.summary.source import CountText, SummarySource
from app.core.summary.styles.style import Style, Written
from app.core.summary.working.gap_fill import INSTRUCTIONS as GAP_FILL

# What a model wrote in 8,192 tokens must outlast rounds in which none is asked: four characters a token.
KEPT_CHARS = 32_768
_RESULTS = ("tool", "function")


@dataclass(frozen=True, slots=True)
class ByContentStyle:
    """See `Style`. From `share` of calls and results among the messages on, the fold is `mechanical`."""

    mechanical: Style
    prose: Style
    share: float = 0.5

    def requests(
        self, source: SummarySource, limits: SummaryLimits, count_text: CountText, focus: str
    ) -> Generator[SummaryRequest, str, None]:
        """The chosen way's."""
        return self._chosen(source).requests(source, limits, count_text, focus)

    def accepted(
        self, reply: SummaryReply, request: SummaryRequest, replaced_tokens: int, count_text: CountText
    ) -> str:
        """As the way judges it whose question was put."""
        asked = self.mechanical if request.system == GAP_FILL else self.prose
        return asked.accepted(reply, request, replaced_tokens, count_text)

    def written(self, source: SummarySource, told: str | None, tokens: int, count_text: CountText) -> Written:
        """The chosen way's block. The same fold is always written in the way in which it was asked for."""
        return self._chosen(source).written(source, told, tokens, count_text)

    def _chosen(self, source: SummarySource) -> Style:
        messages = [message for _, message in source.fresh]
        # Without new messages the block before is written again, shorter: whoever keeps it as it is.
        return self.mechanical if messages and tool_share(messages) >= self.share else self.prose


def tool_share(messages: Sequence[Message]) -> float:
    """Calls of tools and their results among the messages, by number; 0.0 of none.

    By number, not by size: a dump says no more of why something is done than a short result.
    """
    if not messages:
        return 0.0
    return sum(_is_of_tools(message) for message in messages) / len(messages)


def _is_of_tools(message: Message) -> bool:
    calls = message.fields.get("tool_calls") or message.fields.get("function_call")
    return message.role in _RESULTS or (message.role == "assistant" and bool(calls))

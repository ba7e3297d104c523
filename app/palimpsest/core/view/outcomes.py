"""Views, and the outcomes of planning as types, matched with `match` and `assert_never`.

Indexes refer to the conversation's messages, without the preamble. Tokens are in the program's own count, and
so is the budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from palimpsest.core.view.compaction import Compaction, Mask, Trigger

PartKind = Literal["preamble", "instruction", "task", "pin", "summary", "memory", "acknowledgement", "tail"]


@dataclass(frozen=True, slots=True)
class ViewPart:
    """One message of a view.

    `index` is its place in the conversation; None for preamble, summary, memory and acknowledgement, and for
    merged user messages. `reason` says, for people, why it is in the view. `masked` is true when its text is
    shortened.
    """

    kind: PartKind
    index: int | None
    raw: bytes
    tokens: int
    masked: bool
    reason: str


@dataclass(frozen=True, slots=True)
class View:
    """The messages that the model sees. `compaction` is None exactly when they are what the client sent."""

    parts: tuple[ViewPart, ...]
    compaction: Compaction | None

    @property
    def tokens(self) -> int:
        """Tokens of the messages alone: tools and framing are in the budget."""
        return sum(part.tokens for part in self.parts)

    @property
    def messages(self) -> tuple[bytes, ...]:
        """The messages to forward, each as exact bytes."""
        return tuple(part.raw for part in self.parts)


@dataclass(frozen=True, slots=True)
class Send:
    """Send the view as it is. `precompute` is the fold to summarize in the background, if any."""

    view: View
    precompute: Fold | None = None


@dataclass(frozen=True, slots=True)
class Fold:
    """Messages `[:cut]` are to be folded, except `kept`.

    `since`: messages `[:since]` are folded already, and the current summary is an input of the new one.
    `masks` are all masks in force afterwards. The new summary block may have at most `summary_tokens`.
    `target_tokens` is the size that the view should have. `fits_now`: the current view can still be sent, and
    below a step of the price, so that nobody need wait for the summary. `memory_tokens`: room for the
    session's memory block; 0: it is left out. `leaves_tokens`: the expected prompt after the fold.
    """

    cut: int
    since: int
    kept: tuple[int, ...]
    masks: tuple[Mask, ...]
    summary_tokens: int
    target_tokens: int
    trigger: Trigger
    reason: str
    fits_now: bool
    memory_tokens: int = 0
    leaves_tokens: int = 0


@dataclass(frozen=True, slots=True)
class MaskOnly:
    """Shortening tool results is enough: no model is asked (A07, `tool_truncation_only`)."""

    masks: tuple[Mask, ...]
    trigger: Trigger
    reason: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """What must stay verbatim does not fit a known window (rule 18). `message` is for the client."""

    message: str


Plan: TypeAlias = Send | Fold | MaskOnly | Refuse

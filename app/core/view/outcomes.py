"""What planning decides: the outcomes as types, matched with `match` and `assert_never`.

Pure values. Indexes count the conversation's messages (the preamble apart); tokens are in the
program's own count, the budget being scaled to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from app.core.view.compaction import Compaction, Mask, Trigger

PartKind = Literal["preamble", "instruction", "task", "pin", "summary", "memory", "acknowledgement", "tail"]


@dataclass(frozen=True, slots=True)
class ViewPart:
    """One message of a view. `index` is its place in the conversation; None for preamble, summary,
    memory and acknowledgement, and where user messages were merged.

    `reason` says, for a person, why it stands here. `masked` is true when its text is shortened.
    """

    kind: PartKind
    index: int | None
    raw: bytes
    tokens: int
    masked: bool
    reason: str


@dataclass(frozen=True, slots=True)
class View:
    """What the model sees. `compaction` is None exactly when it is what the client sent."""

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
    """The view goes out as it is. `precompute` asks for a summary in the background."""

    view: View
    precompute: Fold | None = None


@dataclass(frozen=True, slots=True)
class Fold:
    """Messages `[:cut]` are to be folded, except `kept`.

    `since`: messages `[:since]` are folded already and stand in the current summary, an input of
    the new one. `masks` are all masks that hold afterwards. The new summary block may have at most
    `summary_tokens`. `fits_now` is true when the current view could still go out, so that nobody
    need wait for a summary. `target_tokens` is what the view should come down to. `memory_tokens` is the
    room that the session's memory block has in it; 0: it is left out.
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

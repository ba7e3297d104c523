"""A compacted view for upstreams that want user and assistant by turns: acknowledged, then merged.

Planning looks at the parts before they are merged; what goes out, and what a person is shown, is merged.
Knows nothing of settings: a compaction's record says that its view is of this kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.core.view.dialects.alternation import ACKNOWLEDGEMENT, acknowledged, merged_users
from app.core.view.outcomes import View, ViewPart

# Role, separators and field names of a message, tokens; as o200k frames it, rounded up.
FRAME_TOKENS = 8


def acknowledgement_tokens(count_text: Callable[[str], int]) -> int:
    """Tokens of the message behind a summary, framing included."""
    return count_text(ACKNOWLEDGEMENT) + FRAME_TOKENS


def answered(parts: Sequence[ViewPart], count_text: Callable[[str], int]) -> tuple[ViewPart, ...]:
    """The parts with an acknowledgement behind the block where a user message follows it (D19).

    The memory belongs to the block: it stands right behind the summary.
    """
    blocks = [place for place, part in enumerate(parts) if part.kind in ("summary", "memory")]
    made = acknowledged([part.raw for part in parts], blocks[-1] if blocks else None)
    tokens = acknowledgement_tokens(count_text)
    return tuple(
        parts[source[0]]
        if source
        else ViewPart("acknowledgement", None, raw, tokens, False, "user and assistant speak by turns")
        for raw, source in zip(made.messages, made.sources, strict=True)
    )


def as_sent(view: View) -> View:
    """The view with neighbouring user messages as one, where its compaction says so (A46).

    A merged part is of the summary's kind if that is in it, else of the first one's.
    """
    if view.compaction is None or not view.compaction.alternates:
        return view
    made = merged_users(view.messages)
    if not made.is_changed:
        return view
    parts = [
        _merged([view.parts[place] for place in source], raw)
        for raw, source in zip(made.messages, made.sources, strict=True)
    ]
    return View(tuple(parts), view.compaction)


def _merged(parts: Sequence[ViewPart], raw: bytes) -> ViewPart:
    if len(parts) == 1:
        return parts[0]
    kinds = [part.kind for part in parts]
    reasons = "; ".join(f"{part.kind}: {part.reason}" for part in parts)
    return ViewPart(
        kind="summary" if "summary" in kinds else kinds[0],
        index=None,
        raw=raw,
        tokens=sum(part.tokens for part in parts),
        masked=any(part.masked for part in parts),
        reason=f"{len(parts)} user messages as one ({reasons})",
    )

"""The newest two or three exchanges stay in every view that has room for them (rule 38).

Knows nothing of why something is folded, nor of how low the prompt should come: it gives back what a fold
took of the newest exchanges, as far as there is room.
"""

from __future__ import annotations

from dataclasses import replace

from app.core.view.planning.fold import Draft
from app.core.view.planning.situation import Situation, must_keep

# The newest question, and at most so many exchanges before it.
_EXCHANGES = 2


def with_newest(situation: Situation, draft: Draft, *, target: int, most: int, records: int = 2) -> Draft:
    """The draft with the newest exchanges in its tail, where the prompt then takes at most `most` tokens.

    The summary gives way as far as that brings the prompt to `target`, down to `records` of what a model
    writes: an exchange that has no room beside them is told by the summary.
    """
    least = records * situation.budget.summary_tokens
    for cut in _starts(situation):
        if cut < draft.cut and (kept := _cut_at(situation, draft, cut, target, least)).total <= most:
            return kept
    return draft


def _starts(situation: Situation) -> list[int]:
    """Where the newest exchanges begin that are not folded yet, the most of them first."""
    messages = enumerate(situation.conversation.messages)
    asked = [index for index, message in messages if message.role == "user"]
    # The last one is the newest question: it stays in any case.
    wanted = [asked[-1 - before] for before in range(_EXCHANGES, 0, -1) if before < len(asked)]
    cuts = {group.start for group in situation.groups}
    return [start for start in wanted if start > situation.since and start in cuts]


def _cut_at(situation: Situation, draft: Draft, cut: int, target: int, least: int) -> Draft:
    sizes = draft.limits.sizes
    # What is retained for its path alone goes with the fold that chose it.
    kept = frozenset(index for index in must_keep(situation, with_task=True) | draft.kept if index < cut)
    tail = sum(sizes[cut:])
    rest = draft.total - draft.summary_tokens - draft.tail_tokens
    rest += sum(sizes[i] for i in kept) - sum(sizes[i] for i in draft.kept)
    # A record, and as much of what binds and was done.
    summary = min(draft.summary_tokens, max(least, target - rest - tail))
    return replace(
        draft, cut=cut, kept=kept, summary_tokens=summary, tail_tokens=tail, total=rest + summary + tail
    )

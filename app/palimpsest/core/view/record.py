"""From a decision to the record that is stored, and whether a record prepared in advance still helps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from palimpsest.core.budget.budget import LEAST_SUMMARY_TOKENS, Budget
from palimpsest.core.history.message import Conversation
from palimpsest.core.view.compaction import Author, Compaction, SpentTokens
from palimpsest.core.view.outcomes import Fold, MaskOnly
from palimpsest.core.view.view import (
    CountText,
    applies,
    cut_in,
    kept_in,
    newest_user,
    prompt_tokens,
    rendered,
)

# Why a model did not write a summary, for people; a fold that needs no model has no reason.
WHY_BY_CODE: Mapping[str, str] = {
    "late": "the model had not answered at the deadline",
    "timeout": "the model did not answer in time",
    "rejected": "what the model wrote was no summary",
    "too_long": "the question did not fit the model's window",
    "quota_exceeded": "the quota of the day is used up",
    "key_refused": "the key was refused",
    "nobody_to_ask": "no model may be asked",
    "no_room_to_ask": "there is no room for a model's summary",
    "not_worth_asking": "a model's summary would save little",
    "breaker_open": "the model failed several times and is not asked for a while",
    "looping": "the conversation was folded in three turns in a row",
    "elsewhere": "another server was writing one",
    "no_room": "the model's summary did not fit",
    "no_gain": "the model's summary freed nothing",
    "unreachable": "the model's server was not reached",
    "cut": "the model's answer broke off",
    "unreadable": "the model's answer could not be read",
    "no_choice": "the model's answer held no text",
    "no_summary": "the program's answer held no summary",
    "broken": "writing it failed",
}


@dataclass(frozen=True, slots=True)
class RecordInput:
    """What the caller adds to a record: id, name of the policy, summary block, author, state and details.

    With masks alone: an empty summary, author "none", no model; the state is the current one's. `alternates`:
    the view merges adjacent user messages and acknowledges the summary. `tells_as_user`: it shows later
    instructions as user messages. `offers_tools`: our tools are sent with it. `request_last`: the newest user
    message is kept among the folded ones, and stands after the block. `memory`: the text of the session's
    memory block, which masks alone leave as it is; `leaves_memory_out`: there was no room for it.
    `as_system`: the summary has the system role (B15).

    `passes`: calls to a model that wrote the text, in the run `run_id`, which took `spent`; 0, "" and None
    without one.
    `guard_tokens`: the summary's tokens before it was shortened for the ceiling, its tokens now, and the
    ceiling (A27).
    """

    id: str
    policy: str
    summary: str = ""
    author: Author = "none"
    model: str | None = None
    state: bytes = b""
    notes: tuple[str, ...] = ()
    alternates: bool = False
    tells_as_user: bool = False
    offers_tools: bool = False
    memory: str = ""
    leaves_memory_out: bool = False
    passes: int = 0
    run_id: str = ""
    spent: SpentTokens | None = None
    guard_tokens: tuple[int, int, int] | None = None
    request_last: bool = False
    as_system: bool = False


def compaction_of(
    decision: Fold | MaskOnly,
    conversation: Conversation,
    current: Compaction | None,
    written: RecordInput,
    budget: Budget,
    count_text: CountText,
) -> Compaction:
    """The record of a decision carried out. Its tokens are in the model's count, of the whole prompt.

    Masks alone leave watermark, kept messages and summary as in `current`. The current compaction, if there
    is one, is the parent.
    """
    folded = _folded(decision, conversation, current, written, budget)
    before = rendered(conversation, current, count_text)
    after = rendered(conversation, folded, count_text)
    return replace(
        folded,
        tokens_before=budget.for_model(prompt_tokens(before, budget)),
        tokens_after=budget.for_model(prompt_tokens(after, budget)),
    )


def folded_indexes(fold: Fold, conversation: Conversation, current: Compaction | None) -> tuple[int, ...]:
    """The messages that the new summary must cover, ascending; the current summary covers the others.

    These are the newly folded ones, and those that were kept so far and are kept no longer.
    """
    kept = set(fold.kept)
    released = [index for index in kept_in(current, conversation) if index not in kept]
    return (*released, *(index for index in range(fold.since, fold.cut) if index not in kept))


def summary_room(
    fold: Fold,
    conversation: Conversation,
    budget: Budget,
    count_text: CountText,
    *,
    tells_as_user: bool = False,
) -> int:
    """Tokens that the summary block may take so that the view stays within the ceiling (A27).

    At most what the fold allows, at least 200: the tail may have grown since the fold was planned.
    """
    left = ceiling_room(fold, conversation, budget, count_text, tells_as_user=tells_as_user)
    return min(fold.summary_tokens, max(LEAST_SUMMARY_TOKENS, left))


def ceiling_room(
    fold: Fold,
    conversation: Conversation,
    budget: Budget,
    count_text: CountText,
    *,
    tells_as_user: bool = False,
) -> int:
    """Tokens between the view without a summary and the ceiling; negative where it is above already."""
    written = RecordInput(id="", policy="", tells_as_user=tells_as_user)
    bare = rendered(conversation, _folded(fold, conversation, None, written, budget), count_text)
    return budget.ceiling_tokens - prompt_tokens(bare, budget) - fold.memory_tokens


def is_same_fold(current: Compaction | None, other: Compaction) -> bool:
    """True where both fold the same messages."""
    return current is not None and (current.watermark, current.kept) == (other.watermark, other.kept)


def adopts(
    ready: Compaction,
    conversation: Conversation,
    current: Compaction | None,
    budget: Budget,
    count_text: CountText,
) -> bool:
    """True when a compaction prepared in the background replaces the current one (idea 3, rule 24).

    It applies here, folds more than the current one, and the view it gives is below the precompute mark, so
    that the next one is not due at once. Or it frees at least the least gain: where more was added than
    expected, waiting for a better one would let the prompt grow up to the ceiling. The caller checks policy,
    model and epoch.
    """
    if not applies(ready, conversation) or cut_in(ready, conversation) <= cut_in(current, conversation):
        return False
    after = prompt_tokens(rendered(conversation, ready, count_text), budget)
    now = prompt_tokens(rendered(conversation, current, count_text), budget)
    return after < budget.precompute_tokens or after <= now - max(1, budget.gain_tokens)


def _folded(
    decision: Fold | MaskOnly,
    conversation: Conversation,
    current: Compaction | None,
    written: RecordInput,
    budget: Budget,
) -> Compaction:
    parents = (current.id,) if current else ()
    if isinstance(decision, Fold):
        newest = newest_user(conversation)
        # It is kept, and the work done for it is folded.
        written = replace(written, request_last=newest is not None and newest in decision.kept)
    elif current is not None:
        return replace(
            current,
            id=written.id,
            kind="tool_truncation_only",
            masks=decision.masks,
            policy=written.policy,
            trigger=decision.trigger,
            author=written.author,
            model=written.model,
            parents=parents,
            reason=decision.reason,
            details=_details(replace(written, request_last=current.request_last), budget),
        )
    cut, kept = (decision.cut, decision.kept) if isinstance(decision, Fold) else (0, ())
    return Compaction(
        id=written.id,
        kind="message_removal" if cut else "tool_truncation_only",
        watermark=conversation.chains[cut - 1] if cut else b"",
        kept=tuple(conversation.chains[index] for index in kept),
        masks=decision.masks,
        summary=written.summary,
        policy=written.policy,
        trigger=decision.trigger,
        author=written.author,
        model=written.model,
        tokens_before=0,
        tokens_after=0,
        messages_folded=cut - len(kept),
        parents=parents,
        reason=decision.reason,
        state=written.state,
        details=_details(written, budget),
        memory=written.memory,
    )


# What a record says of itself beside its fields, in this order, where it has a value.
_DETAILS = (
    *(
        "notes",
        "alternates",
        "tells_as_user",
        "offers_tools",
        "leaves_memory_out",
        "passes",
        "run_id",
        "spent",
    ),
    *("guard_tokens", "request_last", "as_system"),
)


def _details(written: RecordInput, budget: Budget) -> bytes:
    stored = {name: value for name in _DETAILS if (value := getattr(written, name))}
    # Written even if empty: only records of the first release lack it.
    return json.dumps(stored | {"reads_by": budget.reads_by}).encode()

"""What the model sees: a function of the conversation and the compaction that applies to it.

Between two compactions a view only grows at its end: messages added after the record was written are appended
and change nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from palimpsest.core.budget.budget import Budget
from palimpsest.core.history.message import Conversation, Message
from palimpsest.core.view.clients import opening_of
from palimpsest.core.view.compaction import Compaction
from palimpsest.core.view.dialects import FRAME_TOKENS, answered, with_user_instructions
from palimpsest.core.view.masking import masked, text_of
from palimpsest.core.view.outcomes import PartKind, View, ViewPart
from palimpsest.core.view.validity import Group, groups_of, is_cut
from palimpsest.core.wire.json_text import encoded

CountText = Callable[[str], int]
# Masked messages by chain digest: the characters shown, and the reference to the rest.
Masks = Mapping[bytes, tuple[int, str]]
# Parts whose tool results may be shortened.
_MASKED = ("tail", "pin")


def applicable(compactions: Sequence[Compaction], conversation: Conversation) -> Compaction | None:
    """The compaction in force on this path, of `compactions` oldest first; None when none applies.

    Of those that apply, the deepest watermark wins, then the one whose masks are all on the path, then the
    newest. One made meanwhile on a sibling path never displaces this path's own, so that returning to a path
    restores its view.
    """
    groups = groups_of(conversation.messages) if compactions else ()
    standing = [each for each in compactions if applies(each, conversation, groups)]
    return max(
        reversed(standing),
        key=lambda made: (
            cut_in(made, conversation),
            all(conversation.position(mask.chain) is not None for mask in made.masks),
        ),
        default=None,
    )


def applies(
    compaction: Compaction, conversation: Conversation, groups: Sequence[Group] | None = None
) -> bool:
    """True when the compaction can be used on this path.

    Its watermark is on the path (or, with an empty one, every mask's message), the cut splits no group here,
    and neither the newest message nor the newest user message is folded. The last two matter when a client
    rewinds to the watermark itself. A summary without a watermark, or a watermark without a summary, applies
    nowhere (B15): history would be shown twice, or not at all. `groups` are the conversation's, if at hand.
    """
    if bool(compaction.watermark) != bool(compaction.summary):
        return False
    if not compaction.watermark:
        masks = compaction.masks
        return bool(masks) and all(conversation.position(mask.chain) is not None for mask in masks)
    if compaction.covers != compaction.watermark and conversation.position(compaction.covers) is None:
        # The record tells of messages that are not on this path (F27).
        return False
    position = conversation.position(compaction.watermark)
    if position is None:
        return False
    if not is_cut(groups_of(conversation.messages) if groups is None else groups, position + 1):
        return False
    newest = newest_user(conversation)
    return newest is None or newest > position or conversation.chains[newest] in compaction.kept


def cut_in(compaction: Compaction | None, conversation: Conversation) -> int:
    """How many messages of this path the compaction folds (kept ones included); 0 when none."""
    if compaction is None or not compaction.watermark:
        return 0
    position = conversation.position(compaction.watermark)
    return 0 if position is None else position + 1


def kept_in(compaction: Compaction | None, conversation: Conversation) -> tuple[int, ...]:
    """Indexes of the folded messages that stay verbatim, ascending."""
    if compaction is None:
        return ()
    places = (conversation.position(chain) for chain in compaction.kept)
    return tuple(sorted({place for place in places if place is not None}))


def folded_in(compaction: Compaction | None, conversation: Conversation) -> tuple[int, ...]:
    """Indexes of the messages that a summary stands for, ascending: the folded ones that do not stay."""
    kept = set(kept_in(compaction, conversation))
    return tuple(index for index in range(cut_in(compaction, conversation)) if index not in kept)


def newest_user(conversation: Conversation) -> int | None:
    """The index of the newest user message; None when there is none."""
    for index in range(len(conversation.messages) - 1, -1, -1):
        if conversation.messages[index].role == "user":
            return index
    return None


def unmasked_tokens(conversation: Conversation, compaction: Compaction | None) -> int:
    """Tokens that the view's messages would have unmasked, without preamble, summary and memory."""
    messages = conversation.messages
    kept = [messages[index] for index in kept_in(compaction, conversation)]
    return sum([message.tokens for message in (*kept, *messages[cut_in(compaction, conversation) :])])


def view_of(conversation: Conversation, compaction: Compaction | None, count_text: CountText) -> View:
    """The messages to forward: preamble, instructions, set-up, task, kept messages, summary, memory, tail.

    Without a compaction, or with one that does not apply here, exactly the client's messages. The preamble is
    this request's; the tail is the client's own bytes except for masked results. After the instructions the
    list starts with a user message whenever the client's did: a summary in the system role is shown in the
    user role where no user message follows it.
    """
    is_used = compaction is not None and applies(compaction, conversation)
    return rendered(conversation, compaction if is_used else None, count_text)


def rendered(conversation: Conversation, compaction: Compaction | None, count_text: CountText) -> View:
    """As `view_of`, for a compaction that is known to apply here."""
    messages, chains = conversation.messages, conversation.chains
    masks: Masks = {}
    if compaction is not None and compaction.masks:
        references = compaction.references()
        masks = {mask.chain: (mask.limit_chars, references[mask.chain]) for mask in compaction.masks}

    def part(index: int, kind: PartKind, reason: str) -> ViewPart:
        message = messages[index]
        mask = masks.get(chains[index]) if kind in _MASKED else None
        if mask is None or (short := masked(message, *mask)) is None:
            return _whole(kind, index, message, reason)
        reason = f"a tool result of {len(text_of(message.fields)):,} characters, shown shortened"
        return ViewPart(kind, index, short.raw, masked_tokens(message, short.text, count_text), True, reason)

    stated = "this request's instructions"
    preamble = [_whole("preamble", None, message, stated) for message in conversation.preamble]
    if compaction is None:
        every = enumerate(messages)
        return View((*preamble, *[_whole("tail", i, each, "not compacted") for i, each in every]), None)
    opening = opening_of(conversation)
    instructions: list[ViewPart] = []
    # Set-up that a harness sends in the user role comes after the instructions proper.
    setup: list[ViewPart] = []
    task: list[ViewPart] = []
    others: list[ViewPart] = []
    for index in kept_in(compaction, conversation):
        if index in opening.setup:
            setup.append(part(index, "instruction", "set up by the client before the first request"))
        elif messages[index].is_instruction:
            instructions.append(part(index, "instruction", "an instruction is never folded"))
        elif index == opening.task:
            first = "first request behind what the client set up" if opening.setup else "first user message"
            task.append(part(index, "task", f"the {first}: the original task"))
        else:
            others.append(part(index, "pin", "kept when the rest was folded"))
    tail = [
        part(index, "tail", "newest messages")
        for index in range(cut_in(compaction, conversation), len(messages))
    ]
    before = [*setup, *task, *others]

    def is_user(part: ViewPart) -> bool:
        return part.index is None or messages[part.index].role == "user"

    follows = next(iter((*before, *tail)), None)
    as_system = compaction.as_system and follows is not None and is_user(follows)
    block = _block(compaction, count_text, as_system) if compaction.summary else []
    # Work stands behind the block that tells what was asked for, and the newest request with it (rule 43).
    asked = [each for each in before if is_user(each)][-1:] if compaction.request_last else []
    after = [each for each in before if block and (each in asked or (each in others and not is_user(each)))]
    before = [each for each in before if each not in after]
    middle = [*block, *before] if as_system else [*before, *block]
    middle += sorted(after, key=lambda part: part.index or 0)
    parts = (*preamble, *instructions, *middle, *tail)
    if compaction.tells_as_user:
        parts = with_user_instructions(parts, conversation, count_text)
    return View(answered(parts, count_text) if compaction.alternates else parts, compaction)


def prompt_tokens(view: View, budget: Budget) -> int:
    """Tokens of the whole prompt in our count: the fixed part, preamble included, and all other messages."""
    return budget.fixed_tokens + sum(part.tokens for part in view.parts if part.kind != "preamble")


def fits(view: View, budget: Budget) -> bool:
    """True when the prompt does not exceed the ceiling."""
    return prompt_tokens(view, budget) <= budget.ceiling_tokens


def block_tokens(text: str, count_text: CountText) -> int:
    """Tokens of a block of ours with its framing; 0 for "", which is no block."""
    return count_text(text) + FRAME_TOKENS if text else 0


def masked_tokens(message: Message, shown: str, count_text: CountText) -> int:
    """Tokens of a message whose text is shown as `shown`; never more than the whole message's."""
    call = message.answers or ""
    return min(message.tokens, count_text(shown) + count_text(call) + FRAME_TOKENS)


def summary_message(text: str, role: str = "user") -> bytes:
    """A block of ours as a message: in the user role, so that tool output in it gains no authority."""
    return encoded({"role": role, "content": text})


def _whole(kind: PartKind, index: int | None, message: Message, reason: str) -> ViewPart:
    return ViewPart(kind, index, message.raw, message.tokens, False, reason)


def _block(compaction: Compaction, count_text: CountText, as_system: bool) -> list[ViewPart]:
    """The blocks of ours: the summary, and the memory block after it (B16)."""
    folded = f"stands for {compaction.messages_folded} folded messages"
    remembered = "the session's memory, as it was when the rest was folded"
    blocks: tuple[tuple[PartKind, str, str, str], ...] = (
        ("summary", compaction.summary, folded, "system" if as_system else "user"),
        ("memory", compaction.memory, remembered, "user"),
    )
    return [
        ViewPart(kind, None, summary_message(text, role), block_tokens(text, count_text), False, reason)
        for kind, text, reason, role in blocks
        if text
    ]

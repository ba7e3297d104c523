"""The context of a compaction: everything about one turn that it is planned and made from, as a value."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from palimpsest.core.budget.budget import (
    Budget,
    Due,
    Window,
    answer_target,
    asking_ahead,
    block_tokens_for,
    budget_of,
    due,
    memory_room,
)
from palimpsest.core.budget.measured import Paces
from palimpsest.core.budget.upstream_counts import USUAL, Prices
from palimpsest.core.history.message import Conversation, Message
from palimpsest.core.policy import Policy
from palimpsest.core.recall.rounds.hidden import replayed
from palimpsest.core.recall.rounds.offer import with_ours
from palimpsest.core.recall.searchable_text import without_recall_output
from palimpsest.core.summary.memory_block import shown_memory
from palimpsest.core.summary.source import SummarySource
from palimpsest.core.summary.styles import RecordStyle, state_fields
from palimpsest.core.view.clients import client_summary_of, opening_of, text_pins
from palimpsest.core.view.compaction import Compaction, SpentTokens
from palimpsest.core.view.dialects import FRAME_TOKENS, acknowledgement_tokens, as_sent
from palimpsest.core.view.masking import text_of
from palimpsest.core.view.outcomes import Fold, MaskOnly, Plan, Refuse, Send, View
from palimpsest.core.view.plan import (
    plan_filled,
    plan_for_answer,
    plan_masks,
    plan_of,
)
from palimpsest.core.view.plan_input import PlanInput, plan_input_of, why
from palimpsest.core.view.record import (
    RecordInput,
    ceiling_room,
    compaction_of,
    folded_indexes,
    is_same_fold,
    summary_room,
)
from palimpsest.core.view.validity import Fault, added_faults
from palimpsest.core.view.view import (
    CountText,
    applicable,
    block_tokens,
    cut_in,
    fits,
    kept_in,
    prompt_tokens,
    unmasked_tokens,
    view_of,
)
from palimpsest.proxy.incoming import Headers
from palimpsest.proxy.jobs import offload
from palimpsest.proxy.journal_rows import block_in
from palimpsest.proxy.lookups import NOTHING, Replay, Replays
from palimpsest.proxy.model_facts import ModelFacts
from palimpsest.proxy.turn import ForwardedView, Subject, Turn, weight_of
from palimpsest.storage.journal import StoredCompaction
from palimpsest.storage.store import Store

# Appended to a record's reason if no model wrote the summary.
BY_CODE = "; written by code: "
# The reason of a record that replaces another one for the same messages.
BETTER_RECORD = "a better record of what is folded already"
# Writing a summary block costs a dozen times what reading the history does: 5 ms for 20,000 bytes.
_BLOCK_WEIGHT = 12
# A prompt below this fits every window in use: it waits neither for the upstream to state one, nor for prices
# (tokens).
URGENT_TOKENS = 1_000
_USUAL_PRICES = Prices(**USUAL)
A = ParamSpec("A")
P = TypeVar("P", bound=Plan)
T = TypeVar("T")
Planner: TypeAlias = Callable[[PlanInput], P]


@dataclass(frozen=True, slots=True)
class SummaryText:
    """An accepted text of `model`, the last of `passes` calls of the run `run_id`, which took `spent`.

    `is_partial`: a later call failed, so that it covers only some of the messages.
    """

    text: str
    model: str
    passes: int
    run_id: str
    is_partial: bool = False
    spent: SpentTokens | None = None


@dataclass(frozen=True, slots=True)
class CompactionContext:
    """A turn, or a stored branch, with its budget and the compaction in force.

    `outgoing` makes the headers for our own calls. `memory`: the session's memory block as the next view
    would show it. `replay`: what our tools add. `is_ordered`: a person asked for the compaction, and may
    have given the summary a `focus`.
    """

    turn: Subject
    current: Compaction | None
    budget: Budget
    pins: frozenset[bytes]
    policy: Policy
    count_text: CountText
    outgoing: Callable[[], list[tuple[bytes, bytes]]]
    prices: Prices
    paces: Paces
    memory: str = ""
    focus: str = ""
    is_ordered: bool = False
    replay: Replay = NOTHING

    async def done(
        self, work: Callable[Concatenate[CompactionContext, A], T], *args: A.args, **kwargs: A.kwargs
    ) -> T:
        """Call a method or function with this context as its first argument; in a thread if it is large."""
        return await offload(weight_of(self.turn), work, self, *args, **kwargs)

    @property
    def conversation(self) -> Conversation:
        """The conversation of the turn; its answers include the tokens of their hidden rounds."""
        return self.replay.talk or self.turn.conversation

    @property
    def tools(self) -> bytes | None:
        """The tool schemas of the last prompt; an appended question needs the same ones for the cache."""
        is_offered = self.replay.goes_with(self.current)
        return with_ours(self.turn.tools, self.replay.wire) if is_offered else self.turn.tools

    @property
    def unfolded(self) -> tuple[Message, ...]:
        """The messages that are not folded yet."""
        return self.conversation.messages[cut_in(self.current, self.conversation) :]

    def due(self, tokens: int, *more: Message) -> Due:
        """When a prompt of `tokens` is due for compaction; it ends with the messages `more`."""
        # Plans include our tools before they are sent.
        unsent = 0 if self.replay.goes_with(self.current) else self.replay.schema_tokens
        return due(tokens + unsent, (*self.unfolded, *more), self.budget, self.policy)

    @property
    def style(self) -> RecordStyle:
        """The policy's style of asking for summaries and writing them."""
        return RecordStyle(self.policy)

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and id of the session."""
        return self.turn.namespace, self.turn.session

    def position(self, chain: bytes) -> int:
        """The index of the message that `chain` names; -1 when it is not on this path."""
        place = self.conversation.position(chain)
        return -1 if place is None else place

    def reach(self, compaction: Compaction | None) -> int:
        """The index of the last message that the record of `compaction` covers here; -1 without one."""
        return self.position(compaction.covers) if compaction else -1

    def decide(self, *, is_looping: bool) -> Plan:
        """The plan for the request; masks instead of a fold while the session is folded too often (F04)."""
        plan = self.plan(plan_of)
        if is_looping and isinstance(plan, Fold):
            masks = self.plan(plan_masks)
            return masks if isinstance(masks, MaskOnly) else plan
        return plan

    def for_answer(self, most_tokens: int) -> tuple[CompactionContext, Fold | MaskOnly] | None:
        """The fold, with its context, after which `max_tokens` has room beside a prompt of `most_tokens`.

        None where the upstream's refusal cannot be helped.
        """
        target = answer_target(self.budget, most_tokens)
        if target is None:
            return None
        own = replace(self, budget=replace(self.budget, target_tokens=target, ceiling_tokens=most_tokens))
        plan = own.plan(plan_for_answer)
        if isinstance(plan, MaskOnly) or (isinstance(plan, Fold) and plan.leaves_tokens <= most_tokens):
            return own, plan
        return None

    def plan(self, planner: Planner[P]) -> P:
        """The plan that keeps the client's own summary, as if pinned (F38), and the session's memory.

        Both are given up, the memory first, before the request is refused or a view exceeds the ceiling.
        """
        turn = self.turn
        # True when the client changed its earlier messages with this request.
        is_rebased = isinstance(turn, Turn) and turn.placement.rebase is not None
        own = client_summary_of(self.conversation, is_rebased)
        pins = self.pins | {self.conversation.chains[index] for index in own}
        bare = replace(self.budget, memory_tokens=0)
        wishes = dict.fromkeys([(pins, self.budget), (pins, bare), (self.pins, bare)])
        for wish, budget in wishes:
            plan = planner(
                plan_input_of(self.conversation, self.current, budget, wish, self.policy, self.count_text)
            )
            if self._is_bearable(plan):
                break
        return plan

    def _is_bearable(self, plan: Plan) -> bool:
        return fits(plan.view, self.budget) if isinstance(plan, Send) else not isinstance(plan, Refuse)

    def under(self, compaction: Compaction | None) -> ForwardedView:
        """The view with `compaction` in force."""
        return self.shown(view_of(self.conversation, compaction, self.count_text))

    def shown(self, view: View) -> ForwardedView:
        """The view as it is forwarded, with its tokens."""
        sent, tokens, budget = as_sent(view), prompt_tokens(view, self.budget), self.budget
        if self.replay.offers and view.compaction is None:
            # Planned with our tools, sent without (P1).
            tokens = self.turn.tokens
        elif self.replay.offers and not self.replay.goes_with(view.compaction):
            tokens -= self.replay.schema_tokens
        elif self.replay.offers:
            messages = replayed(sent, self.turn.conversation, self.replay.rounds)
            room = max(0, budget.ceiling_tokens - tokens)
            return ForwardedView(sent, tokens, True, messages, room, budget.ratio, budget.window.tokens)
        return ForwardedView(sent, tokens, ratio=budget.ratio, window_tokens=budget.window.tokens)

    def lightened(self) -> CompactionContext:
        """The context without the hidden rounds of earlier turns, if they leave too little room."""
        if not self.replay.rounds or self._is_bearable(self.plan(plan_of)):
            return self
        return self.bare()

    def bare(self) -> CompactionContext:
        """The context without the hidden rounds of earlier turns."""
        return replace(self, replay=replace(self.replay, rounds={}, talk=None))

    def measured(self, compaction: Compaction) -> Compaction:
        """The compaction with current tools, memory and figures; one prepared earlier has older ones."""
        compaction = compaction.offering_tools(self.replay.is_recorded)
        if compaction.kind == "message_removal" and not compaction.leaves_memory_out:
            # The current memory block (rule 14), if it fits.
            now = replace(compaction, memory=self.memory)
            if self.under(now).tokens <= self.budget.ceiling_tokens:
                compaction = now
        shown, reason = self.under(self.current).tokens, compaction.reason
        if is_same_fold(self.current, compaction) and compaction.kind == "message_removal":
            reason = BETTER_RECORD
        elif compaction.kind == "message_removal":
            _, by_code, rest = reason.partition(BY_CODE)
            reason = why(shown, self.unfolded, self.budget, self.policy, compaction.trigger) + by_code + rest
        return replace(
            compaction,
            tokens_before=self.budget.for_model(shown),
            tokens_after=self.budget.for_model(self.under(compaction).tokens),
            parents=(self.current.id,) if self.current else (),
            reason=reason,
        )

    def faults_added(self, compaction: Compaction) -> tuple[Fault, ...]:
        """Faults that a strict upstream would find in the view and not in the client's own list (rule 20)."""
        talk = self.conversation
        sent = [message.raw for message in (*talk.preamble, *talk.messages)]
        return added_faults(self.under(compaction).view.messages, sent)

    def fold_in_force(self) -> Fold | None:
        """The fold in force, without new messages; None without one."""
        current, talk = self.current, self.turn.conversation
        if current is None or current.kind != "message_removal":
            return None
        cut = cut_in(current, talk)
        return Fold(
            cut=cut,
            since=cut,
            kept=tuple(kept_in(current, talk)),
            masks=current.masks,
            summary_tokens=block_tokens_for(self.budget, sum(each.tokens for each in talk.messages[:cut])),
            target_tokens=self.budget.target_tokens,
            trigger="background",
            reason="",
            fits_now=True,
            memory_tokens=0 if current.leaves_memory_out else self.budget.memory_tokens,
        )

    @property
    def owes_entry(self) -> bool:
        """True when the record in force lacks an entry that a model was expected to write.

        Only if models write in the background, where there is time; it invalidates the cached prefix.
        """
        policy, current = self.policy, self.current
        return (
            current is not None and current.owes_entry and policy.in_background and policy.style == "record"
        )

    def source(self, fold: Fold) -> SummarySource:
        """The source of a fold's summary, without results of our own tools (C07) and hidden rounds."""
        talk = self.turn.conversation
        fresh = folded_indexes(fold, talk, self.current)
        taken = {*fresh, *fold.kept}
        seen = [index for index in range(fold.since) if index not in taken]
        order = (*seen, *fresh)
        # However little it replaces.
        largest = block_tokens_for(self.budget, 2 * self.budget.window_tokens)
        return SummarySource(
            folded=tuple(
                (talk.chains[index], without_recall_output(talk.messages[index])) for index in order
            ),
            since=len(seen),
            places=order,
            before=fold.since,
            room=max(1, largest - FRAME_TOKENS),
            previous=self.current.summary if self.current else "",
            tail=tuple(map(without_recall_output, talk.messages[fold.cut :])),
            kept=tuple(talk.messages[index] for index in sorted(fold.kept)),
            state=self._state,
            instructions="\n\n".join(text_of(message.fields) for message in talk.preamble),
            task=text_of(without_recall_output(talk.messages[task]).fields)
            if (task := opening_of(talk).task) is not None and task in fold.kept
            else "",
        )

    @property
    def _state(self) -> bytes:
        """The state that the policy's style has kept; another policy cannot read it (D17)."""
        return self.current.state if self.current and self.current.policy == self.policy.name else b""

    def kept_state(self) -> dict[str, Any]:
        """The state that the policy's preset keeps for the session, as JSON values; empty without one."""
        messages = self.turn.conversation.messages
        return state_fields(self.policy, self._state, [*map(without_recall_output, messages)])

    async def folded(self, fold: Fold, compaction_id: str, summary: SummaryText | None) -> Compaction:
        """The compaction of a fold with a summarizer's accepted text; None: written by code."""
        weight = _BLOCK_WEIGHT * weight_of(self.turn)
        return await offload(weight, self.compaction_of_fold, fold, compaction_id, summary)

    async def folded_on(self, prepared: Compaction, fold: Fold, compaction_id: str) -> Compaction:
        """The fold with a model's earlier record; code summarizes the messages that it does not cover.

        Returns the record itself if that is enough: folding the others frees next to nothing (F12), or the
        policy counts its tail from when the record was requested (B05).
        """
        cut, budget = cut_in(prepared, self.conversation), self.budget
        alone = (await self.done(CompactionContext.under, prepared)).tokens
        if fold.cut < cut or (fold.cut == cut and alone <= budget.ceiling_tokens):
            return prepared
        context, beyond = replace(self, current=prepared), replace(fold, since=cut)
        further = (await context.folded(beyond, compaction_id, None)).by(prepared)
        freed = alone - (await self.done(CompactionContext.under, further)).tokens
        is_counted = self.policy.tail_messages > 0 or self.policy.tail_ratio > 0
        is_little = is_counted or freed < max(1, budget.gain_tokens)
        is_enough = alone < budget.trigger_tokens and is_little
        return prepared if is_enough else further

    async def filled(
        self, made: Compaction, target: int, compaction_id: str, *, least: int | None = None
    ) -> Compaction:
        """The compaction with whole messages given back up to the target; its record covers them too.

        None before the message `least`, or that is folded already.
        """
        talk = self.conversation
        first = cut_in(self.current, talk) + 1 if least is None else least

        def written() -> Compaction:
            before, now = (
                plan_input_of(talk, each, self.budget, self.pins, self.policy, self.count_text)
                for each in (self.current, made)
            )
            if (fold := plan_filled(before, now, target, first)) is None:
                return made
            context = replace(self, current=made)
            filled = context.compaction_of_fold(fold, compaction_id, None).by(made).covering(made.watermark)
            return filled if context.under(filled).tokens <= max(target, now.total) else made

        return await offload(_BLOCK_WEIGHT * weight_of(self.turn), written)

    def compaction_of_fold(self, fold: Fold, compaction_id: str, summary: SummaryText | None) -> Compaction:
        """As `folded`, in this thread."""
        budget, count_text = self.budget, self.count_text
        as_user = self.policy.later_system_messages == "user"
        room = summary_room(fold, self.conversation, budget, count_text, tells_as_user=as_user)
        # The message that holds the block takes some of the room, and so does the acknowledgement, which is
        # not planned for.
        room = max(1, room - FRAME_TOKENS)
        if self.policy.strict_alternation:
            room = max(1, room - acknowledgement_tokens(count_text))
        text = summary.text if summary is not None else None
        block = self.style.written(self.source(fold), text, room, count_text)
        written = replace(
            self._form(compaction_id),
            summary=block.text,
            author="deterministic" if summary is None else "model",
            state=block.state,
            notes=block.notes,
            memory=self.memory if fold.memory_tokens else "",
            leaves_memory_out=bool(self.memory) and not fold.memory_tokens,
        )
        if summary is not None:
            # Tokens of the text and of the shown block, and the ceiling, in the model's count. A text that
            # fits below the ceiling was not guarded; a cut to the block's own bound does not count.
            said, shown = count_text(summary.text), count_text(block.text)
            guard = None
            if said > shown and said > ceiling_room(
                fold, self.conversation, budget, count_text, tells_as_user=as_user
            ):
                guard = (
                    budget.for_model(said),
                    budget.for_model(shown),
                    budget.for_model(budget.ceiling_tokens),
                )
            written = replace(
                written,
                model=summary.model,
                passes=summary.passes,
                run_id=summary.run_id,
                spent=summary.spent,
                guard_tokens=guard,
            )
        made = compaction_of(fold, self.conversation, self.current, written, budget, count_text)
        return made.owing_entry() if summary is not None and summary.is_partial else made

    def masked(self, plan: MaskOnly, compaction_id: str) -> Compaction:
        """The compaction of a plan that only masks."""
        form = self._form(compaction_id)
        return compaction_of(plan, self.conversation, self.current, form, self.budget, self.count_text)

    def _form(self, compaction_id: str) -> RecordInput:
        """The record's fields about the form of its view, for the upstream."""
        return RecordInput(
            id=compaction_id,
            policy=self.policy.name,
            alternates=self.policy.strict_alternation,
            tells_as_user=self.policy.later_system_messages == "user",
            offers_tools=self.replay.is_recorded,
            as_system=self.policy.summary_role == "system",
        )


def in_force(stored: Sequence[StoredCompaction], talk: Conversation) -> Compaction | None:
    """The compaction that applies to the conversation, of its session's, oldest first; None without one."""
    return applicable([row.compaction for row in stored if row.undone_at is None], talk)


@dataclass(frozen=True, slots=True)
class PinnedMessages:
    """Chains of pinned messages: by the user, by their text, and those left out for lack of room."""

    by_hand: frozenset[bytes]
    by_text: tuple[bytes, ...]
    left_out: tuple[bytes, ...]

    @property
    def chains(self) -> frozenset[bytes]:
        """All pins that are kept."""
        return self.by_hand.union(self.by_text)


class ContextLoader:
    """Loads compaction contexts from the store and from what is known of models."""

    def __init__(
        self,
        store: Store,
        models: ModelFacts,
        policy_for: Callable[[str, bytes | None], Policy],
        outgoing: Callable[[Headers, str], list[tuple[bytes, bytes]]],
        replays: Replays,
        *,
        text_pins_share: float,
    ) -> None:
        self._store = store
        self._models = models
        self._policy_for = policy_for
        self._outgoing = outgoing
        self._replays = replays
        self._text_pins_share = text_pins_share
        # How fast conversations grow, and how long their summaries take.
        self._paces = Paces(time.monotonic)

    async def of(
        self, turn: Subject, *, by_hand: bool = False, untouched: bool = False, at_most: int | None = None
    ) -> CompactionContext:
        """The context now: everything that may have changed is read again.

        Pins are read only if the conversation may be folded; `by_hand` even a small one may be. The session's
        memory is read if a mark may be reached, else it is that of the current view. `untouched`: the
        conversation is new, so that no compaction is looked up. `at_most` bounds the window for this call.
        """
        model, models, weight = turn.model, self._models, weight_of(turn)
        outgoing = partial(self._outgoing, turn.headers, model)
        own: bytes | None = None
        stored: Sequence[StoredCompaction] = ()
        if not untouched:
            own, stored = await self._store.compactions.with_settings(turn.namespace, turn.session)
        policy = self._policy_for(model, own)
        threshold = turn.compact_threshold if isinstance(turn, Turn) else 0
        if threshold and not 0 < policy.trigger_tokens <= threshold:
            # The API compacts in the answer that crosses the client's threshold (reference, "Compaction",
            # 2026-11): a turn waits for a summary that is being written.
            policy = replace(policy, trigger_tokens=threshold, wait_for_summary=True)
        if policy.is_off:
            # Those made before are in force again once it is on.
            stored = ()
        is_urgent = turn.tokens > URGENT_TOKENS
        window = await models.windows.window_of(model, turn.namespace, outgoing, urgent=is_urgent)
        if window.source == "default":
            window = Window(policy.assumed_window_tokens, "default")
        if at_most is not None and at_most < window.tokens:
            window = Window(at_most, "overflow")
        current, replay = None, self._replays.offered(turn, own, window.tokens)
        if stored:
            # There are no hidden rounds before the first fold.
            current = await offload(weight, in_force, stored, turn.conversation)
            replay = await self._replays.read(turn, replay, current)
        talk = replay.talk or turn.conversation
        prices = await models.prices.of(model, urgent=is_urgent) or _USUAL_PRICES
        count_text = models.tokens.counter_of(model).count_text
        goes_with_tools = replay.goes_with(current)
        budget = budget_of(
            window,
            fixed_tokens=turn.fixed_tokens
            + replay.schema_tokens
            + sum(each.tokens for each in talk.preamble),
            max_output_tokens=turn.max_output_tokens,
            ratio=models.calibrations.ratio_of(turn.namespace, model),
            policy=policy,
            steps=prices.steps,
            lookup_tokens=replay.result_tokens if goes_with_tools else 0,
            unsent_tokens=0 if goes_with_tools else replay.schema_tokens,
        )
        lead = self._paces.lead(turn.namespace, turn.session, turn.model, turn.tokens)
        budget = asking_ahead(budget, policy, lead)
        unfolded = talk.messages[cut_in(current, talk) :]
        whole = turn.tokens + replay.schema_tokens
        is_small = not (by_hand or current) and due(whole, unfolded, budget, policy) == "later"
        memory = current.memory if current else ""

        def is_near() -> bool:
            """Whether the prompt, its tool results whole, may have reached a mark."""
            blocks = (current.summary, current.memory) if current else ()
            said = unmasked_tokens(talk, current) + sum(block_tokens(block, count_text) for block in blocks)
            return due(budget.fixed_tokens + said, unfolded, budget, policy) != "later"

        if not untouched and (by_hand or await offload(weight, is_near)):
            # The memory block as a view would show it now (B16); "" without entries.
            room = memory_room(budget, policy)
            block = await block_in(self._store.journal, turn.namespace, turn.session) if room else None
            memory = shown_memory(block, room, count_text, policy.summary_tag) if block else ""
        memory_tokens = block_tokens(memory, count_text)
        if memory_tokens or replay.reads_by:
            budget = replace(budget, memory_tokens=memory_tokens, reads_by=replay.reads_by)
        context = CompactionContext(
            turn=turn,
            current=current,
            budget=budget,
            pins=frozenset() if is_small else (await self.pinned(turn, budget)).chains,
            policy=policy,
            count_text=count_text,
            outgoing=outgoing,
            prices=prices,
            paces=self._paces,
            memory=memory,
            replay=replay,
        )
        return await context.done(CompactionContext.lightened) if replay.rounds else context

    async def pinned(self, turn: Subject, budget: Budget) -> PinnedMessages:
        """The pins that a compaction with this budget would keep. StoreError."""
        talk = turn.conversation
        rows = await self._store.history.pins(turn.namespace, turn.session)
        by_hand = await self._placed(turn, [row.chain for row in rows if not row.is_lifted])
        lifted = await self._placed(turn, [row.chain for row in rows if row.is_lifted])
        if not self._text_pins_share:
            return PinnedMessages(by_hand, (), ())
        # A share of what a compaction leaves to messages.
        room = max(0, int(self._text_pins_share * (budget.target_tokens - budget.fixed_tokens)))
        return PinnedMessages(by_hand, *await offload(weight_of(turn), text_pins, talk, lifted, room))

    async def _placed(self, turn: Subject, stored: Sequence[bytes]) -> frozenset[bytes]:
        """The stored chains in the client's list: after a rebase its messages are stored under others."""
        talk = turn.conversation
        chains = frozenset(stored)
        if all(talk.position(chain) is not None for chain in chains):
            return chains
        path = await self._store.history.path(turn.namespace, turn.session, talk.head)
        return frozenset(
            chain for chain, point in zip(talk.chains, path, strict=False) if point.chain in chains
        )

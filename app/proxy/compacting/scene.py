"""What a compaction of one turn is decided and made from, gathered once.

A value; knows nothing of how it was gathered nor of what becomes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Concatenate, ParamSpec, TypeAlias, TypeVar

from app.core.budget.block import block_tokens_for
from app.core.budget.budget import Budget
from app.core.budget.derived import Costs
from app.core.history.conversation import Conversation
from app.core.history.message import Message
from app.core.recall.echo import without_echoes
from app.core.recall.rounds.hidden import replayed
from app.core.recall.rounds.offer import with_ours
from app.core.summary.source import SummarySource
from app.core.summary.styles.registry import style_of
from app.core.summary.styles.style import Style
from app.core.summary.styles.style import Written as Block
from app.core.view.clients import client_summary_of
from app.core.view.compaction import OWED, Compaction
from app.core.view.dialects.turns import FRAME_TOKENS, acknowledgement_tokens, as_sent
from app.core.view.harness import opening_of
from app.core.view.masking import text_of
from app.core.view.outcomes import Fold, MaskOnly, Plan, Refuse, Send, View
from app.core.view.plan import plan_all, plan_manual, plan_of, plan_overflow
from app.core.view.planning.reasons import what_it_saves, why
from app.core.view.planning.thinning import plan_masks
from app.core.view.policy import Policy
from app.core.view.record import (
    Written,
    ceiling_room,
    compaction_of,
    folded_indexes,
    is_kept_around,
    is_same_fold,
    summary_room,
)
from app.core.view.validity import Fault, added_faults
from app.core.view.view import CountText, cut_in, fits, kept_in, newest_user, prompt_tokens, view_of
from app.proxy.hidden.replaying import NOTHING, Replay
from app.proxy.offload import offload, weight_of
from app.proxy.subject import Subject
from app.proxy.turn import Shown, Turn

# What a record's reason says behind the numbers where no model wrote the block.
BY_CODE = "; written by code: "
# The reason of a record that takes the place of another for the same messages.
BETTER_RECORD = "a better record of what is folded already"
# Making a block of history costs a dozen times what reading it does: 5 ms for 20,000 bytes.
_BLOCK_WEIGHT = 12
A = ParamSpec("A")
P = TypeVar("P", bound=Plan)
T = TypeVar("T")
Planner: TypeAlias = Callable[
    [Conversation, Compaction | None, Budget, frozenset[bytes], Policy, CountText], P
]


@dataclass(frozen=True, slots=True)
class Told:
    """An accepted text of `model`, the last of `passes` calls of the run `run_id`.

    `rebuilt`: written from so many messages themselves; 0: from the record before and what came since.
    """

    text: str
    model: str
    passes: int
    run_id: str
    rebuilt: int = 0


@dataclass(frozen=True, slots=True)
class Scene:
    """A turn, or a branch that is read back, with its budget and the compaction in force.

    `outgoing` are headers for our own calls, `memory` is the session's memory block as the next view would
    show it, `replay` what our tools add. `is_ordered`: a person asked for the compaction, and with `focus`
    for what the summary should keep in mind.
    """

    turn: Subject
    current: Compaction | None
    budget: Budget
    pins: frozenset[bytes]
    policy: Policy
    count_text: CountText
    outgoing: tuple[tuple[bytes, bytes], ...]
    costs: Costs
    memory: str = ""
    focus: str = ""
    is_ordered: bool = False
    replay: Replay = NOTHING

    async def done(self, work: Callable[Concatenate[Scene, A], T], *args: A.args, **kwargs: A.kwargs) -> T:
        """What a method of the scene, or a function of it, gives; a large one is not asked on the loop."""
        return await offload(weight_of(self.turn), work, self, *args, **kwargs)

    @property
    def conversation(self) -> Conversation:
        """The conversation of the turn; its answers take the room of what was looked up for them."""
        return self.replay.talk or self.turn.conversation

    @property
    def tools(self) -> bytes | None:
        """The schemas that went with the last prompt: what rides on it is cached only with the same ones."""
        is_offered = self.replay.goes_with(self.current)
        return with_ours(self.turn.tools, self.replay.wire) if is_offered else self.turn.tools

    @property
    def unsent_tokens(self) -> int:
        """Tokens of our tools while they are planned with and do not go with the prompt yet."""
        return 0 if self.replay.goes_with(self.current) else self.replay.schema_tokens

    @property
    def style(self) -> Style:
        """How summaries are asked for and written under the policy."""
        return style_of(self.policy)

    def plan(self) -> Plan:
        """What to do with the request."""
        return self._planned(plan_of)

    def plan_overflow(self) -> Fold | MaskOnly | Refuse:
        """What to do after the upstream said that it is too long."""
        return self._planned(plan_overflow)

    def plan_manual(self) -> Fold | Send:
        """What to do when somebody asks for a compaction now."""
        return self._planned(plan_manual)

    def plan_all(self, stays: Callable[[Message], bool]) -> Fold:
        """What to do when a client wants one summary of everything but what `stays` with it."""
        return plan_all(self.conversation, self.current, self.budget, stays)

    def plan_masks(self) -> MaskOnly | Send:
        """What masks alone can do, for a while in which nothing should be folded."""
        return self._planned(plan_masks)

    def _planned(self, planner: Planner[P]) -> P:
        """The plan that keeps the client's own summary, as if it was pinned (F38), and the session's memory.

        Like the original task both are given up, the memory first, before anything is refused, or goes out
        above the ceiling.
        """
        own = client_summary_of(self.conversation, self._is_rebased)
        pins = self.pins | ({self.conversation.chains[index] for index in own.indexes} if own else set())
        bare = replace(self.budget, memory_tokens=0)
        wishes = dict.fromkeys([(pins, self.budget), (pins, bare), (self.pins, bare)])
        plans = (self._asked(planner, *wish) for wish in wishes)
        plan = next(plans)
        while not self._is_bearable(plan) and (other := next(plans, None)) is not None:
            plan = other
        return plan

    def _asked(self, planner: Planner[P], pins: frozenset[bytes], budget: Budget) -> P:
        return planner(self.conversation, self.current, budget, pins, self.policy, self.count_text)

    def _is_bearable(self, plan: Plan) -> bool:
        return not isinstance(plan, Refuse) and not (
            isinstance(plan, Send) and not fits(plan.view, self.budget)
        )

    @property
    def _is_rebased(self) -> bool:
        """True when the client rewrote its list with this request."""
        return isinstance(self.turn, Turn) and self.turn.placement.rebase is not None

    def under(self, compaction: Compaction | None) -> Shown:
        """What the model would see with `compaction` in force."""
        return self.shown(view_of(self.conversation, compaction, self.count_text))

    def frees_enough(self, compaction: Compaction) -> bool:
        """True when the view is below the trigger with `compaction` in force."""
        return self.under(compaction).tokens < self.budget.trigger_tokens

    def shown(self, view: View) -> Shown:
        """A view as it goes out, with its cost."""
        sent, tokens, budget = as_sent(view), prompt_tokens(view, self.budget), self.budget
        if self.replay.offers and view.compaction is None:
            # Planned with them, sent without (P1).
            tokens = self.turn.tokens
        elif self.replay.offers and not self.replay.goes_with(view.compaction):
            tokens -= self.replay.schema_tokens
        elif self.replay.offers:
            messages = replayed(sent, self.turn.conversation, self.replay.rounds)
            room = max(0, budget.ceiling_tokens - tokens)
            return Shown(sent, tokens, True, messages, room, budget.ratio, budget.window.tokens)
        return Shown(sent, tokens, ratio=budget.ratio, window_tokens=budget.window.tokens)

    def lightened(self) -> Scene:
        """Without what was looked up in earlier turns, where that leaves too little room for the rest."""
        if not self.replay.rounds or self._is_bearable(self.plan()):
            return self
        return self.bare()

    def bare(self) -> Scene:
        """Without what was looked up in earlier turns."""
        return replace(self, replay=replace(self.replay, rounds={}, talk=None))

    def masked(self, plan: MaskOnly, compaction_id: str) -> Compaction:
        """The record of a plan that asks nobody."""
        return self._record(plan, self._written(compaction_id))

    def measured(self, compaction: Compaction) -> Compaction:
        """The record with tools, memory and figures of this moment: one prepared ahead has earlier ones."""
        compaction = self._remembering(compaction.offering_tools(self.replay.is_recorded))
        shown = self.under(self.current).tokens
        before = self.budget.for_model(shown)
        after = self.budget.for_model(self.under(compaction).tokens)
        reason = compaction.reason
        if compaction.kind == "message_removal":
            unfolded = len(self.conversation.messages) - cut_in(self.current, self.conversation)
            _, by_code, rest = reason.partition(BY_CODE)
            reason = why(shown, unfolded, self.budget, self.policy, compaction.trigger) + by_code + rest
            if is_same_fold(self.current, compaction):
                reason = BETTER_RECORD
            elif self.budget.idle_seconds:
                reason += what_it_saves(before, after)
        return replace(
            compaction,
            tokens_before=before,
            tokens_after=after,
            parents=(self.current.id,) if self.current else (),
            reason=reason,
        )

    def _remembering(self, compaction: Compaction) -> Compaction:
        """New entries take effect with the compaction that is made now (rule 14), if there is room."""
        if compaction.kind != "message_removal" or compaction.leaves_memory_out:
            return compaction
        now = replace(compaction, memory=self.memory)
        return now if self.under(now).tokens <= self.budget.ceiling_tokens else compaction

    def faults_added(self, compaction: Compaction) -> tuple[Fault, ...]:
        """What a strict upstream would refuse in the view and not in what the client sent (rule 20)."""
        talk = self.conversation
        sent = [message.raw for message in (*talk.preamble, *talk.messages)]
        return added_faults(self.under(compaction).view.messages, sent)

    def standing(self) -> Fold | None:
        """The fold in force, as one that takes up no new messages; None without one."""
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

    def owes_rebuild(self, fold: Fold | None = None) -> bool:
        """True when the record of the fold (None: the one in force) should be written from the messages.

        Only where a model writes in sections, beside the turns: else nobody would have the time. The one in
        force is left alone but where code wrote it in a model's place: another text breaks the prefix.
        """
        policy, current = self.policy, self.current
        if current is None or not policy.in_background:
            return False
        is_new = fold is not None and fold.cut > fold.since
        if not is_new and current.author != "deterministic":
            return False
        return policy.style == "handoff" and current.chained + is_new >= (policy.rebuild_every or OWED)

    def source(self, fold: Fold, *, is_anew: bool = False) -> SummarySource:
        """What the summary of a fold is made of: echoes of what is stored already are not (C07).

        Nor is what was looked up. `is_anew`: all of it is to be read.
        """
        talk = self.turn.conversation
        fresh = folded_indexes(fold, talk, self.current)
        taken = {*fresh, *fold.kept}
        seen = [index for index in range(fold.since) if index not in taken]
        newest = newest_user(talk)
        order = sorted((*seen, *fresh)) if is_anew else (*seen, *fresh)
        return SummarySource(
            folded=tuple((talk.chains[index], without_echoes(talk.messages[index])) for index in order),
            since=0 if is_anew else len(seen),
            is_anew=is_anew,
            previous=self.current.summary if self.current else "",
            newest_request=_text(talk, newest),
            tail=tuple(map(without_echoes, talk.messages[fold.cut :])),
            is_running=is_kept_around(fold, talk),
            state=self._state,
            instructions="\n\n".join(text_of(message.fields) for message in talk.preamble),
            task=_text(talk, task) if (task := opening_of(talk).task) in fold.kept else "",
        )

    @property
    def _state(self) -> bytes:
        """What the policy's style has kept; another could not read it, so it is dropped (D17)."""
        return self.current.state if self.current and self.current.policy == self.policy.name else b""

    def kept_state(self) -> bytes:
        """The state as it stands now; b"" under a preset that keeps none.

        `working_state` notes messages as they pass (D02): what it would keep of all of them.
        """
        match self.policy.style:
            case "batch":
                return b""
            case "working_state" if self.turn.conversation.messages:
                everything = self.plan_all(lambda _: False)
                return self._block(everything, self.source(everything), None).state
            case _:
                return self._state

    def fresh(self, fold: Fold) -> list[Message]:
        """The messages of the fold that no summary has seen yet."""
        messages = self.conversation.messages
        return [messages[index] for index in folded_indexes(fold, self.conversation, self.current)]

    async def folded(self, fold: Fold, compaction_id: str, told: Told | None) -> Compaction:
        """The record of a fold with a summarizer's accepted text, or without one (`told` None)."""
        weight = _BLOCK_WEIGHT * weight_of(self.turn)
        return await offload(weight, self._folded, fold, compaction_id, told)

    def _folded(self, fold: Fold, compaction_id: str, told: Told | None) -> Compaction:
        block = self._block(fold, self.source(fold), told)
        written = replace(
            self._written(compaction_id),
            summary=block.text,
            author="deterministic" if told is None else "model",
            state=block.state,
            notes=block.notes,
            memory=self.memory if fold.memory_tokens else "",
            leaves_memory_out=bool(self.memory) and not fold.memory_tokens,
        )
        if told is not None:
            guard = self._guard(fold, told, block)
            written = replace(
                written, model=told.model, passes=told.passes, run_id=told.run_id, guard_tokens=guard
            )
        if told is not None and told.rebuilt:
            written = replace(written, rebuilt=told.rebuilt, chained=0)
        elif self.current is not None:
            written = replace(written, chained=written.chained + 1)
        return self._record(fold, written)

    def _written(self, compaction_id: str) -> Written:
        """What a record says of the view it gives, for the server that it goes to."""
        return Written(
            id=compaction_id,
            policy=self.policy.name,
            alternates=self.policy.strict_alternation,
            tells_as_user=self._tells_as_user,
            offers_tools=self.replay.is_recorded,
            chained=self.current.chained if self.current else 0,
            as_system=self.policy.summary_role == "system",
        )

    @property
    def _tells_as_user(self) -> bool:
        return self.policy.later_system_messages == "user"

    def _guard(self, fold: Fold, told: Told, block: Block) -> tuple[int, int, int] | None:
        """What was told, what is shown of it and the ceiling, in the model's count; None where it all fits.

        A block that is only cut to its own bound needed no guard.
        """
        said, shown = self.count_text(told.text), self.count_text(block.text)
        if said <= shown or said <= self._room(ceiling_room, fold):
            return None
        before, after, ceiling = (
            self.budget.for_model(tokens) for tokens in (said, shown, self.budget.ceiling_tokens)
        )
        return before, after, ceiling

    def _block(self, fold: Fold, source: SummarySource, told: Told | None) -> Block:
        # Of the room the message that holds the block takes its own.
        room = max(1, self._room(summary_room, fold) - FRAME_TOKENS)
        if self.policy.strict_alternation:
            # Planned without it: the acknowledgement comes out of the summary's room.
            room = max(1, room - acknowledgement_tokens(self.count_text))
        text = told.text if told is not None else None
        return self.style.written(source, text, room, self.count_text)

    def _room(self, room_of: Callable[..., int], fold: Fold) -> int:
        talk, as_user = self.conversation, self._tells_as_user
        return room_of(fold, talk, self.budget, self.count_text, tells_as_user=as_user)

    def _record(self, plan: Fold | MaskOnly, written: Written) -> Compaction:
        return compaction_of(plan, self.conversation, self.current, written, self.budget, self.count_text)


def _text(talk: Conversation, index: int | None) -> str:
    """The text of a user message, its parts joined; what is not text says nothing here."""
    if index is None:
        return ""
    return text_of(without_echoes(talk.messages[index]).fields)

"""A recorded conversation under a policy, turn by turn: what would be compacted, sent and paid. Pure.

The same budget, plans and records as in the running proxy, without an upstream, a store or a clock: summaries
are those that code writes, and times are those that were recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from palimpsest.core.budget.budget import Budget, Window, memory_room
from palimpsest.core.budget.due import due
from palimpsest.core.budget.economy import prompt_cost
from palimpsest.core.budget.upstream_counts import as_theirs
from palimpsest.core.history.message import Conversation, Message
from palimpsest.core.policy import Policy
from palimpsest.core.runtime.recorded_turns import RecordedTurn, ReplayFacts
from palimpsest.core.summary.rolling.memory_block import MemoryBlock, shown_memory, with_entry
from palimpsest.core.view.compaction import Compaction, CompactionKind
from palimpsest.core.view.estimate import Reported
from palimpsest.core.view.outcomes import Fold, MaskOnly, Plan, Refuse, Send, View
from palimpsest.core.view.record import is_same_fold
from palimpsest.core.view.text_pins import room_for_text_pins, text_pins
from palimpsest.core.view.view import (
    CountText,
    applicable,
    block_tokens,
    cut_in,
    folded_in,
    message_tokens,
    rendered,
    unmasked_tokens,
)
from palimpsest.core.wire.chat import CHAT
from palimpsest.core.wire.request import Wire
from palimpsest.proxy.compacting.breaker import LoopBreaker
from palimpsest.proxy.compacting.context_loader import NEWEST
from palimpsest.proxy.compacting.turn_budget import (
    WeighedTurn,
    asked_policy,
    blocks_of,
    judged,
    turn_budget,
    with_memory,
)
from palimpsest.proxy.compacting.viewing import MOST_STEPS
from palimpsest.proxy.compaction_context import CompactionContext
from palimpsest.proxy.incoming import Headers
from palimpsest.proxy.lookups.hidden_rounds import Replay
from palimpsest.proxy.turn import Subject

_MILLION = 1e6
_REMEMBERED_TEXTS = 20_000


@dataclass(frozen=True, slots=True)
class ReplayInput:
    """A conversation, its turns in order with the instructions of each, and what they were decided by."""

    talk: Conversation
    turns: Sequence[tuple[RecordedTurn, tuple[Message, ...]]]
    facts: ReplayFacts
    count_text: CountText


@dataclass(frozen=True, slots=True)
class ReplayedCompaction:
    """A compaction in turn `n`. Tokens as the model counts; `folded`: indexes that the summary replaces."""

    n: int
    kind: CompactionKind
    tokens_before: int
    tokens_after: int
    messages_folded: int
    folded: tuple[int, ...]
    masked: int
    reason: str


@dataclass(frozen=True, slots=True)
class ReplayedPolicy:
    """What a policy does over all turns. Tokens as the model counts.

    `tokens_cached` of those sent begin as the prompt before did, while a cache would have it. `cost` is that
    of the prompts, None without prices. `unfit` are the turns that no view fits. `view` is that of the last
    turn: `verbatim` of its `messages` are in it word for word.
    """

    policy: Policy
    window: Window
    compactions: tuple[ReplayedCompaction, ...]
    turns: int
    tokens_sent: int
    tokens_cached: int
    cost: float | None
    unfit: tuple[int, ...]
    messages: int
    verbatim: int
    view: View


def replayed(
    given: ReplayInput, policy: Policy, window: Window, passed: Callable[[int], None]
) -> ReplayedPolicy:
    """What this policy does with the conversation in this window; it has at least one turn.

    `passed` is called with 1 after each turn.
    """
    return _PolicyReplay(given, policy, window).outcome(passed)


@dataclass(frozen=True, slots=True)
class ReplayedTurn:
    """A recorded turn as the subject of a view; see `Subject`."""

    recorded: RecordedTurn
    conversation: Conversation
    tokens: int
    namespace: str = ""
    session: str = ""
    wire: Wire = CHAT
    tools: bytes | None = None
    headers: Headers = ()

    @property
    def model(self) -> str:
        """The model asked for."""
        return self.recorded.model

    @property
    def fixed_tokens(self) -> int:
        """Tool schemas and framing, in our count."""
        return self.recorded.fixed_tokens

    @property
    def max_output_tokens(self) -> int | None:
        """The request's own limit."""
        return self.recorded.max_output_tokens

    @property
    def replay(self) -> Replay:
        """What our tools add."""
        tools = self.recorded.tools
        return Replay(
            tools.schema_tokens, tools.is_recorded, tools.as_recorded, result_tokens=tools.result_tokens
        )


@dataclass(frozen=True, slots=True)
class _Prompt:
    """What a turn sends: `said` are the tokens of its messages without instructions, `tokens` all."""

    turn: ReplayedTurn
    force: Compaction | None
    said: int
    tokens: int


class _PolicyReplay:
    def __init__(self, given: ReplayInput, policy: Policy, window: Window) -> None:
        self._given = given
        self._facts = given.facts
        self._policy = policy
        self._window = window
        # Most texts are counted again and again: the block at each turn, quotes at each fold.
        self._count_text = lru_cache(_REMEMBERED_TEXTS)(given.count_text)
        self._before = [0]
        for message in given.talk.messages:
            self._before.append(self._before[-1] + message.tokens)
        # The compaction in force, and the tokens of its blocks.
        self._force: Compaction | None = None
        self._blocks = (0, 0)
        self._made: list[Compaction] = []
        self._compactions: list[ReplayedCompaction] = []
        # Only the last: a prompt names all its messages.
        self._last: _Prompt | None = None
        self._sent = 0
        self._unfit: list[int] = []
        self._cached = 0
        self._cost = 0.0
        self._now = 0.0
        self._loops = LoopBreaker(self._facts.breaker_seconds, lambda: self._now)

    def outcome(self, passed: Callable[[int], None]) -> ReplayedPolicy:
        for recorded, preamble in self._given.turns:
            self._take(self._turn(recorded, preamble))
            passed(1)
        last = self._turn(*self._given.turns[-1])
        view = rendered(last.conversation, self._force, self._count_text)
        kept = sum(part.index is not None and not part.masked for part in view.parts)
        return ReplayedPolicy(
            policy=self._policy,
            window=self._window,
            compactions=tuple(self._compactions),
            turns=len(self._given.turns),
            tokens_sent=self._sent,
            tokens_cached=self._cached,
            cost=self._cost / _MILLION if self._facts.prices else None,
            unfit=tuple(self._unfit),
            messages=len(last.conversation.messages),
            verbatim=kept,
            view=view,
        )

    def _put_in_force(self, compaction: Compaction | None) -> None:
        self._force, self._blocks = compaction, blocks_of(compaction, self._count_text)

    def _for_model(self, tokens: int) -> int:
        return as_theirs(tokens, self._facts.ratio)

    def _turn(self, recorded: RecordedTurn, preamble: tuple[Message, ...]) -> ReplayedTurn:
        talk, count = self._given.talk, recorded.messages
        said = Conversation(preamble, talk.messages[:count], talk.chains[:count])
        tokens = sum(message.tokens for message in preamble) + self._before[count]
        return ReplayedTurn(recorded, said, recorded.fixed_tokens + tokens)

    def _take(self, turn: ReplayedTurn) -> None:
        """Plan and carry out the turn as `ViewPlanner` does, and count what it sends."""
        self._now = turn.recorded.started_at
        is_behind = self._last and turn.recorded.messages < self._last.turn.recorded.messages
        if self._made and (is_behind or self._force is not self._made[-1]):
            # The client went back to an earlier message, or forward again.
            self._put_in_force(applicable(self._made, turn.conversation))
        for _ in range(MOST_STEPS):
            context = self._context_if_due(turn)
            plan = self._planned(context) if context else None
            if isinstance(plan, Refuse):
                self._unfit.append(turn.recorded.n)
                return
            if context is None or plan is None or isinstance(plan, Send):
                break
            if not self._adopted(context, self._carried_out(context, plan)):
                break
        self._send(turn)

    def _context_if_due(self, turn: ReplayedTurn) -> CompactionContext | None:
        """The context of a turn that is to be compacted, as `ContextLoader` loads it; None for any other."""
        policy = asked_policy(self._policy, turn.recorded.compact_threshold)
        talk, replay, force = turn.conversation, turn.replay, self._force
        weighed = WeighedTurn(turn, force, replay, *self._blocks, self._facts.ratio)
        said = weighed.block_tokens + unmasked_tokens(talk, force)
        budget = self._budget(weighed, policy, said)
        unfolded = talk.messages[cut_in(force, talk) :]
        if due(budget.fixed_tokens + said, unfolded, budget, policy) != "now":
            return None
        memory = self._memory(budget, policy)
        tokens = block_tokens(memory, self._count_text)
        budget = with_memory(budget, tokens, replay.reads_by)
        return CompactionContext(
            turn=turn,
            current=force,
            budget=budget,
            pins=self._pins(talk, budget),
            # A cold cache holds no prompt to append a question to.
            policy=replace(policy, reuse_prompt_cache=False) if budget.idle_seconds else policy,
            count_text=self._count_text,
            outgoing=list,
            costs=self._facts.costs,
            memory=memory,
            replay=replay,
        )

    def _budget(self, weighed: WeighedTurn, policy: Policy, said: int) -> Budget:
        costs, before = self._facts.costs, self._last.turn if self._last else None
        budget = turn_budget(weighed, self._window, policy, costs)
        idle = self._idle_seconds(weighed.turn, before)
        if policy.objective == "cost" and costs.cache_seconds and idle >= costs.cache_seconds:
            cold = turn_budget(weighed, self._window, policy, costs, costs.cache_seconds)
            if cold.fixed_tokens + said >= cold.trigger_tokens:
                budget = replace(cold, idle_seconds=idle)
        if policy.estimator == "tiktoken":
            return budget
        view = rendered(weighed.talk, self._force, self._count_text)
        return judged(weighed, view, budget, policy, self._reported(weighed))

    def _idle_seconds(self, turn: Subject, before: ReplayedTurn | None) -> int:
        """The pause since the turn before, where it is known and was the same model's; else 0."""
        if before is None or before.recorded.finished_at is None or before.model != turn.model:
            return 0
        is_near = before.recorded.messages > len(turn.conversation.messages) - NEWEST
        return int(self._now - before.recorded.finished_at) if is_near else 0

    def _reported(self, weighed: WeighedTurn) -> Reported | None:
        """What the upstream would have stated for the prompt before, from what it stated for the sent one."""
        last = self._last
        if last is None or last.force is not weighed.current or last.turn.model != weighed.turn.model:
            return None
        theirs, ours = last.turn.recorded.prompt_tokens, last.turn.recorded.tokens_sent
        return Reported(round(theirs / ours * last.tokens), last.tokens) if theirs and ours else None

    def _memory(self, budget: Budget, policy: Policy) -> str:
        """The memory block as it was then; "" under a policy that writes no entries, where the other did."""
        room = memory_room(budget, policy)
        is_others = self._facts.policy.memory_entries and not policy.memory_entries
        if not room or is_others:
            return ""
        rows = [row for row in self._facts.memory if row.at <= self._now]
        block = MemoryBlock("\n".join(row.text for row in rows if row.is_block))
        for row in rows:
            block = block if row.is_block else with_entry(block, row.text)
        return shown_memory(block, room, self._count_text, policy.summary_tag)

    def _pins(self, talk: Conversation, budget: Budget) -> frozenset[bytes]:
        rows = [row for row in self._facts.pins if row.at <= self._now and row.message < len(talk.messages)]
        by_hand = frozenset(talk.chains[row.message] for row in rows if not row.is_lifted)
        lifted = frozenset(talk.chains[row.message] for row in rows if row.is_lifted)
        if not self._facts.text_pins_share:
            return by_hand
        room = room_for_text_pins(budget, self._facts.text_pins_share)
        return by_hand.union(talk.chains[at] for at in text_pins(talk, lifted, room).kept)

    def _planned(self, context: CompactionContext) -> Plan:
        plan = context.plan()
        if isinstance(plan, Fold) and self._loops.is_open(""):
            masks = context.plan_masks()
            return masks if isinstance(masks, MaskOnly) else plan
        return plan

    def _carried_out(self, context: CompactionContext, plan: Fold | MaskOnly) -> Compaction:
        ident = f"replayed-{len(self._made) + 1}"
        if isinstance(plan, MaskOnly):
            return context.masked(plan, ident)
        return context.compaction_of_fold(plan, ident, None)

    def _adopted(self, context: CompactionContext, compaction: Compaction) -> bool:
        """Put the compaction in force; False when its view would be refused, so that the other stays."""
        made = context.measured(compaction)
        if context.faults_added(made):
            return False
        talk = context.conversation
        if made.kind == "message_removal" and not is_same_fold(self._force, made):
            self._loops.folded("", sum(message.role == "assistant" for message in talk.messages))
        self._made.append(made)
        self._put_in_force(made)
        assert isinstance(context.turn, ReplayedTurn)
        self._compactions.append(
            ReplayedCompaction(
                context.turn.recorded.n,
                made.kind,
                made.tokens_before,
                made.tokens_after,
                made.messages_folded,
                folded_in(made, talk),
                len(made.masks),
                made.reason,
            )
        )
        return True

    def _send(self, turn: ReplayedTurn) -> None:
        prompt = self._prompt(turn)
        before = self._last
        sent, cached = self._for_model(prompt.tokens), self._for_model(self._shared(before, prompt))
        if sent > self._window.tokens:
            self._unfit.append(turn.recorded.n)
        self._cached += cached
        if self._facts.prices:
            self._cost += prompt_cost(sent, cached, sent - cached, self._facts.prices)
        self._sent += sent
        self._last = prompt

    def _prompt(self, turn: ReplayedTurn) -> _Prompt:
        before, force = self._last, self._force
        count = turn.recorded.messages
        is_reshaped = force is not None and (force.alternates or force.tells_as_user)
        is_other = before is None or before.force is not force or count < before.turn.recorded.messages
        if before is None or is_other or is_reshaped:
            said = message_tokens(rendered(turn.conversation, force, self._count_text))
        else:
            # Between two compactions a view only grows at its end.
            said = before.said + self._before[count] - self._before[before.turn.recorded.messages]
        ours = turn.replay.schema_tokens if turn.replay.goes_with(force) else 0
        preamble = sum(message.tokens for message in turn.conversation.preamble)
        return _Prompt(turn, force, said, turn.fixed_tokens + ours + preamble + said)

    def _shared(self, before: _Prompt | None, now: _Prompt) -> int:
        """Tokens with which both prompts begin, while the cache of the first lives."""
        if before is None or before.turn.model != now.turn.model:
            return 0
        lives = self._facts.cache_seconds
        ended = before.turn.recorded.finished_at or before.turn.recorded.started_at
        if (lives and self._now - ended >= lives) or before.turn.fixed_tokens != now.turn.fixed_tokens:
            return 0
        old, new = before.turn.conversation, now.turn.conversation
        if before.force is now.force and old.preamble == new.preamble:
            return min(before.tokens, now.tokens)
        talks = ((each.turn.conversation, each.force) for each in (before, now))
        was, shown = (rendered(talk, force, self._count_text).parts for talk, force in talks)
        same = 0
        for one, other in zip(was, shown, strict=False):
            if one.raw != other.raw:
                break
            same += other.tokens
        return now.turn.fixed_tokens + same

"""Loads the CompactionContext of a turn: window, calibration, budget, the compaction in force, pins."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from palimpsest.core.budget.budget import Budget, Window, asking_ahead, budget_of, due, memory_room
from palimpsest.core.budget.measured import Paces
from palimpsest.core.history.message import Conversation
from palimpsest.core.policy import Policy
from palimpsest.core.summary.memory_block import shown_memory
from palimpsest.core.view.compaction import Compaction
from palimpsest.core.view.text_pins import text_pins
from palimpsest.core.view.view import CountText, block_tokens, cut_in, unmasked_tokens
from palimpsest.proxy.compacting.costs import ModelPrices
from palimpsest.proxy.compacting.windows import Windows
from palimpsest.proxy.compaction_context import CompactionContext, in_force
from palimpsest.proxy.incoming import Headers
from palimpsest.proxy.jobs import offload
from palimpsest.proxy.journal_rows import block_in
from palimpsest.proxy.lookups.hidden_rounds import Replays
from palimpsest.proxy.token_counts import Calibrations, ModelTokens
from palimpsest.proxy.turn import Subject, Turn, weight_of
from palimpsest.storage.compactions import StoredCompaction
from palimpsest.storage.store import Store

# A prompt below this fits every window in use: it does not wait for the upstream to state one (tokens).
URGENT_TOKENS = 1_000


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is known of models: windows, calibrations, our token counters, prices."""

    windows: Windows
    calibrations: Calibrations
    tokens: ModelTokens
    prices: ModelPrices


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
        policy = _asked_policy(self._policy_for(model, own), turn)
        window = await models.windows.window_of(
            model, turn.namespace, outgoing, urgent=turn.tokens > URGENT_TOKENS
        )
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
        prices, count_text = models.prices.of(model), models.tokens.counter_of(model).count_text
        goes_with_tools = replay.goes_with(current)
        budget = budget_of(
            window,
            fixed_tokens=turn.fixed_tokens
            + replay.schema_tokens
            + sum(each.tokens for each in talk.preamble),
            max_output_tokens=turn.max_output_tokens,
            ratio=models.calibrations.ratio_of(turn.namespace, model),
            policy=policy,
            step_tokens=prices.step_tokens,
            lookup_tokens=replay.result_tokens if goes_with_tools else 0,
            unsent_tokens=0 if goes_with_tools else replay.schema_tokens,
        )
        budget = asking_ahead(budget, policy, self._paces.lead(turn))
        unfolded = talk.messages[cut_in(current, talk) :]
        whole = turn.tokens + replay.schema_tokens
        is_small = not (by_hand or current) and due(whole, unfolded, budget, policy) == "later"
        memory = current.memory if current else ""
        if not untouched and (
            by_hand or await offload(weight, _is_near, talk, current, budget, policy, count_text)
        ):
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


def _asked_policy(policy: Policy, turn: Subject) -> Policy:
    """The policy with the client's compaction threshold as trigger, where that is lower.

    The API compacts in the answer that crosses the threshold (reference, "Compaction", 2026-11): a turn waits
    for a summary that is being written.
    """
    threshold = turn.compact_threshold if isinstance(turn, Turn) else 0
    if not threshold or 0 < policy.trigger_tokens <= threshold:
        return policy
    return replace(policy, trigger_tokens=threshold, wait_for_summary=True)


def _is_near(
    talk: Conversation, current: Compaction | None, budget: Budget, policy: Policy, count_text: CountText
) -> bool:
    """True when the prompt, its tool results whole, may have reached a mark."""
    blocks = (current.summary, current.memory) if current else ()
    said = unmasked_tokens(talk, current) + sum(block_tokens(block, count_text) for block in blocks)
    return due(budget.fixed_tokens + said, talk.messages[cut_in(current, talk) :], budget, policy) != "later"

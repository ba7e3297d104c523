"""Gathers the scene of a turn: window, calibration, budget, the compaction in force, pins.

Knows nothing of what is decided from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from app.core.budget.budget import Budget, Window, budget_of, memory_room
from app.core.budget.derived import Costs, derived
from app.core.budget.estimate import Reported, by_usage, guess, judged_by
from app.core.budget.looking_up import planned_with, with_room
from app.core.history.conversation import Conversation
from app.core.summary.rolling.memory_block import shown_memory
from app.core.view.compaction import Compaction
from app.core.view.policy import Policy
from app.core.view.text_pins import room_for_text_pins, text_pins
from app.core.view.view import (
    CountText,
    always_kept_tokens,
    applicable,
    block_tokens,
    prompt_tokens,
    unmasked_tokens,
    view_of,
)
from app.proxy.compacting.calibrations import Calibrations
from app.proxy.compacting.costs import ModelCosts
from app.proxy.compacting.model_tokens import ModelTokens
from app.proxy.compacting.scene import Scene
from app.proxy.compacting.windows import Windows
from app.proxy.hidden.replaying import Replay, Replays
from app.proxy.incoming import Headers
from app.proxy.memories import block_in
from app.proxy.offload import offload, weight_of
from app.proxy.subject import Subject
from app.proxy.turn import Turn
from app.storage.contract import Store, StoredCompaction

# A prompt below this fits every window in use, so nobody waits for the upstream to state it (tokens).
URGENT_TOKENS = 1_000
# The branch's last prompt ended within so many messages of its end.
NEWEST = 8
# Below this share of the window nothing is compacted whatever it costs, so that the costs are not looked at.
DERIVED_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is known of models: their windows, how they count against us, our counts, what they cost."""

    windows: Windows
    calibrations: Calibrations
    tokens: ModelTokens
    costs: ModelCosts


@dataclass(frozen=True, slots=True)
class Pinned:
    """What stays word for word: pinned by hand, and by its own text; the latter with what has no room."""

    by_hand: frozenset[bytes]
    by_text: tuple[bytes, ...]
    left_out: tuple[bytes, ...]

    @property
    def chains(self) -> frozenset[bytes]:
        """All that stay."""
        return self.by_hand.union(self.by_text)


@dataclass(frozen=True, slots=True)
class _Standing:
    """A turn under what is in force; `summary` and `memory` are the tokens of its blocks."""

    turn: Subject
    current: Compaction | None
    replay: Replay
    summary: int
    memory: int

    @property
    def block_tokens(self) -> int:
        """Tokens of both blocks."""
        return self.summary + self.memory

    @property
    def talk(self) -> Conversation:
        """Its conversation, as it is weighed."""
        return self.replay.talk or self.turn.conversation


class Scenes:
    """One per application."""

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
        self._replays = replays
        self._windows = models.windows
        self._calibrations = models.calibrations
        self._tokens = models.tokens
        self._costs = models.costs
        self._policy_for = policy_for
        self._outgoing = outgoing
        self._text_pins_share = text_pins_share

    async def of(
        self, turn: Subject, *, by_hand: bool = False, untouched: bool = False, at_most: int | None = None
    ) -> Scene:
        """The scene now: everything that can have changed is read again.

        Pins are left out where nothing will be folded; `by_hand` a small conversation may be. The session's
        memory is read where a mark may be reached, else it is what the current view shows. `untouched` says
        that no compaction can be stored of the conversation, so that none is looked for. `at_most`: for this
        once the window is no larger, whatever is known of it.
        """
        model, headers, weight = turn.model, self._outgoing(turn.headers, turn.model), weight_of(turn)
        own = None if untouched else await self._store.settings_of(turn.namespace, turn.session)
        policy = _as_asked(self._policy_for(model, own), turn)
        window = await self._window(turn, headers, policy, at_most)
        stored = () if untouched else await self._store.compactions(turn.namespace, turn.session)
        current = await offload(weight, in_force, stored, turn) if stored else None
        replay = self._replays.offered(turn, own, window.tokens)
        if stored:
            # Nothing is looked up before something was folded.
            replay = await self._replays.read(turn, replay, current)
        standing = _Standing(turn, current, replay, *await offload(weight, self._blocks, model, current))
        costs = self._costs.of(model)
        said = standing.block_tokens + await offload(weight, unmasked_tokens, standing.talk, current)
        budget = await self._marked(standing, window, policy, costs, said)
        # Of a cold cache there is nothing to ride on.
        policy = replace(policy, rides=policy.rides and not budget.idle_seconds)
        is_short = turn.tokens + replay.schema_tokens < budget.precompute_tokens
        is_small = not (by_hand or current or policy.trigger_messages) and is_short
        count_text = self._tokens.counter_of(model).count_text
        memory = current.memory if current else ""
        is_far = budget.fixed_tokens + said < budget.precompute_tokens
        if not untouched and (by_hand or policy.trigger_messages or not is_far):
            memory = await self._memory(turn, budget, policy, count_text)
        scene = Scene(
            turn=turn,
            current=current,
            budget=replace(budget, memory_tokens=block_tokens(memory, count_text), reads_by=replay.reads_by),
            pins=frozenset() if is_small else (await self.pinned(turn, budget)).chains,
            policy=policy,
            count_text=count_text,
            outgoing=tuple(headers),
            costs=costs,
            memory=memory,
            replay=replay,
        )
        return await scene.done(Scene.lightened) if replay.rounds else scene

    def ratio_of(self, namespace: str, model: str) -> float:
        """The model's tokens for one of ours, as far as the namespace's prompts have taught it."""
        return self._calibrations.ratio_of(namespace, model)

    async def _window(
        self, turn: Subject, headers: list[tuple[bytes, bytes]], policy: Policy, at_most: int | None
    ) -> Window:
        urgent = turn.tokens > URGENT_TOKENS
        window = await self._windows.window_of(turn.model, turn.namespace, headers, urgent=urgent)
        if window.source == "default":
            window = Window(policy.assumed_window_tokens, "default")
        return Window(at_most, "overflow") if at_most is not None and at_most < window.tokens else window

    def _blocks(self, model: str, current: Compaction | None) -> tuple[int, int]:
        """Tokens of summary and memory in the view in force."""
        count_text = self._tokens.counter_of(model).count_text
        texts = (current.summary, current.memory) if current else ("", "")
        summary, memory = (block_tokens(text, count_text) for text in texts)
        return summary, memory

    async def _marked(
        self, standing: _Standing, window: Window, policy: Policy, costs: Costs, said: int
    ) -> Budget:
        """The budget with the marks of this moment; the messages in the view take at most `said` tokens."""
        turn, weight = standing.turn, weight_of(standing.turn)
        budget = await offload(weight, self._budget, standing, window, policy, costs)
        if policy.objective == "cost" and costs.cache_seconds and isinstance(turn, Turn) and not turn.is_new:
            cold = await offload(weight, self._budget, standing, window, policy, costs, costs.cache_seconds)
            if cold.fixed_tokens + said >= cold.trigger_tokens:
                budget = await self._cooled(turn, budget, cold)
        return budget if policy.estimator == "tiktoken" else await self._judged(standing, budget, policy)

    async def _cooled(self, turn: Turn, budget: Budget, cold: Budget) -> Budget:
        """`cold` where the upstream's cache has forgotten the branch since its last prompt, else `budget`.

        A branch whose last prompt is not known, or was another model's, counts as warm.
        """
        asked = await self._store.asked(turn.namespace, turn.session, turn.conversation.chains[-NEWEST:])
        if asked is None or asked.model != turn.model or asked.finished_at is None:
            return budget
        idle = int(turn.started_at - asked.finished_at)
        return replace(cold, idle_seconds=idle) if idle >= cold.idle_seconds else budget

    def _budget(
        self, standing: _Standing, window: Window, policy: Policy, costs: Costs, idle_seconds: int = 0
    ) -> Budget:
        """The room there is, its marks derived from costs where they may be reached."""
        turn, talk = standing.turn, standing.talk
        said = sum(message.tokens for message in talk.preamble)
        budget = budget_of(
            window,
            fixed_tokens=turn.fixed_tokens + standing.replay.schema_tokens + said,
            max_output_tokens=turn.max_output_tokens,
            ratio=self.ratio_of(turn.namespace, turn.model),
            policy=policy,
        )
        if standing.current is None and turn.tokens < DERIVED_SHARE * budget.window_tokens:
            return budget
        kept = always_kept_tokens(talk, policy) + standing.memory
        budget = derived(budget, talk, (kept, standing.summary), policy, costs, idle_seconds)
        replay = standing.replay
        if replay.goes_with(standing.current):
            return with_room(budget, replay.result_tokens)
        return planned_with(budget, replay.schema_tokens)

    async def _judged(self, standing: _Standing, budget: Budget, policy: Policy) -> Budget:
        """The budget with its marks where the policy's estimator has them (B04)."""
        turn, talk = standing.turn, standing.talk
        count_text = self._tokens.counter_of(turn.model).count_text
        view = await offload(weight_of(turn), view_of, talk, standing.current, count_text)
        counted = prompt_tokens(view, budget)
        guessed = await offload(weight_of(turn), guess, policy.estimator, view, talk, budget)
        if guessed is None:
            reported = await self._reported(turn, standing.current)
            guessed = by_usage(reported, counted, budget) if reported else counted
        return judged_by(budget, counted, guessed)

    async def _reported(self, turn: Subject, current: Compaction | None) -> Reported | None:
        """What the upstream said of the branch's last prompt, if it went out under the same compaction."""
        newest = turn.conversation.chains[-NEWEST:]
        asked = await self._store.asked(turn.namespace, turn.session, newest)
        if asked is None or asked.model != turn.model:
            return None
        if asked.compaction != (current.id if current else None):
            # What came since cannot be told from what was folded.
            return None
        if not asked.prompt_tokens or not asked.tokens_forwarded:
            return None
        return Reported(asked.prompt_tokens, asked.tokens_forwarded)

    async def _memory(self, turn: Subject, budget: Budget, policy: Policy, count_text: CountText) -> str:
        """The session's memory block as a view would show it now (B16); "" without entries."""
        room = memory_room(budget, policy)
        if not room:
            return ""
        block = await block_in(self._store, turn.namespace, turn.session)
        return shown_memory(block, room, count_text, policy.summary_tag)

    async def pinned(self, turn: Subject, budget: Budget) -> Pinned:
        """The pins of a conversation, as a compaction with this budget would keep them. StoreError."""
        talk = turn.conversation
        rows = await self._store.pins(turn.namespace, turn.session)
        by_hand = await self._placed(turn, [row.chain for row in rows if not row.is_lifted])
        lifted = await self._placed(turn, [row.chain for row in rows if row.is_lifted])
        if not self._text_pins_share:
            return Pinned(by_hand, (), ())
        room = room_for_text_pins(budget, self._text_pins_share)
        found = await offload(weight_of(turn), text_pins, talk, lifted, room)
        kept, left_out = (tuple(talk.chains[at] for at in each) for each in (found.kept, found.left_out))
        return Pinned(by_hand, kept, left_out)

    async def _placed(self, turn: Subject, stored: Sequence[bytes]) -> frozenset[bytes]:
        """By their places in the client's list: where it jumped, messages are stored under other digests."""
        talk = turn.conversation
        chains = frozenset(stored)
        if all(talk.position(chain) is not None for chain in chains):
            return chains
        path = await self._store.path(turn.namespace, turn.session, talk.head)
        return frozenset(
            chain for chain, point in zip(talk.chains, path, strict=False) if point.chain in chains
        )


def _as_asked(policy: Policy, turn: Subject) -> Policy:
    """The policy with the mark that the client asks for, where that is lower.

    The API compacts in the answer that crosses it (reference, "Compaction", 2026-11), so that a turn waits
    for a summary that is on its way.
    """
    asked = turn.compact_threshold if isinstance(turn, Turn) else 0
    if not asked or 0 < policy.trigger_tokens <= asked:
        return policy
    return replace(policy, trigger_tokens=asked, waits=True)


def in_force(stored: Sequence[StoredCompaction], turn: Subject) -> Compaction | None:
    """The compaction that applies, also one made a moment ago in the session's first turn."""
    standing = [row.compaction for row in stored if row.undone_at is None]
    return applicable(standing, turn.conversation) if standing else None

"""Gathers the scene of a turn: window, calibration, budget, the compaction in force, pins.

Knows nothing of what is decided from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.core.budget.budget import budget_of
from app.core.budget.derived import derived
from app.core.view.compaction import Compaction
from app.core.view.policy import Policy
from app.core.view.view import always_kept_tokens, applicable, block_tokens
from app.proxy.compacting.calibrations import Calibrations
from app.proxy.compacting.costs import ModelCosts
from app.proxy.compacting.model_tokens import ModelTokens
from app.proxy.compacting.scene import Scene
from app.proxy.compacting.windows import Windows
from app.proxy.incoming import Headers
from app.proxy.subject import Subject
from app.storage.contract import Store

# A prompt below this fits every window in use, so nobody waits for the upstream to state it (tokens).
URGENT_TOKENS = 1_000
# Below this share of the window nothing is compacted whatever it costs, so that the costs are not looked at.
DERIVED_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is known of models: their windows, how they count against us, our counts, what they cost."""

    windows: Windows
    calibrations: Calibrations
    tokens: ModelTokens
    costs: ModelCosts


class Scenes:
    """One per application."""

    def __init__(
        self,
        store: Store,
        models: ModelFacts,
        policy_for: Callable[[str, bytes | None], Policy],
        outgoing: Callable[[Headers], list[tuple[bytes, bytes]]],
    ) -> None:
        self._store = store
        self._windows = models.windows
        self._calibrations = models.calibrations
        self._tokens = models.tokens
        self._costs = models.costs
        self._policy_for = policy_for
        self._outgoing = outgoing

    async def of(self, turn: Subject, *, by_hand: bool = False, untouched: bool = False) -> Scene:
        """The scene now: everything that can have changed is read again.

        Pins are left out where nothing will be folded; `by_hand` a small conversation may be.
        `untouched` says that no compaction can be stored of the conversation, so that none is looked for.
        """
        model = turn.model
        headers = self._outgoing(turn.headers)
        window = await self._windows.window_of(model, headers, urgent=turn.tokens > URGENT_TOKENS)
        own = None if untouched else await self._store.settings_of(turn.namespace, turn.session)
        policy = self._policy_for(model, own)
        preamble = sum(message.tokens for message in turn.conversation.preamble)
        budget = budget_of(
            window,
            fixed_tokens=turn.fixed_tokens + preamble,
            max_output_tokens=turn.max_output_tokens,
            ratio=self._calibrations.ratio_of(model),
            policy=policy,
        )
        current = None if untouched else await self._in_force(turn)
        costs = self._costs.of(model)
        count_text = self._tokens.counter_of(model).count_text
        if current is not None or turn.tokens >= DERIVED_SHARE * budget.window_tokens:
            block = block_tokens(current.summary, count_text) if current and current.summary else 0
            kept = always_kept_tokens(turn.conversation, policy)
            budget = derived(budget, turn.conversation, kept, block, policy, costs)
        is_short = turn.tokens < budget.precompute_tokens and not policy.trigger_messages
        is_small = not by_hand and current is None and is_short
        return Scene(
            turn=turn,
            current=current,
            budget=budget,
            pins=frozenset() if is_small else await self._pins(turn),
            policy=policy,
            count_text=count_text,
            outgoing=tuple(headers),
            costs=costs,
        )

    async def _in_force(self, turn: Subject) -> Compaction | None:
        """The compaction that applies, also one made a moment ago in the session's first turn."""
        stored = await self._store.compactions(turn.namespace, turn.session)
        standing = [row.compaction for row in stored if row.undone_at is None]
        return applicable(standing, turn.conversation) if standing else None

    async def _pins(self, turn: Subject) -> frozenset[bytes]:
        return frozenset(pin.chain for pin in await self._store.pins(turn.namespace, turn.session))

"""Why nobody is asked for a summary although one is needed: failures, a loop, a limit reached.

Knows nothing of who would be asked.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.core.view.compaction import Compaction
from app.core.view.record import is_same_fold
from app.proxy.compacting.breaker import Breaker, LoopBreaker
from app.proxy.compacting.scene import Scene
from app.proxy.compacting.spending import Spending
from app.proxy.turn import Turn


@dataclass(frozen=True, slots=True)
class Restraint:
    """One for the application: for single models, sessions and namespaces."""

    failures: Breaker
    loops: LoopBreaker
    spending: Spending

    def reason(self, scene: Scene, model: str, key: str) -> str:
        """Why `model` should not be asked for this conversation, a stable word; "" where it may be."""
        namespace = scene.turn.namespace
        if self.spending.is_spent(namespace):
            return "spending_limit"
        if scene.is_ordered:
            # Whoever asks for a compaction now may know that the model is back; the answer tells (F05).
            return ""
        if self.failures.is_open(model, namespace, key):
            return "breaker_open"
        return "looping" if self.is_looping(scene) else ""

    def is_looping(self, scene: Scene) -> bool:
        """True for a while after the session was folded in three turns out of three (F04)."""
        return self.loops.is_open(_session(scene))

    def compacted(self, scene: Scene, compaction: Compaction) -> None:
        """A compaction is in force. One by hand is no sign of a loop, nor are masks, nor another text for
        what is folded already.
        """
        is_fold = compaction.kind == "message_removal" and not is_same_fold(scene.current, compaction)
        if isinstance(scene.turn, Turn) and is_fold:
            answers = sum(message.role == "assistant" for message in scene.conversation.messages)
            self.loops.folded(_session(scene), answers)


def _session(scene: Scene) -> tuple[str, str]:
    return scene.turn.namespace, scene.turn.session

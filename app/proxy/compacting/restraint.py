"""Why nobody is asked for a summary although one is needed: failures, a loop, a limit reached.

Knows nothing of who would be asked.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.core.view.compaction import Compaction
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

    def holds(self, scene: Scene, model: str) -> bool:
        """True while `model` should not be asked for this conversation."""
        namespace = scene.turn.namespace
        is_resting = self.failures.is_open(model, namespace)
        return is_resting or self.spending.is_spent(namespace) or self.is_looping(scene)

    def is_looping(self, scene: Scene) -> bool:
        """True for a while after the session was folded in three turns out of three (F04)."""
        return self.loops.is_open(_session(scene))

    def compacted(self, scene: Scene, compaction: Compaction) -> None:
        """A compaction is in force. One by hand is no sign of a loop, nor are masks."""
        if isinstance(scene.turn, Turn) and compaction.kind == "message_removal":
            answers = sum(message.role == "assistant" for message in scene.conversation.messages)
            self.loops.folded(_session(scene), answers)


def _session(scene: Scene) -> tuple[str, str]:
    return scene.turn.namespace, scene.turn.session

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
    """One for the application: for everybody, for single sessions, for single namespaces."""

    failures: Breaker
    loops: LoopBreaker
    spending: Spending

    def holds(self, scene: Scene) -> bool:
        """True while nobody should be asked for this conversation."""
        is_spent = self.spending.is_spent(scene.turn.namespace)
        return self.failures.is_open or is_spent or self.is_looping(scene)

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

"""Folds of histories that came before, word for word: what was written for one is not written again.

A client that sends the same long list twice without an answer of ours in it begins a session each time
(rule 3). The sessions stay apart; only the summary is copied. Held in memory, for the newest folds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, replace

from app.core.view.compaction import Compaction
from app.proxy.compacting.scene import Scene

# Folds remembered; a summary takes some 20 kB.
REMEMBERED_FOLDS = 64
# Characters: a longer summary is not worth the memory.
_LONGEST = 256 * 1024


@dataclass(frozen=True, slots=True)
class _Made:
    session: str
    compaction: Compaction


class RepeatedFolds:
    """One for the application."""

    def __init__(self) -> None:
        self._made: OrderedDict[Hashable, _Made] = OrderedDict()

    def find(self, scene: Scene, new_id: str) -> Compaction | None:
        """A fold of the same messages for the same model under the same policy, as `new_id`; or None."""
        made = self._made.get(_key(scene)) if _is_first(scene) else None
        return replace(made.compaction, id=new_id) if made is not None else None

    def keep(self, scene: Scene, compaction: Compaction) -> None:
        """The compaction came of this scene."""
        if not _is_first(scene) or len(compaction.summary) > _LONGEST:
            return
        key = _key(scene)
        self._made[key] = _Made(scene.turn.session, compaction)
        self._made.move_to_end(key)
        if len(self._made) > REMEMBERED_FOLDS:
            self._made.popitem(last=False)

    def erased(self, namespace: str, session: str) -> None:
        """The session was erased: nothing of it is held."""
        del namespace
        for key in [key for key, made in self._made.items() if made.session == session]:
            del self._made[key]


def _is_first(scene: Scene) -> bool:
    """True where nothing but the messages went into the summary: no memory, no order, nothing looked up."""
    return scene.current is None and not scene.memory and not scene.is_ordered and not scene.replay.rounds


def _key(scene: Scene) -> Hashable:
    # The head names the whole past within the namespace.
    turn = scene.turn
    return turn.namespace, scene.conversation.head, turn.model, scene.policy

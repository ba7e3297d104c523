"""What follows from an answer: how the model counts, how large its window is, checkpoints on the way, memory
entries, the next summary, the search index.

Nobody waits for any of it.
"""

from __future__ import annotations

from app.proxy.answering.cut_prompts import CutPrompts
from app.proxy.chronicle.chronicle import Chronicle, Remembers
from app.proxy.compacting.viewing import Viewing
from app.proxy.compacting.windows import Windows
from app.proxy.recall.indexing import Indexing
from app.proxy.sessions.recorder import Outcome
from app.proxy.turn import Shown, Turn


class Answered:
    """Called with every answer that has ended, at once after it was stored."""

    def __init__(
        self,
        viewing: Viewing,
        windows: Windows,
        chronicle: Chronicle,
        indexing: Indexing,
        cuts: CutPrompts,
        remembers: Remembers,
    ) -> None:
        self._viewing = viewing
        self._windows = windows
        self._chronicle = chronicle
        self._indexing = indexing
        self._cuts = cuts
        self._remembers = remembers

    def __call__(self, turn: Turn, shown: Shown, outcome: Outcome) -> None:
        """Calibration and windows influence later plans only (rule 14)."""
        self._chronicle.answered(turn, shown, outcome, self._remembers)
        self._chronicle.placed(turn)
        self._viewing.heard(turn, shown, outcome)
        self._indexing.later(turn.namespace, turn.session)
        theirs = outcome.usage.prompt_tokens
        if theirs is None or outcome.state != "done":
            return
        self._windows.answered(turn.model, theirs)
        if not shown.has_our_tools:
            self._cuts.heard(turn, shown, outcome)

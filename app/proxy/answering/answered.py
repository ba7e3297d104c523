"""What an answered prompt teaches: how the model counts, and that its window is at least so large."""

from __future__ import annotations

from app.proxy.compacting.calibrations import Calibrations
from app.proxy.compacting.windows import Windows
from app.proxy.sessions.recorder import Outcome
from app.proxy.turn import Shown, Turn


class Answered:
    """Called with every answer that carried the upstream's own counts."""

    def __init__(self, windows: Windows, calibrations: Calibrations) -> None:
        self._windows = windows
        self._calibrations = calibrations

    def __call__(self, turn: Turn, shown: Shown, outcome: Outcome) -> None:
        """Calibration and windows influence later plans only (rule 14)."""
        theirs = outcome.usage.prompt_tokens
        if theirs is None or outcome.state != "done":
            return
        self._windows.answered(turn.request.model, theirs)
        self._calibrations.observe(turn.request.model, shown.tokens, theirs)

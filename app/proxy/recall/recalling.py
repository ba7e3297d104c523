"""Requests that go upstream with our tools.

Knows nothing of whether a request is one of them: its view says so.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from app.proxy.answering.kinds import Arriving
from app.proxy.hidden.happening import Happening
from app.proxy.incoming import Headers
from app.proxy.recall.rounds import RoundMeans, opened_rounds
from app.proxy.turn import Shown, Turn


@dataclass(frozen=True, slots=True)
class Recalling:
    """One for the application."""

    means: RoundMeans

    def begun(self, turn: Turn, shown: Shown) -> Happening:
        """What is going to happen in one try of the request."""
        return Happening(self.means.executing.count_for(turn.model), shown.room_tokens)

    def open(
        self, turn: Turn, shown: Shown, headers: Headers, happening: Happening
    ) -> AbstractAsyncContextManager[Arriving]:
        """As `Upstream.open`: the request goes upstream with our tools, and is answered."""
        return opened_rounds(self.means, turn, shown, headers, happening)

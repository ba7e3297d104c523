"""Whether a request goes upstream with our tools, and if so, its answer.

Knows nothing of rounds. Where nothing is folded a request is never looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from app.core.recall.rounds.offer import may_offer
from app.errors import InvalidField
from app.proxy.answering.kinds import Arriving
from app.proxy.incoming import Headers, Incoming
from app.proxy.recall.rounds import RoundMeans, opened_rounds
from app.proxy.turn import Shown, Turn

HEADER = b"x-palimpsest-recall"


class Recalling:
    """One for the application; `is_on` reads a session's own settings."""

    def __init__(self, means: RoundMeans, is_on: Callable[[bytes | None], bool]) -> None:
        self._means = means
        self._is_on = is_on

    def offers(self, turn: Turn, shown: Shown) -> bool:
        """Whether the model is told of our tools.

        The request's header decides, else the session's settings, else the deployment's.
        """
        if shown.is_original or turn.model in self._means.refusing:
            return False
        asked = asked_for(turn.incoming)
        if asked is None:
            asked = self._is_on(shown.own_settings)
        return asked and may_offer(turn.request)

    def open(self, turn: Turn, shown: Shown, headers: Headers) -> AbstractAsyncContextManager[Arriving]:
        """As `Upstream.open`: the request goes upstream with our tools, and is answered."""
        return opened_rounds(self._means, turn, shown, headers)


def asked_for(incoming: Incoming) -> bool | None:
    """The X-Palimpsest-Recall header: on, off, or None without one. InvalidField for any other word.

    RepeatedHeader when it stands twice.
    """
    asked = (incoming.only(HEADER) or "").strip().lower()
    if asked not in ("", "on", "off"):
        raise InvalidField("X-Palimpsest-Recall is on or off.", param="X-Palimpsest-Recall")
    return asked == "on" if asked else None

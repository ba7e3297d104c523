"""Whether a model is told of our tools (rule 31).

Knows nothing of rounds, nor of whether anything is folded that could be looked up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from app.core.recall.rounds.offer import may_offer
from app.errors import InvalidField
from app.proxy.incoming import Incoming
from app.proxy.recall.refusing import Refusing
from app.proxy.subject import Subject
from app.proxy.turn import Turn

HEADER = b"x-palimpsest-recall"
Offered = Literal["", "as_recorded", "asked_for"]


class Offering:
    """One for the application; `is_enabled` and `is_chosen` read a session's own settings.

    `by_default`: what counts where a session has chosen nothing. `without_tools`: it is offered, too, where
    the client sent no tools. Where recall is not enabled nobody is offered anything, whatever a request asks
    for (C03).
    """

    def __init__(
        self,
        refusing: Refusing,
        is_enabled: Callable[[bytes | None], bool],
        is_chosen: Callable[[bytes | None], bool | None],
        *,
        by_default: bool,
        without_tools: bool,
    ) -> None:
        self._refusing = refusing
        self._is_enabled = is_enabled
        self._is_chosen = is_chosen
        self._by_default = by_default
        self._without_tools = without_tools

    def is_recorded(self, own_settings: bytes | None) -> bool:
        """Whether a compaction that is made now says that our tools go with its view (rule 14)."""
        chosen = self._is_chosen(own_settings)
        is_wanted = self._by_default if chosen is None else chosen
        return is_wanted and self._is_enabled(own_settings)

    def offers(self, subject: Subject, own_settings: bytes | None) -> Offered:
        """Whether the model is told of our tools: "" for never, else as soon as something is folded.

        The request's header decides, else the session's settings: "asked_for", at once (C02). Else the
        deployment's, as far as the compaction in force was made with them: "as_recorded". A branch that is
        read back asks no model.
        """
        if not isinstance(subject, Turn) or (subject.namespace, subject.model) in self._refusing:
            return ""
        if subject.incoming.asks_for_compaction or not self._is_enabled(own_settings):
            return ""
        asked = asked_for(subject.incoming)
        chosen = asked != "off" if asked else self._is_chosen(own_settings)
        is_wanted = self._by_default if chosen is None else chosen
        without_tools = self._without_tools or asked == "always"
        if not is_wanted or not may_offer(subject.request, without_tools=without_tools):
            return ""
        return "as_recorded" if chosen is None else "asked_for"


def asked_for(incoming: Incoming) -> str:
    """The X-Palimpsest-Recall header: on, always, off, or "" without one. InvalidField for any other word.

    "always": also where the client sent no tools. RepeatedHeader when it stands twice.
    """
    asked = (incoming.only(HEADER) or "").strip().lower()
    if asked not in ("", "on", "always", "off"):
        raise InvalidField("X-Palimpsest-Recall is on, always or off.", param="X-Palimpsest-Recall")
    return asked

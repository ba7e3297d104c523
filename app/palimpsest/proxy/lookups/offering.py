"""Whether our tools are offered to a model (rule 31)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from palimpsest.core.recall.rounds.offer import may_offer
from palimpsest.core.wire.request import ChatRequest
from palimpsest.errors import InvalidField
from palimpsest.proxy.incoming import Incoming
from palimpsest.proxy.kept_answers import RefusalMemory
from palimpsest.proxy.turn import Subject, Turn

HEADER = b"x-palimpsest-recall"
Offered = Literal["", "as_recorded", "asked_for"]


class ToolOfferPolicy:
    """Decides whether our tools are offered; `is_enabled` and `is_chosen` read a session's own settings.

    `by_default` applies if a session has chosen nothing. `without_tools`: also if the client sent no tools.
    Nothing is offered while recall is not enabled, whatever a request asks for (C03).
    """

    def __init__(
        self,
        refusing: RefusalMemory,
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
        """True when a compaction made now records that our tools go with its view (rule 14)."""
        chosen = self._is_chosen(own_settings)
        is_wanted = self._by_default if chosen is None else chosen
        return is_wanted and self._is_enabled(own_settings)

    def offers(self, subject: Subject, own_settings: bytes | None) -> Offered:
        """Whether our tools are offered once something is folded; "" for never.

        "asked_for": at once, by the request's header or else the session's settings (C02). "as_recorded": by
        the deployment's settings, if the compaction in force was made with them. Never for a stored branch,
        which no model is asked about.
        """
        if not isinstance(subject, Turn) or (subject.namespace, subject.model) in self._refusing:
            return ""
        if subject.incoming.asks_for_compaction:
            return ""
        return self.offers_with(subject.request, own_settings, asked_for(subject.incoming))

    def offers_with(self, request: ChatRequest, own_settings: bytes | None, asked: str) -> Offered:
        """As `offers`, for a request whose header is `asked`, "" without one."""
        if not self._is_enabled(own_settings):
            return ""
        chosen = asked != "off" if asked else self._is_chosen(own_settings)
        is_wanted = self._by_default if chosen is None else chosen
        without_tools = self._without_tools or asked == "always"
        if not is_wanted or not may_offer(request, without_tools=without_tools):
            return ""
        return "as_recorded" if chosen is None else "asked_for"


def asked_for(incoming: Incoming) -> str:
    """The X-Palimpsest-Recall header: on, always, off, or "" without one. InvalidField for another value.

    "always": also if the client sent no tools. RepeatedHeader when it occurs twice.
    """
    asked = (incoming.only(HEADER) or "").strip().lower()
    if asked not in ("", "on", "always", "off"):
        raise InvalidField("X-Palimpsest-Recall is on, always or off.", param="X-Palimpsest-Recall")
    return asked

"""Whether a model is told of our tools (rule 31).

Knows nothing of rounds, nor of whether anything is folded that could be looked up.
"""

from __future__ import annotations

from collections.abc import Callable

from app.core.recall.rounds.offer import may_offer
from app.errors import InvalidField
from app.proxy.incoming import Incoming
from app.proxy.recall.refusing import Refusing
from app.proxy.subject import Subject
from app.proxy.turn import Turn

HEADER = b"x-palimpsest-recall"


class Offering:
    """One for the application; `is_enabled` and `is_on` read a session's own settings.

    `without_tools`: it is offered, too, where the client sent no tools. Where recall is not enabled nobody is
    offered anything, whatever a request asks for (C03).
    """

    def __init__(
        self,
        refusing: Refusing,
        is_enabled: Callable[[bytes | None], bool],
        is_on: Callable[[bytes | None], bool],
        *,
        without_tools: bool,
    ) -> None:
        self._refusing = refusing
        self._is_enabled = is_enabled
        self._is_on = is_on
        self._without_tools = without_tools

    def offers(self, subject: Subject, own_settings: bytes | None) -> bool:
        """Whether the model is told of our tools as soon as something is folded.

        The request's header decides, else the session's settings, else the deployment's. A branch that is
        read back asks no model.
        """
        if not isinstance(subject, Turn) or (subject.namespace, subject.model) in self._refusing:
            return False
        if subject.incoming.asks_for_compaction:
            return False
        asked = asked_for(subject.incoming)
        is_wanted = self._is_on(own_settings) if not asked else asked != "off"
        without_tools = self._without_tools or asked == "always"
        return (
            is_wanted
            and self._is_enabled(own_settings)
            and may_offer(subject.request, without_tools=without_tools)
        )


def asked_for(incoming: Incoming) -> str:
    """The X-Palimpsest-Recall header: on, always, off, or "" without one. InvalidField for any other word.

    "always": also where the client sent no tools. RepeatedHeader when it stands twice.
    """
    asked = (incoming.only(HEADER) or "").strip().lower()
    if asked not in ("", "on", "always", "off"):
        raise InvalidField("X-Palimpsest-Recall is on, always or off.", param="X-Palimpsest-Recall")
    return asked

"""What a question for a summary stands behind: the prompt that the model knows, where it may stand there.

Knows nothing of who is asked otherwise, nor of what becomes of the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.core.history.append import open_calls
from app.core.history.conversation import Conversation
from app.core.summary.prompt import SummaryRequest
from app.core.summary.riding import INSTRUCTION, may_be_shown, riding_request
from app.core.view.cuts import groups_of
from app.core.wire.responses.asking import Members, is_lone_thought, members_behind, previous_of
from app.proxy.answering.previous import KeptAnswers
from app.proxy.compacting.scene import Scene
from app.proxy.turn import Turn

# A question that rides must fit with its answer; our count may be off by this share of the window.
RIDING_SHARE = 0.98
# What a model that thinks may think before it answers, tokens, where the window has room for it.
THOUGHT_TOKENS = 8_192


@dataclass(frozen=True, slots=True)
class Riding:
    """A question behind a prompt, and what goes along with it: see `Question.behind`."""

    request: SummaryRequest
    behind: Members


class Prompts:
    """The prompts that models know. One for the application; `kept` knows which answers upstreams have."""

    def __init__(self, kept: KeptAnswers) -> None:
        self._kept = kept

    def may_ride(self, scene: Scene) -> bool:
        """True when the model knows the prompt, the question fits behind it, and all of it may be shown."""
        policy = scene.policy
        if not policy.rides or policy.summary_model is not None or policy.style != "handoff":
            # What rides is answered in nine sections.
            return False
        shown = scene.under(scene.current)
        return (
            _asked_tokens(scene) <= _room(scene)
            and self._sent(scene) is not None
            and may_be_shown(shown.view.messages)
        )

    def riding(self, scene: Scene) -> Riding | None:
        """The question behind what was shown; None where it cannot be put there."""
        sent = self._sent(scene)
        if sent is None:
            return None
        most = scene.budget.summary_tokens + self._thoughts(scene)
        request = riding_request(_shown(scene), most, scene.focus)
        # Of what the upstream keeps only the rest is sent; the answer may echo nothing of both.
        whole = replace(request, messages=(*sent, request.messages[-1]))
        return Riding(whole, self._behind(scene))

    def _sent(self, scene: Scene) -> Sequence[bytes] | None:
        """The messages that stand before the question; None where nobody knows what the last request held."""
        turn = scene.turn
        if turn.wire == "chat":
            return _shown(scene)
        if not isinstance(turn, Turn):
            # A branch that is read back: its instructions, tools and settings are not known.
            return None
        return _beyond(turn, _end(scene)) if self._goes_on(scene) else _shown(scene)

    def _behind(self, scene: Scene) -> Members:
        turn = scene.turn
        if turn.wire == "chat" or not isinstance(turn, Turn):
            return ()
        behind = members_behind(turn.request)
        return (*behind, *previous_of(turn.request)) if self._goes_on(scene) else behind

    def _goes_on(self, scene: Scene) -> bool:
        """True when the last prompt left what was said to the upstream's memory."""
        turn = scene.turn
        return scene.current is None and isinstance(turn, Turn) and self._kept.goes_on(turn)

    def _thoughts(self, scene: Scene) -> int:
        """Room for what is thought: on this API it counts as a part of the answer."""
        if not any(name == "reasoning" for name, _ in self._behind(scene)):
            return 0
        return int(min(THOUGHT_TOKENS, _room(scene) - _asked_tokens(scene)))


def _room(scene: Scene) -> float:
    return RIDING_SHARE * scene.budget.window_tokens


def _asked_tokens(scene: Scene) -> int:
    """The prompt with the question and its answer."""
    asked = scene.count_text(INSTRUCTION) + scene.budget.summary_tokens
    return scene.under(scene.current).tokens + asked


def _shown(scene: Scene) -> tuple[bytes, ...]:
    """What was shown, without what a question cannot stand behind."""
    end = _end(scene)
    parts = scene.under(scene.current).view.parts
    return tuple(part.raw for part in parts if part.index is None or part.index < end)


def _end(scene: Scene) -> int:
    """Where what a question can stand behind ends.

    Not behind calls whose results are still to come, nor behind thoughts that only their upstream has: both
    are refused.
    """
    messages = scene.conversation.messages
    if open_calls(messages):
        return groups_of(messages)[-1].start
    return len(messages) - 1 if messages and is_lone_thought(messages[-1].raw) else len(messages)


def _beyond(turn: Turn, end: int) -> Sequence[bytes] | None:
    """What a request that leaves the rest to its upstream said itself, and its answer if there is one."""
    own = turn.request.message_spans
    said, cut = _raws(turn.conversation), len(turn.conversation.preamble) + end
    for answers in (0, 1):
        start = len(said) - answers - len(own)
        if start >= 0 and said[start : start + len(own)] == own and start + len(own) <= cut:
            return said[start:cut]
    return None


def _raws(talk: Conversation) -> tuple[bytes, ...]:
    return tuple(message.raw for message in (*talk.preamble, *talk.messages))

"""What a question for a summary stands behind: the prompt that the model knows, where it may stand there.

Knows nothing of who is asked otherwise, nor of what becomes of the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.core.history.append import open_calls
from app.core.history.conversation import Conversation
from app.core.summary.prompt import DEFAULT_INSTRUCTIONS, Instructions, SummaryRequest, answer_tokens
from app.core.summary.riding import may_be_shown, riding_request, riding_text
from app.core.view.cuts import groups_of
from app.core.wire.responses.asking import Members, is_lone_thought, members_behind, previous_of
from app.proxy.answering.previous import KeptAnswers
from app.proxy.compacting.scene import Scene
from app.proxy.compacting.thoughts import THOUGHT_TOKENS
from app.proxy.turn import Turn

# A question that rides must fit with its answer; our count may be off by this share of the window.
RIDING_SHARE = 0.98


@dataclass(frozen=True, slots=True)
class Riding:
    """A question behind a prompt, and what goes along with it: see `Question.behind`."""

    request: SummaryRequest
    behind: Members


class Prompts:
    """The prompts that models know, and what is asked behind them.

    One for the application; `kept` knows which answers upstreams have.
    """

    def __init__(self, kept: KeptAnswers, instructions: Instructions = DEFAULT_INSTRUCTIONS) -> None:
        self._kept = kept
        self._instructions = instructions

    def may_ride(self, scene: Scene, thought_tokens: int) -> bool:
        """True when the model knows the prompt, the question fits behind it, and all of it may be shown.

        An answer of the length asked for fits as well, and the thoughts that the model is known for.
        """
        policy = scene.policy
        if not policy.rides or policy.summary_model is not None or policy.style != "handoff":
            # What rides is answered in nine sections.
            return False
        shown = scene.under(scene.current)
        asked = self.question_tokens(scene) + scene.budget.summary_tokens + thought_tokens
        if shown.tokens + asked > _room(scene) or not self._is_known(scene):
            return False
        return may_be_shown(shown.view.messages)

    def question_tokens(self, scene: Scene) -> int:
        """Tokens of the question alone."""
        return scene.count_text(riding_text(self._instructions, scene.budget.summary_tokens))

    def riding(self, scene: Scene, thought_tokens: int) -> Riding | None:
        """The question behind what was shown; None where it cannot be put there.

        Its answer has as much headroom as the window leaves.
        """
        if not self._is_known(scene):
            return None
        shown, end, behind = scene.under(scene.current), _end(scene), self._behind(scene)
        raws = [part.raw for part in shown.view.parts if part.index is None or part.index < end]
        length = scene.budget.summary_tokens
        if any(name == "reasoning" for name, _ in behind):
            # On the Responses API thoughts count as a part of the answer.
            thought_tokens = THOUGHT_TOKENS
        left = int(_room(scene) - shown.tokens - self.question_tokens(scene))
        most = max(length, min(answer_tokens(length, thought_tokens), left))
        request = riding_request(raws, most, length, scene.focus, self._instructions)
        own = self._own(scene)
        if own is not None:
            # Of what the upstream keeps only the rest is sent; an echo of all of it is none the less one.
            request = replace(request, messages=(*own, request.messages[-1]))
        return Riding(request, behind)

    def _is_known(self, scene: Scene) -> bool:
        """False where nobody knows what the last request held."""
        if scene.turn.wire == "chat":
            return True
        # Of a branch that is read back instructions, tools and settings are not known.
        return isinstance(scene.turn, Turn) and (not self._goes_on(scene) or self._own(scene) is not None)

    def _own(self, scene: Scene) -> Sequence[bytes] | None:
        """What was said behind that which is left to the upstream's memory; None where nothing is."""
        turn = scene.turn
        return _beyond(turn, _end(scene)) if isinstance(turn, Turn) and self._goes_on(scene) else None

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


def _room(scene: Scene) -> float:
    return RIDING_SHARE * scene.budget.window_tokens


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

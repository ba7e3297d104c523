"""Carries out a model's calls to our tools, and cuts what they found to the room there is.

Knows nothing of rounds nor of how results travel. Each call leaves its own event (`tools`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.core.recall.rounds.calls import Call, newest_words
from app.core.recall.rounds.fitting import Room, fitted
from app.proxy.recall.searching import Where
from app.proxy.recall.tools import RecallTools
from app.proxy.turn import Turn

# A model that asks for more at once is told so; each is a search.
_AT_ONCE = 8
_TOO_MANY = '{"error":{"code":"too_many_calls","message":"At most 8 calls are carried out at a time."}}'
# Counts a message for a model.
CountFor = Callable[[str], Callable[[Mapping[str, Any]], int]]


class Executing:
    """One for the application; a result has at most `result_chars` characters."""

    def __init__(self, tools: RecallTools, count_for: CountFor, result_chars: int) -> None:
        self._tools = tools
        self._count_for = count_for
        self._result_chars = result_chars

    def count_for(self, model: str) -> Callable[[Mapping[str, Any]], int]:
        """Counts messages as the model's prompts are counted."""
        return self._count_for(model)

    async def told(self, turn: Turn, calls: Sequence[Call], room_tokens: int) -> list[bytes]:
        """The tool messages that answer the calls, in order, in at most `room_tokens` together.

        What cannot be done is a result too. The least that a message can be may still be more than the room.
        """
        results = await self._results(turn, calls)
        count = self._count_for(turn.model)
        told: list[bytes] = []
        for place, (call, result) in enumerate(zip(calls, results, strict=True)):
            share = room_tokens // (len(calls) - place)
            room = Room(self._result_chars, share, count, turn.request.wire)
            message, tokens = fitted(call, result, room)
            told.append(message)
            room_tokens -= tokens
        return told

    async def _results(self, turn: Turn, calls: Sequence[Call]) -> list[str]:
        """What each call found, as JSON text, in order."""
        talk = turn.conversation
        where = Where(turn.namespace, turn.session, talk.head, "branch")
        newest_user = newest_words([message.fields for message in talk.messages])
        named = [(call.name, call.arguments) for call in calls[:_AT_ONCE]]
        results = [await self._tools.called(where, *call, newest_user) for call in named]
        return results + [_TOO_MANY] * (len(calls) - len(results))

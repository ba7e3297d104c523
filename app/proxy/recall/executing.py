"""Carries out a model's calls to our tools.

Knows nothing of rounds nor of how results travel. Each call leaves its own event (`tools`).
"""

from __future__ import annotations

from collections.abc import Sequence

from app.core.recall.rounds.calls import Call, newest_words
from app.proxy.recall.searching import Where
from app.proxy.recall.tools import RecallTools
from app.proxy.turn import Turn

# A model that asks for more at once is told so; each is a search.
_AT_ONCE = 8
_TOO_MANY = '{"error":{"code":"too_many_calls","message":"At most 8 calls are carried out at a time."}}'


async def results_of(tools: RecallTools, turn: Turn, calls: Sequence[Call]) -> list[str]:
    """What each call found, as JSON text, in order; what cannot be done is a result too."""
    talk = turn.conversation
    where = Where(turn.namespace, turn.session, talk.head, "branch")
    newest_user = newest_words([message.fields for message in talk.messages])
    results = [await tools.called(where, call.name, call.arguments, newest_user) for call in calls[:_AT_ONCE]]
    return results + [_TOO_MANY] * (len(calls) - len(results))

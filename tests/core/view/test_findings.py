"""What makes a session dearer than need be: each finding where it is due, and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Sequence

from palimpsest.core.history.message import Conversation
from palimpsest.core.view.findings import Found, TurnCost, findings_of

from tests.core.histories import assistant, calls, conversation, prose, result, user

WINDOW = 10_000
TALK = conversation([user("Go."), calls("a"), result("a", prose(100)), assistant("Done.")])


def tools(*names: str) -> bytes:
    return json.dumps([{"type": "function", "function": {"name": name}} for name in names]).encode()


def turns(count: int, *, every: float = 10.0, cached: int | None = 900) -> list[TurnCost]:
    return [TurnCost(number, number * every, 1_000, cached) for number in range(1, count + 1)]


def found(
    talk: Conversation = TALK, schema: bytes | None = None, taken: Sequence[TurnCost] = ()
) -> list[Found]:
    return findings_of(talk, schema, taken, WINDOW, len)


def test_tools_that_nobody_calls_count_from_ten_turns_on_where_others_are_called() -> None:
    schema = tools("run", "browse", "draw")
    (unused,) = found(schema=schema, taken=turns(10))
    assert (unused.kind, unused.times, unused.names) == ("unused_tools", 10, ("browse", "draw"))
    assert unused.tokens == len(tools("browse", "draw").replace(b": ", b":").replace(b", ", b","))
    assert found(schema=schema, taken=turns(9)) == []
    assert found(schema=tools("run"), taken=turns(10)) == []
    assert found(schema=b"not JSON", taken=turns(10)) == []
    assert found(schema=b'{"no": "list"}', taken=turns(10)) == []
    assert found(conversation([user("Go."), assistant("Hm.")]), schema, turns(10)) == []


def test_prompts_read_anew_after_a_pause_are_named() -> None:
    slow = turns(8, every=400.0, cached=50)
    (cold,) = found(taken=slow)
    assert (cold.kind, cold.times, cold.tokens) == ("cold_cache", 7, 7_000)
    assert cold.names == ("4", "5", "6", "7", "8")
    assert found(taken=turns(8, every=299.0, cached=50)) == []
    assert found(taken=turns(8, every=400.0, cached=900)) == []
    # What the upstream does not state is unknown, and no miss.
    assert found(taken=turns(8, every=400.0, cached=None)) == []

"""How many bytecode instructions the pure core runs for a turn: a guard that no busy machine can break.

Counted in the package's own code, by tracing; C functions count as the call that enters them. Ceilings are a
tenth above what was counted on Python 3.11 (2026-11): what exceeds one does more work than before, or work
for each message that was done for each request.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import pytest
from palimpsest.core.budget.budget import Window, budget_of, due
from palimpsest.core.history.message import Conversation, conversation_of, seed_of
from palimpsest.core.history.read import read_message
from palimpsest.core.history.resolve import Lookups, RequestFacts, placement_of
from palimpsest.core.history.stored_points import Placement, StoredPoint
from palimpsest.core.presets import PRESETS
from palimpsest.core.recall.searchable_text import index_words
from palimpsest.core.view.view import view_of
from palimpsest.core.wire.chat import parse_chat_request
from palimpsest.core.wire.chat_answers import Assembly, parse_answer
from palimpsest.core.wire.request import RequestLimits
from palimpsest.core.wire.streams import FrameSplitter, data_of

from tests.house.sources import ROOT

PACKAGE = str(ROOT / "app" / "palimpsest")
MESSAGES = 40
# Bytecode differs between versions of Python by some percent.
OTHER_VERSIONS = 1.3


def instructions(work: Callable[[], object]) -> int:
    """The bytecode instructions of the package that `work` runs; the second time, when caches are filled."""
    work()
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def message(place: int) -> dict[str, str]:
    return {
        "role": "assistant" if place % 2 else "user",
        "content": f"Message {place}: the harbour is open. " * 25,
    }


@dataclass(frozen=True)
class Turn:
    """One turn of a conversation whose earlier messages are known, and what each step of it needs."""

    body: bytes
    talk: Conversation
    known: list[StoredPoint]
    answer: bytes
    stream: bytes


def turn_of(messages: int) -> Turn:
    said = [message(place) for place in range(messages - 1)]
    read = [read_message(json.dumps(each).encode(), len) for each in said]
    talk = conversation_of(read, seed_of("ns"))
    last = messages - 3
    point = StoredPoint(
        session="s",
        chain=talk.chains[last],
        canonical=talk.messages[last].canonical,
        role="assistant",
        depth=last + 1,
        answers=last // 2,
        arrival=last,
        relayed=True,
        extended=False,
        failed=False,
        replied=False,
        state="live",
        preamble=b"",
    )
    choice = {"index": 0, "message": message(1), "finish_reason": "stop"}
    delta = {"index": 0, "delta": {"content": " word"}, "finish_reason": None}
    frame = b"data: " + json.dumps({"id": "c", "model": "m", "choices": [delta]}).encode() + b"\n\n"
    return Turn(
        body=json.dumps({"model": "m", "messages": said}).encode(),
        talk=talk,
        known=[point],
        answer=json.dumps(
            {"id": "c", "model": "m", "choices": [choice], "usage": {"prompt_tokens": 9}}
        ).encode(),
        stream=frame * 100,
    )


def parsed(turn: Turn) -> object:
    return parse_chat_request(turn.body, RequestLimits(), lambda *_: ())


def read(turn: Turn) -> object:
    return read_message(turn.talk.messages[-1].raw, len)


def chained(turn: Turn) -> object:
    return conversation_of(turn.talk.messages, seed_of("ns"))


def placed(turn: Turn) -> object:
    found = placement_of(turn.talk, RequestFacts(preamble=b""), Lookups(turn.known))
    assert isinstance(found, Placement)
    assert len(found.new) == 1
    return found


def planned(turn: Turn) -> object:
    policy, window = PRESETS["auto"], Window(128_000, "configured")
    budget = budget_of(window, fixed_tokens=500, max_output_tokens=None, ratio=1.0, policy=policy)
    assert due(9_000, turn.talk.messages, budget, policy) == "later"
    return budget


def viewed(turn: Turn) -> object:
    return view_of(turn.talk, None, len)


def answered(turn: Turn) -> object:
    return parse_answer(turn.answer)


def streamed(turn: Turn) -> object:
    splitter, assembly = FrameSplitter(1_000_000), Assembly()
    for frame in splitter.feed(turn.stream):
        if (data := data_of(frame)) is not None:
            assembly.feed(data)
    return assembly


def indexed(turn: Turn) -> object:
    return index_words([(each.raw, False) for each in turn.talk.messages[-2:]])


STEPS: dict[Callable[[Turn], object], int] = {
    parsed: 4131,
    read: 586,
    chained: 1314,
    placed: 387,
    planned: 441,
    viewed: 1268,
    answered: 546,
    streamed: 36210,
    indexed: 5551,
}


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_a_step_of_a_turn_runs_no_more_instructions_than_its_ceiling(step: Callable[[Turn], object]) -> None:
    turn = turn_of(MESSAGES)
    ceiling = STEPS[step] * (1 if sys.version_info[:2] == (3, 11) else OTHER_VERSIONS)
    assert instructions(lambda: step(turn)) <= ceiling


def test_a_loop_over_all_messages_would_be_noticed() -> None:
    turn = turn_of(MESSAGES)
    work = lambda: [read_message(each.raw, len) for each in turn.talk.messages]  # noqa: E731
    assert instructions(work) > STEPS[read] * OTHER_VERSIONS


def test_counting_is_the_same_each_time() -> None:
    turn = turn_of(MESSAGES)
    assert len({instructions(lambda: placed(turn)) for _ in range(3)}) == 1

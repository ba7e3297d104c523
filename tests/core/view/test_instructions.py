"""Later system messages told as a user's: words as they were spelled, and views that are counted and grow."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from palimpsest.core.view.compaction import Compaction
from palimpsest.core.view.dialects import (
    FRAME_TOKENS,
    LABEL,
    acknowledgement_tokens,
    as_sent,
    as_user_message,
    label_tokens,
)
from palimpsest.core.view.outcomes import Fold, MaskOnly, Refuse, Send, View
from palimpsest.core.view.record import RecordInput, compaction_of, summary_room
from palimpsest.core.view.validity import added_faults
from palimpsest.core.view.view import applicable, fits

from tests.core.histories import count_text, prose
from tests.core.view.test_random_histories import Session, least_tokens

HISTORIES = 50
SPOKEN = LABEL.encode() + rb"\n\n"


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (
            rb'{ "content" : "caf\u00e9 \/ \ud800 1e2" , "name":"x", "role" : "system" }',
            rb'{ "content" : "' + SPOKEN + rb'caf\u00e9 \/ \ud800 1e2" , "name":"x", "role" : "user" }',
        ),
        (
            rb'{"role":"developer","content":[{"type":"text","text":"a","cache_control":{"type":"x"}}],"n":1e2}',
            rb'{"role":"user","content":[{"type":"text","text":"' + SPOKEN + rb'"},'
            rb'{"type":"text","text":"a","cache_control":{"type":"x"}}],"n":1e2}',
        ),
        (
            rb'{"type":"message","role":"developer","content":[ {"type":"input_text","text":"a"}]}',
            rb'{"type":"message","role":"user","content":[{"type":"input_text","text":"' + SPOKEN + rb'"}, '
            rb'{"type":"input_text","text":"a"}]}',
        ),
        (rb'{"role":"system","content":""}', rb'{"role":"user","content":"' + SPOKEN + rb'"}'),
    ],
    ids=["text", "parts", "item", "nothing said"],
)
def test_words_stand_behind_the_label_as_they_were_spelled(raw: bytes, told: bytes) -> None:
    assert as_user_message(raw) == told
    json.loads(told)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"role":"user","content":"a"}',
        b'{"role":"system","content":null}',
        b'{"role":"system"}',
        b'{"role":"system","content":[]}',
        b'{"role":"system","content":["a"]}',
        b'{"type":"additional_tools","role":"developer","tools":[],"content":"a"}',
        b'{"type":"compaction","encrypted_content":"x"}',
    ],
)
def test_what_is_no_instruction_in_words_stays_byte_for_byte(raw: bytes) -> None:
    assert as_user_message(raw) == raw


class Strict(Session):
    """As `Session`, for a server that takes system messages at the beginning; every other one alternates."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.policy = replace(self.policy, later_system_messages="user", strict_alternation=bool(seed % 2))

    def carried_out(self, plan: Fold | MaskOnly) -> Compaction:
        current = applicable(self.compactions, self.talk)
        is_by_turns = self.policy.strict_alternation
        written = RecordInput(
            f"c{len(self.compactions)}", self.policy.name, alternates=is_by_turns, tells_as_user=True
        )
        if isinstance(plan, Fold):
            room = summary_room(plan, self.talk, self.budget, count_text, tells_as_user=True)
            room -= acknowledgement_tokens(count_text) if is_by_turns else 0
            written = replace(written, summary=prose(max(1, room - FRAME_TOKENS)), author="model")
        return compaction_of(plan, self.talk, current, written, self.budget, count_text)


@pytest.mark.spec("P9", "P10")
def test_every_view_has_system_messages_at_its_beginning_only_and_is_counted_and_grows() -> None:
    seen: Counter[str] = Counter()
    for seed in range(HISTORIES):
        session = Strict(seed)
        before: tuple[list[bytes], View] | None = None
        for _ in range(25):
            session.grow()
            plan = session.plan()
            if isinstance(plan, Refuse):
                break
            if not isinstance(plan, Send):
                session.compactions.append(session.carried_out(plan))
                assert isinstance(session.plan(), Send), seed
                seen[type(plan).__name__] += 1
            view = session.view()
            _judge(session, view, seen)
            is_same = before is not None and before[1].compaction == view.compaction is not None
            if before is not None and is_same and session.client[: len(before[0])] == before[0]:
                assert view.messages[: len(before[1].messages)] == before[1].messages, seed
                seen["grown"] += 1
            before = session.client, view
    assert min(seen["told"], seen["grown"], seen["Fold"]) > 150
    assert seen["MaskOnly"] > 0


def _judge(session: Strict, view: View, seen: Counter[str]) -> None:
    sent = as_sent(view)
    if view.compaction is None:
        assert sent.messages == tuple(session.client)
        return
    assert not added_faults(sent.messages, session.client)
    roles = [_role(raw) for raw in sent.messages]
    at = len(session.talk.preamble)
    assert {"system", "developer"} >= set(roles[:at])
    assert not {"system", "developer"} & set(roles[at:])
    rules = [each for each in session.talk.messages if each.is_instruction]
    told = b"\n".join(sent.messages[at:])
    assert all(SPOKEN + each.fields["content"].encode() in told for each in rules)
    seen["told"] += len(rules)
    if session.window.is_known and not fits(view, session.budget):
        least = least_tokens(session) + len(rules) * label_tokens(count_text)
        assert least > session.budget.ceiling_tokens


def _role(raw: bytes) -> Any:
    return json.loads(raw)["role"]

"""Random histories whose compactions say that user and assistant speak by turns (A46, D19)."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from palimpsest.core.view.compaction import Compaction
from palimpsest.core.view.dialects import FRAME_TOKENS, acknowledgement_tokens, as_sent, merged_users
from palimpsest.core.view.outcomes import Fold, MaskOnly, Refuse, Send, View
from palimpsest.core.view.record import RecordInput, compaction_of, summary_room
from palimpsest.core.view.validity import added_faults
from palimpsest.core.view.view import applicable, prompt_tokens

from tests.core.histories import count_text, prose
from tests.core.view.test_random_histories import Session

HISTORIES = 120


class Alternating(Session):
    """As `Session`; the acknowledgement comes out of the summary's room."""

    def carried_out(self, plan: Fold | MaskOnly) -> Compaction:
        current = applicable(self.compactions, self.talk)
        written = RecordInput(f"c{len(self.compactions)}", self.policy.name, alternates=True)
        if isinstance(plan, Fold):
            room = summary_room(plan, self.talk, self.budget, count_text) - acknowledgement_tokens(count_text)
            written = replace(written, summary=prose(max(1, room - FRAME_TOKENS)), author="model")
        return compaction_of(plan, self.talk, current, written, self.budget, count_text)


@pytest.mark.spec("A46", "D19", "P9", "P10")
def test_every_view_is_valid_counted_and_grows_at_its_end() -> None:
    seen: Counter[str] = Counter()
    for seed in range(HISTORIES):
        session = Alternating(seed)
        before: tuple[list[bytes], View] | None = None
        for _ in range(25):
            session.grow()
            plan = session.plan()
            if isinstance(plan, Refuse):
                break
            if not isinstance(plan, Send):
                session.compactions.append(session.carried_out(plan))
                assert isinstance(session.plan(), Send), seed
            view = session.view()
            _judge(session, view, seen)
            if before is not None and before[1].compaction == view.compaction is not None:
                # What a client rewrites is its own; else a list only grows.
                is_longer = session.client[: len(before[0])] == before[0]
                assert not is_longer or _grows(as_sent(before[1]).messages, as_sent(view).messages), seed
                seen["grown"] += is_longer
            before = session.client, view
    assert min(seen["acknowledged"], seen["merged"], seen["grown"]) > 40


def _judge(session: Session, view: View, seen: Counter[str]) -> None:
    sent = as_sent(view)
    if view.compaction is None:
        assert sent.messages == tuple(session.client)
        return
    assert not added_faults(sent.messages, session.client)
    assert prompt_tokens(sent, session.budget) == prompt_tokens(view, session.budget)
    # What could be merged is merged: text beside text.
    assert merged_users(sent.parts) == sent.parts
    kinds = [part.kind for part in view.parts]
    if "acknowledgement" in kinds:
        assert kinds[kinds.index("acknowledgement") - 1] == "summary"
    seen["acknowledged"] += "acknowledgement" in kinds
    seen["merged"] += len(sent.parts) < len(view.parts)


def _grows(before: tuple[bytes, ...], after: tuple[bytes, ...]) -> bool:
    """After the same compaction: a list behind the list, or text behind the text of its last message."""
    if after[: len(before)] == before:
        return True
    same = len(before) - 1
    return after[:same] == before[:same] and _content(after[same]).startswith(_content(before[same]))


def _content(raw: bytes) -> str:
    content: Any = json.loads(raw)["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)

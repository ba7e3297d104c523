"""Random histories under every preset, each summary written by the preset's own style, without a model."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from palimpsest.core.history.message import Conversation
from palimpsest.core.policy import Policy
from palimpsest.core.presets import PRESETS
from palimpsest.core.summary.source import SummarySource
from palimpsest.core.summary.styles import style_of
from palimpsest.core.view.compaction import Compaction
from palimpsest.core.view.dialects import FRAME_TOKENS
from palimpsest.core.view.outcomes import Fold, MaskOnly, Refuse, Send
from palimpsest.core.view.record import RecordInput, compaction_of, folded_indexes, summary_room
from palimpsest.core.view.validity import added_faults
from palimpsest.core.view.view import applicable, prompt_tokens

from tests.core.histories import count_text
from tests.core.view.test_random_histories import Session, least_tokens, verbatim

HISTORIES = 120
POLICIES: dict[str, Policy] = {
    **{name: replace(policy, trigger_reserve_tokens=0) for name, policy in PRESETS.items()},
    "chat": replace(PRESETS["handoff"], trigger_messages=24, tail_messages=16),
}


class Styled(Session):
    """A session under one policy, whose summaries are what its style writes by code."""

    def __init__(self, seed: int, policy: Policy) -> None:
        super().__init__(seed)
        self.policy = policy
        self.budget = self.budget_now()

    def carried_out(self, plan: Fold | MaskOnly) -> Compaction:
        current = applicable(self.compactions, self.talk)
        written = RecordInput(f"c{len(self.compactions)}", self.policy.name)
        if isinstance(plan, Fold):
            room = summary_room(plan, self.talk, self.budget, count_text)
            source = source_of(plan, self.talk, current)
            block = style_of(self.policy).written(source, None, max(1, room - FRAME_TOKENS), count_text)
            # A block is never empty.
            assert block.text
            written = replace(written, summary=block.text, author="deterministic", state=block.state)
        return compaction_of(plan, self.talk, current, written, self.budget, count_text)


def source_of(fold: Fold, talk: Conversation, current: Compaction | None) -> SummarySource:
    """What the shell gives a style."""
    fresh = folded_indexes(fold, talk, current)
    taken = {*fresh, *fold.kept}
    seen = [index for index in range(fold.since) if index not in taken]
    return SummarySource(
        folded=tuple((talk.chains[index], talk.messages[index]) for index in (*seen, *fresh)),
        since=len(seen),
        previous=current.summary if current else "",
        tail=talk.messages[fold.cut :],
        state=current.state if current else b"",
    )


def play(preset: str, seed: int, turns: int, seen: Counter[str]) -> None:
    """Grows one history; every view is valid, verbatim where promised, fits a known window, and is stable."""
    session = Styled(seed, POLICIES[preset])
    previous: tuple[bytes, ...] = ()
    for _ in range(turns):
        session.grow()
        plan = session.plan()
        seen[type(plan).__name__] += 1
        if isinstance(plan, Refuse):
            assert session.window.is_known, seed
            assert least_tokens(session) > session.budget.ceiling_tokens, seed
            continue
        if not isinstance(plan, Send):
            made = session.carried_out(plan)
            session.compactions.append(made)
            assert applicable(session.compactions, session.talk) is made, seed
            assert isinstance(session.plan(), Send), seed
            assert made.tokens_after < made.tokens_before or session.budget.window_tokens <= 1_000, seed
        view = session.view()
        assert view.compaction is None or not added_faults(view.messages, session.client), seed
        assert verbatim(session.talk, view), seed
        if session.window.is_known:
            assert prompt_tokens(view, session.budget) <= session.budget.window_tokens, seed
        if view.compaction is None:
            assert list(view.messages) == session.client, seed
        if isinstance(plan, Send) and list(previous) == session.client[: len(previous)]:
            assert view.messages[: len(previous)] == previous, seed
        assert sum(part.kind == "summary" for part in view.parts) <= 1, seed
        previous = view.messages


@pytest.mark.spec("S16", "F01", "P9", "P10")
@pytest.mark.parametrize("preset", sorted(POLICIES))
def test_random_histories_stay_valid_under_every_preset(preset: str) -> None:
    seen: Counter[str] = Counter()
    for seed in range(HISTORIES):
        play(preset, seed, turns=1 + seed % 12, seen=seen)
    assert min(seen[kind] for kind in ("Send", "Fold", "Refuse")) > 5


@settings(max_examples=6)
@given(st.sampled_from(sorted(POLICIES)), st.integers(HISTORIES, 10**9))
def test_long_histories_stay_valid_under_every_preset(preset: str, seed: int) -> None:
    play(preset, seed, turns=40, seen=Counter())

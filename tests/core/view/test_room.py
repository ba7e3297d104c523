"""Windows of every size, with any fixed part and `max_tokens`: when presets fold, and how often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from palimpsest.core.budget.budget import Budget, Window, budget_of
from palimpsest.core.history.message import Message
from palimpsest.core.policy import Policy
from palimpsest.core.presets import PRESETS
from palimpsest.core.view.compaction import Compaction
from palimpsest.core.view.dialects import FRAME_TOKENS
from palimpsest.core.view.outcomes import Fold, MaskOnly, Plan, Refuse, Send
from palimpsest.core.view.plan import plan_of
from palimpsest.core.view.plan_input import plan_input_of
from palimpsest.core.view.record import RecordInput, compaction_of, summary_room
from palimpsest.core.view.view import applicable, prompt_tokens, view_of

from tests.core.histories import FRAME, assistant, calls, chained, count_text, message, prose, result, user


class Talk:
    """A conversation that grows by shares of what the trigger leaves to messages, planned at every turn."""

    def __init__(self, budget: Budget, policy: Policy) -> None:
        self.budget, self.policy = budget, policy
        self.messages: list[Message] = []
        self.compactions: list[Compaction] = []
        self.says("user", 0.05)

    def says(self, kind: str, share: float) -> None:
        text = prose(
            max(1, int(share * (self.budget.trigger_tokens - self.budget.fixed_tokens)) - FRAME),
            f"{kind}{len(self.messages)}",
        )
        if kind == "tool":
            name = f"c{len(self.messages)}"
            self.messages += [message(calls(name)), message(result(name, text))]
        else:
            self.messages.append(message(user(text) if kind == "user" else assistant(text)))

    @property
    def total(self) -> int:
        talk = chained(self.messages)
        return prompt_tokens(view_of(talk, applicable(self.compactions, talk), count_text), self.budget)

    def plan(self) -> Plan:
        talk = chained(self.messages)
        current = applicable(self.compactions, talk)
        return plan_of(plan_input_of(talk, current, self.budget, frozenset(), self.policy, count_text))

    def carry_out(self, plan: Fold | MaskOnly) -> None:
        talk = chained(self.messages)
        written = RecordInput(f"c{len(self.compactions)}", self.policy.name)
        if isinstance(plan, Fold):
            room = summary_room(plan, talk, self.budget, count_text)
            written = replace(written, summary=prose(max(1, room - FRAME_TOKENS)), author="model")
        current = applicable(self.compactions, talk)
        self.compactions.append(compaction_of(plan, talk, current, written, self.budget, count_text))


@settings(max_examples=150)
@given(
    window=st.one_of(st.integers(4_000, 40_000), st.integers(40_000, 1_000_000)),
    fixed_share=st.floats(0, 0.95),
    output=st.none() | st.integers(1, 200_000),
    preset=st.sampled_from(sorted(PRESETS)),
    turns=st.lists(
        st.tuples(st.sampled_from(["user", "tool", "assistant"]), st.floats(0.001, 0.08)),
        min_size=20,
        max_size=60,
    ),
)
def test_nothing_is_folded_before_the_trigger_and_nothing_twice(
    window: int, fixed_share: float, output: int | None, preset: str, turns: Sequence[tuple[str, float]]
) -> None:
    policy = PRESETS[preset]
    budget = budget_of(
        Window(window, "configured"),
        fixed_tokens=int(fixed_share * window),
        max_output_tokens=output,
        ratio=1.0,
        policy=policy,
    )
    talk, grown = Talk(budget, policy), 0.0
    for kind, share in turns:
        talk.says(kind, share)
        grown += share
        total, plan = talk.total, talk.plan()
        assert total >= budget.trigger_tokens or isinstance(plan, Send)
        if isinstance(plan, Fold | MaskOnly):
            talk.carry_out(plan)
            assert isinstance(talk.plan(), Send | Refuse)
            assert talk.total < total
    # A fold makes room for several turns, as long as there is any for a record.
    if budget.summary_tokens >= policy.summary_min_tokens:
        assert len(talk.compactions) <= 1 + grown / 0.08

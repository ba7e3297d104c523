"""A conversation under a budget, as the tests of planning speak of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from palimpsest.core.budget.budget import Budget, Window, WindowSource, budget_of
from palimpsest.core.history.message import Conversation
from palimpsest.core.policy import Policy
from palimpsest.core.view.compaction import Compaction
from palimpsest.core.view.dialects import FRAME_TOKENS
from palimpsest.core.view.outcomes import Fold, MaskOnly, Plan, Refuse, Send, View
from palimpsest.core.view.plan import plan_manual, plan_of, plan_overflow
from palimpsest.core.view.plan_input import plan_input_of
from palimpsest.core.view.record import RecordInput, compaction_of, summary_room
from palimpsest.core.view.view import applicable, prompt_tokens, view_of

from tests.core.histories import FRAME, assistant, conversation, count_text, preamble_tokens, prose, user

Planner = Callable[..., Plan]


class Talk:
    """Messages, the compactions made so far, pins and a window; plans and carries plans out."""

    def __init__(
        self,
        *fields: dict[str, Any],
        window: int = 10_000,
        source: WindowSource = "configured",
        policy: Policy | None = None,
    ) -> None:
        self.fields = list(fields)
        self.window = Window(window, source)
        self.policy = policy or Policy()
        self.pins: frozenset[bytes] = frozenset()
        self.compactions: list[Compaction] = []
        self._made: tuple[list[dict[str, Any]], Conversation] | None = None

    def says(self, *fields: dict[str, Any]) -> Talk:
        self.fields += fields
        return self

    def pin(self, index: int) -> Talk:
        """Pins the message at this place of the chain."""
        self.pins |= {self.conversation.chains[index]}
        return self

    @property
    def conversation(self) -> Conversation:
        # Asked for at every step: making a long one anew each time took most of these tests' time.
        if self._made is None or self._made[0] != self.fields:
            self._made = list(self.fields), conversation(self.fields)
        return self._made[1]

    @property
    def budget(self) -> Budget:
        return budget_of(
            self.window,
            fixed_tokens=preamble_tokens(self.conversation),
            max_output_tokens=None,
            ratio=1.0,
            policy=self.policy,
        )

    @property
    def current(self) -> Compaction | None:
        return applicable(self.compactions, self.conversation)

    @property
    def view(self) -> View:
        return view_of(self.conversation, self.current, count_text)

    @property
    def tokens(self) -> int:
        return prompt_tokens(self.view, self.budget)

    def plan(self, planner: Planner = plan_of) -> Plan:
        situation = plan_input_of(
            self.conversation, self.current, self.budget, self.pins, self.policy, count_text
        )
        return planner(situation)

    def plan_overflow(self) -> Plan:
        return self.plan(plan_overflow)

    def plan_manual(self) -> Plan:
        return self.plan(plan_manual)

    def carry_out(self, plan: Plan, summary: str | None = None) -> Compaction | None:
        """What a caller does with a plan: the longest allowed summary unless one is given."""
        match plan:
            case Send() | Refuse():
                return None
            case Fold():
                room = summary_room(plan, self.conversation, self.budget, count_text)
                text = prose(max(1, room - FRAME_TOKENS), "sum") if summary is None else summary
                written = RecordInput(f"c{len(self.compactions)}", self.policy.name, text, "model", "m")
            case MaskOnly():
                written = RecordInput(f"c{len(self.compactions)}", self.policy.name)
        made = compaction_of(plan, self.conversation, self.current, written, self.budget, count_text)
        self.compactions.append(made)
        return made

    def sent(self) -> Sequence[bytes]:
        """The client's own list."""
        talk = self.conversation
        return [each.raw for each in (*talk.preamble, *talk.messages)]


def chat(turns: int, tokens: int = 100, window: int = 10_000, policy: Policy | None = None) -> Talk:
    """A talk whose every message takes exactly `tokens`; ends with a user message."""
    talk = Talk(user(prose(tokens - FRAME, "task")), window=window, policy=policy)
    for turn in range(turns):
        talk.says(assistant(prose(tokens - FRAME, f"a{turn}")), user(prose(tokens - FRAME, f"u{turn}")))
    return talk

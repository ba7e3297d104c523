"""The memory block in plans and records: it takes room like everything else that is shown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from palimpsest.core.budget.budget import Budget
from palimpsest.core.policy import Policy
from palimpsest.core.view.dialects import FRAME_TOKENS
from palimpsest.core.view.outcomes import Fold, Send
from palimpsest.core.view.record import RecordInput, compaction_of, summary_room
from palimpsest.core.view.view import block_tokens

from tests.core.histories import assistant, count_text, prose, user
from tests.core.view.planning import Talk

MEMORY = prose(400, "kept")
POLICY = Policy()


class Remembering(Talk):
    """A talk whose session has a memory block."""

    @property
    def budget(self) -> Budget:
        return replace(super().budget, memory_tokens=block_tokens(MEMORY, count_text))

    def folded(self, plan: Fold) -> None:
        """The plan is carried out with the longest summary there is room for, and the memory."""
        room = summary_room(plan, self.conversation, self.budget, count_text) - FRAME_TOKENS
        text = prose(max(1, room), "sum")
        written = RecordInput(f"c{len(self.compactions)}", "auto", text, "model", memory=MEMORY)
        made = compaction_of(plan, self.conversation, self.current, written, self.budget, count_text)
        self.compactions.append(made)


def talk_of(turns: int) -> Remembering:
    talk = Remembering(user("the task"), window=10_000, policy=POLICY)
    for turn in range(turns):
        talk.says(assistant(prose(100, f"a{turn}")), user(prose(100, f"u{turn}")))
    return talk


@pytest.mark.spec("B16")
def test_a_fold_leaves_room_for_it_within_the_target() -> None:
    talk = talk_of(46)
    plan = talk.plan()
    assert isinstance(plan, Fold)
    assert plan.memory_tokens == block_tokens(MEMORY, count_text)
    talk.folded(plan)
    assert talk.tokens <= plan.target_tokens
    assert [part.kind for part in talk.view.parts][:3] == ["task", "summary", "memory"]
    assert isinstance(talk.plan(), Send)

"""The memory block in plans and records: it takes room like everything else that is shown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from palimpsest.core.budget.budget import Budget, memory_room
from palimpsest.core.policy import Policy
from palimpsest.core.view.dialects import FRAME_TOKENS
from palimpsest.core.view.outcomes import Fold, MaskOnly, Send
from palimpsest.core.view.plan import plan_masks
from palimpsest.core.view.record import RecordInput, compaction_of, summary_room
from palimpsest.core.view.view import block_tokens, prompt_tokens, unmasked_tokens, view_of

from tests.core.histories import assistant, calls, count_text, prose, result, user
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


@pytest.mark.spec("B16")
def test_masks_leave_it_as_it_is() -> None:
    talk = talk_of(46)
    plan = talk.plan()
    assert isinstance(plan, Fold)
    talk.folded(plan)
    for turn in range(7):
        talk.says(
            calls(f"c{turn}"), result(f"c{turn}", prose(640, f"r{turn}")), assistant(prose(5)), user("on")
        )
    masks = talk.plan(plan_masks)
    assert isinstance(masks, MaskOnly)
    made = talk.carry_out(masks)
    assert made is not None
    assert made.memory == MEMORY
    view = view_of(talk.conversation, made, count_text)
    assert sum(part.kind == "memory" for part in view.parts) == 1
    # What is not shown shortened takes at least as much as what is.
    said = unmasked_tokens(talk.conversation, made)
    blocks = block_tokens(made.summary, count_text) + block_tokens(made.memory, count_text)
    assert talk.budget.fixed_tokens + said + blocks > prompt_tokens(view, talk.budget)


@pytest.mark.parametrize(("window", "room"), [(200_000, 1_000), (4_000, 500)])
def test_its_room(window: int, room: int) -> None:
    budget = Talk(user("the task"), window=window).budget
    assert memory_room(budget, Policy()) == room

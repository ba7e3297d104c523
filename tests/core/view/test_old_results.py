"""What is left of older tool results: as much as there is room for, and all of what was asked for again."""

from __future__ import annotations

import json

import pytest
from palimpsest.core.view.outcomes import MaskOnly
from palimpsest.core.view.plan_input import asked_again

from tests.core.histories import assistant, calls, prose, result, user
from tests.core.view.planning import Talk


def read(talk: Talk, ident: str, path: str, tokens: int) -> None:
    talk.says(
        calls(ident, arguments=json.dumps({"path": path})),
        result(ident, prose(tokens, ident)),
        assistant("ok"),
    )


def masked_talk(*, again: bool = False, results: int = 16) -> Talk:
    talk = Talk(user("read them"), window=16_000)
    for at in range(results):
        # The third file is read once more at the end of the first half.
        is_again = again and at == results // 2
        read(talk, f"c{at}", "file 2" if is_again else f"file {at}", 900)
    return talk.says(user("go on"))


@pytest.mark.spec("A07")
def test_old_results_keep_as_much_as_there_is_room_for() -> None:
    talk = masked_talk()
    plan = talk.plan()
    assert isinstance(plan, MaskOnly)
    talk.carry_out(plan)
    room = talk.budget.target_tokens - talk.tokens
    # Down to the target, and hardly below it.
    assert 0 <= room < 0.1 * talk.budget.target_tokens
    sizes = {mask.limit_chars for mask in plan.masks}
    assert min(sizes) > talk.policy.old_result_chars
    # Alike: texts of one kind are cut to one length.
    assert max(sizes) < 1.3 * min(sizes)


def test_what_was_asked_for_again_is_not_cut_again() -> None:
    talk = masked_talk(again=True)
    (kept,) = asked_again(talk.conversation)
    first = next(i for i, m in enumerate(talk.conversation.messages) if m.answers == "c2")
    assert talk.conversation.messages[kept].answers == "c8"
    plan = talk.plan()
    assert isinstance(plan, MaskOnly)
    masked = {mask.chain for mask in plan.masks}
    assert talk.conversation.chains[kept] not in masked
    assert talk.conversation.chains[first] in masked

"""A summary counts with its watermark only: half a record changes no view."""

from __future__ import annotations

from dataclasses import replace

import pytest
from palimpsest.core.presets import PRESETS
from palimpsest.core.view.compaction import Mask
from palimpsest.core.view.view import applies, view_of

from tests.core.histories import assistant, calls, count_text, prose, result, system, user
from tests.core.view.planning import Talk


def folded_talk(preset: str) -> Talk:
    """A talk of which the older half is folded."""
    policy = replace(PRESETS[preset], trigger_reserve_tokens=0)
    talk = Talk(system("rules"), user("the task"), window=8_000, policy=policy)
    for turn in range(40):
        talk.says(calls(f"c{turn}"), result(f"c{turn}", prose(60)), assistant(prose(60)), user(prose(60)))
    talk.carry_out(talk.plan(), "what was said before")
    return talk


@pytest.mark.spec("B15")
@pytest.mark.parametrize("preset", sorted(PRESETS))
@pytest.mark.parametrize("has_summary", [True, False])
@pytest.mark.parametrize("has_watermark", [True, False])
def test_a_summary_stands_there_only_with_its_watermark(
    preset: str, has_summary: bool, has_watermark: bool
) -> None:
    talk = folded_talk(preset)
    whole = talk.current
    assert whole is not None
    assert whole.summary
    mask = Mask(talk.conversation.chains[1], 10)
    record = replace(
        whole,
        summary=whole.summary if has_summary else "",
        watermark=whole.watermark if has_watermark else b"",
        masks=whole.masks if has_watermark else (*whole.masks, mask),
        kept=whole.kept if has_watermark else (),
    )
    view = view_of(talk.conversation, record, count_text)
    shown = [part.kind for part in view.parts].count("summary")
    assert shown == (has_summary and has_watermark)
    # Where it does not stand, every message does: the client's own prompt comes first.
    assert view.parts[0].kind == "preamble"
    if not shown:
        assert len(view.parts) == 1 + len(talk.conversation.messages)
    # Masks alone are a record of their own.
    assert applies(record, talk.conversation) == (has_summary == has_watermark)

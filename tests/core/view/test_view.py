import json
from dataclasses import replace

import pytest
from palimpsest.core.view.compaction import Compaction, Mask
from palimpsest.core.view.view import applicable, view_of

from tests.core.histories import (
    assistant,
    calls,
    conversation,
    count_text,
    developer,
    prose,
    result,
    system,
    user,
)
from tests.core.view.planning import Talk


def record(talk: Talk, cut: int, *kept: int, masks: tuple[Mask, ...] = (), name: str = "c") -> Compaction:
    chains = talk.conversation.chains
    return Compaction(
        id=name,
        kind="message_removal" if cut else "tool_truncation_only",
        watermark=chains[cut - 1] if cut else b"",
        kept=tuple(chains[index] for index in kept),
        masks=masks,
        summary="what was said" if cut else "",
        policy="auto",
        trigger="proactive",
        author="model" if cut else "none",
        model=None,
        tokens_before=0,
        tokens_after=0,
        messages_folded=cut - len(kept),
    )


def talk() -> Talk:
    return Talk(
        system("be exact"),
        user("the task"),  # 0
        assistant("one"),
        developer("a later rule"),  # 2
        user("remember 42"),  # 3
        assistant("two"),
        user("and now?"),  # 5
        assistant("three"),
        user("newest"),  # 7
    )


@pytest.mark.spec("P1")
def test_without_a_compaction_the_view_is_what_the_client_sent() -> None:
    chat = talk()
    assert list(view_of(chat.conversation, None, count_text).messages) == list(chat.sent())


@pytest.mark.spec("F19")
@pytest.mark.spec("A31")
def test_instructions_then_task_then_kept_then_summary_then_tail() -> None:
    chat = talk()
    view = view_of(chat.conversation, record(chat, 5, 0, 2, 3), count_text)
    assert [part.kind for part in view.parts] == [
        "preamble",
        "instruction",
        "task",
        "pin",
        "summary",
        *["tail"] * 3,
    ]
    assert [part.index for part in view.parts] == [None, 2, 0, 3, None, 5, 6, 7]
    raw = {part.index: part.raw for part in view.parts if part.index is not None}
    assert all(raw[index] == chat.conversation.messages[index].raw for index in raw)
    block = json.loads(view.parts[4].raw)
    assert block == {"role": "user", "content": "what was said"}


@pytest.mark.spec("F27")
def test_an_edit_before_the_watermark_stops_using_the_summary() -> None:
    chat = talk()
    made = record(chat, 5, 0)
    edited = conversation([*chat.fields[:5], assistant("other"), *chat.fields[6:]])
    assert applicable([made], edited) is None
    assert view_of(edited, made, count_text).compaction is None
    assert applicable([made], chat.conversation) is made


def test_a_rewind_to_the_watermark_does_not_hide_the_newest_message() -> None:
    chat = talk()
    made = record(chat, 6, 0)
    assert applicable([made], conversation(chat.fields[:7])) is None
    assert applicable([made], conversation(chat.fields[:8])) is None
    assert applicable([made], conversation(chat.fields[:9])) is made


def test_the_newest_of_equal_watermarks_applies_and_the_deepest_before_that() -> None:
    chat = talk()
    old, new, deep = (
        record(chat, 3, 0, name="old"),
        record(chat, 3, 0, name="new"),
        record(chat, 5, 0, name="deep"),
    )
    assert applicable([old, new], chat.conversation) is new
    assert applicable([deep, old, new], chat.conversation) is deep


def test_a_masked_result_is_shown_shortened_and_counted_so() -> None:
    chat = Talk(user("go"), calls("a"), result("a", prose(900)))
    mask = Mask(chat.conversation.chains[2], 400)
    view = view_of(chat.conversation, record(chat, 0, masks=(mask,)), count_text)
    part = view.parts[2]
    assert part.masked
    assert part.tokens < 200
    assert json.loads(part.raw)["tool_call_id"] == "a"
    assert not any(other.masked for other in view.parts[:2])


def test_what_a_compaction_says_later_changes_no_stub_of_its_masks() -> None:
    """Of a model without our tools a stub says nothing of how the rest is read."""
    chat = Talk(user("go"), calls("a"), result("a", prose(900)))
    made = replace(
        record(chat, 0, masks=(Mask(chat.conversation.chains[2], 400),)), details=b'{"reads_by": ""}'
    )
    for later in (made.owing_entry(), made.covering(b"x"), made.offering_tools(True)):
        assert later.references() == made.references()

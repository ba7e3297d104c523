"""A question behind the conversation's own prompt: what it is asked to leave out."""

from __future__ import annotations

import json

import pytest

from app.core.summary.riding import INSTRUCTION, may_be_shown, riding_request
from app.core.summary.rolling.memory_block import MEMORY_TAG, MemoryBlock, shown_memory
from app.core.view.view import summary_message
from tests.core.summary.talk import count


@pytest.mark.spec("B16")
def test_a_memory_block_that_is_shown_is_to_be_left_out_of_the_summary() -> None:
    memory = shown_memory(MemoryBlock("", ("Berth two is free.",)), 500, count)
    plain = summary_message("what was")
    for shown, is_named in (((plain,), False), ((plain, summary_message(memory)), True)):
        request = riding_request(shown, 500)
        assert request.messages[:-1] == shown
        assert json.loads(request.messages[-1])["content"] == request.user
        assert request.user.startswith(INSTRUCTION)
        assert (MEMORY_TAG in request.user) == is_named


@pytest.mark.spec("W49")
@pytest.mark.parametrize(
    ("shown", "may"),
    [
        ('{"role":"user","content":"plain"}', True),
        ('{"role":"user","content":"said \\"input_text\\" once"}', True),
        ('{"role":"user","content":[{"type":"text","text":"plain"}]}', True),
        ('{"role":"user","content":[{"type":"input_text","text":"an item"}]}', False),
        ('[{"type":"message","role":"assistant","content":"items"}]', False),
    ],
)
def test_items_are_no_messages_of_a_question(shown: str, may: bool) -> None:
    assert may_be_shown([shown.encode()]) is may

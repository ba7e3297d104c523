"""A question behind the conversation's own prompt: what it is asked to leave out."""

from __future__ import annotations

import json

import pytest
from palimpsest.core.summary.cached_prefix import INSTRUCTION, cached_prefix_request, has_nothing_to_withhold
from palimpsest.core.summary.rolling.memory_block import MEMORY_TAG, MemoryBlock, shown_memory
from palimpsest.core.view.view import summary_message

from tests.core.summary.talk import count


@pytest.mark.spec("B16")
def test_a_memory_block_that_is_shown_is_to_be_left_out_of_the_summary() -> None:
    memory = shown_memory(MemoryBlock("", ("Berth two is free.",)), 500, count)
    plain = summary_message("what was")
    for shown, is_named in (((plain,), False), ((plain, summary_message(memory)), True)):
        request = cached_prefix_request(shown, 1_000, 500)
        assert request.messages[:-1] == shown
        assert json.loads(request.messages[-1])["content"] == request.user
        assert request.user.startswith(INSTRUCTION)
        assert (MEMORY_TAG in request.user) == is_named


LONG_ID = "rs_68af4030baa48193b0b43b4c2a176a1a0e6967589f080e77"
SEALED = json.dumps([{"type": "reasoning", "id": LONG_ID, "summary": [], "encrypted_content": "gAAAAB" * 90}])
PICTURE = json.dumps({"role": "user", "content": [{"type": "input_image", "file_id": "file_1"}]})
DRAWN = json.dumps([{"type": "image_generation_call", "id": "ig_1", "result": "iVBORw0KGgo" * 40}])
KEY = json.dumps({"type": "function_call_output", "call_id": "c", "output": "key=sk-proj-" + "aB3dE5fG7" * 5})
# What only looks like a sealed thought is read.
QUOTED = json.dumps({"role": "user", "content": f'"encrypted_content": "{"aB3dE5fG7" * 40}"'})


@pytest.mark.spec("W55")
@pytest.mark.parametrize(
    ("shown", "may"),
    [
        ('{"role":"user","content":[{"type":"input_text","text":"an item"}]}', True),
        ('[{"type":"message","role":"assistant","content":"items"}]', True),
        (SEALED, True),
        (PICTURE, False),
        (DRAWN, False),
        (KEY, False),
        (QUOTED, False),
    ],
)
def test_items_may_be_shown_but_for_pictures_data_and_secrets(shown: str, may: bool) -> None:
    assert has_nothing_to_withhold([shown.encode()]) is may


@pytest.mark.spec("W55")
def test_what_items_say_is_known_so_that_an_echo_is_noticed() -> None:
    shown = (
        b'[{"type":"reasoning","id":"rs_1"},{"type":"message","role":"assistant","content":'
        b'[{"type":"output_text","text":"The pump stands."}]}]',
        b'{"type":"function_call_output","call_id":"c","output":"Rust in the valve."}',
    )
    assert cached_prefix_request(shown, 1_000, 500).shown == "The pump stands.\nRust in the valve."

"""A summary request that appends one instruction to the conversation's own prompt (idea 2).

For the same model the prompt cache serves all of the prompt but the instruction, at a tenth of the price or
less (90 to 99 % cached against 0 % were measured elsewhere).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import msgspec

from palimpsest.core.summary.prompt import (
    DEFAULT_INSTRUCTIONS,
    Instructions,
    SummaryRequest,
    length_instruction,
)
from palimpsest.core.summary.rolling.memory_block import MEMORY_TAG
from palimpsest.core.text.message_text import without_data
from palimpsest.core.text.secrets import without_secrets
from palimpsest.core.view.masking import text_of
from palimpsest.core.wire.responses.items import as_chat

# Types of content parts that are not text, as they are encoded in messages of both APIs.
_MEDIA = ('"image_url"', '"input_audio"', '"file"', '"input_image"', '"input_file"', '"computer_screenshot"')
# Encrypted reasoning: only the provider that it goes back to can read it.
_ENCRYPTED = re.compile(rb'(?<!\\)"encrypted_content"\s*:\s*"[^"\\]*(?:\\.[^"\\]*)*"')
_TASK = (
    "[Note of the system that keeps this conversation, not of the user.] It becomes too long: all above but "
    "its newest messages will be replaced by a record. Do not go on with the task. Summarize everything "
    "above, any earlier record included, for whoever goes on with the work and knows nothing else of it."
)
INSTRUCTION = DEFAULT_INSTRUCTIONS.after(_TASK)

# The memory block stands in every later view too: a summary of it would repeat it (B16).
_WITHOUT_MEMORY = f"Leave out what stands between <{MEMORY_TAG}> tags: it is kept elsewhere."


def has_nothing_to_withhold(shown: Sequence[bytes]) -> bool:
    """True when the messages have nothing to withhold from a summarizer: secrets, pictures, data (A17, A22).

    Otherwise a request of its own is needed, which leaves these out.
    """
    return not any(_must_be_withheld(_without_encrypted(raw).decode("utf-8", "replace")) for raw in shown)


def _without_encrypted(raw: bytes) -> bytes:
    return _ENCRYPTED.sub(b'"encrypted_content":null', raw) if b'"encrypted_content"' in raw else raw


def _must_be_withheld(text: str) -> bool:
    if any(kind in text for kind in _MEDIA):
        return True
    return without_data(text) != text or without_secrets(text) != text


def cached_prefix_instruction(instructions: Instructions, record_tokens: int) -> str:
    """The instruction that is appended to the prompt, with the length asked for."""
    return f"{instructions.after(_TASK)}\n{length_instruction(record_tokens)}"


def cached_prefix_request(
    shown: Sequence[bytes],
    max_tokens: int,
    record_tokens: int,
    focus: str = "",
    instructions: Instructions = DEFAULT_INSTRUCTIONS,
) -> SummaryRequest:
    """The request on `shown`, the messages of the last prompt, byte for byte."""
    text = cached_prefix_instruction(instructions, record_tokens)
    text = f"{text}\nKeep in mind above all: {without_secrets(focus)[:500]}" if focus else text
    if any(f"<{MEMORY_TAG}>".encode() in raw for raw in shown):
        text = f"{text}\n{_WITHOUT_MEMORY}"
    last = msgspec.json.encode({"role": "user", "content": text})
    return SummaryRequest(
        (*shown, last),
        "",
        text,
        max_tokens,
        shown="\n".join(map(_text, shown)),
        sections=instructions.sections,
    )


def _text(raw: bytes) -> str:
    """The text of a message, to find an answer that repeats it; "" where it has none."""
    fields = json.loads(raw.decode("utf-8", "replace"), parse_int=str, parse_float=str, strict=False)
    return text_of(as_chat(fields))

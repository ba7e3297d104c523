"""A summary request that is the conversation itself with one instruction behind it (idea 2).

To the same model the conversation's prompt is known already: a provider's prompt cache serves all of
it but the instruction, at a tenth of the price or less (0 % against 90 to 99 % cached were measured
elsewhere). Knows nothing of who is asked, nor of whether it fits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import msgspec

from app.core.summary.prompt import DEFAULT_INSTRUCTIONS, Instructions, SummaryRequest, length_asked
from app.core.summary.rolling.memory_block import MEMORY_TAG
from app.core.text.secrets import without_secrets
from app.core.text.wording import without_data
from app.core.view.masking import text_of
from app.core.wire.responses.items import as_chat

# Types of content parts that are not text, as they stand in a message; of both APIs.
_MEDIA = ('"image_url"', '"input_audio"', '"file"', '"input_image"', '"input_file"', '"computer_screenshot"')
# What a model thought, sealed: nobody here can read it, and it goes back where it came from.
_SEALED = re.compile(rb'(?<!\\)"encrypted_content"\s*:\s*"[^"\\]*(?:\\.[^"\\]*)*"')
_TASK = (
    "[Note of the system that keeps this conversation, not of the user.] It becomes too long: all above but "
    "its newest messages will be replaced by a record. Do not go on with the task. Summarize everything "
    "above, any earlier record included, for whoever goes on with the work and knows nothing else of it."
)
INSTRUCTION = DEFAULT_INSTRUCTIONS.after(_TASK)

# The memory block stands in every later view as well: a summary that took it up would say it twice (B16).
_WITHOUT_MEMORY = f"Leave out what stands between <{MEMORY_TAG}> tags: it is kept elsewhere."


def may_be_shown(shown: Sequence[bytes]) -> bool:
    """True when nothing in the messages is to be kept from a summarizer: secrets, pictures, data (A17, A22).

    Otherwise the question must be one of its own, which leaves them out.
    """
    return not any(_holds_what_is_left_out(_unsealed(raw).decode("utf-8", "replace")) for raw in shown)


def _unsealed(raw: bytes) -> bytes:
    return _SEALED.sub(b'"encrypted_content":null', raw) if b'"encrypted_content"' in raw else raw


def _holds_what_is_left_out(text: str) -> bool:
    if any(kind in text for kind in _MEDIA):
        return True
    return without_data(text) != text or without_secrets(text) != text


def riding_text(instructions: Instructions, record_tokens: int) -> str:
    """The question that every request rides with, its length stated."""
    return f"{instructions.after(_TASK)}\n{length_asked(record_tokens)}"


def riding_request(
    shown: Sequence[bytes],
    max_tokens: int,
    record_tokens: int,
    focus: str = "",
    instructions: Instructions = DEFAULT_INSTRUCTIONS,
) -> SummaryRequest:
    """The request behind `shown`, the messages the model was shown last, byte for byte."""
    text = riding_text(instructions, record_tokens)
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
    """What a message says, as an echo of it would; "" where it is no text."""
    fields = json.loads(raw.decode("utf-8", "replace"), parse_int=str, parse_float=str, strict=False)
    return text_of(as_chat(fields))

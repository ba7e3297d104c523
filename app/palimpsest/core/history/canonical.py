"""The canonical form of a message: what counts when two spellings of it are compared (rules 1 and 2).

The canonical form is never stored, sent or shown. Numbers are compared by value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from palimpsest.core.wire.json_spans import refuse_deeper
from palimpsest.core.wire.json_text import loads_with
from palimpsest.errors import InvalidJson

_NUMBER = re.compile(r"(-?)(\d+)(?:\.(\d*))?(?:[eE]([+-]?\d+))?")
# Exponents with more digits are compared as spelled: Python refuses to parse far longer ones.
_EXPONENT_DIGITS = 1_000


@dataclass(frozen=True, slots=True)
class Number:
    """A number by value: `text` is equal for two spellings exactly when their decimal values are equal.

    `text` has the significant digits and an exponent, which is never expanded.
    """

    text: str


def number(spelling: str) -> Number:
    """The number a JSON (or Python float) literal stands for."""
    match = _NUMBER.fullmatch(spelling)
    if match is None:
        # inf and nan, which occur only as Python floats.
        return Number(spelling)
    sign, whole, fraction, exponent = match[1], match[2], match[3] or "", match[4] or "0"
    digits = (whole + fraction).lstrip("0")
    significant = digits.rstrip("0")
    if not significant:
        return Number("0")
    if len(exponent) > _EXPONENT_DIGITS:
        return Number(spelling)
    power = int(exponent) - len(fraction) + len(digits) - len(significant)
    return Number(f"{sign}{significant}e{power}")


# Cache hints, which clients move from message to message every turn; left out wherever they occur:
# message, content part, tool call.
_CACHE_HINTS = frozenset({
    # Anthropic's, sent through OpenRouter and LiteLLM: the newest messages carry it.
    "cache_control",
    # OpenAI's, in content parts.
    "prompt_cache_breakpoint",
})  # fmt: skip

# Fields of an assistant message that one side adds and the other drops.
_ASSISTANT_EXTRAS = _CACHE_HINTS | {
    # DeepSeek, vLLM and SGLang add it; most clients drop it.
    "reasoning_content",
    # OpenRouter, vLLM and Groq add it; most clients drop it.
    "reasoning",
    # OpenRouter adds it; its own SDK returns it, others drop it. Also reasoning of the Responses API.
    "reasoning_details",
    "encrypted_reasoning",
    # GitHub Copilot adds these two; clients drop them.
    "reasoning_text",
    "reasoning_opaque",
    # Ollama's name for it.
    "thinking",
    # LiteLLM adds it for Anthropic models and returns it; other clients drop it.
    "thinking_blocks",
    # OpenAI adds it, the openai SDK returns it as [], LangChain drops it.
    "annotations",
    # LiteLLM adds it to every answer it returns.
    "provider_specific_fields",
    # The openai SDK's parse() adds it, and returns it when the message object is sent back.
    "parsed",
    # Frameworks of several agents add it once the answer has come.
    "name",
    # Front ends and frameworks that keep answers as records send these back with the message.
    "id",
    "created",
    "created_at",
    "createdAt",
    "timestamp",
}

# Fields of a tool call, and of the function in it, that one side adds and the other drops.
_CALL_EXTRAS = _CACHE_HINTS | {
    # Only deltas need it; clients that join deltas themselves leave it in.
    "index",
    # Gemini's thought signatures; clients that rebuild calls from id, name and arguments drop them.
    "extra_content",
    # LiteLLM adds it to calls and functions.
    "provider_specific_fields",
    # The openai SDK's parse() adds it to functions.
    "parsed_arguments",
}

# Parts of assistant content that hold reasoning, which most clients drop.
_REASONING_PARTS = frozenset({"thinking", "redacted_thinking", "reasoning"})

# A reasoning block that vLLM, llama.cpp and others leave at the start of the text.
_THINK = re.compile(r"\s*<think>.*?</think>", re.DOTALL)

# Marks of a template at the end of a text.
_SPECIAL = re.compile(r"(?:\s*<\|[\w-]+\|>)*")

# Arguments nested deeper are compared as raw text. Fixed, so that the form of a message does not depend on
# the interpreter's stack.
_ARGUMENT_LEVELS = 200


def canonical_form(fields: Mapping[str, Any]) -> bytes:
    """Bytes equal for two spellings of one message, different for any other two messages.

    Numbers may be int, float or `Number`. A missing role counts as the empty string. The caller must bound
    the nesting (about 200 levels are safe).
    """
    is_answer = fields.get("role") == "assistant"
    form = _kept(fields, _ASSISTANT_EXTRAS if is_answer else _CACHE_HINTS)
    # Content without the cache hints and empty fields of its parts.
    content = _each(fields.get("content"), lambda part: _kept(part, _CACHE_HINTS))
    form["content"] = _assistant_text(content) if is_answer else _plain(content)
    for key, form_of in _ASSISTANT_FORMS if is_answer else ():
        if key in form:
            form[key] = form_of(form[key])
    written: list[bytes] = []
    _write({key: value for key, value in form.items() if not _is_empty(value)}, written)
    return b"".join(written)


def is_end_of(sent: Mapping[str, Any], stored: Mapping[str, Any]) -> bool:
    """True when a client has sent this stored answer without its beginning, where a model thinks."""
    end, whole = (_assistant_text(fields.get("content")) for fields in (sent, stored))
    if not isinstance(end, str) or not isinstance(whole, str) or not end:
        return False
    before, found, after = whole.rpartition(end)
    is_end = found and not before[-1:].isalnum() and _SPECIAL.fullmatch(after)
    return bool(is_end) and canonical_form({**stored, "content": end}) == canonical_form(sent)


def _kept(fields: Any, denied: frozenset[str]) -> Any:
    """An object without the fields that are denied or empty; any other value as it is."""
    if not isinstance(fields, Mapping):
        return fields
    return {key: value for key, value in fields.items() if key not in denied and not _is_empty(value)}


def _is_empty(value: object) -> bool:
    return value is None or value == "" or value == [] or value == {}


def _each(value: Any, form_of: Callable[[Any], Any]) -> Any:
    return [form_of(item) for item in value] if isinstance(value, list) else value


def _text_of(part: Any) -> str | None:
    """The text of a part without other content; None for any other part."""
    if not isinstance(part, dict) or part.get("type") != "text" or not part.keys() <= {"type", "text"}:
        return None
    text = part.get("text", "")
    return text if isinstance(text, str) else None


def _plain(content: Any) -> Any:
    """A single text part as a string: clients need the list form to attach a cache hint."""
    if isinstance(content, list) and len(content) == 1:
        text = _text_of(content[0])
        return content if text is None else text
    return content


def _assistant_text(content: Any) -> Any:
    if isinstance(content, list):
        spoken = [_unsigned(part) for part in content if not _is_reasoning(part)]
        texts = [_text_of(part) for part in spoken]
        known = [text for text in texts if text is not None]
        if len(known) < len(texts):
            # One of the parts is not text.
            return spoken
        content = "".join(known)
    if not isinstance(content, str):
        return content
    block = _THINK.match(content)
    return content[block.end() if block else 0 :].strip()


def _unsigned(part: Any) -> Any:
    """The part without a role, which openai-agents for JavaScript copies into it from the message."""
    if not isinstance(part, dict) or part.get("role") != "assistant":
        return part
    return {key: value for key, value in part.items() if key != "role"}


def _is_reasoning(part: Any) -> bool:
    return isinstance(part, dict) and str(part.get("type")) in _REASONING_PARTS


def _call(call: Any) -> Any:
    if not isinstance(call, dict):
        return call
    form = {"type": "function"} | _kept(call, _CALL_EXTRAS)
    if "function" in form:
        form["function"] = _function(form["function"])
    if "custom" in form:
        form["custom"] = _kept(form["custom"], _CALL_EXTRAS)
    return form


def _function(function: Any) -> Any:
    """A function, its arguments as a value.

    Missing, null, "" and {} are the same arguments. A parsed value is wrapped in a list, which distinguishes
    it from raw text. Some servers give an object where a string is due; it counts as the string would.
    """
    form = _kept(function, _CALL_EXTRAS)
    if not isinstance(form, dict):
        return form
    arguments = form.pop("arguments", None)
    try:
        value = _json_value(arguments) if isinstance(arguments, str) else arguments
    except (InvalidJson, _RepeatedKey):
        return form | ({"arguments": arguments} if arguments else {})
    is_none = value == {} if isinstance(arguments, str) else _is_empty(value)
    return form if is_none else form | {"arguments": [value]}


class _RepeatedKey(Exception):
    """An object repeats a key, so that its value is ambiguous."""


def _json_value(text: str) -> Any:
    value = loads_with(text, number, _object)
    refuse_deeper(text.encode("utf-8", "surrogatepass"), _ARGUMENT_LEVELS)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _RepeatedKey
    return value


def _audio(audio: Any) -> Any:
    """The id of an answer's audio, which clients send back; they drop the rest (API reference, audio)."""
    return {"id": audio["id"]} if isinstance(audio, dict) and "id" in audio else audio


# What else an assistant message holds in several spellings.
_ASSISTANT_FORMS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("tool_calls", lambda calls: _each(calls, _call)),
    ("function_call", _function),
    ("audio", _audio),
)


def _write(value: Any, into: list[bytes]) -> None:
    """Write type, length and content of `value`, so that no content can be mistaken for a separator."""
    if isinstance(value, str):
        # Lone surrogates are legal in JSON escapes and count.
        text = value.encode("utf-8", "surrogatepass")
        into += (b"s%d:" % len(text), text)
    elif isinstance(value, Mapping):
        into.append(b"o%d:" % len(value))
        for key in sorted(value):
            text = key.encode("utf-8", "surrogatepass")
            into += (b"s%d:" % len(text), text)
            _write(value[key], into)
    elif isinstance(value, list | tuple):
        into.append(b"l%d:" % len(value))
        for item in value:
            _write(item, into)
    else:
        into.append(_scalar(value))


def _scalar(value: Any) -> bytes:
    if value is None:
        return b"z"
    if isinstance(value, bool):
        return b"t" if value else b"f"
    text = value.text if isinstance(value, Number) else number(str(value)).text
    return b"n%d:%b" % (len(text), text.encode())

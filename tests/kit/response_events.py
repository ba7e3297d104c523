"""An answer of the Responses API as the events that a scripted server streams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]
# Characters of a piece of text.
PIECE = 24

# What an item does not hold yet when it is begun.
_EMPTY: dict[str, Json] = {
    "message": {"content": []},
    "function_call": {"arguments": ""},
    "reasoning": {"summary": []},
}


def events_in(answer: Json) -> Iterator[Json]:
    """The events, in order and without their numbers."""
    begun = {**answer, "status": "in_progress", "output": [], "usage": None, "error": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for place, item in enumerate(answer["output"]):
        at = {"output_index": place, "item_id": item["id"]}
        yield {
            "type": "response.output_item.added",
            "output_index": place,
            "item": {**item, **_EMPTY.get(item["type"], {}), "status": "in_progress"},
        }
        for part in item.get("content") or []:
            text = part["text"]
            begun = {"content_index": 0, "part": {**part, "text": ""}}
            yield {"type": "response.content_part.added", **at, **begun}
            for start in range(0, len(text), PIECE):
                delta = {"content_index": 0, "delta": text[start : start + PIECE], "logprobs": []}
                yield {"type": "response.output_text.delta", **at, **delta}
            yield {
                "type": "response.output_text.done",
                **at,
                "content_index": 0,
                "text": text,
                "logprobs": [],
            }
        for number, part in enumerate(item.get("summary") or []):
            delta = {"summary_index": number, "delta": part["text"]}
            yield {"type": "response.reasoning_summary_text.delta", **at, **delta}
        if item["type"] == "function_call":
            yield {"type": "response.function_call_arguments.delta", **at, "delta": item["arguments"]}
        yield {"type": "response.output_item.done", "output_index": place, "item": item}
    yield {"type": f"response.{answer['status']}", "response": answer}

"""An agent as the model server scripts it: steps of tool calls and their results, in one human turn.

Knows nothing of what the tools are for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.kit.chat import Chat
from tests.kit.model import ModelServer

Json = dict[str, Any]
TOOLS: list[Json] = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Read a file of the project.",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}},
                "required": ["path"],
            },
        },
    }
]
# (id, name, arguments) of one call.
Call = tuple[str, str, Json]


async def works(
    chat: Chat, model: ModelServer, goal: str, steps: list[list[Call]], result: Callable[[str, Json], str]
) -> None:
    """The goal is given and every step done; `result` gives what a call of a path finds."""
    model.calls(*steps[0])
    answer = await chat.says(goal)
    for following in [*steps[1:], None]:
        if following is None:
            model.says("All of it is done.")
        else:
            model.calls(*following)
        answer = await chat.sends(*(_found(call, result) for call in answer["tool_calls"]))
    assert answer["content"] == "All of it is done."


def _found(call: Json, result: Callable[[str, Json], str]) -> Json:
    return {"role": "tool", "tool_call_id": call["id"], "content": result(call["id"], call["function"])}

"""The LiteLLM client: `completion`, streamed and not, `acompletion`; answers go back as its own objects."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import litellm

from tests.clients.drivers.talk import TOOLS, Json, Loop, Talk, main


def plain(_: Loop, asked: Json) -> Any:
    return litellm.completion(**asked)


def streamed(_: Loop, asked: Json) -> Any:
    chunks = list(litellm.completion(**asked, stream=True, stream_options={"include_usage": True}))
    return litellm.stream_chunk_builder(chunks, messages=asked["messages"])


def async_plain(loop: Loop, asked: Json) -> Any:
    return loop.runs(litellm.acompletion(**asked))


WAYS = (plain, streamed, async_plain)


def hold(loop: Loop, talk: Talk) -> None:
    """Turn by turn in another way of asking."""
    history: list[Any] = [{"role": "system", "content": talk.system}]
    given = {"model": f"openai/{talk.model}", "api_base": talk.base_url, "api_key": talk.key, "tools": TOOLS}
    for number, text in enumerate(talk.says):
        turn = talk.begins()
        history.append({"role": "user", "content": text})
        while turn.text is None:
            made = WAYS[number % len(WAYS)](loop, {**given, "messages": history})
            message = made.choices[0].message
            history.append(message)
            for call in message.tool_calls or ():
                content = talk.tool(call.function.name, json.loads(call.function.arguments))
                history.append({"role": "tool", "tool_call_id": call.id, "content": content})
            if not message.tool_calls:
                turn.text, turn.usage = message.content, made.usage.model_dump(exclude_none=True)


if __name__ == "__main__":
    main(partial(hold, Loop()))

"""openai-python: plain and streamed answers, synchronous and not, the stream and parse helpers, tools."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import openai
from pydantic import BaseModel

from tests.clients.drivers.talk import TOOLS, Json, Loop, Talk, main


class Note(BaseModel):
    """What is asked for as structured output."""

    turn: int
    note: str


def plain(client: Any, _: Any, asked: Json) -> Any:
    return client.chat.completions.create(**asked)


def parsed(client: Any, _: Any, asked: Json) -> Any:
    made = client.chat.completions.parse(**asked, response_format=Note)
    message = made.choices[0].message
    assert message.tool_calls or message.parsed.turn > 0
    return made


def helped_stream(client: Any, _: Any, asked: Json) -> Any:
    with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
        return stream.get_final_completion()


def async_plain(_: Any, run: Callable[..., Any], asked: Json) -> Any:
    return run(lambda client: client.chat.completions.create(**asked))


def async_stream(_: Any, run: Callable[..., Any], asked: Json) -> Any:
    """The pieces are put together by hand, as most programs do, and without usage."""

    async def streamed(client: Any) -> Any:
        text = ""
        calls: dict[int, Json] = {}
        async for part in await client.chat.completions.create(**asked, stream=True):
            for choice in part.choices:
                text += choice.delta.content or ""
                for piece in choice.delta.tool_calls or ():
                    call = calls.setdefault(piece.index, {"id": piece.id, "name": "", "arguments": ""})
                    call["name"] += piece.function.name or ""
                    call["arguments"] += piece.function.arguments or ""
        return text, list(calls.values())

    return run(streamed)


WAYS = (plain, async_stream, helped_stream, parsed, async_plain)


def hold(loop: Loop, talk: Talk) -> None:
    """Turn by turn in another way of asking; the history is kept as the SDK's own objects."""
    given: Json = {"base_url": talk.base_url, "api_key": talk.key}

    asynchronous = openai.AsyncOpenAI(**given)

    def run(ask: Callable[[Any], Any]) -> Any:
        return loop.runs(ask(asynchronous))

    history: list[Any] = [{"role": "system", "content": talk.system}]
    with openai.OpenAI(**given) as client:
        for number, text in enumerate(talk.says):
            turn = talk.begins()
            history.append({"role": "user", "content": text})
            while turn.text is None:
                asked = {"model": talk.model, "messages": history, "tools": TOOLS}
                takes_in(talk, history, WAYS[number % len(WAYS)](client, run, asked))
    loop.runs(asynchronous.close())


def takes_in(talk: Talk, history: list[Any], made: Any) -> None:
    """The answer joins the history, and the results of its calls."""
    turn = talk.turns[-1]
    if isinstance(made, tuple):
        text, calls = made
        message: Any = {"role": "assistant", "content": text or None}
        if calls:
            message["tool_calls"] = [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": call["name"], "arguments": call["arguments"]},
                }
                for call in calls
            ]
        asked = [(call["id"], call["name"], call["arguments"]) for call in calls]
    else:
        message = made.choices[0].message
        text = message.content
        turn.usage = made.usage.model_dump(exclude_none=True) if made.usage else None
        asked = [(c.id, c.function.name, c.function.arguments) for c in message.tool_calls or ()]
    history.append(message)
    for id_, name, arguments in asked:
        content = talk.tool(name, json.loads(arguments))
        history.append({"role": "tool", "tool_call_id": id_, "content": content})
    if not asked:
        turn.text = text


if __name__ == "__main__":
    main(partial(hold, Loop()))

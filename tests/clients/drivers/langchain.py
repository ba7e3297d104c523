"""LangChain (langchain-openai): a chat model bound to tools, invoked and streamed, synchronously and not."""

from __future__ import annotations

from functools import partial
from typing import Any

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from tests.clients.drivers.talk import Loop, Talk, main


def hold(loop: Loop, talk: Talk) -> None:
    """Turn by turn in another way of asking; the history is LangChain's own messages."""

    def lookup(name: str) -> str:
        """Find a record by its name."""
        return talk.lookup(name)

    def measure(metres: float) -> str:
        """Say a length in words."""
        return talk.measure(metres)

    tools = {made.name: made for made in (tool(lookup), tool(measure))}
    model = ChatOpenAI(
        base_url=talk.base_url, api_key=talk.key, model=talk.model, stream_usage=True, use_responses_api=False
    ).bind_tools(list(tools.values()))
    ways = (model.invoke, lambda said: streamed(model, said), lambda said: loop.runs(model.ainvoke(said)))
    history: list[Any] = [SystemMessage(talk.system)]
    for number, text in enumerate(talk.says):
        turn = talk.begins()
        history.append(HumanMessage(text))
        while turn.text is None:
            message = ways[number % len(ways)](history)
            history.append(message)
            history += [tools[call["name"]].invoke(call) for call in message.tool_calls]
            if not message.tool_calls:
                turn.text, turn.usage = message.content, message.usage_metadata


def streamed(model: Any, history: list[Any]) -> Any:
    """The chunks added up, as LangChain's documentation does it."""
    whole = None
    for chunk in model.stream(history):
        whole = chunk if whole is None else whole + chunk
    return whole


if __name__ == "__main__":
    main(partial(hold, Loop()))

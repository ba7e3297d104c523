"""pydantic-ai, with its chat model unless told otherwise: an agent that carries the calls out itself."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.clients.drivers.talk import Talk, main


def hold(talk: Talk, model: Any = OpenAIChatModel) -> None:
    """The history is the agent's own list of messages."""
    asyncio.run(holding(talk, model))


async def holding(talk: Talk, model: Any) -> None:
    """Every second turn is streamed."""
    provider = OpenAIProvider(base_url=talk.base_url, api_key=talk.key)
    agent = Agent(model(talk.model, provider=provider), system_prompt=talk.system)

    def lookup(name: str) -> str:
        """Find a record by its name."""
        return talk.lookup(name)

    def measure(metres: float) -> str:
        """Say a length in words."""
        return talk.measure(metres)

    agent.tool_plain(lookup)
    agent.tool_plain(measure)
    history: list[Any] = []
    for number, text in enumerate(talk.says):
        turn = talk.begins()
        if number % 2:
            async with agent.run_stream(text, message_history=history) as made:
                turn.text = await made.get_output()
        else:
            made = await agent.run(text, message_history=history)
            turn.text = made.output
        usage = made.usage() if callable(made.usage) else made.usage
        turn.usage = [usage.requests, usage.input_tokens, usage.output_tokens]
        history = made.all_messages()


if __name__ == "__main__":
    main(hold)

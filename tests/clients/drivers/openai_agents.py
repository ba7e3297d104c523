"""openai-agents, in chat mode unless told otherwise: its runner carries the calls out; nothing is traced."""

from __future__ import annotations

import asyncio
from typing import Any

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

from tests.clients.drivers.talk import Talk, main


def hold(talk: Talk, model: Any = OpenAIChatCompletionsModel) -> None:
    """The history is the runner's own list of items."""
    asyncio.run(holding(talk, model))


async def holding(talk: Talk, model: Any) -> None:
    """Every second turn is streamed."""
    set_tracing_disabled(disabled=True)

    def lookup(name: str) -> str:
        """Find a record by its name."""
        return talk.lookup(name)

    def measure(metres: float) -> str:
        """Say a length in words."""
        return talk.measure(metres)

    async with AsyncOpenAI(base_url=talk.base_url, api_key=talk.key) as client:
        agent = Agent(
            name="keeper",
            instructions=talk.system,
            model=model(model=talk.model, openai_client=client),
            tools=[function_tool(lookup), function_tool(measure)],
        )
        history: list[Any] = []
        for number, text in enumerate(talk.says):
            turn = talk.begins()
            asked: Any = [*history, {"role": "user", "content": text}]
            if number % 2:
                made: Any = Runner.run_streamed(agent, asked)
                async for _ in made.stream_events():
                    pass
            else:
                made = await Runner.run(agent, asked)
            turn.text = made.final_output
            usage = made.context_wrapper.usage
            turn.usage = [usage.requests, usage.input_tokens, usage.output_tokens]
            history = made.to_input_list()


if __name__ == "__main__":
    main(hold)

"""openai-agents with its Responses model, which is what it takes by itself."""

from __future__ import annotations

from functools import partial

from agents import OpenAIResponsesModel

from tests.clients.drivers.openai_agents import hold
from tests.clients.drivers.talk import main

if __name__ == "__main__":
    main(partial(hold, model=OpenAIResponsesModel))

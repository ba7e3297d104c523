"""pydantic-ai with its Responses model, which plain `openai:` means."""

from __future__ import annotations

from functools import partial

from pydantic_ai.models.openai import OpenAIResponsesModel

from tests.clients.drivers.pydantic_agent import hold
from tests.clients.drivers.talk import main

if __name__ == "__main__":
    main(partial(hold, model=OpenAIResponsesModel))

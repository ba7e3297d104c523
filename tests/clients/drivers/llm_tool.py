"""`llm`: a conversation with tools through its Python interface, streamed as on the command line.

The model is named in `extra-openai-models.yaml`, as its users do it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import llm

from tests.clients.drivers.talk import Talk, main


def prepare(talks: list[Talk]) -> None:
    """One model a conversation stands in the file in which users name theirs; JSON is YAML.

    Plugins are loaded with the first model, and not by several threads at once.
    """
    home = Path(talks[0].folder) / "llm"
    home.mkdir()
    models = [
        {
            "model_id": f"harbour-{talk.name}",
            "model_name": talk.model,
            "api_base": talk.base_url,
            "api_key_name": talk.name,
            "supports_tools": True,
        }
        for talk in talks
    ]
    (home / "extra-openai-models.yaml").write_text(json.dumps(models), encoding="utf-8")
    (home / "keys.json").write_text(json.dumps({talk.name: talk.key for talk in talks}), encoding="utf-8")
    os.environ["LLM_USER_PATH"] = str(home)
    llm.get_models()


def hold(talk: Talk) -> None:
    """A conversation object keeps the history."""

    def lookup(name: str) -> str:
        """Find a record by its name."""
        return talk.lookup(name)

    def measure(metres: float) -> str:
        """Say a length in words."""
        return talk.measure(metres)

    model = llm.get_model(f"harbour-{talk.name}")
    conversation = model.conversation(tools=[lookup, measure])
    for text in talk.says:
        turn = talk.begins()
        for response in conversation.chain(text, system=talk.system).responses():
            turn.text = response.text()
            usage = response.usage()
            turn.usage = [usage.input, usage.output]


if __name__ == "__main__":
    main(hold, prepare)

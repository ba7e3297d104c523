"""aider, started as from the command line: each turn has it rewrite a file of its own folder.

Telemetry, update check and hints on screen are switched off; a file tells it what the model can take.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from aider.llm import litellm
from aider.main import main as aider

from tests.clients.drivers.talk import Talk, main

FILE = "notes.md"
SWITCHES = (
    "no-git yes-always no-check-update no-show-release-notes analytics-disable no-pretty no-fancy-input",
    "no-show-model-warnings no-detect-urls no-suggest-shell-commands no-auto-lint",
)
# Its own summaries are put off: they would begin at 1,024 tokens of a model it does not know.
NUMBERS = {"map-tokens": "0", "edit-format": "whole", "max-chat-history-tokens": "1000000"}


def prepare(_: list[Talk]) -> None:
    """What takes seconds to load is loaded once for all processes."""
    litellm.completion  # noqa: B018  (looked up, it is loaded)


def hold(talk: Talk) -> None:
    """In a process of its own: the address, the key and the folder are the process's."""
    os.chdir(talk.folder)
    os.environ.update({"OPENAI_API_BASE": talk.base_url, "OPENAI_API_KEY": talk.key})
    name = f"openai/{talk.model}"
    known = {name: {"max_input_tokens": 1_000_000, "litellm_provider": "openai", "mode": "chat"}}
    Path("known.json").write_text(json.dumps(known), encoding="utf-8")
    Path(FILE).write_text("Nothing yet.\n", encoding="utf-8")
    options = [f"--{switch}" for line in SWITCHES for switch in line.split()]
    values = {"model": name, "weak-model": name, "model-metadata-file": "known.json", **NUMBERS}
    options += [part for option, value in values.items() for part in (f"--{option}", value)]
    coder: Any = aider([*options, FILE], return_coder=True)
    for text in talk.says:
        turn = talk.begins()
        turn.text = coder.run(with_message=text)
        turn.calls.append(["wrote", Path(FILE).read_text(encoding="utf-8")])


if __name__ == "__main__":
    main(hold, prepare, forks=True)

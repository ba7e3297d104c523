"""Codex CLI, one `codex exec` a turn: the first begins a session, the others resume it.

Its tool is a shell: records lie as files in the conversation's folder. Its program comes from npm, with a
native one in a package of its own; this driver needs only the standard library.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from tests.clients.drivers.talk import Talk, Turn, main

PROGRAM = Path(".clients-node/node_modules/.bin/codex").absolute()
# Far beyond every conversation, so that it does not compact by itself.
CONTEXT_TOKENS = 1_000_000
PATIENCE_SECONDS = 60
SETTINGS = """\
model = "{model}"
model_provider = "palimpsest"
model_context_window = {window}
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false

[analytics]
enabled = false

[features]
plugins = false

[model_providers.palimpsest]
name = "{provider}"
base_url = "{base_url}"
env_key = "PALIMPSEST_KEY"
wire_api = "responses"
"""


def hold(talk: Talk) -> None:
    """Each turn is a process, as when it is typed."""
    codex = Codex(talk)
    records = Path(talk.folder) / "records"
    records.mkdir()
    for name, text in talk.records.items():
        (records / f"{name}.txt").write_text(text, encoding="utf-8")
    for text in talk.says:
        takes_in(talk.begins(), codex.runs(text))


class Codex:
    """One session of Codex, in a folder and with settings of its own. `session` is known after a turn.

    A provider that calls itself OpenAI is asked for compactions, others are not.
    """

    def __init__(self, talk: Talk, provider: str = "Palimpsest") -> None:
        self._folder = Path(talk.folder)
        self._key = talk.key
        self._home = self._folder.parent / f"codex-{talk.name}"
        self._home.mkdir()
        said = {"model": talk.model, "base_url": talk.base_url, "provider": provider}
        settings = SETTINGS.format(window=talk.limit or CONTEXT_TOKENS, **said)
        (self._home / "config.toml").write_text(settings, encoding="utf-8")
        self.session = ""

    def runs(self, text: str) -> list[Any]:
        """The events of one turn. RuntimeError when it failed."""
        resumes = ["resume", self.session] if self.session else []
        done = subprocess.run(
            [PROGRAM, "exec", *resumes, "--skip-git-repo-check", "--strict-config", "--json", text],
            cwd=self._folder,
            env={**os.environ, "CODEX_HOME": str(self._home), "PALIMPSEST_KEY": self._key},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        events = [json.loads(line) for line in done.stdout.splitlines()]
        if done.returncode != 0:
            raise RuntimeError(f"{events[-3:]}\n{done.stderr.decode()[-2000:]}")
        sessions = {event["thread_id"] for event in events if event["type"] == "thread.started"}
        assert len(sessions | ({self.session} - {""})) == 1, sessions
        (self.session,) = sessions
        return events


def takes_in(turn: Turn, events: list[Any]) -> None:
    """What the turn came to: commands with what they printed, and the last words."""
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    ran = [item for item in items if item["type"] == "command_execution"]
    turn.calls += [[_command(item["command"]), item["aggregated_output"]] for item in ran]
    turn.text = next(item["text"] for item in reversed(items) if item["type"] == "agent_message")


def _command(line: str) -> str:
    """What was asked of the shell."""
    return re.sub(r"^\S+ -lc ", "", line)


if __name__ == "__main__":
    main(hold)

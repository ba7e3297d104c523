"""opencode, as the server that its own screen and `opencode run` talk to: a session a conversation.

It has its own tools: records lie as files in the conversation's folder. Its program comes from npm; this
driver needs only the standard library.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

from tests.clients.drivers.talk import Talk, main

PROGRAM = Path(".clients-node/node_modules/.bin/opencode").absolute()
SWITCHES = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "SHARE")
# Far beyond every conversation, so that it does not compact by itself.
CONTEXT_TOKENS, OUTPUT_TOKENS = 200_000, 1_000


class Server:
    """The running server; it ends with the driver, whose child it is."""

    def __init__(self, talks: list[Talk]) -> None:
        folder = Path(talks[0].folder)
        has_its_plugin(Path.home() / ".config" / "opencode")
        (folder / "opencode.json").write_text(json.dumps(configured(talks)), encoding="utf-8")
        switches = {f"OPENCODE_DISABLE_{switch}": "1" for switch in SWITCHES}
        given = {"OPENCODE_CONFIG": str(folder / "opencode.json"), **switches}
        self.process = subprocess.Popen(
            [PROGRAM, "serve", "--pure"],
            cwd=folder,
            env={**os.environ, **given},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(rb"http://[\d.:]+", line):
                self.url = found[0].decode()
                return
        raise RuntimeError(f"opencode did not start: {self.process.wait()}")

    def asks(self, path: str, folder: str, body: Any) -> Any:
        """What it answers to a POST; with a conversation's turn, when the turn has ended."""
        headers = {"content-type": "application/json", "x-opencode-directory": folder}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=120) as reply:
            return json.load(reply)


def has_its_plugin(folder: Path) -> None:
    """As after a first start, which puts a package for writers of plugins there: npm is not asked for it."""
    (folder / "node_modules").mkdir(parents=True)
    needs = {"dependencies": {"@opencode-ai/plugin": "*"}}
    (folder / "package.json").write_text(json.dumps(needs), encoding="utf-8")
    (folder / "package-lock.json").write_text(json.dumps({"packages": {"": needs}}), encoding="utf-8")


def configured(talks: list[Talk]) -> Any:
    """Its settings: a place to reach the model for each conversation, and nothing to ask the user."""
    places = {
        place_of(talk): {
            "npm": "@ai-sdk/openai-compatible",
            "name": place_of(talk),
            "options": {"baseURL": talk.base_url, "apiKey": talk.key},
            "models": {talk.model: {"name": talk.model, "limit": limits(talk)}},
        }
        for talk in talks
    }
    return {"provider": places, "permission": {"*": "allow"}, "share": "disabled", "autoupdate": False}


def place_of(talk: Talk) -> str:
    """The model server's name; prompts tell it, so that it has as many tokens in each conversation."""
    return Path(talk.folder).name


def limits(talk: Talk) -> Any:
    return {"context": talk.limit or CONTEXT_TOKENS, "output": OUTPUT_TOKENS}


class Hold:
    """Holds conversations once the server is there."""

    server: Server

    def prepare(self, talks: list[Talk]) -> None:
        self.server = Server(talks)

    def __call__(self, talk: Talk) -> None:
        records = Path(talk.folder) / "records"
        records.mkdir()
        for name, text in talk.records.items():
            (records / f"{name}.txt").write_text(text, encoding="utf-8")
        session = self.server.asks("/session", talk.folder, {})["id"]
        for text in talk.says:
            turn = talk.begins()
            model = {"providerID": place_of(talk), "modelID": talk.model}
            asked = {"model": model, "parts": [{"type": "text", "text": text}]}
            self.server.asks(f"/session/{session}/message", talk.folder, asked)
            takes_in(turn, self.messages(session, talk.folder, text))

    def messages(self, session: str, folder: str, text: str) -> list[Any]:
        """The session's messages from the one with this text on."""
        request = urllib.request.Request(f"{self.server.url}/session/{session}/message")
        request.add_header("x-opencode-directory", folder)
        with urllib.request.urlopen(request, timeout=60) as reply:
            told = json.load(reply)
        said = [any(part.get("text") == text for part in message["parts"]) for message in told]
        return list(told[said.index(True) :])


def takes_in(turn: Any, messages: list[Any]) -> None:
    """What the answers to one message of the user come to."""
    answers = [message for message in messages if message["info"]["role"] == "assistant"]
    for message in answers:
        assert "error" not in message["info"], message["info"]["error"]
    parts = [part for message in answers for part in message["parts"]]
    turn.calls += [[part["tool"], part["state"]["input"]] for part in parts if part["type"] == "tool"]
    turn.text = next((part["text"] for part in reversed(parts) if part["type"] == "text"), None)
    turn.usage = [message["info"]["tokens"] for message in answers]


if __name__ == "__main__":
    hold = Hold()
    try:
        main(hold, hold.prepare)
    finally:
        hold.server.process.terminate()
        hold.server.process.wait()

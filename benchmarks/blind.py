"""What a reader knows of a conversation who sees only its compacted view; a person or a model writes records.

    python -m benchmarks.blind FILE CONVERSATION FOLDER [--window 8000] [--code]

Replays one recorded conversation (a line of FILE: `id`, `messages`, perhaps `tools`) through the program as a
client that sends its whole history. The upstream says what was recorded. A question for a summary is written
to FOLDER/question-N.txt, as the summarizer reads it, and waits for FOLDER/answer-N.txt: whoever writes that
file sees each message once, as a model would. `--code`: nobody is asked. At the end FOLDER/view.txt has the
last forwarded prompt, and FOLDER/truncated.txt the newest messages of equal size.

Readers then answer questions from view.txt alone. The questions must be written by somebody who has seen no
view, and the answers graded against the conversation (benchmarks/blind-trial.md).
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from palimpsest.tokenizer.counting import Tokenizer

Json = dict[str, Any]
# A writer may take its time.
_PATIENCE_SECONDS, _LOOKS_SECONDS = 600, 0.3
_PATIENCE = {
    "PALIMPSEST_COMPACTION__DEADLINE_SECONDS": str(_PATIENCE_SECONDS),
    "PALIMPSEST_POLICY__WAIT_FOR_SUMMARY": "true",
}
_MARKS = ("[Note of the system that keeps this conversation", "You keep the record of a long conversation")


class Upstream(ThreadingHTTPServer):
    """Says what was recorded after the newest message, and asks for summaries by files."""

    def __init__(self, conversation: Json, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.messages: list[Json] = conversation["messages"]
        self.folder, self.questions, self.forwarded = folder, 0, Json()
        self.turn, self.lock = 0, threading.Lock()

    def answer_to(self, body: Json) -> Json:
        """The message to answer with."""
        ends = [str(body["messages"][place].get("content") or "") for place in (0, -1)]
        if not any(mark in end[:400] for end in ends for mark in _MARKS):
            self.forwarded = body
            recorded = self.messages[self.turn]
            return {key: recorded[key] for key in ("role", "content", "tool_calls") if key in recorded}
        with self.lock:
            self.questions += 1
            number = self.questions
        (self.folder / f"question-{number}.txt").write_text(as_text(body["messages"]), encoding="utf-8")
        answer = self.folder / f"answer-{number}.txt"
        while not answer.exists():
            time.sleep(_LOOKS_SECONDS)
        # Whoever writes it may not have finished.
        time.sleep(_LOOKS_SECONDS)
        return {"role": "assistant", "content": answer.read_text(encoding="utf-8")}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Upstream

    def do_POST(self) -> None:  # the name is the library's
        """One answer, whole."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        message = self.server.answer_to(body)
        prompt, said = tokens(as_text(body["messages"])), tokens(as_text([message]))
        usage = {"prompt_tokens": prompt, "completion_tokens": said, "total_tokens": prompt + said}
        why = "tool_calls" if message.get("tool_calls") else "stop"
        choices = [{"index": 0, "message": message, "finish_reason": why}]
        made = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
        made |= {"choices": choices, "usage": usage}
        sent = json.dumps(made).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *_: object) -> None:
        """Nothing: the program has a log of its own."""


_COUNTER = Tokenizer().counter_for("gpt-4o")


def tokens(text: str) -> int:
    """Tokens of a text."""
    return _COUNTER.count_text(text)


def as_text(messages: list[Json]) -> str:
    """Messages as somebody reads them."""
    said = []
    for message in messages:
        calls = [
            f"[calls {each['function']['name']} {each['function']['arguments']}]"
            for each in message.get("tool_calls") or []
        ]
        said.append(
            "\n".join([f"--- {message['role']}", *filter(None, [str(message.get("content") or "")]), *calls])
        )
    return "\n\n".join(said) + "\n"


def truncated(messages: list[Json], size: int) -> list[Json]:
    """The instructions and the newest messages, together at most `size` tokens."""
    head = [each for each in messages[:1] if each["role"] == "system"]
    kept: list[Json] = []
    for message in reversed(messages[len(head) :]):
        if tokens(as_text([*head, message, *kept])) > size:
            break
        kept.insert(0, message)
    return [*head, *kept]


def main() -> None:
    """Replays, and writes view.txt."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("conversation")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--window", type=int, default=8_000)
    parser.add_argument("--code", action="store_true")
    given = parser.parse_args()
    rows = map(json.loads, given.file.read_text(encoding="utf-8").splitlines())
    conversation = next(row for row in rows if row["id"] == given.conversation)
    given.folder.mkdir(parents=True, exist_ok=True)
    upstream = Upstream(conversation, given.folder)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    env = {
        name: value for name, value in os.environ.items() if not name.startswith("PALIMPSEST_")
    } | _PATIENCE
    if given.code:
        env["PALIMPSEST_POLICY__ADVANCED__USE_SUMMARIZER"] = "false"
    command = [
        sys.executable,
        "-m",
        "palimpsest",
        "serve",
        "--port",
        "0",
        "--window-tokens",
        str(given.window),
    ]
    command += [
        "--upstream",
        f"http://127.0.0.1:{upstream.server_port}/v1",
        "--database",
        f"sqlite:///{given.folder}/blind.db",
    ]
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        try:
            said = next(line for line in process.stdout if "http://" in line and "started" in line)
            address = said.partition("http://")[2].split()[0].strip("\"',/")
            threading.Thread(target=process.stdout.read, daemon=True).start()
            _replay(address, conversation, upstream, given.folder)
        finally:
            process.terminate()


def _replay(address: str, conversation: Json, upstream: Upstream, folder: Path) -> None:
    messages = conversation["messages"]
    extra = {"tools": conversation["tools"]} if conversation.get("tools") else {}
    headers = {"content-type": "application/json", "authorization": "Bearer sk-blind"}
    client, folds = http.client.HTTPConnection(address, timeout=2 * _PATIENCE_SECONDS), 0
    for place, message in enumerate(messages):
        if message["role"] != "assistant" or not place:
            continue
        upstream.turn = place
        body = json.dumps({"model": "m", "messages": messages[:place], **extra})
        client.request("POST", "/v1/chat/completions", body, headers)
        reply = client.getresponse()
        text = reply.read().decode()
        if reply.status != http.client.OK:
            raise RuntimeError(text)
        client.request(
            "GET", f"/api/sessions/{reply.headers['x-palimpsest-session']}/compactions", headers=headers
        )
        made = json.loads(client.getresponse().read())["compactions"]
        if len(made) > folds:
            folds, new = len(made), made[-1]
            sizes = f"{new['tokens_before']} to {new['tokens_after']} tokens"
            print(f"message {place}: compaction {folds} by {new['author']}, {sizes}", flush=True)
            (folder / f"block-{folds}.txt").write_text(new["summary"], encoding="utf-8")
    view = as_text(upstream.forwarded["messages"])
    (folder / "view.txt").write_text(view, encoding="utf-8")
    newest = truncated(messages[:-1], tokens(view))
    (folder / "truncated.txt").write_text(as_text(newest), encoding="utf-8")
    print(f"{folds} compactions, {upstream.questions} questions, a view of {tokens(view)} tokens")


if __name__ == "__main__":
    main()

"""Counts what a turn calls of the package's own functions, in a real server with a real upstream behind it.

From the request's arrival until `_AFTER_SECONDS` after its answer; the least of five turns, since work of
earlier turns may fall into one. What is counted is the same whatever the machine does meanwhile.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.house.sources import ROOT

_AFTER_SECONDS = 0.4
# Behind the first turns: summaries prepared, prices, the index of words.
_SETTLED_SECONDS = 5.0
_BETWEEN_SECONDS = 3.0
_START_SECONDS = 60.0
_WORDS = (
    "alpha beta gamma delta parser module function returns error line file test commit branch server client "
    * 40
).split()


@dataclass(frozen=True)
class Scene:
    """A conversation whose next turn is counted."""

    messages: int
    words: int
    window: int
    is_streamed: bool = False
    is_compacted: bool = False


SCENES = {
    "plain": Scene(20, 20, 128_000),
    "streamed": Scene(20, 20, 128_000, is_streamed=True),
    "compacted_64": Scene(50, 190, 8_000, is_compacted=True),
    "compacted_514": Scene(500, 13, 8_000, is_compacted=True),
}


def calls_of(name: str) -> int:
    """Own calls of one turn of a scene."""
    scene = SCENES[name]
    messages: list[dict[str, str]] = [{"role": "system", "content": "You are S."}]
    for i in range(scene.messages // 2 - 1):
        said = " ".join(_WORDS[i % 16 : i % 16 + scene.words])
        messages.append({"role": "user", "content": f"old {i} {said}"})
        messages.append({"role": "assistant", "content": f"old answer {i} {said}"})
    with (
        tempfile.TemporaryDirectory() as folder,
        _upstream() as upstream,
        _server(Path(folder), upstream, scene.window) as client,
    ):
        for i in range(4):
            _turn(client, messages, f"warm {i} ", scene.is_streamed)
        time.sleep(_SETTLED_SECONDS)
        counted = []
        for i in range(5):
            for left in ("ready", "calls"):
                (Path(folder) / left).unlink(missing_ok=True)
            (Path(folder) / "on").touch()
            _wait_for(Path(folder) / "ready")
            view = _turn(client, messages, f"measured {i} ", scene.is_streamed)
            time.sleep(_AFTER_SECONDS)
            (Path(folder) / "on").unlink()
            _wait_for(Path(folder) / "calls")
            counted.append(int((Path(folder) / "calls").read_text()))
            assert view == ("compacted" if scene.is_compacted else "original"), view
            time.sleep(_BETWEEN_SECONDS)
        return min(counted)


def _turn(client: HTTPConnection, messages: list[dict[str, str]], text: str, is_streamed: bool) -> str:
    messages.append({"role": "user", "content": text})
    body = {"model": "gpt-a", "messages": messages} | ({"stream": True} if is_streamed else {})
    # Plain: each header that a client adds is a few calls more.
    headers = {"authorization": "Bearer sk-1", "content-type": "application/json"}
    client.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    reply = client.getresponse()
    text = reply.read().decode()
    assert reply.status == 200, text
    if is_streamed:
        events = [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: {")]
        answer = "".join(c["delta"].get("content", "") for event in events for c in event["choices"])
    else:
        answer = json.loads(text)["choices"][0]["message"]["content"]
    messages.append({"role": "assistant", "content": answer})
    return str(reply.headers["x-palimpsest-view"])


def _wait_for(file: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not file.exists():
        assert time.monotonic() < deadline, f"{file.name} does not come"
        time.sleep(0.01)


@contextmanager
def _server(folder: Path, upstream: str, window: int) -> Iterator[HTTPConnection]:
    paths = os.pathsep.join([str(ROOT / "tests/house/counted"), str(ROOT / "app")])
    given = {name: value for name, value in os.environ.items() if not name.startswith("PALIMPSEST_")}
    given |= {"CALLS_DIR": str(folder), "PYTHONPATH": paths}
    command = [sys.executable, "-m", "palimpsest", "serve", "--port", "0", "--upstream", upstream]
    command += ["--window-tokens", str(window), "--database", f"sqlite:///{folder}/calls.db"]
    with subprocess.Popen(
        command, cwd=folder, env=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        said: list[str] = []
        for line in process.stdout:
            said.append(line.decode())
            if "started" in said[-1]:
                break
        assert "http://" in said[-1], "".join(said)
        address = said[-1].partition("http://")[2].split()[0].strip("\"',/")
        # What it goes on to say must not fill the pipe.
        threading.Thread(target=process.stdout.read, daemon=True).start()
        client = HTTPConnection(address, timeout=120)
        try:
            yield client
        finally:
            client.close()
            process.terminate()


@contextmanager
def _upstream() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Model)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()


class _Model(BaseHTTPRequestHandler):
    """Answers each question with a digest of it, so that a summary of its is never taken for one."""

    protocol_version = "HTTP/1.1"
    # Head and body leave together.
    wbufsize = -1

    def do_GET(self) -> None:
        self._send(json.dumps({"object": "list", "data": []}).encode(), "application/json")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        digest = hashlib.sha1(json.dumps(asked["messages"][-1]).encode()).hexdigest()[:10]
        usage = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}
        if not asked.get("stream"):
            message = {"role": "assistant", "content": f"Answer é {digest}", "refusal": None}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            whole = {"id": "c", "object": "chat.completion", "choices": [choice], "usage": usage}
            return self._send(json.dumps(whole).encode(), "application/json")
        deltas: list[tuple[dict[str, str], str | None]] = [({"role": "assistant", "content": ""}, None)]
        deltas += [({"content": piece}, None) for piece in ("Answer ", "é ", digest)]
        deltas.append(({}, "stop"))
        events: list[dict[str, Any]] = [
            {
                "id": "c",
                "object": "chat.completion.chunk",
                "choices": [{"index": 0, "delta": delta, "finish_reason": end}],
            }
            for delta, end in deltas
        ]
        events.append({"id": "c", "choices": [], "usage": usage})
        lines = [f"data: {json.dumps(event)}\n\n" for event in events]
        return self._send("".join([*lines, "data: [DONE]\n\n"]).encode(), "text/event-stream")

    def _send(self, body: bytes, kind: str) -> None:
        self.send_response_only(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing: tests print what fails."""

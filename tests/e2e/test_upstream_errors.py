"""An upstream's error in its own words: on the exchange, its page, in `show` and in the log, without keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.kit.model import ModelServer, Says
from tests.kit.proxy import proxied
from tests.kit.terminal import runs
from tests.kit.wire import answer_body, chat_body, event, post, wired
from tests.upstream.scripted import replies, streams

Json = dict[str, Any]
OWN, THEIRS = "operator-key-7", "caller-key-9"
SAID: list[tuple[Any, str]] = [
    (
        {"error": {"message": f"Bad key {OWN}, not {THEIRS}\n or sk-abcdefgh12345678ijkl.", "code": 1}},
        "Bad key ",
    ),
    ({"error": "模型不可用"}, "模型不可用"),
    ([{"error": {"message": "Resource exhausted."}}], "Resource exhausted."),
    ({"detail": [{"msg": "Field required"}]}, '{"detail": [{"msg": "Field required"}]}'),
    ({"message": "x" * 900}, "x" * 500),
]


@pytest.mark.parametrize(("error", "begins"), SAID)
async def test_an_error_is_kept_where_one_looks(error: Json, begins: str, tmp_path: Path) -> None:
    with capture_logs() as logs:
        async with proxied(ModelServer(), tmp_path, {"upstream.api_key": OWN}) as proxy:
            chat = proxy.chat(session="work", key=THEIRS)
            proxy.model.answers.append(Says(status=429, error=error))
            await chat.posts([{"role": "user", "content": "Hello."}])
            shown = (await runs(proxy, "show", "work", key=THEIRS)).stdout
            home = f"sessions/{chat.session}"
            places = (f"api/{home}/exchanges", f"ui/{home}", f"ui/{home}/turns/1")
            told = [(await proxy.http.get(place, headers=chat.headers)).text for place in places]
    said = json.loads(told[0])["exchanges"][0]["error"]
    assert (said[: len(begins)], len(said) <= 500) == (begins, True)
    lines = [line for line in logs if line["event"] == "exchange"]
    assert [line["error"] for line in lines] == [said]
    assert said in shown
    assert all(said[:20].split('"')[0] in page for page in told)
    assert not any(key in json.dumps([told, lines]) + shown for key in (OWN, THEIRS, "sk-abcd"))


@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_with_status_200_is_kept_too(stream: bool, tmp_path: Path) -> None:
    error = b'{"error": {"message": "The GPU is on fire.", "type": "server_error"}}'
    pieces = [event({"content": "Once"}), b"data: " + error + b"\n\n"]
    async with wired(tmp_path) as line:
        line.upstream.expects(streams(pieces) if stream else replies(error), replies(answer_body()))
        await line.asks(post(chat_body(stream=stream)))
        await line.asks(post(chat_body()))
        assert line.query("SELECT error FROM exchanges")[0] == ("The GPU is on fire.",)

"""Commands that read a running proxy: they say what the endpoints say, as lines and as JSON."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from palimpsest.cli.main import main
from structlog.testing import capture_logs

from tests.kit.chat import Chat
from tests.kit.journal import AT_THE_END, compacted, read
from tests.kit.model import ModelServer, Says
from tests.kit.processes import Process
from tests.kit.proxy import Proxy, proxied
from tests.kit.responses import ResponsesChat, ResponsesServer
from tests.kit.terminal import runs

pytestmark = pytest.mark.timeout(90)


async def as_json(proxy: Proxy, *words: str) -> Any:
    return json.loads((await runs(proxy, *words, "--json")).stdout)


async def told(proxy: Proxy) -> Chat:
    """A conversation that was compacted, and another that failed."""
    chat = proxy.chat(session="the work")
    await compacted(chat)
    other = proxy.chat(session="other")
    await other.says("Hello.")
    proxy.model.answers.append(Says(status=429, error={"message": "no", "type": "x", "code": "y"}))
    await other.posts([*other.said, {"role": "user", "content": "Again."}])
    return chat


async def test_sessions_and_turns_are_listed(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=8_000), tmp_path, AT_THE_END) as proxy:
        chat = await told(proxy)
        lines = (await runs(proxy, "sessions")).stdout.splitlines()
        head = next(at for at, line in enumerate(lines) if line.startswith("SESSION"))
        assert [line.split("  ")[0] for line in lines[head + 1 :]] == ["other", "the work"]
        listed = (await read(proxy.http, chat, "sessions?details=1&limit=25"))["sessions"]
        assert (await as_json(proxy, "sessions"))["sessions"] == listed
        for words, names in (
            (["--error", "429"], ["other"]),
            (["the"], ["the work"]),
            (["--model", "none"], []),
        ):
            found = (await as_json(proxy, "sessions", *words))["sessions"]
            assert [row["name"] for row in found] == names
        assert "There are no such sessions." in (await runs(proxy, "sessions", key="another")).stdout
        shown = (await runs(proxy, "show", "the work")).stdout
        (made,) = (await read(proxy.http, chat, "sessions/the work/compactions"))["compactions"]
        assert f"{made['messages_folded']:,} messages folded" in shown
        assert made["reason"] in shown
        assert "upstream_status 429" in (await runs(proxy, "show", "other")).stdout


async def test_what_the_model_saw_is_printed(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=8_000), tmp_path, AT_THE_END) as proxy:
        chat = await told(proxy)
        last = len(chat.replies)
        seen = await read(proxy.http, chat, f"sessions/{chat.session}/exchanges/{last}")
        newest = await as_json(proxy, "view", "the work")
        assert newest["parts"] == seen["parts"]
        lines = (await runs(proxy, "view", "the work")).stdout
        assert lines.count("\n--- ") == len(seen["parts"])
        assert chat.said[-2]["content"] in lines
        first = (await as_json(proxy, "view", "the work", "--at", "1"))["parts"]
        assert [part["message"] for part in first] == chat.sent[0]
        body = await runs(proxy, "view", "the work", "--at", "1", "--body")
        sent = (await proxy.http.get("/api/sessions/the work/exchanges/1/body", headers=chat.headers)).content
        assert body.stdout_bytes.endswith(sent)
        words = ("view", "the work", "--at", str(last), "--against", "previous")
        assert (await as_json(proxy, *words))["gone"]
        assert "\n- user: " in (await runs(proxy, *words)).stdout
        against = await as_json(proxy, "view", "the work", "--against", "said")
        assert len(against["gone"]) > len(against["new"])
        hits = (await runs(proxy, "search", "decided to use port 8000")).stdout
        assert "decided to use port 8000" in hits
        assert f"session {chat.session}" in hits
        assert (
            "Nothing that was said" in (await runs(proxy, "search", "port 8000", "--session", "other")).stdout
        )


ADMIN = "operator-0123456789"


async def test_the_operator_reads_what_the_caller_does(tmp_path: Path) -> None:
    given = AT_THE_END | {"access.admin_key": ADMIN, "access.admin_reads": True}
    async with proxied(ModelServer(window=8_000), tmp_path, given) as proxy:
        await told(proxy)
        (one,) = (await as_json(proxy, "namespaces", "--admin-key", ADMIN))["namespaces"]
        operator = "--namespace", one["id"], "--admin-key", ADMIN
        for words in (
            ("sessions", "--json"),
            ("show", "the work", "--json"),
            ("view", "the work", "--body"),
            ("view", "the work", "--against", "said", "--json"),
            ("search", "port 8000", "--json"),
            ("tail", "--most", "2", "--json"),
            ("report", "--json"),
            ("export", "the work", "--format", "jsonl"),
        ):
            with capture_logs() as logged:
                seen = await runs(proxy, *words, *operator, key="another")
            assert "admin_read" in {line["event"] for line in logged}
            assert seen.stdout == (await runs(proxy, *words)).stdout


async def test_the_operator_reads_only_where_that_is_allowed(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path, {"access.admin_key": ADMIN}) as proxy:
        await proxy.chat().says("Hello.")
        refused = await runs(proxy, "sessions", "--namespace", "any", "--admin-key", ADMIN, code=1)
        assert "access.admin_reads is off" in str(refused.exception)


async def test_turns_are_followed_as_they_end(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=8_000), tmp_path, AT_THE_END) as proxy:
        chat = proxy.chat(session="the work")
        for turn in range(3):
            await chat.says(f"Before {turn}.")
        await proxy.chat(session="another's", key="key-2").says("Not mine.")
        out, err = tmp_path / "out", tmp_path / "err"
        words = ("tail", "--last", "2", "--most", "4", "--json", "--url", proxy.url, "--key", "key-1")
        follows = Process(tmp_path, *words, settings={}, out=out, err=err)
        async with asyncio.timeout(30):
            while not (out.exists() and out.read_text().count("\n") == 2):  # noqa: ASYNC110 - a process's
                await asyncio.sleep(0.01)
        other = proxy.chat(session="other")
        await other.says("Hello.")
        await chat.says("After.")
        assert await follows.wait() == 0, err.read_text()
        told = [json.loads(line) for line in out.read_text().splitlines()]
        assert [(turn["name"], turn["n"]) for turn in told] == [
            ("the work", 2),
            ("the work", 3),
            ("other", 1),
            ("the work", 4),
        ]
        line = (await runs(proxy, "tail", "the work", "--last", "1", "--most", "1")).stdout.splitlines()[-1]
        # More than there are: all of them.
        every = (await runs(proxy, "tail", "the work", "--last", "50", "--most", "4", "--json")).stdout
        assert len(every.splitlines()) == 4
        assert "the work" in line
        assert "turn 4: " in line
        assert line.endswith(", done")


async def test_half_of_a_character_is_shown_as_json_spells_it(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=8_000), tmp_path, AT_THE_END) as proxy:
        body = b'{"model": "test-model", "messages": [{"role": "user", "content": "cut \\ud83d"}]}'
        headers = {"authorization": "Bearer key-1", "x-session-id": "cut", "content-type": "application/json"}
        assert (await proxy.http.post("/v1/chat/completions", content=body, headers=headers)).is_success
        for words in (["view", "cut"], ["view", "cut", "--json"], ["search", "cut"]):
            out, err = tmp_path / f"{len(words)}{words[0]}", tmp_path / "err"
            shows = Process(
                tmp_path, *words, "--url", proxy.url, "--key", "key-1", settings={}, out=out, err=err
            )
            assert await shows.wait() == 0, err.read_text()
            assert "cut \\ud83d" in out.read_text()


async def test_messages_are_pinned_and_unpinned(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=8_000), tmp_path, AT_THE_END) as proxy:
        chat = proxy.chat(session="the work")
        await chat.says("The port is 8443.")
        (hit,) = (await as_json(proxy, "search", "port 8443", "--limit", "1"))["results"]
        pinned = (await runs(proxy, "pins", "the work", "--add", hit["id"])).stdout
        assert f"{hit['id']}  " in pinned
        assert " by hand" in pinned
        kept = await read(proxy.http, chat, "sessions/the work/pins")
        assert [pin["message"] for pin in kept["pins"]] == [hit["id"]]
        gone = (await runs(proxy, "pins", "the work", "--remove", hit["id"])).stdout
        assert gone.endswith("No message is pinned.\n")


async def test_answers_of_the_responses_api_are_printed(tmp_path: Path) -> None:
    async with proxied(ResponsesServer(), tmp_path) as proxy:
        headers = {"authorization": "Bearer key-1", "x-session-id": "items"}
        chat = ResponsesChat(proxy.http, headers=headers)
        answered = [await chat.says("Who?"), await chat.says("And why?")][0]
        text = answered[-1]["content"][0]["text"]
        assert text in (await runs(proxy, "view", "items")).stdout
        assert f"+ assistant: {text}" in (await runs(proxy, "view", "items", "--against", "previous")).stdout


async def test_a_compaction_is_made_and_undone(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=8_000), tmp_path, AT_THE_END) as proxy:
        chat = await told(proxy)
        done = (await runs(proxy, "undo", "the work")).stdout
        assert "all messages are sent" in done
        (made,) = (await read(proxy.http, chat, "sessions/the work/compactions"))["compactions"]
        assert made["undone_at"]
        assert "messages folded" in (await runs(proxy, "compact", "the work", "--focus", "ports")).stdout
        assert len((await read(proxy.http, chat, "sessions/the work/compactions"))["compactions"]) == 2
        assert "Nothing was compacted" in (await runs(proxy, "compact", "other")).stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["view", "none"], "There is nothing here, or it is not yours. `palimpsest sessions` lists"),
        (
            ["namespaces"],
            "No admin key is set: set access.admin_key, and send it as a bearer token. A command",
        ),
        (["view", "other", "--at", "99"], "There is nothing here, or it is not yours."),
        (["undo", "other"], "No compaction of the session is in force."),
        (["show", "x/../../keys"], "There is nothing here, or it is not yours."),
        (
            ["sessions", "--url", "http://127.0.0.1:1"],
            "The proxy cannot be reached at http://127.0.0.1:1. Is it running?",
        ),
        (["search", "x" * 3_000], "q: String should have at most 2000 characters"),
    ],
)
async def test_what_cannot_be_told_is_refused(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-1")
    async with proxied(ModelServer(), tmp_path) as proxy:
        await proxy.chat(session="other").says("Hello.")
        given = words if "--url" in words else [*words, "--url", proxy.url]
        with pytest.raises(SystemExit) as ended:
            await asyncio.to_thread(main, given)
        assert ended.value.code == 2
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("told", ["PALIMPSEST_URL", "PALIMPSEST_SERVER__PORT", "palimpsest.yaml"])
@pytest.mark.parametrize("words", [["sessions"], ["erase", "--all", "--yes"], ["report"]])
async def test_commands_find_the_proxy(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-1")
    monkeypatch.chdir(tmp_path)
    async with proxied(ModelServer(), tmp_path) as proxy:
        await proxy.chat(session="other").says("Hello.")
        port = proxy.url.rpartition(":")[2]
        if told == "palimpsest.yaml":
            (tmp_path / told).write_text(f"server: {{host: 0.0.0.0, port: {port}}}")
        else:
            monkeypatch.setenv(told, port if told.endswith("PORT") else proxy.url)
        with contextlib.suppress(SystemExit):
            await asyncio.to_thread(main, words)
        assert "test-model" in (said := capsys.readouterr()).out or '"erased_at"' in said.out, said.err
    if told == "palimpsest.yaml":
        with pytest.raises(SystemExit):
            await asyncio.to_thread(main, words)
        assert (
            f"The proxy cannot be reached at http://127.0.0.1:{port}, where server.port has it listen "
            "(palimpsest.yaml). Is it running? --url, or PALIMPSEST_URL, gives another address."
        ) in capsys.readouterr().err

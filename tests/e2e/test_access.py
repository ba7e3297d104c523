"""Who is let in, whose key goes upstream, and what a caller may ask of the proxy (rules 25, 26, 29)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from palimpsest.cli.keys import create_key, revoke_key

from tests.kit.wire import Line, answer_body, chat_body, event, holding, opened, post, settings_for, wired
from tests.upstream.scripted import replies, streams

KEYS = {"access.mode": "keys", "upstream.api_key": "sk-operator"}


@asynccontextmanager
async def keyed(folder: Path, *labels: str, **more: object) -> AsyncIterator[tuple[Line, list[str]]]:
    """A proxy in keys mode with an operator's key, and one issued key for each label."""
    async with wired(
        folder, {**KEYS, **{key.replace("__", "."): value for key, value in more.items()}}
    ) as line:
        settings = settings_for(folder, line.upstream.url, KEYS)
        yield line, [(await create_key(settings, label))[1] for label in labels]


async def test_without_an_issued_key_nobody_is_let_in(tmp_path: Path) -> None:
    async with keyed(tmp_path) as (line, _):
        for key in (None, "", "sk-somebody", "pk-palimpsest-wrong"):
            for path in ("/v1/chat/completions", "/v1/embeddings", "/s/x/v1/chat/completions"):
                reply = await line.asks(post(chat_body(), path=path, key=key))
                assert (reply.status, reply.code) == (401, "invalid_api_key")
            headers = {"authorization": f"Bearer {key}"} if key else {}
            for path in ("/api/sessions", "/api/sessions/x/messages", "/v1/models"):
                reply_to_get = await line.http.get(path, headers=headers)
                assert reply_to_get.status_code == 401
                assert reply_to_get.json()["error"]["code"] == "invalid_api_key"
        assert (await line.http.get("/healthz")).status_code == 200
        assert line.upstream.requests == []
        assert line.query("SELECT count(*) FROM namespaces") == [(0,)]


@pytest.mark.spec("P5")
async def test_issued_keys_are_namespaces_and_the_operators_key_goes_upstream(tmp_path: Path) -> None:
    async with keyed(tmp_path, "ann", "bob") as (line, (ann, bob)):
        line.upstream.always(replies(answer_body()))
        mine = await line.asks(post(chat_body("the same"), [(b"X-Session-Id", b"s")], key=ann))
        theirs = await line.asks(post(chat_body("the same"), [(b"X-Session-Id", b"s")], key=bob))
        await line.http.get("/v1/models", headers={"authorization": f"Bearer {ann}"})
        assert mine.header("x-palimpsest-session") != theirs.header("x-palimpsest-session")
        assert len(await line.rows("s", ann)) == len(await line.rows("s", bob)) == 2
        for request in line.upstream.requests:
            assert [v for n, v in request.headers if n.lower() == b"authorization"] == [b"Bearer sk-operator"]
            assert ann.encode() not in request.head + request.body
        # Any header of a known kind may carry the key, and none of them reaches the upstream.
        for name in (b"api-key", b"x-api-key", b"x-goog-api-key"):
            reply = await line.asks(post(chat_body(), [(name, ann.encode())], key=None))
            assert reply.status == 200
            assert line.upstream.requests[-1].header(name.decode()) is None


@pytest.mark.spec("H03")
async def test_an_issued_key_may_stand_where_any_credential_may(tmp_path: Path) -> None:
    async with keyed(tmp_path, "ann") as (line, (ann,)):
        line.upstream.always(replies(answer_body()))
        sessions = set()
        for name, value, query in (
            (b"x-auth-token", ann, ""),
            (b"ocp-apim-subscription-key", ann, ""),
            (b"cookie", "session=another", f"?key={ann}"),
        ):
            given = [(b"X-Session-Id", b"s"), (name, value.encode())]
            path = "/v1/chat/completions" + query
            reply = await line.asks(post(chat_body("the same"), given, path=path, key=None))
            assert reply.status == 200, (name, reply.body)
            sessions.add(reply.header("x-palimpsest-session"))
            assert ann.encode() not in line.upstream.requests[-1].head
        # Whatever else a caller sends, the key alone says who asks.
        assert len(sessions) == 1


async def test_a_revoked_key_is_worth_nothing(tmp_path: Path) -> None:
    async with keyed(tmp_path, "ann") as (line, (ann,)):
        settings = settings_for(tmp_path, line.upstream.url, KEYS)
        ((key_id,),) = line.query("SELECT id FROM keys")
        assert await revoke_key(settings, key_id)
        reply = await line.asks(post(chat_body(), key=ann))
        assert (reply.status, reply.code) == (401, "invalid_api_key")


async def test_without_an_operators_key_an_issued_one_is_not_sent_on(tmp_path: Path) -> None:
    async with wired(tmp_path, {"access.mode": "keys"}) as line:
        settings = settings_for(tmp_path, line.upstream.url, {"access.mode": "keys"})
        _, key = await create_key(settings, "")
        line.upstream.expects(replies(answer_body()))
        assert (await line.asks(post(chat_body(), key=key))).status == 200
        assert line.upstream.requests[0].header("authorization") is None


async def test_a_store_that_is_down_opens_the_door_to_nobody(tmp_path: Path) -> None:
    failing = {"database__on_store_failure": "passthrough", "database__store_deadline_seconds": 0.2}
    async with keyed(tmp_path, "ann", **failing) as (line, (ann,)):
        line.upstream.always(replies(answer_body()))
        with opened(line.database) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ALTER TABLE keys RENAME TO lost")
            connection.execute("COMMIT")
            for key in ("sk-somebody", ann):
                reply = await line.asks(post(chat_body(), key=key))
                assert reply.status in (500, 503)
            connection.execute("ALTER TABLE lost RENAME TO keys")
        assert line.upstream.requests == []
        assert (await line.asks(post(chat_body(), key=ann))).status == 200


def test_an_operators_key_beyond_this_machine_needs_keys_mode(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("palimpsest")), "serve", "--port", "0", "--host", "0.0.0.0"]
    environment = {"PATH": os.environ["PATH"], "PALIMPSEST_UPSTREAM__API_KEY": "sk-operator-secret"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert b"access.mode" in done.stderr
    assert b"sk-operator-secret" not in done.stderr + done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.spec("P7")
async def test_the_callers_key_goes_upstream_where_the_operator_has_none(tmp_path: Path) -> None:
    async with wired(tmp_path) as line:
        line.upstream.expects(replies(answer_body()))
        await line.asks(post(chat_body(), key="sk-mine"))
        assert line.upstream.requests[0].header("authorization") == "Bearer sk-mine"


async def test_off_is_recorded_and_passes_uncompacted(tmp_path: Path) -> None:
    small = {"models": [{"match": "*", "window_tokens": 1_000}]}
    async with wired(tmp_path, small) as line:
        line.upstream.expects(replies(answer_body()))
        body = chat_body("word and another one, " * 600)
        reply = await line.asks(post(body, [(b"X-Palimpsest", b"OFF")]))
        assert reply.status == 200
        assert line.upstream.requests[0].body == body
        assert line.upstream.requests[0].header("x-palimpsest") is None
        assert len(await line.rows(reply)) == 2


@pytest.mark.parametrize("stream", [True, False])
async def test_no_store_leaves_no_byte(tmp_path: Path, stream: bool) -> None:
    async with wired(tmp_path) as line:
        said = [event({"content": "unrecorded-answer"}), event({}, "stop"), b"data: [DONE]\n\n"]
        line.upstream.expects(streams(said) if stream else replies(answer_body("unrecorded-answer")))
        body = chat_body("unrecorded-question", stream=stream)
        reply = await line.asks(post(body, [(b"X-Palimpsest", b"no-store")]))
        assert reply.status == 200
        assert b"unrecorded-answer" in reply.body
        assert reply.header("x-palimpsest-store") == "no-store"
        assert line.upstream.requests[0].body == body
        assert line.query("SELECT count(*) FROM credentials") == [(0,)]
        assert holding(tmp_path, "unrecorded") == set()
        # The search itself finds what is stored.
        line.upstream.expects(replies(answer_body()))
        await line.asks(post(chat_body("a-recorded-question")))
        assert holding(tmp_path, "a-recorded-question")


async def test_an_operator_may_forbid_both(tmp_path: Path) -> None:
    async with wired(tmp_path, {"access.allow_off": False}) as line:
        for word in (b"off", b"no-store"):
            reply = await line.asks(post(chat_body(), [(b"X-Palimpsest", word)]))
            assert (reply.status, reply.code) == (400, "invalid_field")
        assert line.upstream.requests == []


async def test_users_behind_one_key_are_told_apart_where_the_operator_says_so(tmp_path: Path) -> None:
    async with wired(tmp_path, {"access.identity_headers": ["x-user"]}) as line:
        line.upstream.always(replies(answer_body()))
        ids = []
        for user in (b"ann", b"bob"):
            headers = [(b"X-User", user), (b"X-Session-Id", b"s")]
            ids.append((await line.asks(post(chat_body("hi"), headers))).header("x-palimpsest-session"))
        assert ids[0] != ids[1]
        twice = [(b"X-User", b"ann"), (b"X-User", b"bob")]
        reply = await line.asks(post(chat_body("hi"), twice))
        assert (reply.status, reply.code) == (400, "repeated_header")

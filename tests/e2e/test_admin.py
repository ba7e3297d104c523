"""The operator's endpoints: what they show of everybody, to whom, and that no text is among it."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from palimpsest.cli.keys import create_key

from tests.kit.postgres import empty_database, server_address
from tests.kit.processes import ran
from tests.kit.wire import Json, Line, answer_body, chat_body, deployed, event, post, settings_for, wired
from tests.upstream.scripted import Script, replies, streams

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

KEY = "operator-0123456789abcdef=="
ADMIN = {"authorization": f"Bearer {KEY}"}
LIST = "/api/admin/namespaces"
OPERATED = {"access.admin_key": KEY, "access.admin_reads": True}
NAMESPACE = "X-Palimpsest-Namespace"
# Stands in everything that a caller can write.
SENTINEL = "a-word-of-nobody-else"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def line(each_database: Json, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Line]:
    """A proxy with an admin key, on each database."""
    async with wired(tmp_path_factory.mktemp("operated"), OPERATED | each_database) as running:
        yield running


def stating(text: str = "Hello.") -> Script:
    """An answer that states what it used."""
    return replies(answer_body(text, usage={"prompt_tokens": 40, "completion_tokens": 20}))


async def says(line: Line, key: str, text: str | None = None, **more: Any) -> int:
    """A turn of this key; its status."""
    line.upstream.always(more.pop("answer", stating()))
    return (await line.asks(post(chat_body(text, **more), key=key))).status


async def listed(line: Line) -> list[Json]:
    """All namespaces, a page of three at a time."""
    found: list[Json] = []
    after: str | None = ""
    while after is not None:
        reply = await line.http.get(LIST, params={"limit": 3, "after": after}, headers=ADMIN)
        assert reply.status_code == 200, reply.text
        page = reply.json()
        assert len(page["namespaces"]) <= 3
        found, after = found + page["namespaces"], page["next"]
    assert [each["id"] for each in found] == sorted({each["id"] for each in found})
    return found


async def namespace_of(line: Line, key: str) -> str:
    """The namespace of a key that nobody has used before, after its first turn."""
    before = {each["id"] for each in await listed(line)}
    assert await says(line, key) == 200
    (new,) = {each["id"] for each in await listed(line)} - before
    return str(new)


async def test_each_namespace_is_shown_with_its_sizes_and_use(line: Line) -> None:
    for turn in range(4):
        assert await says(line, f"sized-{turn}") == 200
    ident = await namespace_of(line, "seen")
    assert await says(line, "seen", "another session") == 200
    line.upstream.always(replies(b'{"error":{"message":"no"}}', status=400))
    refused = await line.asks(post(chat_body("refused"), key="seen"))
    assert refused.status == 400
    one = (await line.http.get(f"{LIST}/{ident}", headers=ADMIN)).json()
    assert (one["sessions"], one["messages"], one["proven"], one["keys"]) == (3, 5, True, [])
    assert (one["last_24_hours"]["turns"], one["last_24_hours"]["failures"]) == (3, 1)
    assert (one["today"]["tokens"], one["today"]["dollars"]) == (120, None)
    assert one["bytes"] > len("another session")
    assert one["last_used_at"] > one["created_at"] > one["last_24_hours"]["since"]
    (failed,) = one.pop("failures")
    own = {"authorization": "Bearer seen"}
    session = refused.header("x-palimpsest-session")
    (exchange,) = (await line.http.get(f"/api/sessions/{session}/exchanges", headers=own)).json()["exchanges"]
    assert failed == {
        "id": exchange["id"],
        "at": failed["at"],
        "state": "rejected",
        "code": "upstream_status",
        "cause": "upstream",
        "status": 400,
    }
    again = next(each for each in await listed(line) if each["id"] == ident)
    assert again | {"last_24_hours": one["last_24_hours"]} == one


async def test_no_text_of_a_caller_is_in_any_answer(line: Line) -> None:
    """Message, name, model, tool, call, metadata, answer, error: planted, stored, and not shown."""
    tool = {"type": "function", "function": {"name": SENTINEL, "parameters": {"type": "object"}}}
    call = {"id": SENTINEL, "type": "function", "function": {"name": SENTINEL, "arguments": f'"{SENTINEL}"'}}
    said = [
        {"role": "system", "content": SENTINEL},
        {"role": "user", "content": SENTINEL, "name": SENTINEL},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": SENTINEL, "content": SENTINEL},
    ]
    given = {"messages": said, "tools": [tool], "metadata": {"title": SENTINEL}, "user": SENTINEL}
    body = json.dumps({"model": SENTINEL, **given}).encode()
    headers = [(b"X-Session-Id", SENTINEL.encode()), (b"User-Agent", SENTINEL.encode())]
    error = f'{{"error":{{"message":"{SENTINEL}","code":"{SENTINEL}","type":"{SENTINEL}"}}}}'
    in_stream = [event({"content": SENTINEL}), f"data: {error}\n\n".encode()]
    before = {each["id"] for each in await listed(line)}
    for answer in (stating(SENTINEL), replies(error.encode(), status=429), streams(in_stream)):
        line.upstream.always(answer)
        await line.asks(post(body, headers, key="planter"))
    stored = await line.http.get(
        f"/api/sessions/{SENTINEL}/messages", headers={"authorization": "Bearer planter"}
    )
    assert stored.text.count(SENTINEL) > 5
    (ident,) = {each["id"] for each in await listed(line)} - before
    shown = await line.http.get(f"{LIST}/{ident}", headers=ADMIN)
    assert len(shown.json()["failures"]) >= 1
    answers = [shown, await line.http.get(LIST, params={"limit": 200}, headers=ADMIN)]
    answers.append(await line.http.delete(f"{LIST}/{ident}", headers=ADMIN))
    answers.append(await line.http.get(f"{LIST}/{SENTINEL}", headers=ADMIN))
    erased = await line.http.delete(f"{LIST}/{ident}?confirm=everything", headers=ADMIN)
    assert erased.json()["rows"]["sessions"] == 1
    for reply in (*answers, erased):
        assert SENTINEL not in reply.text
        assert SENTINEL not in str(reply.headers)


WRONG: list[dict[str, str]] = [
    {},
    {"authorization": ""},
    {"authorization": "Bearer"},
    {"authorization": KEY},
    {"authorization": f"Basic {KEY}"},
    {"authorization": f"Bearer {KEY[:-1]}"},
    {"authorization": f"Bearer {KEY}x"},
    {"authorization": f"Bearer {KEY.upper()}"},
    {"authorization": "Bearer " + "x" * 30_000},
    {"authorization": "Bearer key-1"},
    {"x-api-key": KEY},
    {"cookie": f"key={KEY}"},
]


async def test_whatever_is_wrong_about_a_key_the_words_are_the_same(line: Line) -> None:
    ident = await namespace_of(line, "guarded")
    bodies = set()
    paths = (f"{LIST}/{ident}", f"{LIST}/nobody", "/api/admin", "/api/admin/", "/api/admin/what")
    asked = [("GET", LIST, headers) for headers in WRONG] + [("GET", path, WRONG[0]) for path in paths]
    methods = ("POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
    asked += [(method, f"{LIST}/{ident}", WRONG[-1]) for method in methods]
    for method, path, headers in asked:
        reply = await line.http.request(method, path, headers=headers)
        assert reply.status_code == 401, (method, path, headers)
        bodies.add(reply.content)
    repeated = httpx.Headers([("authorization", f"Bearer {KEY}"), ("authorization", f"Bearer {KEY}")])
    for query in (f"key={KEY}", f"api_key={KEY}", f"admin_key={KEY}", f"authorization=Bearer%20{KEY}"):
        bodies.add((await line.http.get(f"{LIST}?{query}")).content)
    bodies.add((await line.http.get(LIST, headers=repeated)).content)
    assert bodies - {b""} == {
        b'{"error":{"message":"This needs access.admin_key as a bearer token.",'
        b'"type":"authentication_error","param":null,"code":"invalid_admin_key"}}'
    }


async def test_a_wrong_key_is_logged_without_the_key(line: Line, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    assert (await line.http.get(LIST, headers=ADMIN)).status_code == 200
    guessed = {"authorization": "Bearer guessed-0123456789abcdef"}
    for path, headers in ((f"{LIST}?limit=7", {}), ("/api/sessions", {NAMESPACE: "anybody"})):
        assert (await line.http.get(path, headers=guessed | headers)).status_code == 401
    logged = [each for each in capfd.readouterr().err.splitlines() if " admin_refused " in each]
    assert [each.rpartition(" ")[2] for each in logged] == [f"path={LIST}", "path=/api/sessions"]
    assert "guessed" not in "".join(logged)


async def test_with_the_key_mistakes_are_told(line: Line) -> None:
    for method, path, status, code in (
        ("GET", f"{LIST}?limit=99999999999999999999", 400, "invalid_parameter"),
        ("GET", f"{LIST}?limit=0", 400, "invalid_parameter"),
        ("GET", f"{LIST}?limit=x", 400, "invalid_parameter"),
        ("GET", f"{LIST}?after={'x' * 300}", 400, "invalid_parameter"),
        ("GET", f"{LIST}?limti=1", 400, "invalid_parameter"),
        ("GET", f"{LIST}?key={KEY}", 400, "invalid_parameter"),
        ("GET", f"{LIST}/nobody", 404, "not_found"),
        ("GET", f"{LIST}/%00%F0%9F", 404, "not_found"),
        ("DELETE", f"{LIST}/nobody?confirm=everything", 404, "not_found"),
        ("DELETE", f"{LIST}/nobody", 400, "invalid_parameter"),
        ("DELETE", LIST, 405, "method_not_allowed"),
        ("POST", LIST, 405, "method_not_allowed"),
        ("PATCH", f"{LIST}/nobody", 405, "method_not_allowed"),
        ("GET", "/api/admin", 404, "not_found"),
        ("GET", "/api/admin/sessions", 404, "not_found"),
    ):
        reply = await line.http.request(method, path, headers=ADMIN)
        assert (reply.status_code, reply.json()["error"]["code"]) == (status, code), (method, path)
        assert KEY not in reply.text
    last = await line.http.get(f"{LIST}?after=zzzz", headers=ADMIN)
    assert last.json() == {"namespaces": [], "next": None}


async def test_the_key_goes_nowhere_else(line: Line) -> None:
    """Not upstream, whatever it stands in, and not into a namespace of its own."""
    forwarded, there = len(line.upstream.requests), len(await listed(line))
    places: list[tuple[bytes, bytes]] = [
        (b"Authorization", f"Bearer {KEY}".encode()),
        (b"authorization", KEY.encode()),
        (b"X-Api-Key", KEY.encode()),
        (b"Cookie", f"a=b; session={KEY}".encode()),
        (b"Authorization", b"Basic " + b64encode(f"operator:{KEY}".encode())),
        (b"X-Anything", f"one, {KEY}".encode()),
        (b"Authorization", f"Token:{KEY}".encode()),
        (b"Authorization", f"Bearer  {KEY}".encode()),
        (b"Authorization", f"bearer.{KEY}/x".encode()),
        (b"X-Anything", f"a{KEY}".encode()),
        (b"X-Anything", KEY.replace("=", "%3D").encode()),
    ]
    for path in ("/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/s/name/v1/chat/completions"):
        for header in places:
            for more in ([], [(b"X-Palimpsest", b"no-store")], [(NAMESPACE.encode(), b"any")]):
                reply = await line.asks(post(chat_body(), [header, *more], path=path, key=None))
                assert (reply.status, reply.code) == (403, "admin_key_refused"), (path, header)
    in_query = await line.asks(post(chat_body(), path=f"/v1/chat/completions?a=b&key={KEY}", key=None))
    escaped = await line.asks(post(chat_body(), path=f"/v1/models?key={KEY.replace('=', '%3D')}", key=None))
    twice = await line.asks(post(chat_body(), path=f"/v1/models?x=a{KEY.replace('=', '%253D')}", key=None))
    in_path = await line.asks(post(chat_body(), path=f"/v1/files/{KEY}", key=None))
    assert {each.code for each in (in_query, escaped, twice, in_path)} == {"admin_key_refused"}
    for path in ("/api/sessions", "/api/overview", "/mcp"):
        method = "POST" if path == "/mcp" else "GET"
        refused = await line.http.request(method, path, headers=ADMIN)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "admin_key_refused")
    assert (await line.http.get("/ui", headers=ADMIN)).status_code == 403
    assert (len(line.upstream.requests), len(await listed(line))) == (forwarded, there)


async def test_the_key_reads_as_a_namespace_and_each_read_is_logged(
    line: Line, capfd: pytest.CaptureFixture[str]
) -> None:
    ident = await namespace_of(line, "read")
    as_read = ADMIN | {NAMESPACE: ident}
    own = {"authorization": "Bearer read"}
    (session,) = (await line.http.get("/api/sessions", headers=own)).json()["sessions"]
    capfd.readouterr()
    for path in ("?limit=5", f"/{session['id']}", f"/{session['id']}/messages"):
        shown = await line.http.get(f"/api/sessions{path}", headers=as_read)
        assert shown.status_code == 200
        assert shown.content == (await line.http.get(f"/api/sessions{path}", headers=own)).content
    whole = await line.http.get(f"/api/sessions/{session['id']}/export", headers=as_read)
    assert whole.json()["format"] == "palimpsest_session_v1"
    logged = [each for each in capfd.readouterr().err.splitlines() if " admin_read " in each]
    assert len(logged) == 4
    assert f"namespace={ident} path=/api/sessions/{session['id']}/messages" in logged[2]
    assert "limit" not in logged[0]
    forwarded = len(line.upstream.requests)
    for method, path in (
        ("DELETE", "/api/namespace?confirm=everything"),
        ("DELETE", f"/api/sessions/{session['id']}"),
        ("POST", f"/api/sessions/{session['id']}/compact"),
        ("PATCH", f"/api/sessions/{session['id']}/settings"),
        ("POST", "/api/sessions/import"),
    ):
        reply = await line.http.request(method, path, headers=as_read, json={})
        assert (reply.status_code, reply.json()["error"]["code"]) == (403, "admin_key_refused")
    assert (await line.http.get(f"/api/sessions/{session['id']}/view", headers=as_read)).status_code == 200
    assert len(line.upstream.requests) == forwarded
    unknown = await line.http.get("/api/sessions", headers=ADMIN | {NAMESPACE: "nobody"})
    assert unknown.status_code == 404
    # Whoever has another key gets nothing by the header, not even what is his.
    for headers in WRONG:
        reply = await line.http.get("/api/sessions", headers=headers | {NAMESPACE: ident})
        assert (reply.status_code, reply.json()["error"]["code"]) == (401, "invalid_admin_key")


@pytest.mark.spec("P6")
async def test_erasing_a_namespace_leaves_nothing_of_it_and_all_of_the_others(line: Line) -> None:
    gone, kept = await namespace_of(line, "gone"), await namespace_of(line, "kept")
    receipt = (await line.http.delete(f"{LIST}/{gone}?confirm=everything", headers=ADMIN)).json()
    assert (receipt["namespace"], receipt["rows"]["sessions"], receipt["rows"]["messages"]) == (gone, 1, 2)
    assert receipt["files"] in ("scrubbed", "vacuumed", "pending")
    left = {each["id"]: each for each in await listed(line)}
    assert [left[gone][name] for name in ("sessions", "messages", "bytes")] == [0, 0, 0]
    assert left[gone]["last_24_hours"]["turns"] == 0
    assert left[gone]["last_used_at"] is None
    assert left[kept]["sessions"] == 1
    headers = {"authorization": "Bearer gone"}
    assert (await line.http.get("/api/sessions", headers=headers)).json()["total"] == 0
    # The key is valid still, and its namespace the same.
    assert await says(line, "gone") == 200
    assert next(each for each in await listed(line) if each["id"] == gone)["sessions"] == 1


async def test_pages_of_other_sites_are_refused_here_too(line: Line) -> None:
    for headers, code in (
        ({"origin": "https://evil.example"}, "origin_not_allowed"),
        ({"origin": "null"}, "origin_not_allowed"),
        ({"sec-fetch-site": "cross-site"}, "origin_not_allowed"),
        ({"host": "evil.example"}, "host_not_allowed"),
    ):
        for method, path in (("GET", LIST), ("DELETE", f"{LIST}/x?confirm=everything")):
            reply = await line.http.request(method, path, headers=ADMIN | headers)
            assert (reply.status_code, reply.json()["error"]["code"]) == (403, code)


async def test_the_commands_show_what_the_endpoints_do(line: Line, tmp_path: Path) -> None:
    ident = await namespace_of(line, "commanded")
    variable = {"PALIMPSEST_ACCESS__ADMIN_KEY": KEY}

    async def run(*words: str, settings: dict[str, str] = variable) -> tuple[int, str, str]:
        done = await asyncio.to_thread(ran, tmp_path, *words, "--url", line.url, settings=settings)
        return done.returncode, done.stdout, done.stderr

    code, table, _ = await run("namespaces", "--limit", "500")
    assert code == 0
    assert len(table.splitlines()) == len(await listed(line)) + 2
    assert json.loads((await run("namespaces", "--json"))[1])["namespaces"][-1]["id"] == ident
    code, one, _ = await run("namespaces", ident, "--admin-key", KEY, settings={})
    assert code == 0
    assert "1 session, 2 messages" in one
    code, _, said = await run("namespaces", settings={})
    assert "A command takes it from --admin-key, or from PALIMPSEST_ACCESS__ADMIN_KEY." in said
    assert (code, "This needs access.admin_key as a bearer token" in said) == (2, True)
    code, receipt, _ = await run("erase", "--namespace", ident, "--yes")
    assert (code, json.loads(receipt)["rows"]["sessions"]) == (0, 1)
    for words in (["--namespace", "nobody", "--yes"], ["--namespace", "x", "--block"]):
        assert (await run("erase", *words))[0] == 2


async def test_without_a_key_in_the_settings_nothing_answers(tmp_path: Path) -> None:
    async with wired(tmp_path) as line:
        for headers in ({}, ADMIN, {"authorization": "Bearer x"}):
            for method, path in (("GET", LIST), ("GET", "/api/admin/what"), ("DELETE", f"{LIST}/x")):
                reply = await line.http.request(method, path, headers=headers)
                assert (reply.status_code, reply.json()["error"]["code"]) == (403, "admin_disabled")
                assert "access.admin_key" in reply.text
        reply = await line.http.get("/api/sessions", headers=ADMIN | {NAMESPACE: "any"})
        assert (reply.status_code, reply.json()["error"]["code"]) == (403, "admin_disabled")


async def test_reading_must_be_allowed_and_keys_are_shown(tmp_path: Path) -> None:
    """In keys mode, where the admin key is none of the issued ones."""
    given = {"access.admin_key": KEY, "access.mode": "keys", "upstream.api_key": "sk-operator"}
    async with wired(tmp_path, given) as line:
        settings = settings_for(tmp_path, line.upstream.url, given)
        row, key = await create_key(settings, "ann")
        assert await says(line, key) == 200
        (one,) = await listed(line)
        (shown,) = one["keys"]
        assert (one["id"], shown["id"], shown["label"]) == (row.namespace, row.id, "ann")
        assert (shown["revoked_at"], shown["expires_at"], shown["retention_bytes"]) == (None, None, None)
        assert key not in json.dumps(one)
        for path in ("/api/sessions", "/api/sessions/x/messages", "/ui"):
            reply = await line.http.get(path, headers=ADMIN | {NAMESPACE: one["id"]})
            assert reply.status_code == 403
        assert (await line.http.get("/api/sessions", headers=ADMIN | {NAMESPACE: one["id"]})).json()["error"][
            "code"
        ] == "admin_may_not_read"
        refused = await line.asks(post(chat_body(), key=KEY))
        assert (refused.status, refused.code) == (403, "admin_key_refused")
        assert (await line.http.get(LIST, headers={"authorization": f"Bearer {key}"})).status_code == 401


async def test_every_server_of_a_database_shows_all_of_it(tmp_path: Path) -> None:
    async with empty_database(server_address()) as database:
        given = OPERATED | {"database.url": database}
        async with (
            wired(tmp_path, given) as line,
            deployed(settings_for(tmp_path, line.upstream.url, given)) as url,
        ):
            assert await says(line, "key-1") == 200
            async with httpx.AsyncClient(base_url=url, trust_env=False, verify=False) as beside:
                (one,) = (await beside.get(LIST, headers=ADMIN)).json()["namespaces"]
                assert (one["sessions"], one["messages"]) == (1, 2)
                erased = await beside.delete(f"{LIST}/{one['id']}?confirm=everything", headers=ADMIN)
                assert erased.status_code == 200
            assert [each["sessions"] for each in await listed(line)] == [0]

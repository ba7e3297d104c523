"""Every answer of our own endpoints is what the description says, and has no field that it does not name."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import pytest
from palimpsest.api.description import BODIES, TAGS
from structlog.testing import capture_logs

from tests.house.test_routes import SCOPED
from tests.kit.agent import TOOLS
from tests.kit.chat import Chat
from tests.kit.described import Described
from tests.kit.journal import compacted
from tests.kit.model import Says
from tests.kit.proxy import Proxy, proxied
from tests.kit.recalls import GREP, RECALLING, saying
from tests.kit.responses import ResponsesChat, ResponsesServer
from tests.kit.words import prose

pytestmark = pytest.mark.timeout(120)

Json = dict[str, Any]
TOLD = "This model's maximum context length is 7000 tokens. However, your messages have 9000 tokens."
NAME = "my/own name"


class Case(NamedTuple):
    """A request, and the status of its answer."""

    method: str
    path: str
    status: int = 200
    body: Json | None = None


async def held(proxy: Proxy) -> Described:
    """The description, against which from now on every answer is held."""
    described = Described((await proxy.http.get("/openapi.json")).json())
    proxy.http.event_hooks["response"].append(described.check)
    return described


async def told(proxy: Proxy) -> Chat:
    """A conversation with nearly everything that there is: every kind of message, twice compacted."""
    chat = proxy.chat(system="You help.", session=NAME, extra={"tools": TOOLS})
    model = proxy.model
    await chat.says("[pin] The harbour has nine berths.")
    model.answers.append(saying(None, ("c1", "read_file", {"path": "a.py"})))
    await chat.says("Read the file.")
    await chat.sends(
        {"role": "tool", "tool_call_id": "c1", "content": f"error: no such file\n{prose(1, 600)}"}
    )
    await compacted(chat, rounds=2, words=1_200)
    model.answers.extend([saying(None, GREP), saying("It was port 8000.")])
    await chat.says("Which port?")
    await chat.posts([*chat.said[:4], {"role": "user", "content": "An edit."}])
    model.answers.append(Says(status=429, error={"error": {"message": "no", "type": "x", "code": "y"}}))
    await chat.posts([*chat.said, {"role": "user", "content": "Refused."}])
    model.answers.append(Says(status=400, error={"error": {"message": TOLD}}))
    await chat.says("Too long.")
    items = ResponsesChat(proxy.http, headers=chat.headers | {"x-session-id": "items"})
    for turn in range(3):
        await items.says(f"Item {turn}.")
    # Whoever brings a session along under another name, and whoever has none.
    await proxy.chat(session=None).says("Hello.")
    return chat


async def ask(proxy: Proxy, chat: Chat, case: Case) -> httpx.Response:
    reply = await proxy.http.request(case.method, f"/api/{case.path}", headers=chat.headers, json=case.body)
    assert reply.status_code == case.status, (case, reply.text)
    return reply


async def listed(proxy: Proxy, chat: Chat, path: str, name: str) -> list[Json]:
    rows: list[Json] = (await ask(proxy, chat, Case("GET", path))).json()[name]
    return rows


async def reads(proxy: Proxy, chat: Chat, home: str) -> list[Case]:
    """All that can be read of a session, in every form."""
    paths = ["", "/messages", "/messages?limit=2&after=1&hidden=1", "/view", "/view?explain=1", "/status"]
    paths += ["/state", "/settings", "/compactions", "/compactions?limit=1"]
    paths += ["/pins", "/report", "/events?limit=1000", "/exchanges", "/exchanges?limit=1", "/checkpoints"]
    paths += ["/memory", "/memory?kind=summary&limit=1", "/export", "/export?hidden=1"]
    paths += [f"/export?format={form}" for form in ("jsonl", "markdown", "html")]
    paths += [f"/search?q=port+berth&{more}" for more in ("", "scope=session&role=user", "scope=namespace")]
    paths += ["/search?q=harbour&kind=summary", "/search?q=file&kind=error&scope=session"]
    for one in await listed(proxy, chat, f"{home}/exchanges", "exchanges"):
        ends = ["", "?against=previous&lost=1", "?against=said", *["/body"] * one_is_sent(one)]
        paths += [f"/exchanges/{one['n']}{end}" for end in ends]
    for name in ("compactions", "checkpoints"):
        paths += [f"/{name}/{one['id']}" for one in await listed(proxy, chat, f"{home}/{name}", name)]
    branches = (await ask(proxy, chat, Case("GET", home))).json()["branches"]
    paths += [f"/{end}?branch={one['branch']}" for one in branches for end in ("messages", "view", "status")]
    return [Case("GET", home + path) for path in paths]


def one_is_sent(exchange: Json) -> bool:
    """Of a request that the upstream refused nothing may be stored to make its body of."""
    return bool(exchange["state"] == "done")


async def ids(proxy: Proxy, chat: Chat, home: str) -> list[Case]:
    """All that has an id, as text, as bytes and as the tools show it."""
    messages = await listed(proxy, chat, f"{home}/messages", "messages")
    (made, *_) = await listed(proxy, chat, f"{home}/compactions", "compactions")
    named = [one["id"] for one in messages if one["id"]] + ["dcs_" + made["id"].replace("-", "")]
    cases = [Case("GET", f"context/{ident}") for ident in named]
    cases += [Case("GET", f"context/{ident}?raw=true") for ident in (named[0], named[-1])]
    cases += [Case("GET", f"context/{named[0]}?limit=3"), Case("GET", f"context/{named[0]}?offset=9999")]
    orders: list[Json] = [{"id": ident, "session": NAME, "scope": "session"} for ident in (*named, "no")]
    cases += [Case("POST", "context/describe", body=order) for order in orders]
    queries: list[Json] = [{"query": "port"}, {"query": "harbour", "kind": "summary", "scope": "session"}]
    return cases + [Case("POST", "context/grep", body={"session": NAME, **query}) for query in queries]


ACCOUNT = [
    *(
        Case("GET", f"sessions{more}")
        for more in ("", "?details=1&side=1", "?named=my", "?error=429&limit=1")
    ),
    Case("GET", "overview?days=0"),
    *(Case("GET", path) for path in ("overview", "windows")),
    *(Case("GET", path) for path in ("memory/search", "memory/search?q=port&limit=1")),
]


async def changes(proxy: Proxy, chat: Chat, home: str) -> list[Case]:
    """What changes something, in an order in which all of it can be done."""
    (ident,) = [one["id"] for one in (await chat.rows())[3:4]]
    made = await listed(proxy, chat, f"{home}/compactions", "compactions")
    points = await listed(proxy, chat, f"{home}/checkpoints", "checkpoints")
    newest = next(one["id"] for one in points if one["kind"] == "pre_compaction")
    document = (await ask(proxy, chat, Case("GET", f"{home}/export"))).json()
    patch = {"policy": {"tail_messages": 9}, "recall": {"enabled": True}}
    return [
        Case("POST", f"{home}/compactions/{made[-1]['id']}/undo"),
        Case("POST", f"{home}/compactions/{made[-1]['id']}/undo", 409),
        Case("POST", f"{home}/pins", 201, {"message": ident}),
        Case("GET", f"{home}/pins"),
        Case("DELETE", f"{home}/pins/{ident}", 204),
        Case("PATCH", f"{home}/settings", body=patch),
        *[Case("POST", f"{home}/memory-block", 201, {"text": f"Fact {n}."}) for n in range(15)],
        Case("GET", f"{home}/memory?limit=1"),
        Case("POST", f"{home}/complete", body={"marker": "released"}),
        Case("POST", f"{home}/compact", body={"focus": "ports"}),
        Case("POST", f"{home}/compact"),
        Case("POST", f"{home}/checkpoints/{newest}/restore"),
        Case("POST", "sessions/import", 201, document | {"name": "copy"}),
        Case("POST", "sessions/import", 409, document | {"name": "copy"}),
        Case("GET", "sessions/copy/events"),
        Case("GET", "sessions/copy/compactions"),
        Case("DELETE", "windows/test-model"),
        Case("DELETE", "sessions/copy?block=true"),
        Case("POST", "sessions/import", 410, document | {"name": "copy"}),
        Case("DELETE", "namespace?confirm=everything"),
        Case("GET", home, 404),
    ]


async def test_every_answer_is_described(tmp_path: Path) -> None:
    async with proxied(ResponsesServer(window=8_000), tmp_path, RECALLING) as proxy:
        described = await held(proxy)
        chat = await told(proxy)
        await until_learned(proxy, chat)
        home = f"sessions/{quote(NAME, safe='')}"
        for place in (home, "sessions/items"):
            for case in await reads(proxy, chat, place):
                await ask(proxy, chat, case)
        for case in [*ACCOUNT, *await ids(proxy, chat, home)]:
            reply = await ask(proxy, chat, case)
            if case.path.startswith("context/dc") and "raw" not in case.path:
                # The stored bytes, which `raw` asks for, may be anything.
                assert described.faults({"$ref": "#/components/schemas/ContextPage"}, reply.json()) == []
        await refusals(proxy, chat, described)
        # Prepared one by one: an id is read when it is there.
        for case in await changes(proxy, chat, home):
            await ask(proxy, chat, case)
    done = {one.operation for one in described.seen if one.status < 400}
    assert done == set(described.operations)


async def until_learned(proxy: Proxy, chat: Chat) -> None:
    """A window was learned from what the upstream said."""
    while not (await ask(proxy, chat, Case("GET", "windows"))).json()["windows"]:
        pass


async def refusals(proxy: Proxy, chat: Chat, described: Described) -> None:
    """Each operation refuses a field that it does not have, and says what it takes."""
    document = (await proxy.http.get("/openapi.json")).json()
    for path, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            known = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"]
            place = re.sub(r"{\w+}", "none", path)
            reply = await proxy.http.request(verb, f"{place}?limti=1", headers=chat.headers)
            error = reply.json()["error"]
            assert (reply.status_code, error["code"], error["param"]) == (400, "invalid_parameter", "limti")
            assert all(name in error["message"] for name in known)
    refused = {one.operation for one in described.seen if one.status == 400}
    assert refused == set(described.operations)


async def test_an_answer_that_is_not_described_is_noticed(tmp_path: Path) -> None:
    """The control: a field more, a field less, another type, another status, another code."""
    async with proxied(ResponsesServer(), tmp_path) as proxy:
        described = Described((await proxy.http.get("/openapi.json")).json())
        chat = proxy.chat()
        await chat.says("hello")
        whole = (await proxy.http.get("/api/sessions", headers=chat.headers)).json()
        operation = described.operations["list_sessions"]
        error = {"message": "", "type": "", "param": None, "code": "not_undoable"}
        (row,) = whole["sessions"]
        described.hold(operation, 200, "application/json", json.dumps(whole).encode())
        wrong: list[tuple[int, Json]] = [
            (200, whole | {"more": 1}),
            (200, {"sessions": whole["sessions"]}),
            (200, whole | {"sessions": [row | {"created_at": 1795303354.27}]}),
            (200, whole | {"sessions": [row | {"more": 1}]}),
            (418, whole),
            (400, {"error": error}),
        ]
        for status, body in wrong:
            with pytest.raises(AssertionError):
                described.hold(operation, status, "application/json", json.dumps(body).encode())


async def test_the_description_can_be_generated_from(tmp_path: Path) -> None:
    """Every operation has a name of its own, a tag, words, described parameters and bodies."""
    securities: list[tuple[str, Json]] = [("open", {}), ("keys", {"authorization": []})]
    for mode, first in securities:
        (folder := tmp_path / mode).mkdir()
        async with proxied(ResponsesServer(), folder, {"access.mode": mode}) as proxy:
            document = (await proxy.http.get("/openapi.json")).json()
        assert document["security"][0] == first
        schemes = document["components"]["securitySchemes"]
        assert {name for one in document["security"] for name in one} == set(schemes)
    routes = {f"{verb.upper()} {path}" for path, verbs in document["paths"].items() for verb in verbs}
    assert routes == {route.replace(" /", " /api/", 1).replace(":path", "") for route in SCOPED}
    operations = [one for verbs in document["paths"].values() for one in verbs.values()]
    assert {one["operationId"] for one in operations if "requestBody" in one} == BODIES.keys()
    names = [one["operationId"] for one in operations]
    tags = {name: tag for tag, (_, operations) in TAGS.items() for name in operations.split()}
    assert sorted(names) == sorted(tags)
    assert [tag["name"] for tag in document["tags"]] == list(TAGS)
    for one in operations:
        assert one["summary"]
        assert one["description"]
        assert one["tags"] == [tags[one["operationId"]]]
        assert all(parameter.get("description") for parameter in one.get("parameters", ())), one[
            "operationId"
        ]
        assert {"400", "401", "403", "500", "503"} <= set(one["responses"])
    text = json.dumps(document)
    references = set(re.findall(r'"#/components/(\w+)/([\w.]+)"', text))
    assert references >= {("schemas", name) for name in document["components"]["schemas"]}
    assert all(name in document["components"][kind] for kind, name in references)
    assert not re.search(r"\((?:[A-Z]\d\d|rule \d+)\)", text)


NAMES = ["my/own name", "no such", "%00", "..", "é🌍", "a" * 300, "0", "dcm_" + "0" * 32, "'; drop table"]
VALUES = ["", "0", "-1", "1", "99999999999999999999", "nan", "true", "\u0000", "é🌍", "x" * 5000, "[]", "1e9"]
BODIES_TO_TRY = [
    b"", b"{}", b"[]", b"null", b"{", b'{"x":1}', b'{"text":"\\ud800","message":"\\u0000","id":"dcm_x"}',
    b'{"focus":"x","branch":"zz","marker":"m","query":"q","limit":-5,"offset":1e30,"policy":{"name":7}}',
    b'{"query":"' + b"a" * 3000 + b'"}', b'{"events":[{"type":"user_message","payload":null}]}',
    b"\xff\xfe", b"[" * 5000,
]  # fmt: skip


@pytest.mark.asyncio(loop_scope="module")
async def test_no_odd_request_is_our_fault(proxy: Proxy, chat: Chat) -> None:
    """The same requests at each run: each operation with every name, value and body once or more."""
    document = (await proxy.http.get("/openapi.json")).json()
    names, values, bodies = itertools.cycle(NAMES), itertools.cycle(VALUES), itertools.cycle(BODIES_TO_TRY)
    asked = 0
    for path, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            tried = BODIES_TO_TRY if operation["operationId"] in BODIES else NAMES
            # Erasing everything would leave nothing to ask for.
            rounds = 1 if path == "/api/namespace" else len(tried)
            for _ in range(rounds):
                place = re.sub(r"{\w+}", lambda _: _quoted(next(names)), path)
                query = {
                    p["name"]: next(values) for p in operation.get("parameters", ()) if p["in"] == "query"
                }
                query.pop("confirm", None)
                reply = await proxy.http.request(
                    verb, place, params=query, content=next(bodies), headers=chat.headers
                )
                assert reply.status_code < 500, (verb, place, query, reply.text)
                asked += 1
    assert asked > 250


@pytest.mark.asyncio(loop_scope="module")
async def test_what_is_not_there_is_no_failure_of_a_job(proxy: Proxy, chat: Chat) -> None:
    with capture_logs() as log:
        reply = await proxy.http.delete("/api/sessions/nobody", headers=chat.headers)
    assert reply.status_code == 404
    assert [entry for entry in log if entry["event"] == "job_failed"] == []


def _quoted(name: str) -> str:
    return "".join(f"%{byte:02X}" for byte in name.encode())

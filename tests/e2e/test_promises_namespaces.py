"""No text crosses from one caller to another, and no caller's key is ever written (P5, P7)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.kill_loop import server
from tests.kit.model import ModelServer, Says
from tests.kit.proxy import Proxy, proxied
from tests.kit.serving import served
from tests.kit.wire import holding

FILLER = "The quick brown fox jumps over the lazy dog and writes it down. " * 12
WINDOW = 2_000
# In so small a window a model is asked for short records only: a usual one would not halve what is folded.
ASKED = {"policy.advanced.summary_min_tokens": 200}
TURNS = 13

# Each pair is two callers whose requests differ in nothing else.
CALLERS = {
    "bearer": ({"authorization": "Bearer one"}, {"authorization": "Bearer two"}),
    "azure": ({"api-key": "one"}, {"api-key": "two"}),
    "anthropic": ({"x-api-key": "one"}, {"x-api-key": "two"}),
    "gemini": ({"x-goog-api-key": "one"}, {"x-goog-api-key": "two"}),
    "placeholder": (
        {"authorization": "Bearer none", "api-key": "one"},
        {"authorization": "Bearer none", "api-key": "two"},
    ),
    "one_without": ({}, {"authorization": "Bearer two"}),
}


@dataclass
class Talk:
    """One caller's conversation; `got` is every byte it was ever answered."""

    http: httpx.AsyncClient
    headers: dict[str, str]
    canary: str
    said: list[dict[str, Any]] = field(default_factory=list)
    got: list[str] = field(default_factory=list)

    async def says(self, text: str) -> None:
        self.said.append({"role": "user", "content": text})
        reply = await self.fetch("POST", "/v1/chat/completions", {"model": "m", "messages": self.said})
        self.said.append(reply.json()["choices"][0]["message"])

    async def fetch(self, method: str, path: str, body: object = None) -> httpx.Response:
        reply = await self.http.request(method, path, json=body, headers=self.headers)
        self.got.append(f"{reply.headers} {reply.text}")
        return reply

    async def reads_everything(self, session: str) -> list[int]:
        """All that can be asked about a session; the statuses."""
        base = f"/api/sessions/{session}"
        paths = [base, f"{base}/messages", f"{base}/view", f"{base}/compactions", f"{base}/pins"]
        return [(await self.fetch("GET", path)).status_code for path in paths]


async def both_talk(proxy: Proxy, one: Talk, two: Talk) -> None:
    """The same words at the same time, but for the canary of each."""
    for turn in range(TURNS):
        await asyncio.gather(one.says(f"Turn {turn}. {FILLER}"), two.says(f"Turn {turn}. {FILLER}"))
        if turn == 1:
            await asyncio.gather(*(talk.says(f"My secret is {talk.canary}.") for talk in (one, two)))


@asynccontextmanager
async def two_callers(
    kind: str, folder: Path, session: str | None
) -> AsyncIterator[tuple[Proxy, Talk, Talk]]:
    named = {"x-session-id": session} if session else {}
    async with proxied(ModelServer(window=WINDOW), folder, ASKED) as proxy:
        first, second = CALLERS[kind]
        one = Talk(proxy.http, first | named, "CANARY-ONE-5521")
        two = Talk(proxy.http, second | named, "CANARY-TWO-9934")
        await both_talk(proxy, one, two)
        yield proxy, one, two


def belongs_to(talk: Talk, headers: dict[str, str]) -> bool:
    mine = {name: value for name, value in talk.headers.items() if name != "x-session-id"}
    asked = {name: headers.get(name) for pair in CALLERS.values() for caller in pair for name in caller}
    return {name: value for name, value in asked.items() if value} == mine


@pytest.mark.spec("P5")
@pytest.mark.parametrize("session", [None, "mine"])
async def test_two_callers_with_the_same_words_never_meet(tmp_path: Path, session: str | None) -> None:
    async with two_callers("bearer", tmp_path, session) as (proxy, one, two):
        ids = {}
        for talk in (one, two):
            listed = (await talk.fetch("GET", "/api/sessions")).json()["sessions"]
            ids[talk.canary] = [row["id"] for row in listed]
        assert len(ids[one.canary]) == len(ids[two.canary]) == 1
        assert ids[one.canary] != ids[two.canary]
        for talk in (one, two):
            assert set(await talk.reads_everything(ids[talk.canary][0])) == {200}
        assert set(await one.reads_everything(ids[two.canary][0])) == {404}
        assert set(await two.reads_everything(ids[one.canary][0])) == {404}
        message = (await one.fetch("GET", f"/api/sessions/{ids[one.canary][0]}/messages")).json()["messages"][
            2
        ]
        assert (await two.fetch("GET", f"/api/context/{message['id']}")).status_code == 404
        assert proxy.model.summaries
        for talk, other in ((one, two), (two, one)):
            assert any(talk.canary in text for text in talk.got)
            assert not [text for text in talk.got if other.canary in text]
            sent = [seen for seen in proxy.model.seen if belongs_to(talk, seen.headers)]
            assert len(sent) > TURNS
            assert not [seen for seen in sent if other.canary.encode() in seen.raw]


@pytest.mark.spec("P5")
async def test_every_kind_of_credential_makes_a_caller_of_its_own(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        for kind, callers in CALLERS.items():
            talks = [Talk(proxy.http, headers, kind) for headers in callers]
            for talk in talks:
                await talk.says(f"the same words of {kind}")
                await talk.says("and more")
            listed = [(await talk.fetch("GET", "/api/sessions")).json()["sessions"] for talk in talks]
            newest = [sessions[0] for sessions in listed]
            assert newest[0]["id"] != newest[1]["id"], kind
            assert [row["exchanges"] for row in newest] == [2, 2], kind
            assert (await talks[0].reads_everything(newest[1]["id"]))[0] == 404, kind


@pytest.mark.spec("P5")
async def test_the_same_caller_twice_would_be_noticed(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=100_000), tmp_path) as proxy:
        one, two = (Talk(proxy.http, {"authorization": "Bearer same"}, c) for c in ("CANARY-A", "CANARY-B"))
        await one.says(one.canary)
        listed = (await two.fetch("GET", "/api/sessions")).json()["sessions"]
        await two.reads_everything(listed[0]["id"])
        assert [text for text in two.got if one.canary in text]


KEY = "sk-canary-77d1f0c2a9"
OPERATORS_KEY = "sk-operator-3b9c55aa01"
TEXT = "said-canary-1c8e"


async def a_hard_day(http: httpx.AsyncClient, model: ModelServer, evening: asyncio.Event) -> list[int]:
    """Success, streams, refusals, faults, a timeout, a cut, bad input and compactions; the statuses."""
    headers = {"authorization": f"Bearer {KEY}", "x-session-id": "a-hard-day"}
    statuses = []
    messages: list[dict[str, Any]] = []

    async def until_evening() -> None:
        await evening.wait()

    faults = (
        Says(status=401, error={"error": {"message": "no", "code": "invalid_api_key"}}),
        Says(status=500, error={"error": {"message": "boom"}}),
        Says({"role": "assistant", "content": "cut"}, cut=True),
        Says({"role": "assistant", "content": "late"}, after=until_evening),
    )
    for turn in range(TURNS):
        if turn % 3 == 2 and turn // 3 < len(faults):
            model.answers.append(faults[turn // 3])
        messages.append({"role": "user", "content": f"{TEXT} {turn}. {FILLER}"})
        body = {"model": "m", "messages": messages, "stream": turn % 3 == 2 and turn > 6}
        try:
            reply = await http.post("/v1/chat/completions", json=body, headers=headers)
            statuses.append(reply.status_code)
        except httpx.TransportError:
            statuses.append(0)
        messages.append({"role": "assistant", "content": f"Answer {turn}."})
    for content in (b"{", b'{"messages":[{"role":7}]}'):
        reply = await http.post("/v1/chat/completions", content=content, headers=headers)
        statuses.append(reply.status_code)
    twice = [("authorization", f"Bearer {KEY}"), ("authorization", f"Bearer {KEY}")]
    statuses.append((await http.post("/v1/chat/completions", json={}, headers=twice)).status_code)
    statuses.append((await http.get("/v1/files/x", headers=headers)).status_code)
    for page in ("", "/messages", "/view", "/compactions"):
        reply = await http.get(f"/api/sessions/a-hard-day{page}", headers=headers)
        assert KEY not in reply.text
        statuses.append(reply.status_code)
    return statuses


@pytest.mark.spec("P7")
@pytest.mark.parametrize("operators", [False, True])
async def test_no_key_is_written_anywhere(tmp_path: Path, operators: bool) -> None:
    model = ModelServer(window=WINDOW)
    environment = {
        "PALIMPSEST_LOGGING__LEVEL": "debug",
        "PALIMPSEST_UPSTREAM__FIRST_BYTE_TIMEOUT_SECONDS": "1",
        # A window so small has no room for a longer one.
        "PALIMPSEST_POLICY__ADVANCED__SUMMARY_MIN_TOKENS": "200",
    }
    if operators:
        environment["PALIMPSEST_UPSTREAM__API_KEY"] = OPERATORS_KEY
    async with (
        served(model, lifespan="off") as upstream,
        server(tmp_path, upstream, WINDOW, **environment) as running,
        httpx.AsyncClient(base_url=running.url, timeout=60, trust_env=False, verify=False) as http,
    ):
        evening = asyncio.Event()
        statuses = await a_hard_day(http, model, evening)
        evening.set()
        assert {0, 200, 400, 401, 404, 500, 504} <= set(statuses), statuses
        assert model.summaries
        used = {seen.headers["authorization"] for seen in model.seen}
        assert used == {f"Bearer {OPERATORS_KEY if operators else KEY}"}
        assert holding(tmp_path, "") >= {"palimpsest.db-wal", "palimpsest.db", "log"}
        for key in (KEY, OPERATORS_KEY, KEY[3:], json.dumps(KEY)):
            assert holding(tmp_path, key) == set()
        # The search itself finds what is there.
        assert holding(tmp_path, TEXT) >= {"palimpsest.db-wal"}
        assert "log" not in holding(tmp_path, TEXT)

"""Callers who differ in any one credential share nothing: prompts, archive, recall, pages, errors (P5)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
from palimpsest.proxy.access import Access
from palimpsest.proxy.incoming import Incoming
from palimpsest.proxy.jobs import Jobs
from palimpsest.proxy.server_secrets import Pepper
from palimpsest.settings.serving import AccessSettings
from palimpsest.storage.migrate import migrate
from palimpsest.storage.store import open_store

from tests.kit.model import ModelServer, Seen
from tests.kit.proxy import Proxy, proxied
from tests.kit.wire import answer_body, chat_body, holding, post, wired
from tests.upstream.scripted import replies

pytestmark = pytest.mark.spec("H03")

# Where a credential stands: a header, a cookie of this name, or a field of the query.
HEADERS = (
    "authorization", "api-key", "x-api-key", "x-goog-api-key", "ocp-apim-subscription-key",
    "x-portkey-api-key", "x-portkey-config", "cf-aig-authorization", "cf-access-client-secret",
    "helicone-auth", "x-litellm-api-key", "x-bf-vk", "x-auth-token", "x-access-token", "private-token",
    "apikey", "x-amz-security-token", "x-unheard-of-key", "x-unheard-of-secret",
)  # fmt: skip
COOKIES = ("session", "token", "connect.sid")
QUERY = ("key", "api_key", "api-key", "subscription-key", "access_token", "unheard-of-token")
CARRIERS = [
    *(("header", name) for name in HEADERS),
    *(("cookie", name) for name in COOKIES),
    *(("query", name) for name in QUERY),
]
# What told callers apart before: the control.
FOUR_HEADERS = {
    "access.credential_headers": [],
    "access.credential_query": [],
    "access.not_credentials": ["*"],
}
WINDOW = 2_000
FILLER = "The quick brown fox jumps over the lazy dog and writes it down. " * 14
TURNS = 6


@dataclass
class Caller:
    """Somebody with a credential in one place. `got` is every byte of every answer."""

    http: httpx.AsyncClient
    place: tuple[str, str]
    secret: str
    canary: str
    said: list[dict[str, Any]] = field(default_factory=list)
    got: list[str] = field(default_factory=list)

    @property
    def headers(self) -> dict[str, str]:
        kind, name = self.place
        return {"header": {name: self.secret}, "cookie": {"cookie": f"theme=dark; {name}={self.secret}"}}.get(
            kind, {}
        )

    async def asks(self, method: str, path: str, body: object = None) -> httpx.Response:
        params = {self.place[1]: self.secret} if self.place[0] == "query" else {}
        # Named, so that both name their conversation alike.
        headers = self.headers | {"x-session-id": f"conversation {self.place}"}
        reply = await self.http.request(method, path, json=body, headers=headers, params=params)
        self.got.append(f"{reply.headers} {reply.text}")
        return reply

    async def talks(self) -> None:
        for turn in range(TURNS):
            words = f"Turn {turn}. {FILLER}" if turn != 1 else f"My secret is {self.canary}. {FILLER}"
            self.said.append({"role": "user", "content": words})
            reply = await self.asks("POST", "/v1/chat/completions", {"model": "m", "messages": self.said})
            assert reply.status_code == 200, reply.text
            self.said.append(reply.json()["choices"][0]["message"])

    async def sessions(self) -> list[str]:
        listed = await self.asks("GET", "/api/sessions?named=")
        return [row["id"] for row in listed.json()["sessions"]]

    async def reads(self, session: str) -> set[int]:
        """Everything there is to read of a session; the statuses."""
        base = f"/api/sessions/{session}"
        ends = (
            "",
            "/messages",
            "/view",
            "/compactions",
            "/pins",
            "/events",
            "/status",
            "/export",
            "/exchanges",
            *(f"/exchanges/1{end}" for end in ("?against=previous&lost=1", "/body")),
        )
        paths = [base + end for end in ends]
        paths += [f"/ui/sessions/{session}{end}" for end in ("", "/events", "/turns/1")]
        found = {(await self.asks("GET", path)).status_code for path in paths}
        grep = {"query": "My secret is", "session": session, "scope": "namespace"}
        return found | {(await self.asks("POST", "/api/context/grep", grep)).status_code}


def who_sent(seen: Seen, secrets: Mapping[str, str]) -> str | None:
    """The canary of whoever's credential stands in the request as it arrived upstream."""
    told = " ".join(seen.headers.values())
    return next((canary for secret, canary in secrets.items() if re.search(rf"\b{secret}\b", told)), None)


def _of_another(prompts: Sequence[Seen], secrets: Mapping[str, str]) -> list[str]:
    """Who sent a prompt in which another one's canary stands, by their own."""
    senders = [(seen, who_sent(seen, secrets)) for seen in prompts]
    return [
        sender
        for seen, sender in senders
        for canary in set(secrets.values()) - {sender}
        if sender and canary.encode() in seen.raw
    ]


async def crossings(proxy: Proxy, place: tuple[str, str]) -> AsyncGenerator[str, None]:
    """What two callers, who differ in this credential only, have seen of each other."""
    tag = sha256(repr(place).encode()).hexdigest()[:8]
    one = Caller(proxy.http, place, f"one{tag}", f"CANARY-ONE-{tag}")
    two = Caller(proxy.http, place, f"two{tag}", f"CANARY-TWO-{tag}")
    proxy.model.seen.clear()
    await asyncio.gather(one.talks(), two.talks())
    secrets = {one.secret: one.canary, two.secret: two.canary}
    for sender in _of_another(proxy.model.seen, secrets):
        yield f"prompt of {sender}"
    mine, theirs = await one.sessions(), await two.sessions()
    assert mine
    assert theirs
    for session in {*mine} & {*theirs}:
        yield f"session {session}"
    for caller, own, foreign in ((one, mine, theirs), (two, theirs, mine)):
        # The pages look at no cookies.
        assert await caller.reads(own[0]) <= ({200, 404} if place[0] == "cookie" else {200})
        for session in foreign:
            if 200 in await caller.reads(session):
                yield f"read {session}"
        other = two.canary if caller is one else one.canary
        if any(other in text for text in caller.got):
            yield "an answer"


@asynccontextmanager
async def running(folder: Path, **settings: Any) -> AsyncIterator[Proxy]:
    given = {"recall.enabled": True, **settings}
    async with proxied(ModelServer(window=WINDOW), folder, given) as proxy:
        yield proxy


async def test_callers_who_differ_in_one_credential_never_meet(tmp_path: Path) -> None:
    async with running(tmp_path) as proxy:
        assert [(place, crossed) for place in CARRIERS async for crossed in crossings(proxy, place)] == []


async def test_with_four_headers_only_they_would_meet(tmp_path: Path) -> None:
    """The control: the same harness sees the crossing in every carrier that was not looked at."""
    async with running(tmp_path, **FOUR_HEADERS) as proxy:
        first, *places = [*CARRIERS[4:8], *CARRIERS[-8:]]
        kinds = {crossed.split()[0] async for crossed in crossings(proxy, first)}
        assert kinds == {"session", "read", "an"}
        blind = [place for place in places if not await _crosses(proxy, place)]
        assert blind == []


async def _crosses(proxy: Proxy, place: tuple[str, str]) -> bool:
    """True at the first crossing: all share one namespace here, and each pair would read all before it."""
    async with aclosing(crossings(proxy, place)) as found:
        return await anext(found, None) is not None


# Each changes from request to request and says nothing of who asks.
CHANGING = [
    ("header", "idempotency-key"), ("header", "x-request-id"), ("header", "traceparent"),
    ("header", "x-amz-date"), ("header", "sec-websocket-key"), ("header", "x-csrf-token"),
    ("header", "x-session-affinity"),
    ("header", "session-id"), ("header", "x-auth-nonce"), ("header", "x-portkey-trace-id"),
    ("header", "proxy-authorization"), ("cookie", "__cf_bm"), ("cookie", "AWSALB"), ("cookie", "csrftoken"),
    ("query", "api-version"), ("query", "page_token"),
]  # fmt: skip


async def test_what_changes_at_each_request_parts_nobody(tmp_path: Path) -> None:
    async with wired(tmp_path) as line:
        line.upstream.always(replies(answer_body()))
        namespaces = "SELECT count(*) FROM namespaces"
        for place, name in CHANGING:
            for value in (b"1", b"2"):
                headers = [(b"x-session-id", b"one")]
                path = "/v1/chat/completions"
                if place == "query":
                    path += f"?{name}={value.decode()}"
                else:
                    pair = value if place == "header" else name.encode() + b"=" + value
                    headers.append((name.encode() if place == "header" else b"cookie", pair))
                assert (await line.asks(post(chat_body(), headers, path=path))).status == 200
            assert line.query(namespaces) == [(1,)], name
        # The control: a credential parts them.
        await line.asks(post(chat_body(), [(b"x-auth-token", b"1")]))
        assert line.query(namespaces) == [(2,)]


# HMAC-SHA256 by the pepper of 32 zeros over realm and four headers, each with its length, as the first
# release wrote it (computed with `hmac` alone, 2026-11-22).
RECORDED = {
    ("authorization", "Bearer sk-1"): "bc19b560f8850f85cafa30ae122f3768430085b566a88a5df98b7e1655d90ecc",
    ("api-key", "azure"): "3dd9e3b819808cf6669565e6ffd6ad2cffc176ae492c47db9d542c3f2b2feb22",
}


@pytest.mark.spec("P5")
@pytest.mark.parametrize("header", RECORDED)
async def test_who_sends_what_it_always_sent_keeps_its_namespace(
    header: tuple[str, str], tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    await migrate(url)
    store = await open_store(url, new_id=iter(["found", "made anew"]).__next__)
    assert await store.accounts.namespace_of(bytes.fromhex(RECORDED[header]), 1.0) == "found"
    access = Access(store.accounts, Jobs(), Pepper(bytes(32)), AccessSettings())
    plain = [(b"content-type", b"application/json"), (b"openai-organization", b"o"), (b"x-request-id", b"7")]
    headers = [(header[0].encode(), header[1].encode()), *plain]
    incoming = Incoming("POST", "/chat/completions?api-version=1", headers, b"", None)
    assert (await access.caller_of(incoming)).namespace == "found"
    await store.close()


SECRET = "canary-8d31f0aa"


@pytest.mark.spec("P7")
@pytest.mark.parametrize("operators", [False, True])
async def test_no_credential_is_written_and_none_goes_beside_the_operators_key(
    tmp_path: Path, operators: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    given = {"upstream.api_key": "sk-operator"} if operators else {}
    async with wired(tmp_path, given | {"logging.level": "debug"}) as line:
        line.upstream.always(replies(answer_body()))
        for place, name in CARRIERS:
            headers = (
                [(b"cookie", b"theme=dark; " + f"{name}={SECRET}".encode())] if place == "cookie" else []
            )
            headers += [(name.encode(), SECRET.encode())] if place == "header" else []
            query = f"?{name}={SECRET}&api-version=7" if place == "query" else "?api-version=7"
            for path in ("/v1/chat/completions", "/v1/embeddings"):
                reply = await line.asks(post(chat_body(), headers, path=path + query, key=None))
                assert reply.status == 200, (name, reply.body)
                assert SECRET.encode() not in reply.body
                request = line.upstream.requests[-1]
                assert request.target.startswith(path)
                assert "api-version=7" in request.target
                assert (SECRET.encode() in request.head) is not operators, name
            bad = await line.asks(post(b"{", headers, path="/v1/chat/completions" + query, key=None))
            assert (bad.status, SECRET.encode() in bad.body) == (400, False)
        if operators:
            # What is no credential is the upstream's all the same.
            assert any(b"theme=dark" in request.head for request in line.upstream.requests)
    assert holding(tmp_path, SECRET) == set()
    assert holding(tmp_path, "api-version") == set()
    said = capfd.readouterr()
    assert " exchange " in said.err
    assert SECRET not in said.out + said.err

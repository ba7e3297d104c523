"""Thirty turns of every habit stay one session, with one row per distinct message (S14)."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from palimpsest.core.history.read import read_message

from tests.kit.model import ModelServer, Says
from tests.kit.proxy import Proxy, proxied
from tests.simulation import habits
from tests.simulation.exchange import encoded
from tests.simulation.habits import Client, assistant, calling, result, user

pytestmark = [pytest.mark.spec("S14"), pytest.mark.asyncio(loop_scope="module")]

Json = dict[str, Any]
FEW_SHOT = (
    user("Change the greeting to be casual."),
    assistant("hello.py\n<<<<<<< SEARCH\nhello\n=======\nhey\n>>>>>>> REPLACE"),
    user("Now add a test."),
    assistant("test_hello.py\n```\nassert hello()\n```"),
)
BROKEN = {"error": {"message": "broke", "type": "server_error"}}


RETRY = {"x-stainless-retry-count": "1"}


def digests(messages: list[Json]) -> list[bytes]:
    """What tells messages apart however they are spelled; instructions are no part of a conversation."""
    read = [read_message(encoded(message), len) for message in messages]
    return [message.canonical for message in read if not message.is_instruction]


class Caller:
    """A caller of its own with one client, whose habit it has. `sessions` is where its requests went."""

    def __init__(self, proxy: Proxy, client: Client, key: str = "") -> None:
        self.proxy = proxy
        self.client = client
        self.key = key or uuid.uuid4().hex
        self.sent: list[Json] = []
        self.sessions: list[str] = []
        self.found: list[str] = []

    async def posts(self, messages: list[Json], headers: dict[str, str] | None = None) -> httpx.Response:
        """The request as it is; what reached the model is what was sent."""
        self.sent = messages
        given = {"authorization": f"Bearer {self.key}", **(headers or {})}
        # Every other answer is streamed; what is streamed has one choice here.
        stream = len(self.sessions) % 2 == 1 and not (self.proxy.model.answers or [Says()])[0].others
        body = {"model": "test-model", "messages": messages, "stream": stream}
        reply = await self.proxy.http.post("/v1/chat/completions", json=body, headers=given)
        assert self.proxy.model.prompts[-1].messages == messages
        self.sessions += [reply.headers["x-palimpsest-session"]] if reply.status_code == 200 else []
        self.found += [reply.headers["x-palimpsest-mode"]] if reply.status_code == 200 else []
        return reply

    async def asks(self, *said: Json, answer: Json, others: tuple[Json, ...] = ()) -> None:
        """One exchange that the client hears the end of."""
        self.proxy.model.answers.append(Says(answer, others=others))
        reply = await self.posts(self.client.says(*said))
        assert reply.status_code == 200, reply.text
        self.client.hears(answer)

    async def chats(self, n: int, who: str = "") -> None:
        """A turn of talk. The answer has outer whitespace and a thought in front."""
        answer = assistant(f"<think>hm {n}</think>\n\n{who}Answer {n}, at length.\n")
        answer |= {"reasoning_content": f"thinking of {n}", "refusal": None}
        await self.asks(user(f"{who}Question {n}?"), answer=answer)

    async def works(self, n: int) -> None:
        """Two parallel calls of tools; their ids and numbers are written in the model's own way."""
        first, second = f"call_{n}_a", f"call_{n}_b"
        calls = calling((first, "measure", f'{{"at": 1e2, "deep": {{"n": {n}}}}}'), (second, "list", ""))
        await self.asks(user(f"Task {n}."), answer=calls)
        results = (result(first, f"reading {n}"), result(second, "a.py\nb.py"))
        await self.asks(*results, answer=assistant(f"Done with {n}. "))

    async def turns(self, count: int) -> None:
        """Talk, with tools every fifth turn."""
        for n in range(count):
            await (self.works(n) if n % 5 == 4 else self.chats(n))

    async def reads(self, path: str) -> Json:
        headers = {"authorization": f"Bearer {self.key}"}
        reply = await self.proxy.http.get(f"/api/{path}", headers=headers)
        assert reply.status_code == 200, reply.text
        fields: Json = reply.json()
        return fields

    async def rows(self) -> list[Json]:
        """The conversation as a person reads it, in the session of the newest answer."""
        rows: list[Json] = (await self.reads(f"sessions/{self.sessions[-1]}/messages"))["messages"]
        return [row for row in rows if row["origin"] != "instructions"]

    async def stored(self) -> int:
        """How many messages there are in the one session of this caller."""
        (session,) = (await self.reads("sessions"))["sessions"]
        assert set(self.sessions) == {session["id"]}
        return int(session["messages"])


def told(rows: list[Json]) -> list[bytes]:
    return digests([row["message"] for row in rows])


def in_path(rows: list[Json]) -> list[bytes]:
    """Of these what the client still holds."""
    return told([row for row in rows if row["in_path"]])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxy(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Proxy]:
    overrides = {"database.synchronous": "normal"}
    async with proxied(ModelServer(window=400_000), tmp_path_factory.mktemp("habits"), overrides) as running:
        yield running


@pytest.mark.parametrize(
    "habit",
    [
        habits.Client,
        habits.Dated,
        habits.ListsFiles,
        habits.MovesCacheHint,
        habits.Strips,
        habits.Reserialises,
        habits.AddsExtras,
        habits.DropsReasoning,
    ],
)
async def test_a_client_that_resends_everything(proxy: Proxy, habit: type[Client]) -> None:
    caller = Caller(proxy, habit())
    await caller.turns(30)
    rows = await caller.rows()
    assert told(rows) == in_path(rows) == digests(caller.client.said)
    assert await caller.stored() == len(caller.client.said)
    assert len((await caller.reads(f"sessions/{caller.sessions[-1]}"))["branches"]) == 1


@pytest.mark.parametrize("tools", [False, True])
async def test_a_sliding_window(proxy: Proxy, tools: bool) -> None:
    caller = Caller(proxy, habits.Slides())
    if tools:
        await caller.turns(30)
    else:
        for n in range(30):
            await caller.chats(n)
    rows = await caller.rows()
    assert told(rows) == digests(caller.client.said)
    assert in_path(rows) == digests([*caller.sent, caller.client.said[-1]])
    assert await caller.stored() == len(caller.client.said)


async def test_a_reminder_that_is_taken_away_again(proxy: Proxy) -> None:
    caller = Caller(proxy, habits.Reminds())
    for n in range(30):
        await caller.chats(n)
    assert in_path(await caller.rows()) == digests([*caller.sent, caller.client.said[-1]])
    # Every user message but the newest was seen twice: with the reminder, and without.
    assert await caller.stored() == 30 + 30 + 29


async def test_reminders_behind_a_shared_opening_never_merge(proxy: Proxy) -> None:
    one = Caller(proxy, habits.Reminds(opening=FEW_SHOT))
    other = Caller(proxy, habits.Reminds(opening=FEW_SHOT), one.key)
    for n in range(30):
        await one.chats(n, "one: ")
        await other.chats(n, "other: ")
    assert len(set(one.sessions)) == len(set(other.sessions)) == 1
    assert one.sessions[0] != other.sessions[0]
    for caller, who in ((one, "one: "), (other, "other: ")):
        rows = await caller.rows()
        texts = [str(row["message"]["content"]) for row in rows if row["in_path"]]
        assert sum(text.startswith(f"{who}Question") for text in texts) == 30
        assert any("other: " in text for text in texts) == (who == "other: ")
        assert told(rows[:4]) == digests(list(FEW_SHOT))


async def test_a_shared_opening_alone_never_merges(proxy: Proxy) -> None:
    first = Caller(proxy, Client(opening=FEW_SHOT))
    second = Caller(proxy, Client(opening=FEW_SHOT), first.key)
    await first.chats(1, "first: ")
    await second.chats(2, "second: ")
    assert first.sessions != second.sessions
    assert second.found[-1].endswith("found=new")


async def test_a_repeated_idempotency_key_joins(proxy: Proxy) -> None:
    caller = Caller(proxy, Client())
    request = caller.client.says(user("Hello there."))
    for key in ("k1", "k1", "k2"):
        await caller.posts(request, {"idempotency-key": key})
    first, again, other = caller.sessions
    assert first == again != other


async def test_a_failed_first_turn_is_joined_without_a_mark(proxy: Proxy) -> None:
    caller = Caller(proxy, Client())
    request = caller.client.says(user("Hello there."))
    proxy.model.answers.append(Says(status=500, error=BROKEN))
    await caller.posts(request)
    await caller.posts(request)
    assert await caller.stored() == 2


async def test_a_first_turn_still_under_way_is_not_joined(proxy: Proxy) -> None:
    """Two people may say the same thing at the same time."""
    caller, asked, go_on = Caller(proxy, Client()), asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        asked.set()
        await go_on.wait()

    request = caller.client.says(user("Hello there."))
    proxy.model.answers.append(Says(assistant("Hello!"), after=waits))
    posting = asyncio.create_task(caller.posts(request))
    async with asyncio.timeout(20):
        await asked.wait()
    await caller.posts(request)
    go_on.set()
    await posting
    assert len(set(caller.sessions)) == 2


async def test_a_regenerated_answer_is_a_sibling(proxy: Proxy) -> None:
    caller = Caller(proxy, Client())
    for n in range(15):
        await caller.chats(n)
    heard, better = caller.client.said.pop(), assistant("A better answer.")
    proxy.model.answers.append(Says(better))
    await caller.posts(caller.client.request())
    caller.client.hears(better)
    for n in range(15, 30):
        await caller.chats(n)
    kept = in_path(await caller.rows())
    assert kept == digests(caller.client.said)
    assert digests([heard])[0] not in kept
    assert await caller.stored() == 61


async def test_of_three_answers_one_comes_back(proxy: Proxy) -> None:
    caller = Caller(proxy, Client())
    for n in range(30):
        choices = [assistant(f"Choice {c} of {n}.") for c in range(3)]
        await caller.asks(user(f"Question {n}?"), answer=choices[0], others=tuple(choices[1:]))
        caller.client.said[-1] = choices[n % 3]
    await caller.asks(user("The end."), answer=assistant("Bye."))
    assert in_path(await caller.rows()) == digests(caller.client.said)
    assert await caller.stored() == 30 + 90 + 2


@pytest.mark.spec("F38")
async def test_a_client_that_compacts_by_itself(proxy: Proxy) -> None:
    caller = Caller(proxy, habits.Compacts())
    for n in range(30):
        await caller.chats(n)
    rows = await caller.rows()
    assert in_path(rows) == digests(caller.client.said)
    texts = [str(row["message"]["content"]) for row in rows]
    whole = "\n".join(texts)
    assert all(f"Question {n}?" in whole and f"Answer {n}," in whole for n in range(30))
    # Both summaries of the client's own are kept; the older one it has dropped itself since.
    summaries = [row["in_path"] for row in rows if "Summary of what happened" in row["message"]["content"]]
    assert summaries == [False, True]
    assert await caller.stored() == 62


@pytest.mark.parametrize("was_answered", [False, True])
async def test_an_sdk_retry_of_the_first_turn(proxy: Proxy, was_answered: bool) -> None:
    """The first attempt failed, or was answered and never heard."""
    caller = Caller(proxy, Client())
    request = caller.client.says(user("Hello there."))
    answer = assistant("Hello! What shall we do?")
    proxy.model.answers.append(Says(answer) if was_answered else Says(status=500, error=BROKEN))
    await caller.posts(request)
    proxy.model.answers.append(Says(answer))
    await caller.posts(request, RETRY)
    assert caller.found[-1].endswith("found=retry")
    caller.client.hears(answer)
    for n in range(29):
        await caller.chats(n)
    assert told(await caller.rows()) == digests(caller.client.said)
    assert await caller.stored() == 60


@pytest.mark.parametrize("habit", [habits.Slides, habits.Reminds, habits.Compacts])
async def test_the_default_branch_is_what_the_client_holds(proxy: Proxy, habit: type[Client]) -> None:
    """After every turn, also right after the client dropped most of its past (rule 7)."""
    caller = Caller(proxy, habit())
    for n in range(30):
        await caller.chats(n)
        assert in_path(await caller.rows()) == digests([*caller.sent, caller.client.said[-1]])

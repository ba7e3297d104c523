"""What quotes a conversation is listed with it and erased with it, and nothing else is (rule 47, P6).

The front ends' own words are shortened; how they quote is theirs.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from palimpsest.storage.sqlite_files import writable

from tests.kit.chat import Chat
from tests.kit.model import ModelServer, Says, Seen
from tests.kit.proxy import Proxy, proxied
from tests.kit.remains import remains

pytestmark = pytest.mark.spec("P6")
Json = dict[str, Any]
KEY = {"authorization": "Bearer key-1"}
NEEDLE = "Kanarienvogel77"
TASK = (
    f"My name is Anna {NEEDLE}, I live in Trieste with two small children, and since the spring I have slept "
    "badly. What may the doctor ask me about it on Thursday, and what should I write down until then?"
)
ADVICE = (
    f"She will probably ask, {NEEDLE}, how long you lie awake, what you drink in the evening, and whether "
    "the children wake you. Write down for a week when you went to bed, and when you got up."
)


MANY = 10_000


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def system(text: str) -> Json:
    return {"role": "system", "content": text}


def cut(text: str, most: int = 90) -> str:
    """Shortened in the middle."""
    return text if len(text) <= most else f"{text[: most // 2]}...{text[-most // 2 :]}"


def lines(said: list[Json], user: str = "USER", assistant: str = "ASSISTANT", size: int = 10_000) -> str:
    names = {"user": user, "assistant": assistant}
    return "\n".join(f"{names[one['role']]}: {cut(one['content'], size)}" for one in said)


Asks = Callable[[list[Json]], list[Json]]
# How front ends ask beside a chat, each by what was said so far.
SHAPES: dict[str, Asks] = {
    "title": lambda said: [
        user(
            "### Task:\nGenerate a concise title with an emoji.\n### Chat History:\n<chat_history>\n"
            f"{lines(said[-2:])}\n</chat_history>"
        )
    ],
    "follow-up, shortened": lambda said: [
        user(
            "### Task:\nSuggest 3-5 follow-up questions.\n### Chat History:\n<chat_history>\n"
            f"{lines(said[-6:], size=90)}\n</chat_history>"
        )
    ],
    "one JSON": lambda said: [
        system("Name the topic of the messages."),
        user(json.dumps([{"role": one["role"], "content": one["content"]} for one in said])),
    ],
    "JSON in ASCII": lambda said: [user("Tags for this conversation: " + json.dumps(json.dumps(said)))],
    "German": lambda said: [
        user(f"Gib dieser Unterhaltung einen Titel.\n{lines(said, 'Benutzer', 'Assistent')}\nTitel:")
    ],
    "Chinese": lambda said: [user(f"请为以下对话生成标题。\n{lines(said, '用户', '助手', 120)}\n")],
    "first message": lambda said: [
        system("You write titles of five words."),
        user(f"Title for the chat that begins with:\n\n{said[0]['content'][:80]}"),
    ],
    "message apart": lambda said: [user("Generate a title for this conversation:"), user(said[0]["content"])],
    "answer": lambda said: [
        user(f"Given the following, reply with a title for the chat of 3-4 words:\n\n{said[-1]['content']}")
    ],
    "in the instructions": lambda said: [
        system(f"Here is a chat.\n{lines(said)}\nYou extract facts about the user from it."),
        user("Extract them."),
    ],
    "indented": lambda said: [
        user(
            "Summarize the conversation.\n"
            + "\n".join(f"  > **{one['role'].title()}**: {one['content']}" for one in said)
        )
    ],
    # Agno, LangChain, pi, gptme and others, who summarize, name and remember for themselves.
    "whole in the instructions": lambda said: [
        system(f"Extract a summary.<conversation>{lines(said, 'User', 'Assistant')}</conversation>"),
        user("Provide the summary of the conversation."),
    ],
    "XML": lambda said: [
        user(
            "Extract the most important context.\n<messages>\n"
            + "\n".join(f'<message type="{one["role"]}">{one["content"]}</message>' for one in said)
        )
    ],
    "middle left out": lambda said: [
        user("Summarize this:\n" + (text := " ".join(lines(said).split()))[:150] + " ... " + text[-150:])
    ],
    "parts": lambda said: [
        system("- write a short title based on the first message a user begins a conversation with"),
        user(json.dumps([{"type": "text", "text": said[0]["content"]}])),
    ],
    "nothing but the message": lambda said: [
        system("Generate a short title for this conversation based on the user's message."),
        user(said[0]["content"]),
    ],
    "Chinese, summarized": lambda said: [user(f"请概括以下对话\n{lines(said, '用户', '助手', 120)}")],
}


@pytest_asyncio.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[Proxy]:
    (tmp_path / "log").mkdir()
    settings = {"compaction.daily_log_folder": str(tmp_path / "log")}
    async with proxied(ModelServer(), tmp_path, settings) as running:
        yield running


async def sessions(proxy: Proxy, key: Json = KEY) -> list[Json]:
    """As they are listed by default."""
    found = await proxy.http.get("/api/sessions?limit=500", headers=key)
    listed: list[Json] = found.json()["sessions"]
    return listed


async def begins(proxy: Proxy, **options: Any) -> Chat:
    """A chat of two turns whose words hold the needle."""
    chat = proxy.chat(**options)
    proxy.model.says(ADVICE, f"Then take the notes along, {NEEDLE}.")
    await chat.says(TASK)
    await chat.says(f"And if I forget them, says {NEEDLE}?")
    return chat


async def beside(proxy: Proxy, messages: list[Json], says: str = f"Sleep of {NEEDLE}") -> str:
    """The session of a side request, which has a client's cache of its own and no name."""
    aside = proxy.chat()
    proxy.model.says(says)
    reply = await aside.posts(messages)
    assert reply.status_code == 200, reply.text
    return aside.session


async def erased(proxy: Proxy, session: str) -> Json:
    reply = await proxy.http.delete(f"/api/sessions/{session}", headers=KEY)
    assert reply.status_code == 200, reply.text
    receipt: Json = reply.json()
    assert receipt["files"] == "scrubbed"
    return receipt


async def nothing_is_left(proxy: Proxy, folder: Path) -> None:
    for page in ("/ui", "/ui/search?q=doctor", "/api/sessions?details=1"):
        assert NEEDLE not in (await proxy.http.get(page, headers=KEY)).text
    assert remains(folder, NEEDLE) == {}


async def test_side_requests_of_all_shapes_go_with_their_chat(proxy: Proxy, tmp_path: Path) -> None:
    chat = await begins(proxy)
    found = {shape: await beside(proxy, asks(chat.said)) for shape, asks in SHAPES.items()}
    assert {shape for shape, session in found.items() if session != chat.session} == set()
    assert [row["id"] for row in await sessions(proxy)] == [chat.session]
    kinds = [branch["kind"] for branch in (await chat.session_fields())["branches"]]
    assert kinds == ["main", *["side"] * len(SHAPES)]
    assert await chat.transcript() == chat.said
    await erased(proxy, chat.session)
    assert await sessions(proxy) == []
    await nothing_is_left(proxy, tmp_path)


BEFORE = [
    *("title", "JSON in ASCII", "German", "first message", "message apart"),
    *("whole in the instructions", "XML", "parts", "nothing but the message", "Chinese, summarized"),
]


@pytest.mark.parametrize("shape", BEFORE)
@pytest.mark.parametrize("first", ["chat", "side"])
async def test_beside_the_first_turn(proxy: Proxy, shape: str, first: str, tmp_path: Path) -> None:
    """Neither has been answered when the other arrives."""
    chat, aside = proxy.chat(), proxy.chat()
    arrived = [asyncio.Event(), asyncio.Event()]

    async def until_both() -> None:
        arrived[len(proxy.model.seen) - 1].set()
        await asyncio.wait_for(arrived[1].wait(), 30)

    def answer(seen: Seen) -> Says:
        is_chat = seen.messages == [user(TASK)]
        content = ADVICE if is_chat else f"Sleep of {NEEDLE}"
        return Says({"role": "assistant", "content": content}, after=until_both)

    proxy.model.script = answer
    orders = [chat.says(TASK), aside.posts(SHAPES[shape]([user(TASK)]))]
    begun = []
    for order, arrives in zip(orders if first == "chat" else orders[::-1], arrived, strict=True):
        begun.append(asyncio.ensure_future(order))
        await asyncio.wait_for(arrives.wait(), 30)
    await asyncio.gather(*begun)
    proxy.model.script = None
    await chat.says(f"And on Friday, asks {NEEDLE}?")
    assert await chat.transcript() == chat.said
    assert [row["id"] for row in await sessions(proxy)] == [chat.session]
    await erased(proxy, chat.session)
    await nothing_is_left(proxy, tmp_path)


async def test_what_came_before_its_chat_is_listed_and_goes_with_it(proxy: Proxy, tmp_path: Path) -> None:
    asides = [await beside(proxy, SHAPES[shape]([user(TASK)])) for shape in BEFORE]
    chat = await begins(proxy)
    assert {row["id"] for row in await sessions(proxy)} == {chat.session, *asides}
    receipt = await erased(proxy, chat.session)
    assert set(receipt["side_sessions"]) == set(asides)
    assert await sessions(proxy) == []
    await nothing_is_left(proxy, tmp_path)


async def test_what_comes_late_goes_with_its_chat(proxy: Proxy, tmp_path: Path) -> None:
    """Memories are extracted at night, when others have spoken meanwhile."""
    chat = await begins(proxy)
    for number in range(20):
        await proxy.chat().says(f"Question {number} of somebody else, about the harbour of Pola.")
    asides = {await beside(proxy, SHAPES[shape](chat.said)) for shape in ("title", "Chinese", "one JSON")}
    assert asides <= {row["id"] for row in await sessions(proxy)}
    await erased(proxy, chat.session)
    assert len(await sessions(proxy)) == 20
    await nothing_is_left(proxy, tmp_path)


async def test_after_an_edit(proxy: Proxy, tmp_path: Path) -> None:
    chat = await begins(proxy)
    old = list(chat.said)
    chat.said = chat.said[:2]
    proxy.model.says(f"The harbour, {NEEDLE}, lies at the end of the canal, behind the old exchange.")
    await chat.says(f"Something else: where can {NEEDLE} see ships in the evening with the children?")
    both = [(said, shape) for said in (chat.said, old) for shape in list(SHAPES)[::2]]
    found = {await beside(proxy, SHAPES[shape](said)) for said, shape in both}
    assert found == {chat.session}
    await erased(proxy, chat.session)
    await nothing_is_left(proxy, tmp_path)


async def test_a_clients_own_summary(proxy: Proxy, tmp_path: Path) -> None:
    """Asked for in a request of its own, and what the client goes on with."""
    chat = await begins(proxy)
    asked = user(
        "The messages above are a conversation to summarize.\n<conversation>\n"
        f"{lines(chat.said, '[User]', '[Assistant]')}\n</conversation>"
    )
    summary = (
        f"{NEEDLE} sleeps badly and sees a doctor on Thursday. She writes down when she goes to bed. " * 2
    )
    assert await beside(proxy, [asked], says=summary) == chat.session
    chat.said = [
        user(
            "The conversation history before this point was compacted into the following summary:\n"
            f"<summary>\n{summary}\n</summary>"
        )
    ]
    await chat.says("What was on Thursday?")
    assert [row["id"] for row in await sessions(proxy)] == [chat.session]
    await erased(proxy, chat.session)
    await nothing_is_left(proxy, tmp_path)


async def test_a_quotation_of_two_messages_needs_no_word_for_what_it_is(proxy: Proxy) -> None:
    chat = await begins(proxy)
    said = "\n".join(f"* {one['content'][:70]}…{one['content'][-50:]}" for one in chat.said)
    assert await beside(proxy, [user(f"Condense:\n{said}")]) == chat.session


REPORT = (
    "The harbour of Trieste handled sixty million tonnes of goods in the year before last, most of it oil "
    "for the pipeline across the Alps; the rest was coffee, steel, timber and containers."
)


async def test_common_words_are_nobodys(proxy: Proxy, tmp_path: Path) -> None:
    """Chats of one turn in one front end, whose texts share a report, a greeting, and a question."""
    chat = await begins(proxy)
    proxy.model.says(f"It is about the harbour, {NEEDLE}.")
    report = proxy.chat()
    await report.says(f"Please summarize this report for {NEEDLE}:\n{REPORT}")
    others = [
        [user(f"Summarize this report:\n{REPORT}")],
        [user(f"{REPORT}\nWhat are the main points?")],
        [user(REPORT)],
        [system("You write titles."), user(f"A title for this report, please: {REPORT}")],
        [user("What may the doctor ask me about it on Thursday, and what should I write down until then?")],
        [user(f"User: is this true?\n{REPORT}\nAssistant: it is.\nWhat do you make of it?")],
    ]
    kept = {await beside(proxy, messages, says="Coffee and oil.") for messages in others}
    assert len(kept) == len(others)
    for one in (chat, report):
        assert (await erased(proxy, one.session))["side_sessions"] == []
    assert {row["id"] for row in await sessions(proxy)} == kept
    await nothing_is_left(proxy, tmp_path)


async def test_whoever_goes_on_has_a_conversation(proxy: Proxy) -> None:
    """A chat that began with a paste of another one is its own from the second turn on."""
    pasted = [
        user(f"What do you think of this?\n{lines([user(TASK), {'role': 'assistant', 'content': ADVICE}])}")
    ]
    other = proxy.chat()
    await other.sends(*pasted)
    await other.says("And in the autumn?")
    chat = await begins(proxy)
    assert other.session != chat.session
    assert (await erased(proxy, chat.session))["side_sessions"] == []
    assert [row["id"] for row in await sessions(proxy)] == [other.session]
    assert await other.transcript() == other.said


async def test_another_key_is_not_looked_at(proxy: Proxy) -> None:
    chat = await begins(proxy)
    other = proxy.chat(key="key-2")
    await other.posts(SHAPES["title"](chat.said))
    assert (await erased(proxy, chat.session))["side_sessions"] == []
    assert [row["id"] for row in await sessions(proxy, other.headers)] == [other.session]


async def test_among_ten_thousand_sessions(tmp_path: Path) -> None:
    """Requests of one turn each: all of them may quote, and are looked at in some seconds."""
    path = tmp_path / "palimpsest.db"
    async with proxied(ModelServer(), tmp_path) as proxy:
        await proxy.chat().says("So that the key has a namespace.")
    database = writable(path, "normal")
    with database:
        ((namespace,),) = database.execute("SELECT namespace FROM sessions").fetchall()
        for table in ("sessions", "messages", "bodies"):
            columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            first = dict(zip(columns, database.execute(f"SELECT * FROM {table}").fetchone(), strict=True))
            rows = [_row(table, first | {"namespace": namespace}, number) for number in range(MANY)]
            marks = ",".join("?" * len(columns))
            database.executemany(
                f"INSERT INTO {table} VALUES ({marks})", [list(row.values()) for row in rows]
            )
    database.close()
    async with proxied(ModelServer(), tmp_path) as proxy:
        chat = await begins(proxy)
        proxy.http.timeout = 600
        before = time.process_time()
        assert await beside(proxy, SHAPES["title"](chat.said)) == chat.session
        assert time.process_time() - before < 5
        long = "What do you make of it? " * 2_000
        late = await beside(proxy, [user(f"{long}\n{lines(chat.said, 'Ona', 'On')}")])
        assert late != chat.session
        before = time.process_time()
        receipt = await erased(proxy, chat.session)
        assert time.process_time() - before < 30
        assert receipt["side_sessions"] == [late]
        found = await proxy.http.get("/api/sessions?limit=1", headers=KEY)
        assert found.json()["total"] == MANY + 1


def _row(table: str, row: Json, number: int) -> Json:
    """The first row again, of another session."""
    body = json.dumps(
        user(f"Note {number}. {REPORT} {REPORT} {REPORT} {hashlib.md5(b'%d' % number).hexdigest()}")
    )
    digest = hashlib.sha256(body.encode()).digest()
    session = f"01900000-0000-7000-8000-{number:012d}"
    if table == "sessions":
        return row | {"id": session, "external_id": None}
    if table == "bodies":
        return row | {"digest": digest, "body": body.encode()}
    chain = hashlib.sha256(digest).digest()
    return row | {
        "session": session,
        "chain": chain,
        "digest": digest,
        "role": "user",
        "relayed": 0,
        "answers": 0,
    }

"""Reading a conversation by the numbers of its messages, and what stands beside each quote."""

from __future__ import annotations

import json
from typing import Any

import pytest
import pytest_asyncio

from tests.api.test_recall import called, client_of, describe, grep, search
from tests.kit.chat import Chat
from tests.kit.proxy import Proxy
from tests.kit.words import prose

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
KEY = "sk-ant-api03-Zx81hQ7Lw2Rk9Vt4Bn6Mc3Yd5Fg"
LISTING = "\n".join(
    ["Found 565 matches", *(f"src/part_{n}.c: the anchor is set" for n in range(400)), "the bosun knows"]
)


@pytest_asyncio.fixture(loop_scope="module")
async def sailed(proxy: Proxy) -> Chat:
    """Ten turns; in the third a tool lists much, in the fourth somebody names a key and a password."""
    chat = proxy.chat(system="You help.", session="sailed")
    for turn in range(1, 11):
        if turn == 3:
            proxy.model.calls(("s1", "search", {"pattern": "anchor"}))
            await chat.says("Turn 3: where is the anchor set?")
            await chat.sends({"role": "tool", "tool_call_id": "s1", "content": LISTING + "\nthe bosun knows"})
        elif turn == 4:
            await chat.says(f"Turn 4: the harbour key is {KEY}, and the password is hunter2222 there.")
        else:
            await chat.says(f"Turn {turn}: {prose(turn, 150)}")
    return chat


def numbered(chat: Chat) -> list[str]:
    """The texts of the conversation's messages, instructions apart: the first has the number 1."""
    return [str(message["content"] or "") for message in chat.said[1:]]


async def test_a_number_without_a_session_is_told_where_it_is_read(proxy: Proxy, sailed: Chat) -> None:
    reply = await proxy.http.get("/api/context/1204", headers=sailed.headers)
    assert (reply.status_code, "POST /api/context/describe" in reply.text) == (400, True)


@pytest.mark.spec("C05")
@pytest.mark.parametrize(
    ("asked", "number"),
    [("3", 3), ("message 3", 3), ("next 3", 4), ("next of 2-3", 4), ("previous 3", 2)]
    + [(none, None) for none in ("Previous to 1", "next 22", "0", "23")],
)
async def test_a_message_is_read_by_its_number(sailed: Chat, asked: str, number: int | None) -> None:
    entry = await describe(sailed, asked)
    if number is None:
        assert entry is None
    elif "messages" in entry:
        assert entry["messages"][0]["text"] == numbered(sailed)[number - 1]
    else:
        said = numbered(sailed)[number - 1]
        assert (entry["message"], entry["text"]) == (number, f"{entry['role']}: {said}")


@pytest.mark.spec("C05")
async def test_a_message_tells_which_stand_before_and_behind_it(sailed: Chat) -> None:
    ids = [row["id"] for row in (await sailed.rows())[1:]]
    entry = await describe(sailed, ids[7])
    assert (entry["message"], entry["turn"], entry["next"]) == (8, 3, "9")
    assert await describe(sailed, "8") == entry
    assert (await describe(sailed, f"next {ids[7]}"))["id"] == ids[8]
    first, last = await describe(sailed, "1"), await describe(sailed, str(len(ids)))
    assert (first["turn"], last["turn"], last["next"]) == (1, 10, None)


@pytest.mark.spec("C05")
@pytest.mark.parametrize("limit", [200, 4_000, 16_000])
async def test_a_range_is_read_word_for_word_page_by_page(sailed: Chat, limit: int) -> None:
    said = numbered(sailed)
    read: dict[int, str] = {}
    order: Json = {"id": "1-9999"}
    while order is not None:
        page = await describe(sailed, order["id"], limit=limit, offset=order.get("offset", 0))
        assert sum(len(each["text"]) for each in page["messages"]) <= limit
        for each in page["messages"]:
            number = int(each["id"])
            read[number] = read.get(number, "") + each["text"]
        order = page["next"]
    assert list(read) == list(range(1, len(said) + 1))
    assert all(read[n].startswith(text) for n, text in enumerate(said, 1) if KEY not in text)
    few = await describe(sailed, "messages 2 to 3")
    assert ([each["id"] for each in few["messages"]], few["next"]) == (["2", "3"], None)
    assert await describe(sailed, "50-60") is None


@pytest.mark.spec("C04", "C16")
async def test_a_hit_says_where_it_stands_in_few_characters(sailed: Chat) -> None:
    found = await grep(sailed, "bosun password harbour", limit=20)
    (listed,) = [hit for hit in found["results"] if "bosun" in hit["snippet"]]
    assert (listed["id"], listed["turn"], listed["speaker"]) == ("7", 3, "tool")
    assert listed["head"] == "Found 565 matches"
    for hit in found["results"]:
        fixed = hit | {name: "" for name in ("snippet", "head") if name in hit}
        assert len(json.dumps(fixed, separators=(",", ":"))) <= 120
        assert {"id", "turn", "date", "speaker"} <= hit.keys()
    searched = [hit for hit in (await search(sailed, "bosun"))["results"] if "bosun" in hit["text"]]
    assert (searched[0]["depth"], searched[0]["turn"], searched[0]["head"]) == (7, 3, "Found 565 matches")


@pytest.mark.spec("C04")
async def test_what_stands_beside_a_hit_is_a_hit_of_its_own(proxy: Proxy) -> None:
    proxy.model.says("Sunflowers, and some kale.")
    chat = proxy.chat(session="shed")
    await chat.sends({"role": "user", "name": "Nora", "content": "What did we plant behind the shed?"})
    found = await grep(chat, "plant behind the shed", limit=1)
    (hit,), (line,) = found["results"], found["beside"]
    shown = {f"{hit['id']}, turn 1, {hit['date']}, {hit['speaker']}: {hit['snippet']}", line}
    assert shown == {
        f"1, turn 1, {hit['date']}, Nora: What did we plant behind the shed?",
        f"2, turn 1, {hit['date']}, assistant: Sunflowers, and some kale.",
    }


@pytest.mark.spec("C04", "C05")
async def test_tools_return_no_secrets_and_the_archive_keeps_them(proxy: Proxy, sailed: Chat) -> None:
    told = [await grep(sailed, "harbour key password", limit=50), await describe(sailed, "9-10")]
    told += [await describe(sailed, "9"), await describe(sailed, "9", offset=30, limit=60)]
    async with client_of(proxy, sailed) as client:
        told.append(await called(client, "context_describe", id="9", session="sailed"))
    for each in told:
        assert KEY[8:] not in json.dumps(each)
        assert "hunter2222" not in json.dumps(each)
    ids = [row["id"] for row in (await sailed.rows())[1:]]
    assert KEY in await sailed.recalls(ids[8])
    assert KEY in json.dumps(await search(sailed, "harbour key"))

"""Finding what was said, through the running proxy: whose it is, on which path, in whatever words."""

from __future__ import annotations

import uuid
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tests.kit.chat import Chat
from tests.kit.proxy import Proxy
from tests.kit.words import prose

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]


async def searched(proxy: Proxy, chat: Chat, question: str, **params: Any) -> httpx.Response:
    asked = {"q": question, **params}
    return await proxy.http.get(f"/api/sessions/{chat.session}/search", headers=chat.headers, params=asked)


async def found(proxy: Proxy, chat: Chat, question: str, **params: Any) -> list[Json]:
    reply = await searched(proxy, chat, question, **params)
    assert reply.status_code == 200, reply.text
    hits: list[Json] = reply.json()["results"]
    return hits


def shown(hits: list[Json]) -> str:
    quotes = [quote for hit in hits for quote in (hit, *hit["before"], *hit["after"])]
    return "\n".join(quote["text"] for quote in quotes)


@pytest_asyncio.fixture(loop_scope="module")
async def told(proxy: Proxy) -> Chat:
    talk = proxy.chat(system="Be kind.")
    proxy.model.says("A fine choice.", "Sunflowers, and some kale.", "Noted.", "How sad.")
    await talk.says("Last Saturday I painted the rowing boat in green.")
    await talk.says("What did I say we would plant behind the shed?")
    await talk.says("The gate code is 4471-KLM, 100% sure_thing.")
    await talk.says("My grandmother's greyhound died on Friday.")
    return talk


async def test_a_question_finds_an_exact_quote_in_other_words(proxy: Proxy, told: Chat) -> None:
    best = (await found(proxy, told, "When was the boat painted, and in which colour?"))[0]
    assert best["text"] == told.said[1]["content"]
    assert (best["role"], best["kind"], best["start"]) == ("user", "message", 0)
    assert best["id"] in [row["id"] for row in await told.rows()]
    assert await told.recalls(best["id"]) == best["text"]


@pytest.mark.spec("C15")
@pytest.mark.parametrize(
    "question",
    [
        "100% sure_thing",
        '"4471-KLM"',
        "'; DROP TABLE messages; --",
        "NEAR(gate code, 3) OR * AND (",
        'gate" code"" ^col:x',
        "\x00 gate",
        "%_%",
        "(" * 500,
        "gate " * 380,
        "🚪 gate",
        "?",
        "",
    ],
)
async def test_no_question_is_an_error(proxy: Proxy, told: Chat, question: str) -> None:
    reply = await searched(proxy, told, question)
    assert reply.status_code == 200
    hits = reply.json()["results"]
    if "gate" in question or "4471" in question or "sure_thing" in question:
        assert "The gate code is 4471-KLM" in shown(hits)


@pytest.mark.spec("C15")
async def test_what_has_no_words_is_found_by_its_letters(proxy: Proxy) -> None:
    talk = proxy.chat()
    await talk.says("The marker is <%_%> here.")
    await talk.says("Nothing of the kind.")
    hits = await found(proxy, talk, "<%_%>")
    assert [hit["text"] for hit in hits if hit["role"] == "user"] == ["The marker is <%_%> here."]


@pytest.mark.spec("P5")
async def test_another_callers_words_are_never_found(proxy: Proxy, told: Chat) -> None:
    other = proxy.chat(key=uuid.uuid4().hex, session="mine")
    await other.says("I know nothing of it.")
    assert (await searched(proxy, _as(told, other), "gate code")).status_code == 404
    for scope in ("branch", "session", "namespace"):
        assert "4471" not in shown(await found(proxy, other, "gate code 4471-KLM", scope=scope))


async def test_other_sessions_are_searched_only_when_asked_for(proxy: Proxy, told: Chat) -> None:
    other = proxy.chat(session="another of mine", key=told.headers["authorization"].split()[1])
    await other.says("A new day.")
    await found(proxy, told, "gate")
    assert "4471" not in shown(await found(proxy, other, "gate code"))
    hits = await found(proxy, other, "gate code", scope="namespace")
    assert "4471" in shown(hits)
    assert hits[0]["session"] == told.session


@pytest.mark.spec("F27")
async def test_what_was_edited_away_comes_back_only_when_asked_for(proxy: Proxy, told: Chat) -> None:
    key = told.headers["authorization"].split()[1]
    again = proxy.chat(key=key)
    again.said = [*told.said[:5], {"role": "user", "content": "The gate code is 9020-ZZZ."}]
    await again.posts(again.said)
    branches = (await proxy.http.get(f"/api/sessions/{told.session}", headers=told.headers)).json()[
        "branches"
    ]
    assert len(branches) == 2
    # What was said last is the conversation.
    new, old = (branch["branch"] for branch in branches)
    assert "4471" in shown(await found(proxy, told, "gate code", branch=old))
    assert "9020" not in shown(await found(proxy, told, "gate code", branch=old))
    assert "9020" in shown(await found(proxy, told, "gate code", branch=new))
    assert "4471" not in shown(await found(proxy, told, "gate code", branch=new))
    both = shown(await found(proxy, told, "gate code", scope="session"))
    assert "4471" in both
    assert "9020" in both


@pytest.mark.spec("C20")
async def test_a_summary_is_found_once_there_is_one(proxy: Proxy, told: Chat) -> None:
    assert {hit["kind"] for hit in await found(proxy, told, "boat gate greyhound kale")} == {"message"}
    for turn in range(6):
        await told.says(f"Turn {turn}. Tell me of the harbour and its {turn} cranes. {prose(turn, 150)}")
    made = await proxy.http.post(f"/api/sessions/{told.session}/compact", headers=told.headers, json={})
    assert made.json()["compacted"]
    question = "boat gate greyhound kale harbour cranes"
    assert {hit["kind"] for hit in await found(proxy, told, question, limit=50)} == {"message"}
    (summary,) = await found(proxy, told, question, kind="summary")
    assert summary["kind"] == "summary"
    assert summary["id"] == "dcs_" + made.json()["compaction"]["id"].replace("-", "")


def _as(talk: Chat, caller: Chat) -> Chat:
    """The talk, asked for by somebody else."""
    stranger = Chat(talk._http)
    stranger.headers = dict(caller.headers)
    stranger.replies = talk.replies
    return stranger


async def test_an_odd_message_keeps_its_session_searchable(proxy: Proxy) -> None:
    talk = proxy.chat()
    odd = {"role": "assistant", "content": "odd", "tool_calls": 5}
    await talk.posts(
        [{"role": "user", "content": "The beacon is red."}, odd, {"role": "user", "content": "So?"}]
    )
    talk.said = []
    assert "The beacon is red." in shown(await found(proxy, talk, "which colour has the beacon?"))


@pytest.mark.spec("P11")
async def test_other_branches_do_not_take_the_places_of_this_one(proxy: Proxy) -> None:
    talk = proxy.chat()
    talk.said = [{"role": "user", "content": "The harbour beacon is crimson."}]
    await talk.posts(talk.said)
    first = talk.session
    for number in range(12):
        many = [{"role": "user", "content": f"harbour beacon {number} {part} crimson"} for part in range(30)]
        answered = [
            {"role": "assistant", "content": talk.replies[0].json()["choices"][0]["message"]["content"]}
        ]
        await talk.posts([*talk.said, *answered, *many])
    assert talk.session == first
    answer = (await talk.rows())[1]["id"]
    hits = await found(proxy, talk, "harbour beacon crimson", branch=answer)
    assert "The harbour beacon is crimson." in shown(hits)

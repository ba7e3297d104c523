"""What tells branches apart is read from the store: instructions, marks, what was answered last (rule 33)."""

from __future__ import annotations

import json

import pytest
from palimpsest.storage.store import Store

from tests.storage.talk import Talk

pytestmark = pytest.mark.spec("H13")

RULES = b'{"role":"system","content":"You are an agent that repairs log readers, and nothing else."}'
OTHERS = b'{"role":"system","content":"Extract facts!"}'


def said(role: str, text: str) -> bytes:
    return json.dumps({"role": role, "content": text}).encode()


async def test_instructions_are_compared_by_their_words(store: Store) -> None:
    talk = Talk(store)
    first = [said("user", "Repair it.")]
    asked = await talk.asks(first, preamble=[RULES])
    answer = talk.answer(asked, said("assistant", "Done."))
    await talk.hears(asked, answer)
    whole = [*first, said("assistant", "Done.")]
    beside = await talk.asks([*whole, said("user", "Extract.")], stored=2, preamble=[OTHERS])
    await talk.hears(beside, talk.answer(beside, said("assistant", "None."), answers=2))
    heads = await store.history.heads("ns", talk.session)
    assert [head.kind for head in heads] == ["main", "side"]
    # The default branch ends where something else goes on from.
    assert heads[0].chain == answer.chain == heads[1].beside
    assert (heads[0].answers, heads[0].depth, heads[0].preamble) == (1, 2, asked.preamble_digest)
    dated = RULES.replace(b"else", b"else, on Monday")
    again = await talk.asks([*whole, said("user", "And now?")], stored=2, preamble=[dated])
    heads = await store.history.heads("ns", talk.session)
    assert (heads[0].chain, heads[0].kind) == (again.head, "main")
    assert await store.history.heads("other", talk.session) == []


async def test_what_was_said_last(store: Store) -> None:
    talk, other = Talk(store), Talk(store, namespace="other")
    for one, number in ((talk, "1"), (other, "2"), (Talk(store), "3")):
        asked = await one.asks([said("user", f"question {number}")], exchange=f"0{number}")
        await one.hears(asked, one.answer(asked, said("assistant", f"answer {number}")))
    waiting = Talk(store)
    await waiting.asks([said("user", "question 4")], exchange="04")
    aside = Talk(store)
    aside.mark = "side"
    asked = await aside.asks([said("user", "title")], exchange="05")
    await aside.hears(asked, aside.answer(asked, said("assistant", "Title")))
    found = await store.history.said_last("ns")
    texts = ["question 4", "answer 3", "question 3", "answer 1", "question 1"]
    assert [one.text for one in found] == texts
    assert [one.is_answer for one in found] == [one.relayed for one in found]
    assert found[-1].session == talk.session
    assert [one.text for one in await store.history.said_last("other")] == ["answer 2", "question 2"]
    newest, rest = await store.history.said("ns", talk.session, None)
    assert ([one.text for one in newest], rest) == (texts[3:], None)


async def test_sessions_of_side_requests_can_be_left_out(store: Store) -> None:
    talk, aside = Talk(store), Talk(store)
    aside.mark = "side"
    for one in (talk, aside):
        asked = await one.asks([b"question"])
        await one.hears(asked, one.answer(asked, b"answer"))
    assert [row.id for row in await store.history.sessions("ns", 10, None, with_side=False)] == [talk.session]
    assert {row.id for row in await store.history.sessions("ns", 10, None) if row.is_side} == {aside.session}
    assert await store.history.session_count("ns") == 2
    assert await store.history.session_count("ns", with_side=False) == 1
    # Somebody goes on from there: a conversation.
    aside.mark = ""
    await aside.asks([b"question", b"answer", b"and then?"], stored=2)
    assert len(await store.history.sessions("ns", 10, None, with_side=False)) == 2


async def test_requests_that_nobody_continued(store: Store) -> None:
    talk, aside, other = Talk(store), Talk(store), Talk(store, namespace="other")
    for one in (talk, aside, other):
        asked = await one.asks([said("user", "question")], preamble=[RULES])
        await one.hears(asked, one.answer(asked, said("assistant", "answer")))
    await talk.asks([said("user", "question"), said("assistant", "answer"), said("user", "and?")], stored=2)
    found, rest = await store.erasure.lone_requests("ns", "none", None)
    assert [(one.session, one.instructions, one.asked) for one in found] == [
        (aside.session, [RULES], [said("user", "question")])
    ]
    assert rest is None
    assert await store.erasure.lone_requests("ns", aside.session, None) == ([], None)

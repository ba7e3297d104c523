"""Clients that send only what is new (rules 9 to 11), over the real store."""

from __future__ import annotations

import pytest
from palimpsest.errors import OpenToolGroup

from tests.simulation.exchange import Answers, Opened, Proxy, Request
from tests.simulation.habits import Json, assistant, calling, result, system, user
from tests.simulation.script import digests, only_session, wire

BOTH = calling(("a", "f", "{}"), ("b", "f", "{}"))


async def send(
    proxy: Proxy, *messages: Json, answer: Json | None, mode: str | None = None, retry: bool = False
) -> Opened:
    answers = Answers(wire([answer])) if answer else Answers(state="failed")
    return await proxy.play(Request(wire(messages), session="curl", mode=mode, retry=retry), answers)


async def test_lone_messages_are_recognised(proxy: Proxy) -> None:
    said: list[Json] = []
    for n in range(30):
        question, answer = user(f"Question {n}?"), assistant(f"Answer {n}.")
        # Asked for once, it goes without saying.
        opened = await send(proxy, question, answer=answer, mode=None if n else "append")
        said += [question, answer]
        assert [m.canonical for m in opened.conversation.messages] == digests(said[:-1])
        assert opened.mode == "append"
    rows = await proxy.transcript(await only_session(proxy))
    assert [row.canonical for row in rows] == digests(said)


async def test_tools_and_instructions_by_header(proxy: Proxy) -> None:
    await send(proxy, system("Be brief."), user("Measure."), answer=BOTH)
    with pytest.raises(OpenToolGroup):
        await send(proxy, result("a", "1"), answer=None, mode="append")
    opened = await send(proxy, result("a", "1"), result("b", "2"), answer=assistant("3"), mode="append")
    assert [m.role for m in opened.conversation.messages] == ["user", "assistant", "tool", "tool"]
    assert [m.raw for m in opened.conversation.preamble] == wire([system("Be brief.")])
    opened = await send(
        proxy, system("Be kind."), user("Thanks."), answer=assistant("Gladly."), mode="append"
    )
    assert [m.raw for m in opened.conversation.preamble] == wire([system("Be kind.")])
    opened = await send(proxy, user("Bye."), answer=assistant("Bye."), mode="append")
    assert [m.raw for m in opened.conversation.preamble] == wire([system("Be kind.")])
    await only_session(proxy)


async def test_a_failed_turn_sent_again_is_one_message(proxy: Proxy) -> None:
    await send(proxy, user("One."), answer=assistant("1"), mode="append")
    await send(proxy, user("Two."), answer=None)
    opened = await send(proxy, user("Two."), answer=assistant("2"))
    assert opened.placement.new == ()
    # The answer never reached the client: its SDK retries, and gets a sibling answer.
    opened = await send(proxy, user("Two."), answer=assistant("2, again"), retry=True)
    assert opened.placement.new == ()
    opened = await send(proxy, user("Three."), answer=assistant("3"))
    expected = digests([user("One."), assistant("1"), user("Two."), assistant("2, again"), user("Three.")])
    assert [m.canonical for m in opened.conversation.messages] == expected


async def test_what_overlaps_is_not_stored_twice(proxy: Proxy) -> None:
    await send(proxy, user("One."), answer=assistant("1"))
    sent = (assistant("1"), user("Two."))
    opened = await send(proxy, *sent, answer=assistant("2"), mode="append")
    assert [m.canonical for m in opened.conversation.messages] == digests([user("One."), *sent])
    assert len(opened.placement.new) == 1


async def test_a_whole_history_under_the_same_name_is_full(proxy: Proxy) -> None:
    said: list[Json] = []
    for n in range(3):
        said.append(user(f"Question {n}?"))
        opened = await send(proxy, *said, answer=assistant(f"Answer {n}."))
        said.append(assistant(f"Answer {n}."))
        assert opened.mode == "full"
    # A name that was used with full histories never takes a lone message for a delta.
    assert (await send(proxy, user("Alone."), answer=assistant("Yes."))).mode == "full"


async def test_a_refused_message_does_not_wedge_the_session(proxy: Proxy) -> None:
    await send(proxy, user("One."), answer=assistant("1"), mode="append")
    bad = Request(wire([user("A bad image.")]), session="curl")
    await proxy.play(bad, Answers(state="rejected"))
    opened = await send(proxy, user("Two."), answer=assistant("2"))
    assert [m.canonical for m in opened.conversation.messages] == digests(
        [user("One."), assistant("1"), user("Two.")]
    )

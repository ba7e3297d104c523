"""Edits, rewinds, returns, twins and several lists under one name (rules 3 to 8)."""

from __future__ import annotations

import pytest

from tests.simulation.exchange import Answers, Opened, Proxy, Request, encoded
from tests.simulation.habits import Client, assistant, calling, result, system, user
from tests.simulation.script import ask, chat, digests, only_session, turns, wire


@pytest.mark.spec("S2")
async def test_equal_instructions_tell_twins_apart(proxy: Proxy) -> None:
    clients = [Client("Be brief."), Client("Be thorough."), Client("Be kind.")]
    homes = [
        (await ask(proxy, client, user("Hi."), answer=assistant("Hello!"))).session for client in clients
    ]
    for n, (client, home) in enumerate(zip(clients, homes, strict=True)):
        assert (await ask(proxy, client, user(f"And now, {n}?"), answer=assistant("Well."))).session == home


async def test_an_edit_in_the_middle_that_keeps_what_followed(proxy: Proxy) -> None:
    """The rows after the edited message are named, not copied, and the next turn finds them by prefix."""
    client = Client()
    for n in range(6):
        await chat(proxy, client, n)
    client.said[4] = user("Question 2, put better?")
    opened = await chat(proxy, client, 6)
    assert [new.index for new in opened.placement.new] == [4, 12]
    following = await chat(proxy, client, 7)
    assert following.placement.rebase is None
    session = await only_session(proxy)
    assert (await proxy.sessions())[0].messages == 17
    rows = await proxy.transcript(session)
    assert [row.canonical for row in rows if row.in_path] == digests(client.said)


async def test_new_messages_between_stored_ones_are_never_a_prefix_of_their_own(proxy: Proxy) -> None:
    """A window whose middle is rewritten, then cut right after the rewritten message."""
    client = Client()
    for n in range(6):
        await chat(proxy, client, n)
    client.said = [*client.said[4:6], user("In between."), *client.said[8:]]
    await chat(proxy, client, 6)
    client.said = client.said[:3]
    opened = await ask(proxy, client, user("Cut here."), answer=assistant("Fine."))
    assert await proxy.canonicals(opened) == digests(client.said[:-1])
    await only_session(proxy)


async def test_the_same_short_words_are_rows_of_their_own(proxy: Proxy) -> None:
    client = Client()
    for _ in range(10):
        await ask(proxy, client, user("yes"), answer=assistant("OK"))
    client.said = client.said[-5:]
    for _ in range(5):
        await ask(proxy, client, user("yes"), answer=assistant("OK"))
    await only_session(proxy)
    assert (await proxy.sessions())[0].messages == 30


async def test_several_lists_under_one_name(proxy: Proxy) -> None:
    """A title request, the talk, and the client's own compaction carry the same id."""
    client = Client()
    await ask(proxy, client, user("Build a kiln."), answer=assistant("Gladly."), name="kiln")
    title = [system("Write a title."), user("Title for: Build a kiln.")]
    await proxy.play(Request(wire(title), session="kiln"), Answers(wire([assistant("The kiln")])))
    for n in range(5):
        await ask(proxy, client, user(f"Step {n}?"), answer=assistant(f"Stone {n}."), name="kiln")
    summary = [system("Summarise."), *client.said, user("Summarise the talk above.")]
    made = await proxy.play(Request(wire(summary), session="kiln"), Answers(wire([assistant("A kiln.")])))
    assert made.placement.base == made.conversation.chains[-2]
    client.said = [user("Summary: a kiln."), *client.said[-2:]]
    for n in range(5, 8):
        await ask(proxy, client, user(f"Step {n}?"), answer=assistant(f"Stone {n}."), name="kiln")
    session = await only_session(proxy)
    assert await proxy.default_list(session) == [encoded(message) for message in client.said]
    text = b"".join(row.body for row in await proxy.transcript(session))
    assert all(f"Stone {n}.".encode() in text for n in range(8))


async def test_a_name_is_looked_up_in_its_own_session_only(proxy: Proxy) -> None:
    client, copy = Client(), Client()
    await turns(proxy, client, 3)
    copy.said = list(client.said)
    opened = await ask(proxy, copy, user("Go on."), answer=assistant("Yes."), name="mine")
    assert opened.placement.session is None
    assert opened.placement.found_by == "id"
    assert len(await proxy.sessions()) == 2


async def test_tool_results_sent_in_another_order_are_a_branch(proxy: Proxy) -> None:
    client = Client()
    calls = calling(("a", "measure", "{}"), ("b", "measure", "{}"))
    await ask(proxy, client, user("Both."), answer=calls)
    said = list(client.said)
    await ask(proxy, client, result("a", "1"), result("b", "2"), answer=assistant("3"))
    client.said = said
    opened: Opened = await ask(proxy, client, result("b", "2"), result("a", "1"), answer=assistant("3"))
    assert len(opened.placement.new) == 2
    await only_session(proxy)


async def test_every_spelling_is_kept(proxy: Proxy) -> None:
    client = Client()
    await chat(proxy, client, 1)
    spelled = [b'{ "role" : "user", "content":"Question 1?"}', *wire([client.said[1]]), *wire([user("On.")])]
    opened = await proxy.play(Request(spelled), Answers(wire([assistant("Good.")])))
    assert [new.index for new in opened.placement.new] == [2]
    await only_session(proxy)

"""Thirty turns of every habit stay one session, with one row per distinct message (S14)."""

from __future__ import annotations

import pytest

from app.core.history.read import read_message
from tests.simulation import habits
from tests.simulation.exchange import Answers, Proxy, Request
from tests.simulation.habits import Client, assistant, user
from tests.simulation.script import ask, chat, digests, only_session, turns, wire

pytestmark = pytest.mark.spec("S14")

FEW_SHOT = (
    user("Change the greeting to be casual."),
    assistant("hello.py\n<<<<<<< SEARCH\nhello\n=======\nhey\n>>>>>>> REPLACE"),
    user("Now add a test."),
    assistant("test_hello.py\n```\nassert hello()\n```"),
)


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
    client = habit()
    await turns(proxy, client, 30)
    session = await only_session(proxy)
    rows = await proxy.transcript(session)
    assert [row.canonical for row in rows] == digests(client.said)
    assert all(row.in_path for row in rows)
    assert (await proxy.sessions())[0].messages == len(client.said)
    assert len(await proxy.store.heads(proxy.namespace, session)) == 1


async def test_a_sliding_window(proxy: Proxy) -> None:
    client = habits.Slides()
    for n in range(30):
        await chat(proxy, client, n)
    session = await only_session(proxy)
    rows = await proxy.transcript(session)
    assert [row.canonical for row in rows] == digests(client.said)
    assert [row.in_path for row in rows] == [False] * 50 + [True] * 10
    assert (await proxy.sessions())[0].messages == 60


async def test_a_sliding_window_over_tools(proxy: Proxy) -> None:
    client = habits.Slides()
    await turns(proxy, client, 30)
    rows = await proxy.transcript(await only_session(proxy))
    assert [row.canonical for row in rows] == digests(client.said)
    assert (await proxy.sessions())[0].messages == len(client.said)


async def test_a_reminder_that_is_taken_away_again(proxy: Proxy) -> None:
    client = habits.Reminds()
    for n in range(30):
        opened = await chat(proxy, client, n)
    session = await only_session(proxy)
    rows = await proxy.transcript(session)
    kept = [row.canonical for row in rows if row.in_path]
    assert kept == [m.canonical for m in opened.conversation.messages] + digests(client.said[-1:])
    # Every user message but the newest was seen twice: with the reminder, and without.
    assert (await proxy.sessions())[0].messages == 30 + 30 + 29


async def test_reminders_behind_a_shared_opening_never_merge(proxy: Proxy) -> None:
    one, other = habits.Reminds(opening=FEW_SHOT), habits.Reminds(opening=FEW_SHOT)
    found: dict[str, set[str]] = {"one": set(), "other": set()}
    for n in range(30):
        found["one"].add((await chat(proxy, one, n, "one: ")).session)
        found["other"].add((await chat(proxy, other, n, "other: ")).session)
    assert len(found["one"]) == len(found["other"]) == 1
    assert found["one"] != found["other"]
    for client, who in ((one, "one"), (other, "other")):
        (session,) = found[who]
        text = b"".join(await proxy.default_list(session))
        assert text.count(b"Question") == 30
        assert (b"other: " in text) == (who == "other")
        assert [digests([m])[0] for m in client.said[:4]] == [
            row.canonical for row in (await proxy.transcript(session))[:4]
        ]


async def test_a_shared_opening_alone_never_merges(proxy: Proxy) -> None:
    first = await chat(proxy, Client(opening=FEW_SHOT), 1, "first: ")
    second = await chat(proxy, Client(opening=FEW_SHOT), 2, "second: ")
    assert first.session != second.session
    assert second.placement.found_by == "new"


@pytest.mark.parametrize("state", ["failed", "done"])
async def test_an_sdk_retry_of_the_first_turn(proxy: Proxy, state: str) -> None:
    """The first attempt failed, or was answered and never heard."""
    client = Client()
    request = wire(client.says(user("Hello there.")))
    answer = assistant("Hello! What shall we do?")
    lost = Answers(wire([answer]) if state == "done" else (), state="done" if state == "done" else "failed")
    await proxy.play(Request(request), lost)
    again = await proxy.play(Request(request, retry=True), Answers(wire([answer])))
    assert again.placement.found_by == "retry"
    assert again.placement.new == ()
    client.hears(answer)
    for n in range(29):
        await chat(proxy, client, n)
    session = await only_session(proxy)
    assert [row.canonical for row in await proxy.transcript(session)] == digests(client.said)
    assert (await proxy.sessions())[0].messages == 60


async def test_a_repeated_idempotency_key_joins(proxy: Proxy) -> None:
    request = wire(Client().says(user("Hello there.")))
    first = await proxy.play(Request(request, key="k1"), Answers(wire([assistant("Hello!")])))
    again = await proxy.play(Request(request, key="k1"), Answers(wire([assistant("Hello!!")])))
    other = await proxy.play(Request(request, key="k2"), Answers(wire([assistant("Hello!")])))
    assert again.session == first.session
    assert other.session != first.session


async def test_a_failed_first_turn_is_joined_without_a_mark(proxy: Proxy) -> None:
    client = Client()
    request = wire(client.says(user("Hello there.")))
    first = await proxy.play(Request(request), Answers(state="failed"))
    again = await proxy.play(Request(request), Answers(wire([assistant("Hello!")])))
    assert again.session == first.session


async def test_a_first_turn_still_under_way_is_not_joined(proxy: Proxy) -> None:
    """Two people may say the same thing at the same time."""
    request = wire(Client().says(user("Hello there.")))
    first = await proxy.open(Request(request))
    second = await proxy.open(Request(request))
    assert first.session != second.session


async def test_a_regenerated_answer_is_a_sibling(proxy: Proxy) -> None:
    client = Client()
    for n in range(15):
        await chat(proxy, client, n)
    heard = client.said.pop()
    better = assistant("A better answer.")
    again = await proxy.play(Request(wire(client.request())), Answers(wire([better])))
    assert again.placement.new == ()
    client.hears(better)
    for n in range(15, 30):
        await chat(proxy, client, n)
    session = await only_session(proxy)
    rows = await proxy.transcript(session)
    assert [row.canonical for row in rows if row.in_path] == digests(client.said)
    assert (await proxy.sessions())[0].messages == 61
    assert digests([heard])[0] not in [row.canonical for row in rows if row.in_path]


async def test_of_three_answers_one_comes_back(proxy: Proxy) -> None:
    client = Client()
    for n in range(30):
        request = client.says(user(f"Question {n}?"))
        choices = [assistant(f"Choice {c} of {n}.") for c in range(3)]
        opened = await proxy.play(Request(wire(request)), Answers(wire(choices)))
        assert await proxy.canonicals(opened) == digests(request)
        client.hears(choices[n % 3])
    await ask(proxy, client, user("The end."), answer=assistant("Bye."))
    session = await only_session(proxy)
    assert [r.canonical for r in await proxy.transcript(session) if r.in_path] == digests(client.said)
    assert (await proxy.sessions())[0].messages == 30 + 90 + 2


@pytest.mark.parametrize("habit", [habits.Slides, habits.Reminds, habits.Compacts])
async def test_the_default_branch_is_what_the_client_holds(proxy: Proxy, habit: type[Client]) -> None:
    """After every turn, also right after the client dropped most of its past (rule 7)."""
    client = habit()
    for n in range(30):
        opened = await chat(proxy, client, n)
        head, *_ = await proxy.store.heads(proxy.namespace, opened.session)
        path = await proxy.store.path(proxy.namespace, opened.session, head.chain)
        sent = [message.canonical for message in opened.conversation.messages]
        assert [point.canonical for point in path] == sent + digests(client.said[-1:])


@pytest.mark.spec("F38")
async def test_a_client_that_compacts_by_itself(proxy: Proxy) -> None:
    client = habits.Compacts()
    for n in range(30):
        await chat(proxy, client, n)
    session = await only_session(proxy)
    now = await proxy.default_list(session)
    assert digests(client.said) == [read_message(body, len).canonical for body in now]
    rows = await proxy.transcript(session)
    text = b"\n".join(row.body for row in rows)
    assert all(f"Question {n}?".encode() in text and f"Answer {n},".encode() in text for n in range(30))
    # Both summaries of the client's own are kept; the older one it has dropped itself since.
    summaries = [row for row in rows if b"Summary of what happened" in row.body]
    assert [row.in_path for row in summaries] == [False, True]
    assert (await proxy.sessions())[0].messages == 62

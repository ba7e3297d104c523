"""What the store says of sessions without reading their messages."""

from __future__ import annotations

from app.storage.contract import Asked, Store
from tests.storage.talk import Talk


async def test_sessions_are_counted_in_their_namespace_by_the_beginning_of_their_id(store: Store) -> None:
    for session in ("0192-a", "0192-b", "0193-a"):
        await Talk(store, session=session).turns(1)
    await Talk(store, namespace="other", session="0192-c").turns(1)
    counts = [await store.session_count("ns", prefix) for prefix in ("", "0192", "0192-a", "f")]
    assert counts == [3, 2, 1, 0]


async def test_the_newest_finished_request_that_ended_at_a_head(store: Store) -> None:
    talk = Talk(store)
    said = await talk.turns(2)
    chains = talk.chains(said)
    assert await store.asked("ns", talk.session, chains[:2]) == Asked(chains[0], "m", 10)
    assert await store.asked("ns", talk.session, chains) == Asked(chains[2], "m", 10)
    assert await store.asked("ns", talk.session, [chains[1]]) is None
    assert await store.asked("ns", talk.session, []) is None
    assert await store.asked("other", talk.session, chains) is None
    opened = await talk.asks([*said, b"open"], stored=4)
    assert await store.asked("ns", talk.session, [opened.head]) is None

"""What the store says of sessions without reading their messages."""

from __future__ import annotations

from palimpsest.storage.exchanges import FinishedRequest
from palimpsest.storage.store import Store

from tests.storage.talk import Talk, talked


async def test_sessions_are_counted_in_their_namespace(store: Store) -> None:
    for session in ("0192-a", "0192-b", "0193-a"):
        await Talk(store, session=session).turns(1)
    await Talk(store, namespace="other", session="0192-c").turns(1)
    counts = [await store.history.session_count(namespace) for namespace in ("ns", "other", "none")]
    assert counts == [3, 1, 0]


async def test_sessions_are_found_by_the_beginning_of_their_name_or_id(store: Store) -> None:
    for session, name in (("0192-a", "Build_1"), ("0192-b", "buildX1"), ("0193-a", None)):
        await Talk(store, session=session).asks([b"q"], external_id=name)
    await Talk(store, namespace="other", session="0192-c").turns(1)

    async def found(named: str) -> list[str]:
        return [row.id for row in await store.history.sessions("ns", 10, None, only={"named": named})]

    assert await found("0192") == ["0192-b", "0192-a"]
    assert await found("BUILD") == ["0192-b", "0192-a"]
    assert await found("build_") == ["0192-a"]
    assert await found("193") == await found("%") == await found("!") == []


async def test_the_newest_finished_request_that_ended_at_a_head(store: Store) -> None:
    talk, said = await talked(store, 2)
    chains = talk.chains(said)
    assert await store.exchanges.finished("ns", talk.session, chains[:2]) == _asked(chains[0], 1002.0)
    assert await store.exchanges.finished("ns", talk.session, chains) == _asked(chains[2], 1004.0)
    assert await store.exchanges.finished("ns", talk.session, [chains[1]]) is None
    assert await store.exchanges.finished("ns", talk.session, []) is None
    assert await store.exchanges.finished("other", talk.session, chains) is None
    opened = await talk.asks([*said, b"open"], stored=4)
    assert await store.exchanges.finished("ns", talk.session, [opened.head]) is None


async def test_the_newest_finished_request_of_each_session(store: Store) -> None:
    talks = [Talk(store, session=session) for session in ("0192-a", "0192-b")]
    said = [await talk.turns(turns) for talk, turns in zip(talks, (3, 1), strict=True)]
    heads = [talk.chains(bodies)[-2] for talk, bodies in zip(talks, said, strict=True)]
    # Still open, in another namespace, unknown: nothing is said of any of them.
    await talks[0].asks([*said[0], b"open"], stored=6)
    await Talk(store, session="0192-c").asks([b"open"])
    await Talk(store, namespace="other", session="0192-d").turns(1)
    asked = await store.exchanges.newest_finished("ns", ["0192-a", "0192-b", "0192-c", "0192-d", "0192-e"])
    assert asked == {"0192-a": _asked(heads[0], 1006.0), "0192-b": _asked(heads[1], 1002.0)}
    assert await store.exchanges.newest_finished("ns", []) == {}
    assert await store.exchanges.newest_finished("other", ["0192-a"]) == {}


def _asked(head: bytes, finished_at: float) -> FinishedRequest:
    """What `Talk` says of its requests: ten tokens by our count, seven by the model's."""
    return FinishedRequest(
        head, "m", 10, tokens_forwarded=10, prompt_tokens=7, compaction=None, finished_at=finished_at
    )

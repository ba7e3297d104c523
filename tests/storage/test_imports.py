"""A session that is imported is there with all that belongs to it, or not at all."""

from __future__ import annotations

import dataclasses
import hashlib

import pytest
from palimpsest.errors import Conflict
from palimpsest.storage.exchange_units import OpenExchange
from palimpsest.storage.journal import EventRow
from palimpsest.storage.store import Store

from tests.core.runtime.records import compaction
from tests.storage.talk import Talk, digest

BODIES = [b'{"role":"user","content":1e2}', b"\xff\xfe", b""]
FIRST, SECOND = compaction(id="c1"), compaction(id="c2", parents=("c1",))
EVENTS = [EventRow("e1", "usage", b'{"a":1}', 5.0), EventRow("e2", "session_restored", b"{}", 6.0)]


def opened(talk: Talk, name: str | None = "tour") -> OpenExchange:
    chains = talk.chains(BODIES)
    messages = [
        talk.message(body, chain=chain, parent=parent, depth=depth)
        for depth, (body, chain, parent) in enumerate(zip(BODIES, chains, [b"", *chains], strict=False), 1)
    ]
    return OpenExchange(
        namespace=talk.namespace,
        session=talk.session,
        external_id=name,
        exchange="",
        base=b"",
        head=chains[-1],
        messages=messages,
        variants=(),
        rebase=None,
        preamble=[(b"be kind", hashlib.sha256(b"be kind").digest())],
        preamble_digest=digest(b"be kind"),
        model="m",
        found_by="import",
        mode="full",
        full_history=True,
        idempotency_key=None,
        started_at=9.0,
    )


async def test_what_was_imported_reads_back_once_however_often_it_is_written(store: Store) -> None:
    talk = Talk(store)
    session = opened(talk)
    for _ in range(2):
        await store.exchanges.import_session(session, [1.0, 2.0, 3.0], EVENTS, [(FIRST, 3.5), (SECOND, 4.0)])
    made = await store.compactions.of_session("ns", talk.session)
    assert [(row.compaction, row.created_at) for row in made] == [(FIRST, 3.5), (SECOND, 4.0)]
    rows = await store.history.messages("ns", talk.session, session.head)
    assert [(row.body, row.created_at, row.relayed) for row in rows] == [
        (body, at, False) for body, at in zip(BODIES, [1.0, 2.0, 3.0], strict=True)
    ]
    (head,) = await store.history.heads("ns", talk.session)
    assert (head.chain, head.depth, head.answers) == (session.head, 3, 0)
    assert await store.history.preamble("ns", talk.session, head.preamble) == [b"be kind"]
    told = await store.journal.events("ns", talk.session, 0, 10)
    assert told == EVENTS
    places = [*(row.arrival for row in rows), *(row.arrival for row in made), *(row.seq for row in told)]
    assert places == sorted(set(places))
    row = await store.history.session("ns", "tour")
    assert row is not None
    assert (row.messages, row.exchanges, row.found_by) == (3, 0, "import")


async def test_a_name_that_is_taken_leaves_nothing_behind(store: Store) -> None:
    await Talk(store).asks([b"q"], external_id="tour")
    talk = Talk(store)
    with pytest.raises(Conflict):
        await store.exchanges.import_session(opened(talk), [1.0, 2.0, 3.0], EVENTS)
    assert await store.history.session("ns", talk.session) is None
    assert await store.history.messages("ns", talk.session, talk.chains(BODIES)[-1]) == []
    assert await store.journal.events("ns", talk.session, 0, 10) == []


async def test_a_conversation_goes_on_behind_what_was_imported(store: Store) -> None:
    talk = Talk(store)
    session = opened(talk, None)
    await store.exchanges.import_session(session, [1.0, 2.0, 3.0], EVENTS)
    asked = await talk.asks([*BODIES, b"more"], stored=3)
    await talk.hears(asked, talk.answer(asked, b"yes"))
    assert await talk.said([*BODIES, b"more"]) == [*BODIES, b"more"]
    assert len(await talk.heads()) == 1
    other = dataclasses.replace(session, namespace="other", session="s2")
    await store.exchanges.import_session(other, [1.0, 2.0, 3.0], ())
    assert await store.journal.events("other", "s2", 0, 10) == []

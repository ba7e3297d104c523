"""What every store keeps: bytes, idempotence, order, namespaces."""

from __future__ import annotations

from app.storage.contract import Store
from tests.storage.talk import Talk


async def test_a_plain_conversation_reads_back_as_it_was_said(store: Store) -> None:
    talk = Talk(store)
    said = await talk.turns(5)
    assert await talk.said(said) == said
    assert await talk.heads() == [talk.chains(said)[-1]]
    known = await store.known("ns", talk.chains(said), None)
    assert [(k.session, k.depth, k.answers, k.relayed, k.extended) for k in known] == [
        (talk.session, 10, 5, True, False)
    ]
    row = await store.session("ns", talk.session)
    assert row is not None
    assert (row.messages, row.exchanges, row.compactions) == (10, 5, 0)

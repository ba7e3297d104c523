"""Namespaces the upstream never answered: counted, erased wholly, and nobody else is touched (rule 26)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from palimpsest.core.history.stored_points import Rebase
from palimpsest.core.recall.rounds.hidden import HiddenRounds
from palimpsest.core.view.compaction import Compaction
from palimpsest.storage.accounts import Calibration, Charge, KeyRow, LearnedWindow, NamespaceStatus
from palimpsest.storage.erasure import OF_UNPROVEN
from palimpsest.storage.exchange_units import ExchangeState, Variant
from palimpsest.storage.journal import (
    CheckpointRow,
    EventRow,
    JournalEntries,
    MemoryRow,
    Prepared,
    TokensSpent,
)
from palimpsest.storage.migrate import with_connection
from palimpsest.storage.store import Store
from palimpsest.storage.tables import METADATA
from sqlalchemy import Connection, text

from tests.storage.talk import Talk, digest

# What belongs to nobody, and the keys: who has one is proven from the start.
KEPT = {"keys", "pepper", "heartbeat", "servers"}
LATER = 10_000.0


async def rows_in(url: str) -> dict[str, int]:
    """Rows by table."""

    def count(connection: Connection) -> dict[str, int]:
        return {
            table: connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()
            for table in METADATA.tables
        }

    return await with_connection(url, count)


async def is_indexed(store: Store, talk: Talk) -> None:
    """The words of all of it are there."""
    missing = await store.search.unindexed(talk.namespace, talk.session, 64)
    assert missing is not None
    words = [(row.arrival, ["word"]) for row in missing.rows]
    assert await store.search.index(talk.namespace, talk.session, missing, words)


async def fills_every_table(store: Store, credential: bytes) -> Talk:
    """A namespace with rows in all tables, never answered with a 2xx."""
    talk = Talk(store, namespace=await store.accounts.namespace_of(credential, 1.0))
    opened = await talk.asks([b"q"], preamble=[b"be kind", b"be brief"])
    answer = talk.answer(opened, b"a")
    await talk.hears(opened, answer, status=500, hidden=HiddenRounds((b"{}",), 3), items=["i"])
    variant = b"a, spelled otherwise"
    chain = digest(b"rebased")
    await talk.opens(
        messages=[],
        base=b"",
        head=chain,
        rebase=Rebase(chain, b"", (answer.chain,)),
        variants=[Variant(answer.chain, variant, digest(variant))],
    )
    await store.history.add_pin(talk.namespace, talk.session, opened.head, 1.0)
    compaction = Compaction(
        id="c", kind="message_removal", watermark=opened.head, kept=(), masks=(), summary="s", policy="",
        trigger="proactive", author="model", model="m", tokens_before=2, tokens_after=1, messages_folded=1,
        parents=(), reason="",
    )  # fmt: skip
    event = EventRow("e", "context_summarized", b"{}", 1.0)
    entries = JournalEntries([MemoryRow("m", "summary", b"s", "c", 1.0)], [event])
    assert await store.compactions.add(talk.namespace, talk.session, 0, compaction, 1.0, entries)
    checkpoint = CheckpointRow("p", "pre_compaction", b"point", 1.0)
    assert await store.journal.add_checkpoint(talk.namespace, talk.session, checkpoint)
    following = Prepared(replace(compaction, id="next"), "m")
    await store.compactions.prepare(talk.namespace, talk.session, following)
    await store.journal.put_settings(talk.namespace, talk.session, b"{}")
    await store.accounts.charge(Charge(talk.namespace, "2026-11-22", 5))
    assert await store.accounts.reserve(talk.namespace, "2026-11-22", 1, 100)
    await store.journal.add_spending(talk.namespace, "2026-11-22", TokensSpent(1, 2, 3))
    await store.accounts.learn_window(LearnedWindow(talk.namespace, "u", "m", 4_096, "overflow", 1.0), 0.0)
    await store.accounts.save_calibration(Calibration(talk.namespace, "m", 1.1, 3, 1.2, 2), 1.0)
    await store.journal.take_lease(f"compact:{talk.namespace}:{talk.session}", "me", 1.0, 9.0)
    erased = Talk(store, namespace=talk.namespace)
    await erased.asks([b"q"])
    await store.erasure.session(talk.namespace, erased.session, [digest(credential)], 1.0)
    await is_indexed(store, talk)
    return talk


def test_every_table_has_its_rule() -> None:
    # The index of words is emptied after them: see `search_index`.
    assert set(METADATA.tables) == set(OF_UNPROVEN) | KEPT | {"recall_words"}


async def test_an_unproven_namespace_is_erased_from_every_table(store: Store, url: str) -> None:
    empty = await rows_in(url)
    talk = await fills_every_table(store, b"made up")
    assert {table for table, rows in (await rows_in(url)).items() if not rows} == KEPT
    assert await store.erasure.unproven(LATER) == [talk.namespace]
    assert await rows_in(url) == empty
    assert await store.erasure.unproven(LATER) == []


async def test_who_is_proven_stays(store: Store, url: str) -> None:
    fleeting = await fills_every_table(store, b"made up")
    talk = Talk(store, namespace=await store.accounts.namespace_of(b"real", 1.0))
    said = await talk.turns(2)
    assert await store.accounts.status(talk.namespace) == NamespaceStatus(proven=True, messages=0)
    assert await store.erasure.unproven(LATER) == [fleeting.namespace]
    assert await talk.said(said) == said
    assert await store.accounts.namespace_of(b"real", 2.0) == talk.namespace
    assert await store.accounts.namespace_of(b"made up", 2.0) != fleeting.namespace


async def test_who_asked_a_moment_ago_is_left_for_later(store: Store) -> None:
    talk = Talk(store, namespace=await store.accounts.namespace_of(b"busy", 1.0))
    opened = await talk.asks([b"q"])
    assert await store.erasure.unproven(opened.started_at) == []
    assert await store.erasure.unproven(opened.started_at + 1) == [talk.namespace]


@pytest.mark.parametrize(
    ("state", "status", "proves"),
    [("done", 200, True), ("incomplete", 200, True), ("rejected", 401, False), ("failed", None, False)],
)
async def test_only_an_answer_of_the_upstream_proves(
    store: Store, state: ExchangeState, status: int | None, proves: bool
) -> None:
    talk = Talk(store, namespace=await store.accounts.namespace_of(b"new", 1.0))
    opened = await talk.asks([b"q1", b"q2"])
    assert await store.accounts.status(talk.namespace) == NamespaceStatus(proven=False, messages=2)
    await talk.hears(opened, state=state, status=status)
    assert (await store.accounts.status(talk.namespace)).proven is proves


async def test_a_refused_credential_counts_its_own_messages_alone(store: Store) -> None:
    await Talk(store, namespace="other").asks([b"q"])
    assert await store.accounts.status("nobody") == NamespaceStatus(proven=False, messages=0)


async def test_the_namespace_of_an_issued_key_is_proven(store: Store) -> None:
    await store.accounts.add_key(KeyRow("id", "label", "issued", 1.0, None), b"digest")
    assert (await store.accounts.status("issued")).proven
    assert await store.erasure.unproven(LATER) == []


async def test_the_first_pepper_is_bound_and_no_other_fits(store: Store) -> None:
    assert await store.accounts.bind_pepper(b"first")
    assert await store.accounts.bind_pepper(b"first")
    assert not await store.accounts.bind_pepper(b"second")
    assert await store.accounts.bind_pepper(b"first")


async def test_a_session_that_begins_takes_the_name_over(store: Store) -> None:
    old, new, third = Talk(store), Talk(store), Talk(store)
    await old.asks([b"q"], external_id="mine")
    taking = await new.asks([b"q"], external_id="mine", takes_name=True)
    found = await store.history.session("ns", "mine")
    assert found is not None
    assert found.id == new.session
    former = await store.history.session("ns", old.session)
    assert former is not None
    assert former.external_id is None
    # Repeated after somebody else took the name, it does not take it away again.
    await third.asks([b"q"], external_id="mine", takes_name=True)
    await store.exchanges.open(replace(taking, started_at=taking.started_at))
    found = await store.history.session("ns", "mine")
    assert found is not None
    assert found.id == third.session
    elsewhere = Talk(store, namespace="other")
    await elsewhere.asks([b"q"], external_id="mine", takes_name=True)
    assert (await store.history.session("ns", "mine")) == found

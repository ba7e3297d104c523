"""Namespaces the upstream never answered: counted, erased wholly, and nobody else is touched (rule 26)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import Connection, text

from app.core.history.known import Rebase
from app.core.recall.rounds.hidden import HiddenRounds
from app.core.view.compaction import Compaction
from app.storage.contract import ExchangeState, KeyRow, Standing, Store, Variant
from app.storage.erase.rules import OF_UNPROVEN
from app.storage.journal import Also, Checkpoint, Event, Memory, Prepared, Spending
from app.storage.learned.contract import Calibration, LearnedWindow
from app.storage.migrate import with_connection
from app.storage.recall.contract import Indexed
from app.storage.tables.schema import METADATA
from tests.storage.talk import Talk, digest

# What belongs to nobody, and the keys: who has one is proven from the start.
KEPT = {"keys", "pepper", "heartbeat", "servers"}
LATER = 10_000.0


async def rows_in(url: str) -> dict[str, int]:
    def count(connection: Connection) -> dict[str, int]:
        return {
            table: connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()
            for table in METADATA.tables
        }

    return await with_connection(url, count)


async def fills_every_table(store: Store, credential: bytes) -> Talk:
    """A namespace with rows in all tables, never answered with a 2xx."""
    talk = Talk(store, namespace=await store.namespace_of(credential, 1.0))
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
    await store.add_pin(talk.namespace, talk.session, opened.head, 1.0)
    compaction = Compaction(
        id="c", kind="message_removal", watermark=opened.head, kept=(), masks=(), summary="s", policy="",
        trigger="proactive", author="model", model="m", tokens_before=2, tokens_after=1, messages_folded=1,
        parents=(), reason="",
    )  # fmt: skip
    also = Also([Memory("m", "summary", b"s", "c", 1.0)], [Event("e", "context_summarized", b"{}", 1.0)])
    assert await store.add_compaction(talk.namespace, talk.session, 0, compaction, 1.0, also)
    checkpoint = Checkpoint("p", "pre_compaction", b"span", "v2", b"{}", 1.0)
    assert await store.add_checkpoint(talk.namespace, talk.session, checkpoint)
    await store.prepare(talk.namespace, talk.session, Prepared(replace(compaction, id="next"), "m"))
    await store.put_settings(talk.namespace, talk.session, b"{}")
    await store.add_spending(talk.namespace, "2026-11-22", Spending(1, 2, 3))
    await store.learn_window(LearnedWindow(talk.namespace, "u", "m", 4_096, "overflow", 1.0), 0.0)
    await store.save_calibration(Calibration(talk.namespace, "m", 1.1, 3, 1.2, 2), 1.0)
    await store.take_lease(f"compact:{talk.namespace}:{talk.session}", "me", 1.0, 9.0)
    erased = Talk(store, namespace=talk.namespace)
    await erased.asks([b"q"])
    await store.erase_session(talk.namespace, erased.session, [digest(credential)], 1.0)
    missing = await store.unindexed(talk.namespace, talk.session, 64)
    assert missing is not None
    entries = [Indexed(row.arrival, ["word"]) for row in missing.rows]
    assert await store.add_indexed(talk.namespace, talk.session, missing.stretch, entries)
    return talk


def test_every_table_has_its_rule() -> None:
    # The index of words is emptied after them: see `scrub_words`.
    assert set(METADATA.tables) == set(OF_UNPROVEN) | KEPT | {"recall_words"}


async def test_an_unproven_namespace_is_erased_from_every_table(store: Store, url: str) -> None:
    empty = await rows_in(url)
    talk = await fills_every_table(store, b"made up")
    assert {table for table, rows in (await rows_in(url)).items() if not rows} == KEPT
    assert await store.erase_unproven(LATER) == [talk.namespace]
    assert await rows_in(url) == empty
    assert await store.erase_unproven(LATER) == []


async def test_who_is_proven_stays(store: Store, url: str) -> None:
    fleeting = await fills_every_table(store, b"made up")
    talk = Talk(store, namespace=await store.namespace_of(b"real", 1.0))
    said = await talk.turns(2)
    assert await store.standing(talk.namespace) == Standing(proven=True, messages=0)
    assert await store.erase_unproven(LATER) == [fleeting.namespace]
    assert await talk.said(said) == said
    assert await store.namespace_of(b"real", 2.0) == talk.namespace
    assert await store.namespace_of(b"made up", 2.0) != fleeting.namespace


async def test_who_asked_a_moment_ago_is_left_for_later(store: Store) -> None:
    talk = Talk(store, namespace=await store.namespace_of(b"busy", 1.0))
    opened = await talk.asks([b"q"])
    assert await store.erase_unproven(opened.started_at) == []
    assert await store.erase_unproven(opened.started_at + 1) == [talk.namespace]


@pytest.mark.parametrize(
    ("state", "status", "proves"),
    [("done", 200, True), ("incomplete", 200, True), ("rejected", 401, False), ("failed", None, False)],
)
async def test_only_an_answer_of_the_upstream_proves(
    store: Store, state: ExchangeState, status: int | None, proves: bool
) -> None:
    talk = Talk(store, namespace=await store.namespace_of(b"new", 1.0))
    opened = await talk.asks([b"q1", b"q2"])
    assert await store.standing(talk.namespace) == Standing(proven=False, messages=2)
    await talk.hears(opened, state=state, status=status)
    assert (await store.standing(talk.namespace)).proven is proves


async def test_a_refused_credential_counts_its_own_messages_alone(store: Store) -> None:
    await Talk(store, namespace="other").asks([b"q"])
    assert await store.standing("nobody") == Standing(proven=False, messages=0)


async def test_the_namespace_of_an_issued_key_is_proven(store: Store) -> None:
    await store.add_key(KeyRow("id", "label", "issued", 1.0, None), b"digest")
    assert (await store.standing("issued")).proven
    assert await store.erase_unproven(LATER) == []


async def test_the_first_pepper_is_bound_and_no_other_fits(store: Store) -> None:
    assert await store.bind_pepper(b"first")
    assert await store.bind_pepper(b"first")
    assert not await store.bind_pepper(b"second")
    assert await store.bind_pepper(b"first")


async def test_a_session_that_begins_takes_the_name_over(store: Store) -> None:
    old, new, third = Talk(store), Talk(store), Talk(store)
    await old.asks([b"q"], external_id="mine")
    taking = await new.asks([b"q"], external_id="mine", takes_name=True)
    found = await store.session("ns", "mine")
    assert found is not None
    assert found.id == new.session
    former = await store.session("ns", old.session)
    assert former is not None
    assert former.external_id is None
    # Repeated after somebody else took the name, it does not take it away again.
    await third.asks([b"q"], external_id="mine", takes_name=True)
    await store.open_exchange(replace(taking, started_at=taking.started_at))
    found = await store.session("ns", "mine")
    assert found is not None
    assert found.id == third.session
    elsewhere = Talk(store, namespace="other")
    await elsewhere.asks([b"q"], external_id="mine", takes_name=True)
    assert (await store.session("ns", "mine")) == found

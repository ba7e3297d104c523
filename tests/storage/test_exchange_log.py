"""Exchanges as they are read for people: numbers, the newest, first words, spellings, sums."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Any

from palimpsest.core.wire.chat_answers import Usage
from palimpsest.storage.exchange_log import NEWEST
from palimpsest.storage.exchange_units import OpenExchange, Variant
from palimpsest.storage.store import Store

from tests.storage.talk import Talk

DAY = 86_400


def id_at(seconds: float, number: int) -> str:
    """An id as UUIDv7 makes them: the time in milliseconds comes first."""
    digits = f"{int(seconds * 1000):012x}{number:018x}"
    return f"{digits[:8]}-{digits[8:12]}-7{digits[12:15]}-8{digits[15:18]}-{digits[18:30]}"


async def test_exchanges_are_numbered_in_the_order_of_their_arrival(store: Store) -> None:
    talk, twin = Talk(store), Talk(store)
    await talk.turns(5)
    await twin.turns(2)
    log = store.exchange_log
    page = await log.page("ns", talk.session, NEWEST, 3)
    assert [number for number, _ in page] == [5, 4, 3]
    arrivals = [one.arrival for _, one in page]
    assert arrivals == sorted(arrivals, reverse=True)
    rest = await log.page("ns", talk.session, arrivals[-1], 9)
    assert [number for number, _ in rest] == [2, 1]
    assert await log.page("ns", talk.session, rest[-1][1].arrival, 9) == []
    assert await log.page("other", talk.session, NEWEST, 9) == []
    for number, one in (*page, *rest):
        assert await log.one("ns", talk.session, str(number)) == (number, one)
        assert await log.one("ns", talk.session, one.id) == (number, one)
        assert await log.one("ns", twin.session, one.id) is None
        assert await log.one("other", talk.session, one.id) is None
    for name in ("0", "6", "-1", "1 ", "\u0661", "9" * 40, "x\0"):
        assert await log.one("ns", talk.session, name) is None
    newest = await log.newest("ns", [talk.session, twin.session, "none"])
    assert newest[talk.session] == page[0][1]
    assert newest.keys() == {talk.session, twin.session}
    assert await log.newest("other", [talk.session]) == {}


async def test_a_session_begins_with_the_first_words_of_its_user(store: Store) -> None:
    talk, long = Talk(store), Talk(store)
    await talk.asks([b'{"content":"first"}', b"an answer of ours", b"second"])
    await long.asks([b"x" * 9_000])
    found = await store.exchange_log.openings("ns", [talk.session, long.session, "none"])
    assert found == {talk.session: [b'{"content":"first"}', b"second"], long.session: [b"x" * 8_000]}
    assert await store.exchange_log.openings("other", [talk.session]) == {}


async def test_every_spelling_of_a_message_is_kept_with_its_time(store: Store) -> None:
    talk = Talk(store)
    said = [b"question", b"answer", b"more", b"answer 2", b"and more"]
    chains = talk.chains(said)
    await talk.asks(said[:3])

    def spelled(body: bytes) -> Variant:
        return Variant(chains[1], body, sha256(body).digest())

    await talk.asks(said[:4], stored=3, variants=[spelled(b"Answer")])
    second = talk.clock
    await talk.asks(said, stored=4, variants=[spelled(b"ANSWER")])
    third = talk.clock
    log = store.exchange_log
    found = await log.spellings("ns", talk.session, chains)
    assert found == {chains[1]: [(second, b"Answer"), (third, b"ANSWER")]}
    assert await log.spellings("ns", talk.session, chains[2:]) == {}
    assert await log.spellings("other", talk.session, chains) == {}


async def ended(talk: Talk, opened: OpenExchange, **more: Any) -> None:
    """The exchange ends as `hears` ends it, with other fields."""
    closed = await talk.hears(opened, talk.answer(opened, b"an answer"))
    await talk.store.exchanges.close(replace(closed, **more))


async def turns_of_three_days(store: Store) -> None:
    """Of two models; the last one failed."""
    talk = Talk(store)
    usage = Usage(100, 10, 40, None, 7)
    # Just before midnight, or just behind it.
    begins = [
        (100 * DAY, "a"),
        (101 * DAY - 2, "a"),
        (100 * DAY, "b"),
        (101 * DAY, "a"),
        (100 * DAY - 2, "a"),
    ]
    for number, (at, model) in enumerate(begins):
        talk.clock = at - 1.0
        opened = await talk.asks([b"%d" % number], model=model, exchange=id_at(at, number))
        waited = 2.0 if number == 1 else None
        took = {"first_at": at + 0.5, "prepared_seconds": 0.25 + (waited or 0), "waited_seconds": waited}
        await ended(talk, opened, usage=usage, **took)
    talk.clock = 101 * DAY - 1.0
    opened = await talk.asks([b"bad"], model="a", exchange=id_at(101 * DAY, 9))
    failed = {"state": "failed", "code": "upstream_cut", "cause": "upstream", "usage": Usage(), "answers": ()}
    await ended(talk, opened, **failed)


async def test_turns_are_summed_up_by_day_model_and_end(store: Store) -> None:
    await turns_of_three_days(store)
    found = await store.exchange_log.totals("ns", 100 * DAY)
    told = {(one.day, one.model, one.code): one for one in found}
    assert {key: one.turns for key, one in told.items()} == {
        (100, "a", None): 2,
        (100, "b", None): 1,
        (101, "a", None): 1,
        (101, "a", "upstream_cut"): 1,
    }
    both = told[100, "a", None]
    counts = both.prompt_tokens, both.completion_tokens, both.cached_tokens, both.written_tokens
    assert counts == (200, 20, 80, 14)
    assert (both.priced, both.answered, both.first_byte) == (2, 2, 1.0)
    assert (both.prepared, both.plain, both.most_prepared) == (0.25, 1, 0.25)
    assert (both.waited, both.waits, both.most_waited) == (2.0, 1, 2.0)
    bad = told[101, "a", "upstream_cut"]
    assert (bad.plain, bad.waits, bad.most_waited) == (0, 0, 0.0)
    assert (bad.state, bad.cause, bad.priced, bad.answered) == ("failed", "upstream", 0, 0)
    assert await store.exchange_log.totals("other", 0) == []


async def test_all_turns_are_summed_up_by_model_and_end(store: Store) -> None:
    await turns_of_three_days(store)
    ever = await store.exchange_log.totals("ns", None)
    assert {(one.day, one.model, one.code, one.turns) for one in ever} == {
        (0, "a", None, 4),
        (0, "b", None, 1),
        (0, "a", "upstream_cut", 1),
    }
    assert sum(one.prompt_tokens for one in ever) == 500
    assert await store.exchange_log.totals("other", None) == []


async def test_sessions_are_found_by_the_fields_of_one_exchange(store: Store) -> None:
    found: dict[str, str] = {}
    for name, model, code in (("a", "m1", None), ("b", "m2", "upstream_cut"), ("c", "m1", "upstream_cut")):
        talk = Talk(store)
        opened = await talk.asks([name.encode()], model=model)
        await ended(talk, opened, code=code)
        found[talk.session] = name

    async def named(limit: int = 9, before: str | None = None, /, **fields: str) -> list[str]:
        rows = await store.history.sessions("ns", limit, before, only=fields)
        return [found[row.id] for row in rows]

    newest = [found[ident] for ident in sorted(found, reverse=True)]
    assert await named(model="m1") == [name for name in newest if name != "b"]
    assert await named(1, code="upstream_cut") == [name for name in newest if name != "a"][:1]
    assert await named(model="m1", code="upstream_cut") == ["c"]
    assert await named(9, min(found), model="m1") == []
    assert await named(client="nobody") == []
    assert await store.history.sessions("other", 9, None, only={"model": "m1"}) == []


async def test_sessions_are_summed_up_each_for_itself(store: Store) -> None:
    talk, other = Talk(store), Talk(store)
    asked = [b"1"]
    for number, (model, compaction, tokens) in enumerate(
        [("a", None, 500), ("a", "c1", 900), ("b", "c1", 1_000), ("a", "c2", 1_500)]
    ):
        opened = await talk.asks(asked, stored=len(asked) - 1, model=model)
        usage = Usage(100, 10, 40, None, 7)
        await ended(talk, opened, usage=usage, compaction=compaction, tokens_full=tokens)
        asked = [*asked, b"an answer" if number == 0 else b"and"]
    await other.turns(2)
    log = store.exchange_log
    sessions = [talk.session, other.session, "none", talk.session]
    told = await log.totals_of("ns", sessions)
    assert told.keys() == {talk.session, other.session}
    turns = {total.model: (total.turns, total.compacted) for total in told[talk.session]}
    assert turns == {"a": (3, 2), "b": (1, 1)}
    assert sum(total.prompt_tokens for total in told[talk.session]) == 400
    assert await log.compacted_at("ns", sessions) == {talk.session: [900, 1_500]}
    assert await log.totals_of("other", sessions) == {}
    assert await log.compacted_at("other", sessions) == {}
    assert await log.totals_of("ns", []) == {}

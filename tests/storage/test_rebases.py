"""Lists a client assembled anew: paths, transcripts and what is known of them (rule 4)."""

from __future__ import annotations

from collections.abc import Sequence

from palimpsest.core.history.stored_points import Rebase
from palimpsest.storage.exchange_units import OpenExchange, StoredMessage
from palimpsest.storage.store import Store

from tests.storage.talk import Talk, canonical_of


class Slider(Talk):
    """A client that keeps only its newest messages; it knows under which chain each is stored."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.at: dict[bytes, bytes] = {}

    async def starts(self, turns: int) -> list[bytes]:
        said = await self.turns(turns)
        self.at.update(zip(said, self.chains(said), strict=True))
        return said

    async def jumps(
        self, kept: Sequence[bytes], question: bytes, base: Sequence[bytes] = (), new: Sequence[bytes] = ()
    ) -> OpenExchange:
        """The list `base + kept + question`, where `kept` is stored elsewhere, `new` among it nowhere."""
        chains = self.chains([*base, *kept, question])
        kept_chains = chains[len(base) : -1]
        fresh = []
        for body, chain in zip(kept, kept_chains, strict=True):
            if body in new:
                self.at[body] = chain
                fresh.append(self.message(body, chain=chain, parent=b"dangling" * 4))
        rebase = Rebase(
            chain=kept_chains[-1],
            base=self.chains(base)[-1] if base else b"",
            members=tuple(self.at[body] for body in kept),
        )
        last = self.message(question, chain=chains[-1], parent=rebase.chain, depth=len(chains), answers=1)
        self.at[question] = chains[-1]
        return await self.opens(messages=[*fresh, last], base=rebase.base, head=chains[-1], rebase=rebase)

    async def is_answered(self, opened: OpenExchange, body: bytes) -> StoredMessage:
        answer = self.answer(opened, body, answers=2)
        await self.hears(opened, answer)
        self.at[body] = answer.chain
        return answer

    async def transcript(self, chain: bytes) -> list[tuple[bytes, bool]]:
        rows = await self.store.history.transcript(self.namespace, self.session, chain)
        return [(row.body, row.in_path) for row in rows]

    async def listed(self, chain: bytes) -> list[bytes]:
        return [row.body for row in await self.store.history.messages(self.namespace, self.session, chain)]


async def slid(store: Store, turns: int) -> tuple[Slider, list[bytes]]:
    """A client of so many turns, and the list as it holds it."""
    talk = Slider(store)
    return talk, await talk.starts(turns)


async def test_a_slid_window_is_a_path_of_its_own_and_drops_nothing(store: Store) -> None:
    talk, said = await slid(store, 3)
    opened = await talk.jumps(said[2:], b"next")
    assert await talk.listed(opened.head) == [*said[2:], b"next"]
    assert await talk.transcript(opened.head) == [
        (said[0], False),
        (said[1], False),
        *((body, True) for body in said[2:]),
        (b"next", True),
    ]
    assert await talk.heads() == [opened.head]
    assert (await talk.row()).messages == 7


async def test_a_rewritten_opening_stands_before_what_was_kept(store: Store) -> None:
    talk, said = await slid(store, 3)
    opened = await talk.jumps([b"summary so far", *said[4:]], b"next", new=[b"summary so far"])
    assert await talk.listed(opened.head) == [b"summary so far", *said[4:], b"next"]
    assert await talk.transcript(opened.head) == [
        *((body, False) for body in said[:4]),
        (b"summary so far", True),
        *((body, True) for body in said[4:]),
        (b"next", True),
    ]


async def test_what_was_left_out_in_the_middle_keeps_its_place(store: Store) -> None:
    talk, said = await slid(store, 3)
    opened = await talk.jumps([said[4], b"note", said[5]], b"next", base=said[:2], new=[b"note"])
    assert await talk.listed(opened.head) == [*said[:2], said[4], b"note", said[5], b"next"]
    assert await talk.transcript(opened.head) == [
        (said[0], True),
        (said[1], True),
        (said[2], False),
        (said[3], False),
        (said[4], True),
        (b"note", True),
        (said[5], True),
        (b"next", True),
    ]


async def test_the_conversation_goes_on_after_a_rebase(store: Store) -> None:
    talk, said = await slid(store, 3)
    opened = await talk.jumps(said[2:], b"next")
    answer = await talk.is_answered(opened, b"answer")
    assert await talk.heads() == [answer.chain]
    kept = [*said[2:], b"next", b"answer"]
    more = await talk.asks([*kept, b"more"], stored=len(kept))
    assert more.base == answer.chain
    assert await talk.listed(more.head) == [*kept, b"more"]
    assert await talk.heads() == [more.head]


async def test_a_rebase_is_known_by_its_end(store: Store) -> None:
    talk, said = await slid(store, 3)
    opened = await talk.jumps(said[2:], b"next")
    assert opened.rebase is not None
    (known,) = await store.history.known("ns", [opened.rebase.chain], None)
    assert known.chain == opened.rebase.chain
    assert known.canonical == canonical_of(said[-1])
    assert (known.depth, known.answers, known.relayed, known.extended) == (4, 2, True, True)
    assert (known.role, known.state, known.failed) == ("assistant", "live", False)
    (anchor,) = await store.history.relayed("ns", [canonical_of(said[-1])], None)
    assert (anchor.chain, anchor.extended) == (talk.chains(said)[-1], True)


async def test_a_rejected_rebase_gives_the_anchor_back(store: Store) -> None:
    talk, said = await slid(store, 3)
    opened = await talk.jumps(said[2:], b"bad")
    await talk.hears(opened, state="rejected", withdrawn=[opened.head])
    assert await talk.heads() == [talk.chains(said)[-1]]
    (anchor,) = await store.history.relayed("ns", [canonical_of(said[-1])], None)
    assert not anchor.extended


async def test_a_list_that_ends_at_its_anchor_is_a_head(store: Store) -> None:
    talk, said = await slid(store, 3)
    chains = talk.chains(said[2:])
    rebase = Rebase(chains[-1], b"", tuple(talk.at[body] for body in said[2:]))
    opened = await talk.opens(messages=[], base=b"", head=rebase.chain, rebase=rebase)
    assert await talk.heads() == [rebase.chain]
    assert await talk.listed(rebase.chain) == said[2:]
    answer = await talk.is_answered(opened, b"go on")
    assert await talk.heads() == [answer.chain]
    assert await talk.listed(answer.chain) == [*said[2:], b"go on"]


async def test_the_end_of_a_rebased_path_is_read_from_a_message_on(store: Store) -> None:
    talk, said = await slid(store, 4)
    opened = await talk.jumps(said[4:], b"next", base=said[:2])
    assert opened.rebase is not None
    answer = await talk.is_answered(opened, b"answer")
    path = [*said[:2], *said[4:], b"next", b"answer"]

    async def since(chain: bytes) -> list[bytes]:
        return [row.body for row in await store.history.messages("ns", talk.session, answer.chain, chain)]

    assert await since(opened.head) == path[-2:]
    # One of the list's own, then one before it; the list's end bears its last message's name and is none.
    assert await since(talk.at[said[6]]) == path[4:]
    assert await since(talk.at[said[1]]) == path[1:]
    assert await since(opened.rebase.chain) == path
    assert await since(talk.at[said[2]]) == path


async def test_two_hundred_slides_lose_nothing(store: Store) -> None:
    talk, said = await slid(store, 5)
    for i in range(200):
        window = said[-8:]
        opened = await talk.jumps(window, b"slid question %d" % i)
        answer = await talk.is_answered(opened, b"slid answer %d" % i)
        said += [b"slid question %d" % i, b"slid answer %d" % i]
    assert await talk.listed(answer.chain) == said[-10:]
    transcript = await talk.transcript(answer.chain)
    assert [body for body, _ in transcript] == said
    assert [in_path for _, in_path in transcript] == [False] * (len(said) - 10) + [True] * 10
    assert await talk.heads() == [answer.chain]
    assert (await talk.row()).messages == len(said)

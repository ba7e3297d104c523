from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from palimpsest.core.history.message import Conversation, conversation_of, seed_of
from palimpsest.core.history.read import read_message
from palimpsest.core.history.resolve import (
    Lookups,
    NeedsPath,
    NeedsRelayed,
    RequestFacts,
    placement_of,
    respelled,
    withdrawn_of,
)
from palimpsest.core.history.stored_points import PathEntry, Placement, StoredPoint

FACTS = RequestFacts(preamble=b"brief")


def talk(*texts: str) -> Conversation:
    """User and assistant in turns; a text that ends in '!' is an answer wherever it stands."""
    messages = [
        read_message(
            msgspec.json.encode({"role": "assistant" if text.endswith("!") else "user", "content": text}), len
        )
        for text in texts
    ]
    return conversation_of(messages, seed_of("here"))


def point(said: Conversation, index: int, **other: Any) -> StoredPoint:
    """A stored message of `said`, all of whose answers we relayed."""
    return replace(
        StoredPoint(
            session="s1",
            chain=said.chains[index],
            canonical=said.messages[index].canonical,
            role=said.messages[index].role,
            depth=index + 1,
            answers=sum(m.role == "assistant" for m in said.messages[: index + 1]),
            arrival=index + 1,
            relayed=said.messages[index].role == "assistant",
            extended=False,
            failed=False,
            replied=False,
            state="live",
            preamble=b"brief",
        ),
        **other,
    )


def path(said: Conversation) -> list[PathEntry]:
    return [
        PathEntry(chain, m.canonical, m.digest, m.role, m.role == "assistant")
        for m, chain in zip(said.messages, said.chains, strict=True)
    ]


def placed(said: Conversation, known: Sequence[StoredPoint], facts: RequestFacts = FACTS) -> Placement:
    """The placement of a request whose answers are nowhere else."""
    found = placement_of(said, facts, Lookups(known, relayed=(), path=()))
    assert isinstance(found, Placement)
    return found


@pytest.mark.spec("W22")
def test_a_known_prefix_with_an_answer_names_the_session() -> None:
    said = talk("a", "b!", "c")
    found = placement_of(said, FACTS, Lookups([point(said, 1)]))
    assert isinstance(found, Placement)
    assert (found.session, found.base, found.found_by) == ("s1", said.chains[1], "prefix")
    assert [(n.index, n.chain, n.parent, n.depth, n.answers) for n in found.new] == [
        (2, said.chains[2], said.chains[1], 3, 1)
    ]
    assert (found.depth, found.answers) == (3, 1)
    assert withdrawn_of(found) == (said.chains[2],)


def test_the_whole_request_known_is_a_regenerate() -> None:
    said = talk("a", "b!", "c")
    found = placed(said, [point(said, 2)])
    assert (found.session, found.base, found.new) == ("s1", said.head, ())


@pytest.mark.parametrize(
    ("facts", "other", "session"),
    [
        (FACTS, {}, None),
        (replace(FACTS, retry=True), {}, "s1"),
        (replace(FACTS, repeats=("s1", talk("a").head)), {}, "s1"),
        (replace(FACTS, repeats=("s2", talk("a").head)), {}, None),
        (FACTS, {"failed": True}, "s1"),
    ],
)
def test_the_same_first_bytes_join_only_as_a_retry(
    facts: RequestFacts, other: dict[str, Any], session: str | None
) -> None:
    said = talk("a")
    found = placed(said, [point(said, 0, **other)], facts)
    assert found.session == session
    assert found.found_by == ("retry" if session else "new")
    assert len(found.new) == (0 if session else 1)


@pytest.mark.spec("W42")
def test_an_opening_nobody_relayed_starts_a_new_session() -> None:
    said = talk("a", "b!", "c")
    found = placed(said, [point(said, 1, answers=0, relayed=False)])
    assert (found.session, found.base, len(found.new), found.found_by) == (None, b"", 3, "new")


@pytest.mark.spec("W22", "W42")
def test_another_answer_in_the_place_of_ours_goes_on_in_its_session() -> None:
    said = talk("a", "retold!", "c")
    known = point(said, 0, replied=True)
    found = placed(said, [known])
    assert (found.session, found.base, found.found_by) == ("s1", said.chains[0], "anchor")
    assert [(n.index, n.parent, n.depth, n.answers) for n in found.new] == [
        (1, said.chains[0], 2, 0),
        (2, said.chains[1], 3, 0),
    ]


@pytest.mark.spec("S2", "W42")
@pytest.mark.parametrize(
    ("texts", "known"),
    [
        (("a", "retold!", "c"), [{"replied": True}, {"replied": True, "session": "s2"}]),
        (("a", "retold!", "c"), [{"replied": True}, {"replied": False, "session": "s2"}]),
        (("a", "retold!", "c"), [{"replied": False}]),
        (("a", "retold!", "c"), [{"replied": True, "preamble": b"j" * 32}]),
        (("a", "c"), [{"replied": True}]),
        (("a",), [{"replied": True}]),
    ],
    ids=[
        "twins",
        "a twin that waits",
        "nobody replied",
        "other instructions",
        "no answer follows",
        "the same request",
    ],
)
def test_a_beginning_alone_names_no_session(texts: Sequence[str], known: list[dict[str, Any]]) -> None:
    said = talk(*texts)
    found = placed(said, [point(said, 0, **other) for other in known])
    assert (found.session, found.base, found.found_by) == (None, b"", "new")


def test_an_answer_of_ours_counts_more_than_the_place_of_another_one() -> None:
    stored = talk("x", "b!", "c", "d!")
    said = talk("a", "retold!", "c", "d!", "e")
    lookups = Lookups([point(said, 0, session="s2", replied=True)], [point(stored, 3)], path(stored))
    found = placement_of(said, FACTS, lookups)
    assert isinstance(found, Placement)
    assert (found.session, found.found_by) == ("s1", "anchor")


def test_of_twins_equal_instructions_count_first_then_who_has_not_gone_on() -> None:
    said = talk("a", "b!", "c")
    twins = [
        point(said, 1, session="s1", extended=True),
        point(said, 1, session="s2", preamble=b"other"),
        point(said, 1, session="s3", preamble=b"other"),
    ]
    assert placed(said, twins).session == "s1"
    assert placed(said, twins, replace(FACTS, preamble=b"neither")).session == "s3"


@pytest.mark.spec("W42")
def test_a_named_session_takes_unknown_lists_as_siblings() -> None:
    said = talk("x", "y")
    found = placed(said, [], replace(FACTS, named=True, session="s1"))
    assert (found.session, found.base, len(found.new), found.found_by) == ("s1", b"", 2, "id")


def test_an_anchor_is_asked_for_step_by_step() -> None:
    stored = talk("a", "b!", "c", "d!")
    said = talk("c", "d!", "e")
    assert placement_of(said, FACTS, Lookups([])) == NeedsRelayed((said.messages[1].canonical,), None)
    anchor = point(stored, 3)
    assert placement_of(said, FACTS, Lookups([], [anchor])) == NeedsPath("s1", stored.chains[3])
    found = placement_of(said, FACTS, Lookups([], [anchor], path(stored)))
    assert isinstance(found, Placement)
    assert found.rebase is not None
    assert (found.rebase.chain, found.rebase.base) == (said.chains[1], b"")
    assert found.rebase.members == stored.chains[2:]
    assert (found.rebase.depth, found.rebase.answers) == (2, 2)
    assert [(n.index, n.parent, n.depth, n.answers) for n in found.new] == [(2, said.chains[1], 3, 2)]
    assert (found.session, found.found_by) == ("s1", "anchor")


def test_a_new_member_after_a_named_one_is_no_prefix() -> None:
    stored = talk("a", "b!", "c", "d!")
    said = talk("b!", "new", "d!", "e")
    found = placement_of(said, FACTS, Lookups([], [point(stored, 3), point(stored, 1)], path(stored)))
    assert isinstance(found, Placement)
    assert found.rebase is not None
    assert found.rebase.members == (stored.chains[1], found.new[0].chain, stored.chains[3])
    assert found.new[0].parent == stored.chains[1]
    assert found.new[0].chain not in said.chains


def test_other_spellings_are_named_by_where_they_are_stored() -> None:
    stored = talk("a", "b!", "c", "d!")
    said = talk("c", "d!", "e")
    lookups = Lookups([], [point(stored, 3)], [replace(p, digest=b"other") for p in path(stored)])
    found = placement_of(said, FACTS, lookups)
    assert isinstance(found, Placement)
    assert respelled(said, found, (), lookups.path or ()) == ((0, stored.chains[2]), (1, stored.chains[3]))
    assert respelled(said, found, (), path(stored)) == ()

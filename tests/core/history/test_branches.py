"""Which branch is the conversation, and what the others are, decided from the tree alone (rule 33)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.history.branches import BranchRequest, Mark, SessionTree, Texts, TreePoint

pytestmark = pytest.mark.spec("H13")
WORDS = {b"P": "You are an agent that repairs things.", b"Q": "Extract facts, nothing else!", b"": ""}


class Grown:
    """A session's tree as it grows: names of one word stand for chains."""

    def __init__(self) -> None:
        self.points: dict[bytes, TreePoint] = {}
        self.requests: list[BranchRequest] = []
        self.arrival = 0

    def says(
        self, chain: str, behind: str = "", *, preamble: str = "P", mark: Mark = "", tokens: int = 0
    ) -> None:
        """A user's message, and the request that ends with it."""
        if chain.encode() not in self.points:
            self._add(chain, behind, "user")
        self.arrival += 1
        head = chain.encode()
        self.requests.append(BranchRequest(head, preamble.encode(), self.arrival, mark, False, tokens))

    def hears(self, chain: str, behind: str, *, alone: bool = True, preamble: str = "P") -> None:
        """An answer; not `alone`: one of several at once."""
        self._add(chain, behind, "assistant", relayed=True, is_head=alone)
        key = chain.encode()
        self.points[key] = self.points[key]._replace(preamble=preamble.encode())

    def turn(self, name: str, behind: str = "", *, preamble: str = "P", mark: Mark = "") -> None:
        self.says(f"q{name}", behind, preamble=preamble, mark=mark)
        self.hears(f"a{name}", f"q{name}", preamble=preamble)

    def _add(
        self, chain: str, parent: str, role: str, *, relayed: bool = False, is_head: bool = True
    ) -> None:
        self.arrival += 1
        before = self.points.get(parent.encode())
        if before is not None and (role == "user" or is_head):
            self.points[before.chain] = before._replace(is_head=False)
        key = chain.encode()
        self.points[key] = TreePoint(key, parent.encode(), role, relayed, self.arrival, is_head, key)

    def kinds(self, **words: str) -> dict[str, str]:
        tree = SessionTree(list(self.points.values()), self.requests)
        texts = Texts(WORDS, {name.encode(): text for name, text in words.items()})
        return {branch.chain.decode(): branch.kind for branch in tree.branches(texts)}

    @property
    def default(self) -> str:
        return next(iter(self.kinds()), "")


def test_the_newest_turn_is_the_conversation() -> None:
    tree = Grown()
    tree.turn("1")
    tree.turn("2", "a1")
    tree.turn("3", "a2")
    tree.turn("2b", "a1")
    assert tree.kinds() == {"a2b": "main", "a3": "edit"}


def test_of_several_answers_none_is_chosen_until_one_comes_back() -> None:
    tree = Grown()
    tree.says("q1")
    for n in range(3):
        tree.hears(f"a{n}", "q1", alone=False)
    assert tree.default == "q1"
    tree.turn("2", "a1")
    assert tree.kinds() == {"a2": "main"}


def test_an_answered_question_left_behind_is_an_edit_if_it_was_put_again() -> None:
    tree = Grown()
    tree.turn("1")
    tree.turn("2", "a1")
    tree.turn("2b", "a1")
    assert tree.kinds(q2="How tall is an olive tree?", q2b="How tall is an old olive tree?")["a2"] == "edit"
    assert tree.kinds(q2="Suggest three follow-ups.", q2b="How tall is it?")["a2"] == "side"


def test_instructions_of_its_own_make_a_request_stand_beside() -> None:
    tree = Grown()
    tree.turn("1")
    tree.turn("m", "a1", preamble="Q")
    assert tree.kinds() == {"a1": "main", "am": "side"}
    tree.turn("2", "a1")
    assert tree.kinds() == {"a2": "main", "am": "side"}


def test_who_goes_on_talking_under_other_instructions_has_a_conversation() -> None:
    tree = Grown()
    tree.turn("1")
    tree.turn("2", "a1")
    tree.turn("3", "a2", preamble="Q")
    assert tree.default == "a2"
    tree.turn("4", "a3", preamble="Q")
    assert tree.kinds() == {"a4": "main"}


def test_a_title_asked_of_the_very_same_message() -> None:
    """opencode: the answers stand side by side under one question."""
    tree = Grown()
    tree.says("q1", tokens=900)
    tree.hears("a1", "q1")
    tree.says("q1", preamble="Q", tokens=90)
    tree.hears("title", "q1", preamble="Q")
    assert tree.kinds() == {"a1": "main", "title": "side"}
    tree.turn("2", "a1")
    assert tree.kinds() == {"a2": "main", "title": "side"}


@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from("PQ"), st.sampled_from(("", "side")))))
def test_side_requests_never_move_the_conversation(steps: list[tuple[int, str, Mark]]) -> None:
    tree, mine = Grown(), ["a0", "a1"]
    tree.turn("0")
    tree.turn("1", "a0")
    for n, (at, preamble, mark) in enumerate(steps, 2):
        if mark or preamble == "Q":
            behind = mine[-1] if not mark else ""
            tree.turn(f"s{n}", behind, preamble=preamble, mark=mark)
        else:
            tree.turn(str(n), mine[at % len(mine)])
            mine.append(f"a{n}")
        assert tree.default == mine[-1]

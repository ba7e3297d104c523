"""Ten thousand random histories through plan and view, judged by the strict validator (S16)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from palimpsest.core.budget.budget import Budget, Window, budget_of
from palimpsest.core.history.message import Conversation
from palimpsest.core.policy import Policy
from palimpsest.core.view.compaction import Compaction
from palimpsest.core.view.dialects import FRAME_TOKENS
from palimpsest.core.view.outcomes import Fold, MaskOnly, Plan, Refuse, Send, View
from palimpsest.core.view.plan import plan_of
from palimpsest.core.view.plan_input import plan_input_of
from palimpsest.core.view.record import RecordInput, compaction_of, summary_room
from palimpsest.core.view.validity import added_faults, faults_of, groups_of
from palimpsest.core.view.view import applicable, fits, newest_user, prompt_tokens, view_of

from tests.core.histories import RandomHistory, count_text, preamble_tokens, prose

HISTORIES = 10_000
WINDOWS = (500, 1_000, 2_000)
POLICIES = (
    Policy(),
    Policy(target_ratio=0.4, reserved_tokens=0),
    Policy(active_path_share=0, old_result_chars=0),
)


class Session:
    """One history that grows and is planned at every turn, with pins now and then."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.history = RandomHistory(self.random, most=200)
        self.policy = self.random.choice(POLICIES)
        self.window = Window(self.random.choice(WINDOWS), self.random.choice(("configured", "name")))
        self.compactions: list[Compaction] = []
        self.pins: frozenset[bytes] = frozenset()
        self.talk = self.history.conversation
        self.budget = self.budget_now()

    def grow(self) -> None:
        self.history.grow()
        self.talk = self.history.conversation
        if self.random.random() < 0.05:
            self.pins |= {self.random.choice(self.talk.chains)}
        self.budget = self.budget_now()

    def budget_now(self) -> Budget:
        return budget_of(
            self.window,
            fixed_tokens=preamble_tokens(self.talk),
            max_output_tokens=None,
            ratio=1.0,
            policy=self.policy,
        )

    @property
    def client(self) -> list[bytes]:
        return [each.raw for each in (*self.talk.preamble, *self.talk.messages)]

    def plan(self) -> Plan:
        current = applicable(self.compactions, self.talk)
        policy, budget = self.policy, self.budget
        return plan_of(plan_input_of(self.talk, current, budget, self.pins, policy, count_text))

    def carried_out(self, plan: Fold | MaskOnly) -> Compaction:
        current = applicable(self.compactions, self.talk)
        written = RecordInput(f"c{len(self.compactions)}", self.policy.name)
        if isinstance(plan, Fold):
            room = summary_room(plan, self.talk, self.budget, count_text)
            written = replace(written, summary=prose(max(1, room - FRAME_TOKENS)), author="model")
        return compaction_of(plan, self.talk, current, written, self.budget, count_text)

    def view(self) -> View:
        return view_of(self.talk, applicable(self.compactions, self.talk), count_text)


def verbatim(talk: Conversation, view: View) -> bool:
    """Preamble, instructions and newest user message stand there unchanged; the newest message is last."""
    raw = [part.raw for part in view.parts]
    newest = newest_user(talk)
    wanted = [each.raw for each in talk.messages if each.is_instruction]
    wanted += [] if newest is None else [talk.messages[newest].raw]
    is_head = raw[: len(talk.preamble)] == [each.raw for each in talk.preamble]
    return is_head and all(each in raw for each in wanted) and view.parts[-1].index == len(talk.messages) - 1


def in_order(talk: Conversation, view: View) -> bool:
    """Behind the block messages stand in their order, and before it no work on a request (rule 43)."""
    at = next((at for at, part in enumerate(view.parts) if part.kind == "summary"), 0)
    after = [part.index for part in view.parts[at:] if part.index is not None]
    before = [part.index for part in view.parts[:at] if part.kind == "pin"]
    asked = all(index is not None and talk.messages[index].role == "user" for index in before)
    return at == 0 or (asked and after == sorted(after))


# A result of which nothing but the marker is shown, and the shortest summary, tokens.
MARKER_TOKENS = 60
SHORTEST_SUMMARY = 200


def least_tokens(session: Session) -> int:
    """What no plan goes below: instructions, pins, newest user message and group, results but markers."""
    messages, groups = session.talk.messages, groups_of(session.talk.messages)
    anchors = {newest_user(session.talk), *(session.talk.position(pin) for pin in session.pins)} - {None}
    kept = {i for i, each in enumerate(messages) if each.is_instruction}
    pinned: set[int] = set()
    for group in groups:
        if anchors & set(range(group.start, group.stop)):
            pinned.update(range(group.start, group.stop))
    kept |= pinned | set(range(groups[-1].start, len(messages)))
    sizes = [
        each.tokens if i in pinned or each.role != "tool" else min(each.tokens, MARKER_TOKENS)
        for i, each in enumerate(messages)
    ]
    return session.budget.fixed_tokens + sum(sizes[i] for i in kept) + SHORTEST_SUMMARY


def play(seed: int, turns: int, seen: Counter[str]) -> None:
    """Grows one history; every view must be valid, verbatim where promised, and fit or be refused."""
    session = Session(seed)
    previous: tuple[bytes, ...] = ()
    for _ in range(turns):
        session.grow()
        plan = session.plan()
        seen[type(plan).__name__] += 1
        if isinstance(plan, Refuse):
            assert session.window.is_known, seed
            assert least_tokens(session) > session.budget.ceiling_tokens, seed
            continue
        if not isinstance(plan, Send):
            made = session.carried_out(plan)
            session.compactions.append(made)
            assert applicable(session.compactions, session.talk) is made, seed
            assert isinstance(session.plan(), Send), seed
        view = session.view()
        # A view that is the client's own list is as valid as that; the others are read.
        assert view.compaction is None or not added_faults(view.messages, session.client), seed
        assert verbatim(session.talk, view), seed
        assert in_order(session.talk, view), seed
        if session.window.is_known:
            assert prompt_tokens(view, session.budget) <= session.budget.window_tokens, seed
        if not fits(view, session.budget):
            seen["above the ceiling"] += 1
            assert least_tokens(session) > session.budget.ceiling_tokens, seed
        if view.compaction is None:
            assert list(view.messages) == session.client, seed
        if isinstance(plan, Send) and list(previous) == session.client[: len(previous)]:
            assert view.messages[: len(previous)] == previous, seed
        previous = view.messages


@pytest.mark.spec("S16")
@pytest.mark.spec("F01")
@pytest.mark.spec("P9")
def test_ten_thousand_random_histories_stay_valid() -> None:
    seen: Counter[str] = Counter()
    for seed in range(HISTORIES):
        play(seed, turns=1 + seed % 5, seen=seen)
    assert min(seen[kind] for kind in ("Send", "Fold", "MaskOnly", "Refuse")) > 50


@settings(max_examples=15)
@given(st.integers(HISTORIES, 10**9))
def test_long_histories_with_chained_compactions_stay_valid(seed: int) -> None:
    play(seed, turns=40, seen=Counter())


def cut_anywhere(talk: Conversation, made: Compaction, random: Random) -> Compaction:
    """The broken control: a cut that may part a tool group."""
    return replace(made, watermark=random.choice(talk.chains[:-1]))


def faults_with(broken: bool, seeds: Sequence[int]) -> int:
    """How many views of folded histories a strict upstream would refuse though the client's list is valid."""
    found = 0
    for seed in seeds:
        session = Session(seed)
        for _ in range(8):
            session.grow()
            plan = session.plan()
            if not isinstance(plan, Fold) or faults_of(session.client):
                continue
            made = session.carried_out(plan)
            if broken:
                made = cut_anywhere(session.talk, made, session.random)
            found += bool(faults_of(unguarded_view(session.talk, made)))
    return found


def unguarded_view(talk: Conversation, made: Compaction) -> list[bytes]:
    """Preamble, kept messages, summary and tail, put together without asking whether the record applies."""
    cut = (talk.position(made.watermark) or 0) + 1
    kept = [talk.messages[i] for i in range(cut) if talk.chains[i] in made.kept]
    first = [each.raw for each in (*talk.preamble, *(each for each in kept if each.is_instruction))]
    block = b'{"role":"user","content":"summary"}'
    others = [each.raw for each in kept if not each.is_instruction]
    return [*first, block, *others, *(each.raw for each in talk.messages[cut:])]


@pytest.mark.spec("S16")
def test_the_validator_catches_a_cut_that_parts_groups() -> None:
    assert faults_with(broken=False, seeds=range(80)) == 0
    assert faults_with(broken=True, seeds=range(80)) > 10

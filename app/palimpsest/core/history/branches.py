"""Which branch of a session is the conversation that a person had, and what the others are (rule 33).

A function of the session's tree and its requests.

    turn         a request and its answer; its parent is the turn that it continues
    list         a first turn and all that continue it; an edit of the first message belongs to its list
    side branch  it was asked under other instructions than the turn that it continues, adds nothing but
                 instructions, or quotes a conversation, and no question follows it
    default      the branch of the main list (most questions, then the earliest) that ends with the newest
                 turn that is neither a side branch nor a client's own compaction
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from palimpsest.core.history.message import INSTRUCTION_ROLES
from palimpsest.core.history.quotes import are_alike, are_same_instructions

BranchKind = Literal["main", "side", "edit", "retry", "client_compaction"]
# What a request was recognised as on arrival; "" for neither.
Mark = Literal["", "side", "client_compaction"]
# Texts of one session that are compared, those of its newest branches. Others count as the same.
MOST_TEXTS = 64


class TreePoint(NamedTuple):
    """A message on some path, or the end of a rebased list, which has no `role`.

    `parent` is the point that it continues; for a rebased list its anchor. `digest` names the message's body,
    `preamble` the instructions it was sent under. `waits`: an answer with calls.
    """

    chain: bytes
    parent: bytes
    role: str
    relayed: bool
    arrival: int
    is_head: bool
    digest: bytes
    preamble: bytes = b""
    waits: bool = False


class BranchRequest(NamedTuple):
    """A request: its last message, its instructions, and the tokens of its whole prompt (0: unknown)."""

    head: bytes
    preamble: bytes
    arrival: int
    mark: Mark = ""
    appends: bool = False
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch, named by its newest message.

    `beside` is the point where it leaves the default branch; where it shares none, the newest message of the
    default branch at the time it began. `preamble` names the instructions it was asked under, b"" where no
    request states them.
    """

    chain: bytes
    kind: BranchKind
    preamble: bytes
    beside: bytes = b""


@dataclass(frozen=True, slots=True)
class Texts:
    """Instructions by their digest and the words of bodies by theirs, as far as they were loaded."""

    instructions: Mapping[bytes, str] = field(default_factory=dict)
    words: Mapping[bytes, str] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Turn:
    """The requests that ended at one message. `questions`: how many user messages follow from it.

    Where it was asked under several instructions, `preamble` names those of the largest prompt. `goes_on`: a
    turn follows, or its answer calls tools. `is_aside`: it adds instructions to an answer, and nothing else.
    """

    head: bytes
    preamble: bytes
    arrival: int
    began: int
    mark: Mark
    appends: bool
    tokens: int
    is_question: bool
    preambles: frozenset[bytes]
    is_aside: bool
    goes_on: bool
    parent: _Turn | None = None
    root: _Turn | None = None
    questions: int = 0


class SessionTree:
    """The points of a session and its turns. Call `wanted` first, then `branches` with the texts it named."""

    def __init__(self, points: Sequence[TreePoint], requests: Sequence[BranchRequest]) -> None:
        self._points = {point.chain: point for point in points}
        self._following: defaultdict[bytes, list[TreePoint]] = defaultdict(list)
        for point in points:
            self._following[point.parent].append(point)
        self._turns = self._turns_of(requests)
        for turn in self._turns.values():
            # In the order of their first requests: a parent comes first.
            turn.parent = self._turn_at(self._points[turn.head].parent)
            turn.root = turn.parent.root if turn.parent else turn
        self._newest = sorted(self._turns.values(), key=lambda turn: turn.arrival, reverse=True)
        for turn in self._newest:
            # Later turns first: what continues a turn came after it.
            if turn.parent is not None:
                turn.parent.questions += turn.questions + turn.is_question
                turn.parent.goes_on = True
        self._root = self._main_root()
        self._leaves = self._shown_leaves()

    def wanted(self) -> tuple[Sequence[bytes], Sequence[bytes]]:
        """Digests of the instructions and bodies that tell branches apart; about MOST_TEXTS of each."""
        instructions: dict[bytes, None] = {}
        bodies: dict[bytes, None] = {}
        ends = [turn for leaf in self._leaves if (turn := self._turn_at(leaf.chain))]
        for turn in [*self._newest[:2], *sorted(ends, key=lambda turn: turn.arrival, reverse=True)]:
            for one, other in self._compared(turn):
                if one != other and len(instructions) < MOST_TEXTS:
                    instructions |= {one: None, other: None}
        tip = self._tip(Texts())
        path = self._path(tip.chain) if tip is not None else set()
        for leaf in self._leaves:
            first, own = self._fork(leaf, path)
            if first is None or own is None:
                continue
            if first.role == own.role == "user" and len(bodies) < MOST_TEXTS:
                bodies |= {first.digest: None, own.digest: None}
            elif first.preamble != own.preamble and len(instructions) < MOST_TEXTS:
                instructions |= {first.preamble: None, own.preamble: None}
        return tuple(instructions), tuple(bodies)

    def branches(self, texts: Texts) -> list[Branch]:
        """The default branch first, then the others, the newest first; empty without messages."""
        tip = self._tip(texts)
        if tip is None:
            return []
        path = self._path(tip.chain)
        turn = self._turn_at(tip.chain)
        default = Branch(tip.chain, "main", turn.preamble if turn else b"")
        others = [leaf for leaf in self._leaves if leaf.chain not in path]
        others.sort(key=lambda leaf: leaf.arrival, reverse=True)
        return [default, *(self._branch(leaf, path, texts) for leaf in others)]

    def _turns_of(self, requests: Sequence[BranchRequest]) -> dict[bytes, _Turn]:
        turns: dict[bytes, _Turn] = {}
        for asked in sorted(requests, key=lambda asked: asked.arrival):
            if (point := self._points.get(asked.head)) is None:
                continue
            before = turns.get(asked.head)
            if before is not None and not before.mark and asked.mark == "side":
                # It quotes the conversation's own message.
                continue
            is_larger = before is None or asked.tokens > before.tokens
            turns[asked.head] = _Turn(
                head=asked.head,
                preamble=asked.preamble if is_larger or before is None else before.preamble,
                preambles=frozenset([asked.preamble]) | (before.preambles if before else frozenset()),
                arrival=asked.arrival,
                began=before.began if before else asked.arrival,
                # A request repeated without the mark was an ordinary one.
                mark=asked.mark if before is None or before.mark == asked.mark else "",
                appends=asked.appends or (before is not None and before.appends),
                tokens=max(asked.tokens, before.tokens if before else 0),
                is_question=point.role in ("user", ""),
                is_aside=point.role in INSTRUCTION_ROLES and self._spoken(point.chain) == "assistant",
                goes_on=any(answer.waits for answer in self._following[asked.head]),
            )
        return turns

    def _up(self, chain: bytes) -> Iterator[TreePoint]:
        """The point and those before it, newest first. Arrivals must decrease, so that it ends."""
        point = self._points.get(chain)
        while point is not None:
            yield point
            before = self._points.get(point.parent)
            point = before if before is not None and before.arrival < point.arrival else None

    def _turn_at(self, chain: bytes) -> _Turn | None:
        """The turn that the point belongs to or continues."""
        return next((turn for point in self._up(chain) if (turn := self._turns.get(point.chain))), None)

    def _path(self, chain: bytes) -> set[bytes]:
        return {point.chain for point in self._up(chain)}

    def _spoken(self, chain: bytes) -> str:
        """The role of the newest message up to this point that is no instruction; "" for none."""
        return next((point.role for point in self._up(chain) if point.role not in INSTRUCTION_ROLES), "")

    def _main_root(self) -> _Turn | None:
        """The first turn of the main list: most questions follow from it, or else it is the earliest.

        Not one that began while another list waited for a result: a sub-agent's. While no list goes on, the
        largest: a title may be asked for before its conversation begins.
        """
        spans = [
            (turn.root, turn.parent.arrival, turn.began)
            for turn in self._turns.values()
            if turn.parent is not None and not turn.is_question
        ]

        def rank(first: _Turn) -> tuple[bool, int, bool, bool, int, int]:
            is_own = not any(
                root is not first and since < first.began < until for root, since, until in spans
            )
            size = 0 if first.goes_on else first.tokens
            return is_own, first.questions, not first.mark, first.goes_on, size, -first.began

        return max((t for t in self._turns.values() if t.parent is None), key=rank, default=None)

    def _is_main(self, turn: _Turn, texts: Texts) -> bool:
        """True for a turn of the main list, or of any while none goes on."""
        if self._root is None or turn.root is None or turn.root is self._root or not self._root.goes_on:
            return True
        *_, own = self._up(turn.root.head)
        *_, main = self._up(self._root.head)
        return own is main or are_alike(texts.words, own.digest, main.digest)

    def _shown_leaves(self) -> list[TreePoint]:
        """The ends of branches, without answers that a later message of the client's replaces."""
        return [
            point
            for point in self._points.values()
            if point.is_head
            and not (
                point.relayed
                and any(
                    other.role == "assistant" and not other.relayed and other.arrival > point.arrival
                    for other in self._following[point.parent]
                )
            )
        ]

    def _begin(self, turn: _Turn) -> _Turn:
        """The question that the turn works on; tool results belong to it."""
        while not (turn.is_question or turn.is_aside) and turn.parent is not None:
            turn = turn.parent
        return turn

    def _before(self, turn: _Turn) -> _Turn | None:
        """The turn that it continues, skipping marked ones."""
        before = turn.parent
        while before is not None and before.mark:
            before = before.parent
        return before

    def _compared(self, turn: _Turn) -> list[tuple[bytes, bytes]]:
        """Pairs of instructions: the turn is a side branch if the first pair differs and no other does."""
        begin = self._begin(turn)
        before = self._before(begin)
        if before is None:
            root = self._root
            return [(begin.preamble, root.preamble)] if root is not None and root is not begin else []
        pairs = [_pair(begin, before)]
        if (earlier := self._before(before)) is not None:
            pairs.append(_pair(before, earlier))
        return pairs

    def _is_side(self, turn: _Turn, texts: Texts) -> bool:
        begin = self._begin(turn)
        if begin.appends or begin.questions:
            # It is continued: a conversation.
            return False
        if begin.is_aside or "side" in (begin.mark, turn.mark):
            return True
        pairs = self._compared(turn)
        if not pairs:
            return False
        instructions = texts.instructions
        if begin.parent is not None and instructions.get(pairs[0][1]) == "":
            # A client without instructions may begin to send some.
            return False
        differs, *earlier = [
            one != two and not are_same_instructions(instructions, one, two) for one, two in pairs
        ]
        # Where instructions change with every turn they distinguish nothing.
        return differs and not any(earlier)

    def _tip(self, texts: Texts) -> TreePoint | None:
        """The end of the default branch."""
        for turn in self._newest:
            if not turn.mark and self._is_main(turn, texts) and not self._is_side(turn, texts):
                return self._end(turn)
        if self._newest:
            return self._end(self._newest[0])
        # Imported: there are no requests yet.
        return max(self._leaves, key=lambda leaf: leaf.arrival, default=None)

    def _end(self, turn: _Turn) -> TreePoint:
        """The turn's newest answer; its question where it had several answers and none was continued."""
        answers = [point for point in self._following[turn.head] if point.relayed]
        answers = [point for point in answers if point.preamble == turn.preamble] or answers
        chosen = [p for p in answers if p.is_head or self._following[p.chain]]
        return max(chosen, key=lambda point: point.arrival, default=self._points[turn.head])

    def _fork(self, leaf: TreePoint, path: set[bytes]) -> tuple[TreePoint | None, TreePoint | None]:
        """The first message of the branch that is not on the path, and the path's message in its place."""
        first = None
        for point in self._up(leaf.chain):
            if point.chain in path:
                break
            first = point
        if first is None:
            return None, None
        beside = (point for point in self._following[first.parent] if point.chain in path)
        return first, next(beside, None)

    def _branch(self, leaf: TreePoint, path: set[bytes], texts: Texts) -> Branch:
        turn = self._turn_at(leaf.chain)
        first, own = self._fork(leaf, path)
        kind = self._kind(turn, first, own, texts)
        beside = first.parent if first is not None and first.parent in path else b""
        if not beside and turn is not None:
            # The newest message of the path that arrived before.
            there = (self._points[chain] for chain in path)
            earlier = [point for point in there if point.arrival < turn.began]
            beside = max(earlier, key=lambda point: point.arrival).chain if earlier else b""
        return Branch(leaf.chain, kind, turn.preamble if turn else b"", beside)

    def _kind(
        self, turn: _Turn | None, first: TreePoint | None, own: TreePoint | None, texts: Texts
    ) -> BranchKind:
        if turn is not None and turn.mark == "client_compaction" and not turn.questions:
            return "client_compaction"
        if turn is not None and self._is_side(turn, texts):
            return "side"
        if first is None:
            return "main"
        if first.role == "assistant":
            instructions = texts.instructions
            # Two answers to one message: only one belongs to the conversation; the other may be a title.
            is_same = own is None or are_same_instructions(instructions, first.preamble, own.preamble)
            return "retry" if is_same or first.preamble not in instructions else "side"
        if own is not None and own.role == "user" and are_alike(texts.words, first.digest, own.digest):
            return "edit"
        if first.parent not in self._points:
            return "main" if turn is None or self._is_main(turn, texts) else "side"
        # The head of the first turn at or after it: the messages of one request follow each other.
        while first.chain not in self._turns and (following := self._following[first.chain]):
            first = following[0]
        return "side" if turn is not None and self._begin(turn).head == first.chain else "edit"


def _pair(turn: _Turn, before: _Turn) -> tuple[bytes, bytes]:
    """The instructions of both turns; the same twice where both were asked under them."""
    same = turn.preamble in before.preambles
    return turn.preamble, turn.preamble if same else before.preamble

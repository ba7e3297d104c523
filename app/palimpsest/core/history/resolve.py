"""Which session and branch a request belongs to, and which of its messages are new (rules 1 to 8).

The functions return what they need from the store and are called again with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from palimpsest.core.history.message import Conversation
from palimpsest.core.history.rebase import Jump, Start, jump_of
from palimpsest.core.history.stored_points import NewMessage, PathEntry, Placement, Rebase, StoredPoint

FoundBy: TypeAlias = Literal["id", "prefix", "anchor", "quote", "retry", "new"]


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What a request states besides its messages.

    `preamble` is the digest of its instructions. `named` is true when the client named the session; `session`
    is then our id of it, None when no session of that name exists. `retry` is true when
    `x-stainless-retry-count` is above 0. `repeats` is session and head of the newest exchange with the same
    Idempotency-Key.
    """

    preamble: bytes
    named: bool = False
    session: str | None = None
    retry: bool = False
    repeats: tuple[str, bytes] | None = None


@dataclass(frozen=True, slots=True)
class Lookups:
    """What has been loaded from the store so far; None: not yet.

    `known` holds the points that the conversation's chains name; `relayed`, `path` and `twins` hold what
    NeedsRelayed, NeedsPath and NeedsTwins asked for. All are limited to the named session when there is one.
    """

    known: Sequence[StoredPoint]
    relayed: Sequence[StoredPoint] | None = None
    path: Sequence[PathEntry] | None = None
    twins: Sequence[StoredPoint] | None = None


@dataclass(frozen=True, slots=True)
class NeedsSessionsAt:
    """Load the points of all sessions at this chain: another one may be waiting there for this request."""

    chain: bytes


@dataclass(frozen=True, slots=True)
class NeedsRelayed:
    """Load the relayed answers with one of these digests, the request's newest first."""

    canonicals: tuple[bytes, ...]
    session: str | None


@dataclass(frozen=True, slots=True)
class NeedsPath:
    """Load the stored path of the anchor."""

    session: str
    chain: bytes


@dataclass(frozen=True, slots=True)
class _Line:
    """What a request continues: the session (None: a new one), the stored prefix, and how it was found."""

    session: str | None
    start: Start
    found_by: FoundBy


_NEW = _Line(None, Start(), "new")


def placement_of(
    conversation: Conversation, facts: RequestFacts, lookups: Lookups
) -> Placement | NeedsSessionsAt | NeedsRelayed | NeedsPath:
    """Where the request's messages belong, or what must be loaded from the store first.

    Called at most four times: with `known`, then with `twins`, `relayed` and `path` where they matter. A
    request that only adds messages to the end of a known conversation is placed at once.
    """
    if facts.named and facts.session is None:
        return _extended(conversation, _Line(None, Start(), "id"), None, ())
    if lookups.twins is None and (chain := _ambiguous_answer(conversation, facts, lookups.known)):
        return NeedsSessionsAt(chain)
    line = _line_of(conversation, facts, (*lookups.known, *(lookups.twins or ())))
    wanted = _answers_in(conversation, line.start.depth)
    if not wanted:
        return _extended(conversation, line, None, ())
    if lookups.relayed is None:
        return NeedsRelayed(wanted, line.session)
    if line.session is None:
        line = _anchored(wanted, facts, lookups)
        if line.session is None:
            return _extended(conversation, _rewritten(conversation, facts, lookups.known), None, ())
    return _rebased(conversation, line, lookups)


def withdrawn_of(placement: Placement) -> tuple[bytes, ...]:
    """The messages that an exchange added: they leave the path when the upstream refuses it (rule 11)."""
    return tuple(new.chain for new in placement.new)


def placement_after_summary(
    conversation: Conversation, placement: Placement, session: str, jump: Jump
) -> Placement:
    """The placement of a list that continues from a client's own compaction, which `jump` ends with."""
    found_by: FoundBy = "id" if placement.session == session else "quote"
    return _extended(conversation, _Line(session, Start(), found_by), jump.rebase, jump.new)


def respelled(
    conversation: Conversation,
    placement: Placement,
    prefix: Sequence[PathEntry],
    anchor_path: Sequence[PathEntry] = (),
) -> tuple[tuple[int, bytes], ...]:
    """Messages whose bytes differ from those stored first: index and the chain they are stored at (rule 12).

    `prefix` is the stored path of the placement's base, `anchor_path` that of its rebase's anchor.
    """
    stored = list(enumerate(prefix))
    if placement.rebase:
        named = {point.chain: point for point in anchor_path}
        members = enumerate(placement.rebase.members, len(prefix))
        stored += [(i, named[chain]) for i, chain in members if chain in named]
    return tuple((i, at.chain) for i, at in stored if at.digest != conversation.messages[i].digest)


def _line_of(conversation: Conversation, facts: RequestFacts, known: Sequence[StoredPoint]) -> _Line:
    if facts.named:
        deepest = max(known, key=lambda k: (k.depth, k.arrival), default=None)
        return _Line(facts.session, _start(deepest), "id")
    if answered := [k for k in known if k.answers]:
        return _line_at(_likeliest(answered, facts), "prefix")
    # Requests that join a session without answers so far: retries (rule 3), and those that continue after a
    # failed attempt, because the client kept its message.
    earlier = [
        k
        for k in known
        if k.failed or facts.repeats == (k.session, k.chain) or (facts.retry and k.chain == conversation.head)
    ]
    return _line_at(_likeliest(earlier, facts), "retry") if earlier else _NEW


def _ambiguous_answer(
    conversation: Conversation, facts: RequestFacts, known: Sequence[StoredPoint]
) -> bytes | None:
    """The newest answer on the likeliest path, where another session may be waiting; None: no need to look.

    Two sessions that began alike share their first digests. When the deepest known point has been continued
    already, this request is either a branch there or the next turn of a session that is one answer behind.
    That session is found at the answer itself.
    """
    answered = [k for k in known if k.answers]
    if facts.named or facts.retry or facts.repeats or not answered:
        return None
    likeliest = _likeliest(answered, facts)
    if not likeliest.extended or likeliest.relayed:
        return None
    before = reversed(range(likeliest.depth - 1))
    place = next((i for i in before if conversation.messages[i].role == "assistant"), None)
    return None if place is None else conversation.chains[place]


def _likeliest(candidates: Sequence[StoredPoint], facts: RequestFacts) -> StoredPoint:
    """The point with most answers, then: sent before, same instructions, not continued, deepest, newest."""
    return max(
        candidates,
        key=lambda k: (
            k.answers,
            facts.repeats == (k.session, k.chain),
            k.preamble == facts.preamble,
            not k.extended,
            k.depth,
            # Arrivals of two sessions cannot be compared; ids of unnamed sessions are in order of time.
            k.session,
            k.arrival,
        ),
    )


def _start(point: StoredPoint | None) -> Start:
    return Start(point.chain, point.depth, point.answers) if point else Start()


def _line_at(point: StoredPoint, found_by: FoundBy) -> _Line:
    return _Line(point.session, _start(point), found_by)


def _answers_in(conversation: Conversation, start: int) -> tuple[bytes, ...]:
    """The assistant messages after the prefix, newest first, each digest once."""
    rest = reversed(conversation.messages[start:])
    return tuple(dict.fromkeys(m.canonical for m in rest if m.role == "assistant" or m.is_compaction))


def _anchored(wanted: Sequence[bytes], facts: RequestFacts, lookups: Lookups) -> _Line:
    """The session of the newest answer that names exactly one; equal instructions break ties (rule 4)."""
    rows = _by_canonical(lookups.relayed or ())
    for canonical in wanted:
        sessions = {row.session for row in rows[canonical]}
        if len(sessions) > 1:
            sessions = {row.session for row in rows[canonical] if row.preamble == facts.preamble}
        if len(sessions) == 1:
            session = sessions.pop()
            own = (k for k in lookups.known if k.session == session)
            return _Line(session, _start(max(own, key=lambda k: k.depth, default=None)), "anchor")
    return _NEW


def _rewritten(conversation: Conversation, facts: RequestFacts, known: Sequence[StoredPoint]) -> _Line:
    """The only session that replied to the request's known prefix, where another answer follows it here.

    Under the same instructions: a judge that is shown somebody's answer has others.

    smolagents sends calls back as text, and programs built on instructor send what they read out of a call,
    so that no answer comes back as it was relayed. A new session where several sessions know the prefix, or
    where no whole answer was relayed to it: the answers that follow may then be anybody's (rule 3).
    """
    if len(known) != 1 or not known[0].replied or known[0].preamble != facts.preamble:
        return _NEW
    place = conversation.position(known[0].chain)
    following = conversation.messages[place + 1 :] if place is not None else ()
    is_answered = bool(following) and following[0].role == "assistant"
    return _line_at(known[0], "anchor") if is_answered else _NEW


def _by_canonical(rows: Sequence[StoredPoint]) -> Mapping[bytes, list[StoredPoint]]:
    found: defaultdict[bytes, list[StoredPoint]] = defaultdict(list)
    for row in rows:
        found[row.canonical].append(row)
    return found


def _rebased(conversation: Conversation, line: _Line, lookups: Lookups) -> Placement | NeedsPath:
    """The placement of a remainder with answers; the newest that the session relayed is the anchor."""
    rows = _by_canonical([k for k in lookups.relayed or () if k.session == line.session])
    for index in range(len(conversation.messages) - 1, line.start.depth - 1, -1):
        message = conversation.messages[index]
        if same := rows.get(message.canonical):
            anchor = max(same, key=lambda k: k.arrival)
            break
    else:
        return _extended(conversation, line, None, ())
    if lookups.path is None:
        return NeedsPath(anchor.session, anchor.chain)
    jump = jump_of(conversation, line.start, index, anchor, lookups.path)
    if jump is None:
        return _extended(conversation, line, None, ())
    return _extended(conversation, line, jump.rebase, jump.new)


def _extended(
    conversation: Conversation, line: _Line, rebase: Rebase | None, brought: tuple[NewMessage, ...]
) -> Placement:
    """The placement that appends every message after the prefix, or after the rebase."""
    point = Start(rebase.chain, rebase.depth, rebase.answers) if rebase else line.start
    parents = (point.chain, *conversation.chains[point.depth : -1])
    rest = conversation.chains[point.depth :]
    new = tuple(
        NewMessage(i, chain, parent, i + 1, point.answers)
        for i, (chain, parent) in enumerate(zip(rest, parents, strict=False), point.depth)
    )
    return Placement(
        session=line.session,
        base=line.start.chain,
        new=brought + new,
        rebase=rebase,
        found_by=line.found_by,
        answers=point.answers,
        depth=len(conversation.messages),
    )

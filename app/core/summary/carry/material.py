"""What code can read out of the folded messages and the previous block, before any budget.

Deterministic: the same source gives the same material. Knows nothing of tokens, fences or how much
of it a block will show.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.core.summary.carry.identifiers import Sighting, identifiers_in
from app.core.summary.carry.spoken import Spoken, call_label, spoken_of
from app.core.summary.carry.statements import (
    Stale,
    Statement,
    gone_values,
    is_stale,
    order_of,
    stale_values,
    statements_of,
)
from app.core.summary.carry.user_wording import CHANGED, user_entry
from app.core.summary.carry.work_log import Work, work_of
from app.core.summary.sections import Sections, block_sections
from app.core.summary.source import SummarySource
from app.core.text.fence import unfenced
from app.core.text.secrets import without_secrets
from app.core.text.wording import cut_to, text_of

# Opens a statement of the user's that code carried over. It is read again from the message each time.
FACT = "• "
# Opens one of the assistant's, which the next round reads back from the block.
REPORT = "◦ "
# Characters of one message that are read for statements and identifiers: head and tail of it.
_READ_CHARS = 24_000
# What being said by whom is worth for an identifier: people repeat what matters.
_ROLE_WEIGHTS = {"user": 2.0, "assistant": 1.5, "tool": 1.0}


@dataclass(frozen=True, slots=True)
class Material:
    """Everything a block may show. `users` oldest first; `facts` and `sightings` unranked.

    `gone` are values that no longer hold. `newest_request` is the newest user text; `request` the same
    when it is folded, else "". `answered` is true when an answer without tool calls follows the newest
    folded user message.
    """

    previous: Sections
    users: tuple[tuple[bytes, str], ...]
    facts: tuple[Statement, ...]
    gone: tuple[Stale, ...]
    sightings: tuple[Sighting, ...]
    newest: int
    work: Work
    state: str
    newest_request: str
    request: str
    answered: bool


def material_of(source: SummarySource) -> Material:
    """All that code can carry over from `source`."""
    previous = block_sections(unfenced(source.previous))
    fresh = [spoken_of(source.since + i, chain, m) for i, (chain, m) in enumerate(source.fresh)]
    earlier = [
        spoken_of(i, chain, m)
        for i, (chain, m) in enumerate(source.folded[: source.since])
        if m.role == "user"
    ]
    tail = [spoken_of(len(source.folded) + i, b"", m) for i, m in enumerate(source.tail)]
    carried = _carried_facts(previous)
    said = carried + _statements([*earlier, *fresh])
    stale = stale_values(said + _statements(m for m in tail if m.role == "user"))
    users = [m for m in [*earlier, *fresh] if m.role == "user" and m.text.strip()]
    newest = without_secrets(source.newest_request).strip()
    shown = ((m.chain, user_entry(m.text, m.order, stale)) for m in users)
    return Material(
        previous=previous,
        users=tuple((chain, text) for chain, text in shown if text != CHANGED),
        facts=tuple(fact for fact in _distinct(said) if not is_stale(fact, stale)),
        gone=gone_values(stale, said),
        sightings=_sightings(previous, [*earlier, *fresh], tail, stale),
        newest=len(source.folded),
        work=work_of(previous, fresh),
        state=_state(fresh, stale),
        newest_request=newest,
        request=newest if users and newest == users[-1].text.strip() else "",
        answered=_answered(source),
    )


def _carried_facts(previous: Sections) -> list[Statement]:
    lines = (line for body in (previous.bodies[4], previous.bodies[5]) for line in body.split("\n"))
    return [
        Statement(line[len(REPORT) :], "assistant", order_of(-1, 0))
        for line in lines
        if line.startswith(REPORT)
    ]


def _statements(messages: Iterable[Spoken]) -> list[Statement]:
    """What people and the assistant stated; what a tool's result says is nobody's statement."""
    found: list[Statement] = []
    for message in messages:
        if message.role in ("user", "assistant"):
            found += statements_of(cut_to(message.text, _READ_CHARS), message.role, message.order)
    return found


def _distinct(statements: Sequence[Statement]) -> list[Statement]:
    """The newest of equal sentences, in order."""
    newest = {" ".join(statement.text.lower().split()): statement for statement in statements}
    return sorted(newest.values(), key=lambda statement: statement.order)


def _sightings(
    previous: Sections, said: Sequence[Spoken], tail: Sequence[Spoken], stale: Sequence[Stale]
) -> tuple[Sighting, ...]:
    kinds: dict[str, tuple[str, str] | None] = {}
    seen: dict[str, Sighting] = {}
    for line in previous.added.split("\n"):
        label, colon, names = line.removeprefix("- ").rpartition(": ")
        for text, kind in identifiers_in(names, kinds):
            seen.setdefault(text, Sighting(text, kind, label if colon else "", -1, 1, 1.2, frozenset()))
    for text, kind in identifiers_in("\n".join((*previous.bodies[2:], previous.bodies[0])), kinds):
        seen.setdefault(text, Sighting(text, kind, "", -1, 1, 1.0, frozenset()))
    for message, origin in _with_origins(said):
        for text, kind in identifiers_in(_read(message), kinds):
            _see(
                seen,
                Sighting(
                    text,
                    kind,
                    origin,
                    message.order,
                    1,
                    _ROLE_WEIGHTS.get(message.role, 1.0),
                    frozenset((message.role,)),
                ),
            )
    shown = {text for message in tail for text, _ in identifiers_in(_read(message), kinds)}
    gone = {old.value: old.before for old in stale}
    return tuple(
        s
        for s in seen.values()
        if s.text not in shown and order_of(s.last, 0) >= gone.get(s.text.lower(), -1_000)
    )


def _see(seen: dict[str, Sighting], sight: Sighting) -> None:
    known = seen.get(sight.text)
    if known is None:
        seen[sight.text] = sight
        return
    known.mentions += 1
    known.last = sight.last
    known.weight = max(known.weight, sight.weight)
    known.roles |= sight.roles
    known.origin = known.origin or sight.origin


def _with_origins(messages: Sequence[Spoken]) -> Iterable[tuple[Spoken, str]]:
    """Each message with the label of the call it answers or makes, "" for talk."""
    labels: dict[str, str] = {}
    for message in messages:
        for call in message.calls:
            labels[call.id] = call_label(call)
        if message.role == "tool":
            yield message, labels.get(message.answers or "", "")
        else:
            yield message, labels.get(message.calls[0].id, "") if message.calls else ""


def _read(message: Spoken) -> str:
    calls = " ".join(call.arguments.replace("\\n", "\n") for call in message.calls)
    text = f"{message.text} {calls}" if calls else message.text
    return cut_to(text, _READ_CHARS)


def _state(fresh: Sequence[Spoken], stale: Sequence[Stale]) -> str:
    """The last thing the assistant said, without what no longer holds."""
    last = next((m for m in reversed(fresh) if m.role == "assistant" and m.text.strip()), None)
    if last is None:
        return ""
    old = [s.text for s in statements_of(last.text, last.role, last.order) if is_stale(s, stale)]
    text = last.text
    for sentence in old:
        text = text.replace(sentence, "")
    return " ".join(text.split())


def _answered(source: SummarySource) -> bool:
    """True when an answer without tool calls follows the newest folded user message."""
    folded = [message for _, message in source.folded]
    asked = next((i for i in range(len(folded) - 1, -1, -1) if folded[i].role == "user"), None)
    if asked is None:
        return True
    for message in (*folded[asked + 1 :], *source.tail):
        if message.role == "user":
            return False
        if message.role == "assistant" and not message.calls and text_of(message).strip():
            return True
    return False

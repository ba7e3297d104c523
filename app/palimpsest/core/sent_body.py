"""A request as it was sent to the upstream, put together again from what is stored, and proved by its digest.

Pure. Where it may have been put together in several ways, the one with the digest of what was sent is it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice, product

from palimpsest.core.history.message import Conversation, Message
from palimpsest.core.recall.rounds.hidden import HiddenRounds, replayed
from palimpsest.core.recall.tool_calls import NAMES
from palimpsest.core.view.anatomy import said_messages
from palimpsest.core.view.compaction import Compaction
from palimpsest.core.view.dialects import as_sent
from palimpsest.core.view.outcomes import View
from palimpsest.core.view.view import rendered
from palimpsest.core.wire.chat import CHAT
from palimpsest.core.wire.compaction_items import with_plain_summaries
from palimpsest.core.wire.request import Wire, body_with
from palimpsest.core.wire.responses.request import RESPONSES

# Combinations of spellings that are tried; hardly any session has more than two.
_MOST_SPELLINGS = 32
# The member that holds the messages, before their mark.
_LISTED = re.compile(rb'"(\w+)"\s*:\s*\x01')
_OUR_NAMES = tuple(f'"{name}"'.encode() for name in sorted(NAMES))


@dataclass(frozen=True, slots=True)
class Material:
    """What a request is put together from.

    `spelled`: spellings of messages by index, the likeliest first. `carried` is what the client's request
    carried beside its messages, `sent` what the upstream was sent (see `envelope_of`). `said`: how many
    messages the client's request had; None when that is not known. `digest`: the SHA-256 of what was sent.
    """

    talk: Conversation
    spelled: Mapping[int, Sequence[Message]]
    force: Compaction | None
    rounds: Mapping[int, HiddenRounds]
    carried: Sequence[bytes]
    sent: Sequence[bytes]
    said: int | None
    digest: bytes | None
    count_text: Callable[[str], int]


@dataclass(frozen=True, slots=True)
class SentBody:
    """A request; `plain` is its view before user messages are merged, `shown` are its messages.

    `envelope` is what stands beside them. `is_exact`: `body` has the digest of what was sent; None when
    either is not known.
    """

    talk: Conversation
    plain: View
    shown: Sequence[bytes]
    body: bytes | None
    is_exact: bool | None
    envelope: Sequence[bytes]


def sent_body(material: Material) -> SentBody:
    """The candidate whose body has the digest of the one that was sent; without a match the likeliest."""
    first: SentBody | None = None
    for talk in islice(_talks(material), _MOST_SPELLINGS):
        plain = rendered(talk, material.force, material.count_text)
        for envelope, shown in _candidates(material, talk, plain):
            body = _body(envelope, shown) if envelope else None
            known = material.digest
            is_exact = None if known is None or body is None else sha256(body).digest() == known
            found = SentBody(talk, plain, shown, body, is_exact, envelope)
            if is_exact:
                return found
            first = first or found
    assert first is not None
    return first


def _talks(material: Material) -> Iterator[Conversation]:
    """The conversation in each combination of spellings, the likeliest first."""
    for chosen in product(*material.spelled.values()):
        messages = list(material.talk.messages)
        for at, message in zip(material.spelled, chosen, strict=True):
            messages[at] = message
        yield replace(material.talk, messages=tuple(messages))


def _candidates(
    material: Material, talk: Conversation, plain: View
) -> Iterator[tuple[Sequence[bytes], Sequence[bytes]]]:
    """What may have been sent: the view, or the client's own messages where the upstream keeps the others."""
    yield material.sent, replayed(as_sent(plain), talk, material.rounds)
    said, start = said_messages(talk, material.said)
    if start and material.carried:
        yield material.carried, [message.raw for message in said]


def names_ours(envelope: Sequence[bytes]) -> bool:
    """Whether it has a JSON text that is a name of our tools."""
    return any(name in piece for piece in envelope for name in _OUR_NAMES)


def wire_of(envelope: Sequence[bytes]) -> Wire:
    """The API of a body, by the member that holds its messages."""
    found = _LISTED.search(envelope[0]) if envelope else None
    return RESPONSES if found and found[1].decode() == RESPONSES.listed else CHAT


def _body(envelope: Sequence[bytes], shown: Sequence[bytes]) -> bytes:
    """The body; messages of another API are told in this one's form, as they were when they were sent."""
    wire = wire_of(envelope)
    told = [wire.translated(raw) or raw for raw in shown]
    return body_with(envelope, [with_plain_summaries(raw) for raw in told] if wire.has_compactions else told)

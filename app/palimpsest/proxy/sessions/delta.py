"""What requests leave out: items that they only reference, and transcripts that they append to.

A request that references items is the same conversation as one that contains them;
`palimpsest.core.wire.responses.items` decides, this module reads the store.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from palimpsest.core.history.message import Conversation, chain_of, seed_of
from palimpsest.core.wire.request import ChatRequest
from palimpsest.core.wire.responses.items import unique_item
from palimpsest.core.wire.responses.request import answer_with, runs_with, with_items
from palimpsest.proxy.sessions.reader import MessageReader
from palimpsest.storage.exchanges import Exchanges


@dataclass(frozen=True, slots=True)
class References:
    """Resolves references to items."""

    exchanges: Exchanges
    reader: MessageReader

    async def resolved(self, namespace: str, request: ChatRequest) -> ChatRequest:
        """The request with the items that it references, as far as they are stored in this namespace.

        Other references stay as they are: to items that never passed through here, belong to another caller,
        were erased, or share their id with others none of which was given at this point.
        """
        idents = list(dict.fromkeys(request.references.values()))
        kept = await self.exchanges.answers_with(namespace, idents)
        only = {ident: unique_item(answers, ident) for ident, answers in kept.items()}
        found = {at: item for at, ident in request.references.items() if (item := only.get(ident))}
        shared = {at: ident for at, ident in request.references.items() if at not in found}
        if any(ident in kept for ident in shared.values()):
            found = await self._on_path(namespace, request, found, shared)
        return with_items(request, found) if found else request

    async def _on_path(
        self, namespace: str, request: ChatRequest, found: Mapping[int, bytes], shared: Mapping[int, str]
    ) -> dict[int, bytes]:
        """`found`, and those of `shared` at whose position an answer with such an item was given.

        Some servers reuse a few ids.
        """
        known_items, parent, has_begun = dict(found), seed_of(namespace), False
        for run, raw in list(runs_with(request, found)):
            if here := {at: shared[at] for at in run if at in shared}:
                known_items |= await self._said_after(namespace, parent, here)
                raw = answer_with(request, run, known_items)
            (message,) = await self.reader.read_stored([raw], request.model)
            has_begun = has_begun or not message.is_instruction
            if has_begun:
                parent = chain_of(parent, message.canonical)
        return known_items

    async def _said_after(
        self, namespace: str, parent: bytes, wanted: Mapping[int, str]
    ) -> Mapping[int, bytes]:
        kept = await self.exchanges.answers_with(namespace, list(dict.fromkeys(wanted.values())), parent)
        items = ((at, unique_item(kept.get(ident, ()), ident)) for at, ident in wanted.items())
        return {at: item for at, item in items if item is not None}


@dataclass(frozen=True, slots=True)
class Transcript:
    """A branch as it was read for a model; `head` and `preamble` are the digests of what is stored."""

    model: str
    head: bytes
    preamble: bytes
    talk: Conversation


class Transcripts:
    """The branches that were appended to last, so that an append reads only what is new.

    The messages of all of them take at most `most_bytes`, by their own bytes; a longer one is not kept.
    """

    def __init__(self, most_bytes: int) -> None:
        self._room = most_bytes
        self._kept: OrderedDict[tuple[str, str], tuple[Transcript, int]] = OrderedDict()
        self._held = 0

    def of(self, place: tuple[str, str], model: str, preamble: bytes) -> Transcript | None:
        """The branch read of the session at this place, with these instructions; None when it is not kept."""
        kept = self._kept.get(place)
        if kept is None or (kept[0].model, kept[0].preamble) != (model, preamble):
            return None
        return kept[0]

    def keep(self, place: tuple[str, str], transcript: Transcript) -> None:
        """Keep it in place of what was kept of the session."""
        self.forget(place)
        size = sum([len(message.raw) for message in transcript.talk.messages])
        if size > self._room:
            return
        self._kept[place] = transcript, size
        self._held += size
        while self._held > self._room:
            self._held -= self._kept.popitem(last=False)[1][1]

    def forget(self, place: tuple[str, str]) -> None:
        """Nothing is kept of the session."""
        if (kept := self._kept.pop(place, None)) is not None:
            self._held -= kept[1]

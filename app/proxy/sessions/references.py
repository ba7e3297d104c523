"""Requests that name items of earlier answers: the items' words are found in the archive.

So such a request is the same conversation as one that tells them. Which item is meant is decided by
`app.core.wire.responses.references`; here the store is asked. Knows nothing of what goes upstream.
"""

from __future__ import annotations

from collections.abc import Mapping

from app.core.history.chain import chain_of, seed_of
from app.core.wire.chat_request import ChatRequest
from app.core.wire.responses.references import only_item
from app.core.wire.responses.request import answer_with, runs_with, with_items
from app.proxy.sessions.reader import MessageReader
from app.storage.contract import Store


class References:
    """One for the application."""

    def __init__(self, store: Store, reader: MessageReader) -> None:
        self._store = store
        self._reader = reader

    async def resolved(self, namespace: str, request: ChatRequest) -> ChatRequest:
        """The request with the words of the items it names, as far as they are known under this key.

        An item that is not known stays a name: one that never came through here, of another key, erased, or
        of an id that several have and none of them was said in this place.
        """
        if not request.references:
            return request
        idents = list(dict.fromkeys(request.references.values()))
        kept = await self._store.answers_with(namespace, idents)
        only = {ident: only_item(answers, ident) for ident, answers in kept.items()}
        found = {at: item for at, ident in request.references.items() if (item := only.get(ident))}
        shared = {at: ident for at, ident in request.references.items() if at not in found}
        if any(ident in kept for ident in shared.values()):
            found = await self._on_path(namespace, request, found, shared)
        return with_items(request, found) if found else request

    async def _on_path(
        self, namespace: str, request: ChatRequest, found: Mapping[int, bytes], shared: Mapping[int, str]
    ) -> dict[int, bytes]:
        """`found`, and those of `shared` that stand where an answer with such an item was given.

        Some servers give the same few ids again and again.
        """
        told, parent, has_begun = dict(found), seed_of(namespace), False
        for run, raw in list(runs_with(request, found)):
            if here := {at: shared[at] for at in run if at in shared}:
                told |= await self._said_after(namespace, parent, here)
                raw = answer_with(request, run, told)
            (message,) = await self._reader.read_stored([raw], request.model)
            has_begun = has_begun or not message.is_instruction
            if has_begun:
                parent = chain_of(parent, message.canonical)
        return told

    async def _said_after(
        self, namespace: str, parent: bytes, wanted: Mapping[int, str]
    ) -> Mapping[int, bytes]:
        kept = await self._store.answers_with(namespace, list(dict.fromkeys(wanted.values())), parent)
        items = ((at, only_item(kept.get(ident, ()), ident)) for at, ident in wanted.items())
        return {at: item for at, item in items if item is not None}

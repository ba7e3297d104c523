"""One message or summary by the id that views, masks and results name it with: how what was folded or cut is
read again.

Knows nothing of why the reader wants it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from app.api.callers import Admitted
from app.api.replies import raw_reply, reply
from app.core.recall.reading import summary_text
from app.core.recall.tools.ids import chain_digits_of, summary_id
from app.core.view.compaction import context_id
from app.core.view.masking import text_of
from app.core.wire.json_text import decoded, encoded
from app.core.wire.responses.items import as_chat
from app.proxy.archive import Archive

# About 4,000 tokens: what a model can take in one go without its window being filled again.
_PAGE_CHARS = 16_000
_MOST_CHARS = 1_000_000


@dataclass(frozen=True, slots=True)
class _Found:
    """What is said of it beside its text; the text; and what is stored, as JSON."""

    fields: dict[str, Any]
    text: str
    raw: bytes


class ContextPages:
    """Single messages and summaries."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    def on(self, api: APIRouter) -> None:
        """The route is registered."""
        api.add_api_route("/context/{ident}", self.read, methods=["GET"])

    async def read(
        self,
        caller: Admitted,
        ident: str,
        offset: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=1, le=_MOST_CHARS)] = _PAGE_CHARS,
        raw: bool = False,
    ) -> Response:
        """A page of the text, in characters; with `raw` the stored bytes themselves, a summary's as a string.

        A message without text (tool calls alone, say) is paged as the JSON it is.
        """
        is_message = chain_digits_of(ident) is not None
        found = await (self._message if is_message else self._summary)(caller.namespace, ident)
        if raw:
            return raw_reply(found.raw)
        stop = min(len(found.text), offset + limit)
        return reply(
            {
                **found.fields,
                "offset": offset,
                "total_chars": len(found.text),
                "next_offset": stop if stop < len(found.text) else None,
                "text": found.text[offset:stop],
            }
        )

    async def _message(self, namespace: str, ident: str) -> _Found:
        session, row = await self._archive.message(namespace, ident)
        text = text_of(as_chat(decoded(row.body)))
        fields = {
            "id": context_id(row.chain),
            "session": session,
            "role": row.role,
            "tokens": row.tokens,
            "state": row.state,
            "format": "text" if text else "json",
        }
        return _Found(fields, text or row.body.decode("utf-8", "surrogatepass"), row.body)

    async def _summary(self, namespace: str, ident: str) -> _Found:
        session, stored = await self._archive.summary(namespace, ident)
        whole = stored.compaction.summary
        fields = {
            "id": summary_id(stored.compaction.id),
            "session": session,
            "role": None,
            "tokens": None,
            "state": "live" if stored.undone_at is None else "undone",
            "format": "text",
        }
        return _Found(fields, summary_text(whole.encode("utf-8", "surrogatepass")), encoded(whole))

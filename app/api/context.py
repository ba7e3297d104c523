"""One message by the id that views and masks name it with: how what was folded or cut is read again.

Knows nothing of why the reader wants it.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from app.api.callers import Admitted
from app.api.replies import raw_reply, reply
from app.core.view.masking import context_id, text_of
from app.core.wire.json_text import decoded
from app.proxy.archive import Archive

# About 4,000 tokens: what a model can take in one go without its window being filled again.
_PAGE_CHARS = 16_000
_MOST_CHARS = 1_000_000


class ContextPages:
    """Single messages."""

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
        """A page of the message's text, in characters; with `raw` the stored bytes themselves.

        A message without text (tool calls alone, say) is paged as the JSON it is.
        """
        session, row = await self._archive.message(caller.namespace, ident)
        if raw:
            return raw_reply(row.body)
        text = text_of(decoded(row.body))
        whole = text or row.body.decode("utf-8", "surrogatepass")
        stop = min(len(whole), offset + limit)
        return reply(
            {
                "id": context_id(row.chain),
                "session": session,
                "role": row.role,
                "tokens": row.tokens,
                "state": row.state,
                "format": "text" if text else "json",
                "offset": offset,
                "total_chars": len(whole),
                "next_offset": stop if stop < len(whole) else None,
                "text": whole[offset:stop],
            }
        )

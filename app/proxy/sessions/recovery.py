"""What a killed server left of answers that were coming becomes part of their conversations (S10).

Runs before the first request, and when another server on the same database is gone. Knows the store; nothing
of how the answers travelled.
"""

from __future__ import annotations

import structlog

from app.core.history.chain import chain_of
from app.core.history.message import Message
from app.core.wire.responses.references import ids_in
from app.errors import RequestError, StoreError
from app.proxy.sessions.reader import MessageReader
from app.proxy.sessions.recorder import NO_USAGE, stored_message
from app.storage.contract import CloseExchange, Store
from app.storage.interrupted import Interrupted

_log = structlog.get_logger("palimpsest.recovery")


async def recover(store: Store, reader: MessageReader, now: float) -> None:
    """Every interrupted exchange is closed as cut, as if its upstream had broken off there.

    One that cannot be written is left for the next start: it stands in nobody's way.
    """
    for left in await store.interrupted():
        try:
            await store.close_exchange(_cut(left, _answers(left, reader), now))
        except StoreError as error:
            _log.error("partial_answer_not_recovered", error=type(error).__name__, session=left.session)
        else:
            _log.info("partial_answer_recovered", session=left.session)


def _answers(left: Interrupted, reader: MessageReader) -> list[Message]:
    try:
        read = reader.read_answers([left.partial], left.model)
    except RequestError:
        return []
    return [message for message in read if message.can_stand_cut]


def _cut(left: Interrupted, answers: list[Message], now: float) -> CloseExchange:
    """How the prompt was shown, and what it took, died with the process."""
    return CloseExchange(
        namespace=left.namespace,
        session=left.session,
        exchange=left.exchange,
        head=left.head,
        base=left.base,
        state="incomplete",
        answers=[
            stored_message(
                answer, chain_of(left.head, answer.canonical), left.head, left.depth + 1, left.answers + 1
            )
            for answer in answers
        ],
        answer_state="incomplete",
        withdrawn=(),
        usage=NO_USAGE,
        finish_reason=None,
        status=200,
        view=None,
        tokens_full=None,
        tokens_forwarded=None,
        compaction=None,
        finished_at=now,
        items=ids_in(answers[0].raw) if answers else (),
        is_overtaken=left.is_followed,
    )

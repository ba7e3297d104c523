"""The rows that requests and imports are written as.

Must not know which statements take them, nor in which order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from app.storage.contract import OpenExchange, StoredMessage
from app.storage.database import Params, plain, plain_or_none
from app.storage.packing import packed


def session_row(exchange: OpenExchange, arrivals: int) -> Params:
    """The session, if it is new; `arrivals` is what it draws."""
    return {
        "namespace": exchange.namespace,
        "id": exchange.session,
        "external_id": plain_or_none(exchange.external_id),
        "epoch": 0,
        "arrivals": arrivals,
        "found_by": exchange.found_by,
        "model": plain(exchange.model),
        "full_history": exchange.full_history,
        "appends": exchange.appends,
        "is_side": exchange.mark == "side",
        "created_at": exchange.started_at,
        "updated_at": exchange.started_at,
    }


def bodies_of_opening(exchange: OpenExchange) -> Iterator[tuple[bytes, bytes]]:
    """Everything of the request that is bytes, each with its digest."""
    for message in exchange.messages:
        yield message.digest, message.body
    for variant in exchange.variants:
        yield variant.digest, variant.body
    for body, digest in exchange.preamble:
        yield digest, body


def body_rows(namespace: str, bodies: Iterable[tuple[bytes, bytes]]) -> list[Params]:
    """Each once, in the order of their digests."""
    ordered = sorted(dict(bodies).items())
    return [{"namespace": namespace, "digest": digest, "body": body} for digest, body in ordered]


def message_rows(exchange: OpenExchange, back: int) -> list[Params]:
    """The messages in order; the first stands `back` places before the newest arrival."""
    shared = {
        "namespace": exchange.namespace,
        "session": exchange.session,
        "relayed": False,
        "state": "live",
        "preamble": exchange.preamble_digest,
        "finish_reason": None,
        "created_at": exchange.started_at,
    }
    return [
        {**shared, **facts_of(message), "back": back - i, "is_head": message.chain == exchange.head}
        for i, message in enumerate(exchange.messages)
    ]


def preamble_rows(exchange: OpenExchange) -> list[Params]:
    """One row, or none without instructions."""
    if not exchange.preamble:
        return []
    row: Params = {
        "namespace": exchange.namespace,
        "session": exchange.session,
        "digest": exchange.preamble_digest,
        "bodies": packed(digest for _, digest in exchange.preamble),
    }
    return [row]


def facts_of(message: StoredMessage) -> Params:
    """The columns that are the message's own."""
    return {
        "chain": message.chain,
        "parent": message.parent,
        "canonical": message.canonical,
        "role": plain(message.role),
        "tokens": message.tokens,
        "depth": message.depth,
        "answers": message.answers,
        "digest": message.digest,
    }

"""The operator's endpoints under `/api/admin`: all namespaces, their sizes and use, erasing one.

They show no text: no message, title, name of a session or model. A door before all of them asks for
`access.admin_key`, also for paths that do not exist. Further pages of the operator belong on the same router.
"""

from __future__ import annotations

import time
from typing import Annotated, Literal, TypedDict

import structlog
from fastapi import APIRouter, Depends, Path, Query, Request

from palimpsest.api.callers import OperationRoute, Parts, at_most, check_fields
from palimpsest.api.replies import (
    Reply,
    UtcTime,
    described,
    page_of,
    reply,
    shape_of,
    utc_time,
    utc_time_or_none,
)
from palimpsest.api.sessions import EraseReceipt, receipt_fields
from palimpsest.core.utc import DAY, day_of
from palimpsest.proxy.archive import missing
from palimpsest.proxy.incoming import ASGIApp, Receive, Scope, Send
from palimpsest.proxy.operator import OperatorAccess
from palimpsest.proxy.overviews import NamespaceView

PREFIX = "/api/admin"
NamespaceId = Annotated[str, Path(max_length=200, description="Id of a namespace.")]
_log = structlog.get_logger("palimpsest.operator")


class IssuedKeyFields(TypedDict):
    """A key that this proxy issued for the namespace, without the key. Limits are null where it has none."""

    id: str
    label: str
    created_at: UtcTime
    revoked_at: UtcTime | None
    expires_at: UtcTime | None
    last_used_at: UtcTime | None
    retention_days: int | None
    retention_bytes: int | None


class RecentTurns(TypedDict):
    """Turns of the last 24 hours, and how many of them failed."""

    since: UtcTime
    turns: int
    failures: int


class UsedToday(TypedDict):
    """Tokens as the upstream counted them, and dollars; null where no price is known."""

    day: Annotated[str, described("UTC.", format="date")]
    tokens: int
    dollars: float | None


class NamespaceFields(TypedDict):
    """A namespace: one caller's credentials, or what an issued key opens."""

    id: str
    created_at: UtcTime
    proven: Annotated[bool, described("The upstream has accepted its credential, or a key was issued.")]
    keys: Annotated[list[IssuedKeyFields], described("Newest first; empty in open mode.")]
    sessions: int
    messages: int
    bytes: Annotated[int, described("Of messages and instructions, each text once.")]
    last_24_hours: RecentTurns
    today: UsedToday
    last_used_at: Annotated[UtcTime | None, described("When a session was written to last.")]


class NamespaceList(TypedDict):
    """Namespaces in the order of their ids."""

    namespaces: list[NamespaceFields]
    next: str | None


class FailedTurn(TypedDict):
    """A turn that failed; `id` is its exchange in the log, and `x-request-id` of an error of the proxy."""

    id: str
    at: UtcTime
    state: str
    code: str | None
    cause: str | None
    status: int | None


class NamespaceDetails(NamespaceFields):
    """A namespace with its newest failures, at most 50 of the last 24 hours."""

    failures: list[FailedTurn]


class NamespaceEraseReceipt(EraseReceipt):
    """What was erased of a namespace, whose id, credentials and keys stay."""

    namespace: str


class AdminDoor:
    """An application that asks for the admin key before everything under `/api/admin`."""

    def __init__(self, app: ASGIApp, operator: OperatorAccess) -> None:
        self._app = app
        self._operator = operator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if f"{scope['path']}/".startswith(f"{PREFIX}/"):
            self._operator.check(scope["path"], scope["headers"])
        await self._app(scope, receive, send)


async def _check_fields(request: Request) -> None:
    check_fields(request, frozenset[str]().__contains__)


# A query field that an endpoint does not have is refused.
admin = APIRouter(dependencies=[Depends(_check_fields)], route_class=OperationRoute)


@admin.get("/api/admin/namespaces")
async def list_namespaces(
    parts: Parts,
    limit: Annotated[int, at_most(200)] = 50,
    after: Annotated[str, Query(max_length=200, description="`next` of the page before.")] = "",
) -> Reply[NamespaceList]:
    """List namespaces, with their sizes and use."""
    now = time.time()
    page, more = page_of(await parts.overviews.namespaces(after, limit + 1, now), limit, "row.id")
    return reply({"namespaces": [_fields(view, now) for view in page], "next": more})


@admin.get("/api/admin/namespaces/{ident}")
async def get_namespace(parts: Parts, ident: NamespaceId) -> Reply[NamespaceDetails]:
    """Get a namespace, with its newest failures."""
    now = time.time()
    found = await parts.overviews.namespace(ident, now)
    if found is None:
        raise missing()
    view, failures = found
    failed = [shape_of(FailedTurn, failure, at=utc_time(failure.started_at)) for failure in failures]
    return reply({**_fields(view, now), "failures": failed})


@admin.delete("/api/admin/namespaces/{ident}")
async def erase_namespace(
    parts: Parts,
    ident: NamespaceId,
    confirm: Annotated[Literal["everything"], Query(description="A safeguard.")],
) -> Reply[NamespaceEraseReceipt]:
    """Erase all sessions of a namespace; answers with a receipt."""
    del confirm
    if await parts.store.namespaces.named(ident) is None:
        raise missing()
    _log.info("admin_erase", namespace=ident)
    return reply(receipt_fields(NamespaceEraseReceipt, await parts.erases.namespace(ident), namespace=ident))


def _fields(view: NamespaceView, now: float) -> NamespaceFields:
    turns = view.turns
    return {
        "id": view.row.id,
        "created_at": utc_time(view.row.created_at),
        "proven": view.row.proven_at is not None,
        "keys": [
            shape_of(
                IssuedKeyFields,
                key,
                created_at=utc_time(key.created_at),
                revoked_at=utc_time_or_none(key.revoked_at),
                expires_at=utc_time_or_none(key.expires_at),
                last_used_at=utc_time_or_none(key.last_used_at),
            )
            for key in view.keys
        ],
        "sessions": view.stored.sessions,
        "messages": view.stored.messages,
        "bytes": view.size,
        "last_24_hours": shape_of(RecentTurns, turns, since=utc_time(now - DAY)),
        "today": {"day": day_of(now), "tokens": turns.tokens, "dollars": turns.dollars},
        "last_used_at": utc_time_or_none(view.stored.updated_at),
    }

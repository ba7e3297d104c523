"""The operator's endpoints under `/api/admin`: all namespaces, their sizes and use, erasing one.

They show no text: no message, title, name of a session or model. A door before all of them asks for
`access.admin_key`, also for paths that do not exist. Further pages of the operator belong on the same router.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict

import structlog
from fastapi import APIRouter, Depends, Path, Query, Request

from palimpsest.api.callers import check_fields
from palimpsest.api.description import OperationRoute
from palimpsest.api.replies import Reply, UtcTime, described, reply, utc_time, utc_time_or_none
from palimpsest.api.transfer import EraseReceipt, SessionEraser, receipt_fields
from palimpsest.core.utc import DAY, day_of
from palimpsest.proxy.archive import missing
from palimpsest.proxy.incoming import ASGIApp, Receive, Scope, Send
from palimpsest.proxy.namespace_views import NamespaceView, NamespaceViews
from palimpsest.proxy.operator import OperatorAccess
from palimpsest.storage.accounts import KeyRow
from palimpsest.storage.namespaces import Failure

PREFIX = "/api/admin"
_MOST = 200
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


class AdminPages:
    """The endpoints."""

    def __init__(self, views: NamespaceViews, erases: SessionEraser) -> None:
        self._views = views
        self._erases = erases

    def on(self, admin: APIRouter) -> None:
        """Register the routes."""
        admin.add_api_route("/api/admin/namespaces", self.list_namespaces, methods=["GET"])
        admin.add_api_route("/api/admin/namespaces/{ident}", self.get_namespace, methods=["GET"])
        admin.add_api_route("/api/admin/namespaces/{ident}", self.erase_namespace, methods=["DELETE"])

    async def list_namespaces(
        self,
        limit: Annotated[int, Query(ge=1, le=_MOST, description="At most so many.")] = 50,
        after: Annotated[str, Query(max_length=200, description="`next` of the page before.")] = "",
    ) -> Reply[NamespaceList]:
        """List namespaces, with their sizes and use."""
        now = time.time()
        found = await self._views.page(after, limit + 1, now)
        page = found[:limit]
        return reply(
            {
                "namespaces": [_fields(view, now) for view in page],
                "next": page[-1].row.id if len(found) > limit else None,
            }
        )

    async def get_namespace(self, ident: NamespaceId) -> Reply[NamespaceDetails]:
        """Get a namespace, with its newest failures."""
        now = time.time()
        found = await self._views.one(ident, now)
        if found is None:
            raise missing()
        view, failures = found
        return reply({**_fields(view, now), "failures": [_failure(each) for each in failures]})

    async def erase_namespace(
        self,
        ident: NamespaceId,
        confirm: Annotated[Literal["everything"], Query(description="A safeguard.")],
    ) -> Reply[NamespaceEraseReceipt]:
        """Erase all sessions of a namespace; answers with a receipt."""
        del confirm
        if await self._views.row(ident) is None:
            raise missing()
        _log.info("admin_erase", namespace=ident)
        return reply({**receipt_fields(await self._erases.namespace(ident)), "namespace": ident})


def admin_router() -> APIRouter:
    """The router of the operator's endpoints; a query field that an endpoint does not have is refused."""
    return APIRouter(dependencies=[Depends(_check_fields)], route_class=OperationRoute)


async def _check_fields(request: Request) -> None:
    check_fields(request, frozenset[str]().__contains__)


def _fields(view: NamespaceView, now: float) -> NamespaceFields:
    return {
        "id": view.row.id,
        "created_at": utc_time(view.row.created_at),
        "proven": view.row.proven_at is not None,
        "keys": _keys(view.keys),
        "sessions": view.stored.sessions,
        "messages": view.stored.messages,
        "bytes": view.size,
        "last_24_hours": {
            "since": utc_time(now - DAY),
            "turns": view.turns.turns,
            "failures": view.turns.failures,
        },
        "today": {"day": day_of(now), "tokens": view.turns.tokens, "dollars": view.dollars},
        "last_used_at": utc_time_or_none(view.stored.updated_at),
    }


def _keys(keys: Sequence[KeyRow]) -> list[IssuedKeyFields]:
    return [
        {
            "id": key.id,
            "label": key.label,
            "created_at": utc_time(key.created_at),
            "revoked_at": utc_time_or_none(key.revoked_at),
            "expires_at": utc_time_or_none(key.expires_at),
            "last_used_at": utc_time_or_none(key.last_used_at),
            "retention_days": key.retention_days,
            "retention_bytes": key.retention_bytes,
        }
        for key in keys
    ]


def _failure(failure: Failure) -> FailedTurn:
    return {
        "id": failure.id,
        "at": utc_time(failure.started_at),
        "state": failure.state,
        "code": failure.code,
        "cause": failure.cause,
        "status": failure.status,
    }

"""A client for the `/api` endpoints of a running proxy, for this program's commands."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from palimpsest.core.urls import without_password
from palimpsest.core.wire.json_text import decoded, encoded
from palimpsest.errors import (
    AdminDisabled,
    InvalidJson,
    NameTaken,
    NotFound,
    PalimpsestError,
    SettingsError,
    Unauthorized,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnreachable,
    WrongAdminKey,
)

# A search waits up to ten seconds for the index before it reads.
_SECONDS = 30.0
# In every answer of ours; `palimpsest.api.replies` sets it.
_MARK = "x-palimpsest-api"
# Answers that another key would not have got.
_KEYS: tuple[type[PalimpsestError], ...] = (Unauthorized, WrongAdminKey, AdminDisabled)
# Erasing waits up to two minutes for the database, and a little longer for its files. Imports take long too.
_LONG_SECONDS = 150.0


@dataclass
class OwnApi:
    """A proxy's endpoints; made by `own_api`."""

    url: str
    key: str | None
    http: httpx.AsyncClient
    found: str
    is_known: bool = False

    async def answer(
        self, path: str, method: str = "GET", order: Mapping[str, Any] | bytes | None = None
    ) -> httpx.Response:
        """The answer of `/api/{path}`, whatever its status. Raises UpstreamError without one.

        An order is sent as JSON, bytes as they are. These, and deletions, may take minutes.
        """
        if method != "GET" and not self.is_known:
            # Before anything is changed.
            await self._asked("GET", "/healthz", None, _SECONDS)
        is_long = method == "DELETE" or isinstance(order, bytes)
        document = encoded(order) if isinstance(order, Mapping) else order
        return await self._asked(method, f"/api/{path}", document, _LONG_SECONDS if is_long else _SECONDS)

    async def content(self, path: str, method: str = "GET") -> bytes:
        """The body that the proxy answers. Raises as `fields`."""
        reply = await self.answer(path, method)
        if not reply.is_success:
            raise _refusal(reply)
        return reply.content

    async def fields(
        self, path: str, method: str = "GET", order: Mapping[str, Any] | bytes | None = None
    ) -> dict[str, Any]:
        """The object that the proxy answers.

        NotFound for a 404 of its own, NameTaken, Unauthorized, WrongAdminKey, AdminDisabled; else
        UpstreamError.
        """
        reply = await self.answer(path, method, order)
        fields = _fields(reply)
        if not reply.is_success or fields is None:
            raise _refusal(reply)
        return fields

    async def _asked(self, method: str, path: str, document: bytes | None, seconds: float) -> httpx.Response:
        address = without_password(str(self.http.base_url)).rstrip("/")
        try:
            reply = await self.http.request(method, path, content=document, timeout=seconds)
        except httpx.InvalidURL:
            raise SettingsError("command line: a name, or what is looked for, is too long.") from None
        except httpx.TimeoutException:
            raise UpstreamTimeout("The proxy did not answer in time.") from None
        except (httpx.HTTPError, UnicodeError):
            raise UpstreamUnreachable(f"The proxy cannot be reached at {address}{self.found}.") from None
        if reply.is_success and _MARK not in reply.headers:
            raise UpstreamError(
                f"What answers at {address} is no Palimpsest, or one of another version, or something between"
                f" drops the header {_MARK}."
            )
        self.is_known = True
        return reply


def _fields(reply: httpx.Response) -> dict[str, Any] | None:
    try:
        fields = decoded(reply.content)
    except InvalidJson:
        return None
    return fields if isinstance(fields, dict) else None


def _refusal(reply: httpx.Response) -> PalimpsestError:
    error = (_fields(reply) or {}).get("error")
    error = error if isinstance(error, dict) else {}
    said = error.get("message") if isinstance(error.get("message"), str) else None
    if reply.status_code == httpx.codes.NOT_FOUND and said:
        return NotFound(said)
    if error.get("code") == NameTaken.code and said:
        return NameTaken(said)
    where = f"{error['param']}: " if error.get("param") else ""
    kind = next((each for each in _KEYS if each.code == error.get("code")), UpstreamError)
    return kind(f"The proxy answered {reply.status_code}: {where}{said or 'nothing that can be read'}")


@asynccontextmanager
async def own_api(
    url: str, key: str | None, namespace: str | None = None, found: str = ""
) -> AsyncIterator[OwnApi]:
    """A client of the proxy at `url`, with or without `/v1`.

    `key` determines the namespace, unless it is the admin key and names the `namespace` that it reads as.
    `found` follows the address where nothing answers: how it was found.
    """
    headers = {"content-type": "application/json"}
    if key:
        headers["authorization"] = f"Bearer {key}"
    if namespace:
        headers["x-palimpsest-namespace"] = namespace
    try:
        address = httpx.URL(url)
        is_address = (
            address.scheme in ("http", "https") and address.host and address.port in (None, *range(1, 65_536))
        )
    except httpx.InvalidURL:
        is_address = False
    if not is_address:
        raise SettingsError("command line: --url must be an address such as http://127.0.0.1:8000.")
    base = url.rstrip("/").removesuffix("/v1")
    for value in headers.values():
        if not (value.isascii() and value.isprintable()):
            raise SettingsError("command line: the key, or the namespace, has characters that none has.")
    # A plain address needs no certificates, which take 50 ms to load.
    async with httpx.AsyncClient(base_url=base, headers=headers, verify=base.startswith("https:")) as http:
        yield OwnApi(url, key, http, found)

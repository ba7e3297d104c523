"""`palimpsest erase`: a running proxy erases a session, or everything of a key.

It calls the proxy by HTTP and opens no database, so the key's access is the same as there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from palimpsest.cli.terminal import counted
from palimpsest.upstream.own_api import OwnApi, fields_of, own_api, session_path

_EVERYTHING = "namespace?confirm=everything"


@dataclass(frozen=True, slots=True)
class Order:
    """What to erase: a session by its id or name, or everything (None). `block`: never store it again."""

    session: str | None
    block: bool


async def erased(
    url: str, key: str | None, order: Order, agrees: Callable[[str], bool]
) -> Mapping[str, Any] | None:
    """The proxy's receipt; None, and nothing erased, when `agrees` returns False for the question.

    NotFound when the session does not exist; UpstreamError when the proxy cannot be reached or refuses.
    """
    async with own_api(url, key) as proxy:
        if not agrees(await _question(proxy, order)):
            return None
        if order.session is None:
            return fields_of(await proxy.delete(_EVERYTHING))
        query = "?block=true" if order.block else ""
        return fields_of(await proxy.delete(session_path(order.session) + query))


async def _question(proxy: OwnApi, order: Order) -> str:
    if order.session is None:
        sessions = (await proxy.fields("sessions?limit=1"))["total"]
        return f"Erase everything of this key: {counted(sessions, 'session')}, for good?"
    found = await proxy.fields(session_path(order.session))
    name = f" ({found['name']})" if found.get("name") else ""
    return f"Erase session {found['id']}{name}: {counted(found['messages'], 'message')}, for good?"

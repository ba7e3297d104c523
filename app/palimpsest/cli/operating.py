"""The operator's endpoints in a terminal: who uses a running proxy, erasing a namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from palimpsest.cli.terminal import ago, counted, money, size, table
from palimpsest.upstream.own_api import fields_of, own_api

Json = Mapping[str, Any]
# The most that the endpoint gives at once.
_PAGE = 200


async def listed(url: str, admin_key: str | None, limit: int) -> Json:
    """The namespaces in the order of their ids, at most `limit`."""
    found: list[Json] = []
    after: str | None = ""
    async with own_api(url, admin_key) as api:
        while after is not None and len(found) < limit:
            asked = urlencode({"limit": min(_PAGE, limit - len(found)), "after": after})
            page = await api.fields(f"admin/namespaces?{asked}")
            found, after = found + page["namespaces"], page["next"]
    return {"namespaces": found, "next": after}


async def one(url: str, admin_key: str | None, ident: str) -> Json:
    """The namespace, with its newest failures. NotFound when there is none of this id."""
    async with own_api(url, admin_key) as api:
        return await api.fields(_path(ident))


async def erased(url: str, admin_key: str | None, ident: str, agrees: Callable[[str], bool]) -> Json | None:
    """The receipt of an erase; None, and nothing erased, when `agrees` returns False for the question."""
    async with own_api(url, admin_key) as api:
        there = await api.fields(_path(ident))
        sessions = counted(there["sessions"], "session")
        if not agrees(f"Erase everything of the namespace {ident}: {sessions}, for good?"):
            return None
        return fields_of(await api.delete(f"{_path(ident)}?confirm=everything"))


def lines_of_list(told: Json) -> Iterator[str]:
    """A table."""
    if not told["namespaces"]:
        yield "Nobody has used the proxy yet."
        return
    rows = [
        ("NAMESPACE", "KEY", "SESSIONS", "MESSAGES", "STORED", "TURNS", "FAILED", "TOKENS", "COST", "LAST")
    ]
    for each in told["namespaces"]:
        recent, today = each["last_24_hours"], each["today"]
        key = next(iter(each["keys"]), None)
        rows.append(
            (
                each["id"],
                "" if key is None else key["label"] or key["id"],
                f"{each['sessions']:,}",
                f"{each['messages']:,}",
                size(each["bytes"]),
                f"{recent['turns']:,}",
                f"{recent['failures']:,}",
                f"{today['tokens']:,}",
                money(today["dollars"]),
                "never" if each["last_used_at"] is None else ago(each["last_used_at"]),
            )
        )
    yield from table(rows, right=(2, 3, 4, 5, 6, 7, 8))
    yield "Turns and failures of the last 24 hours, tokens and cost of today (UTC)."
    if told["next"]:
        yield "There are more: --limit shows up to 500."


def lines_of_one(told: Json) -> Iterator[str]:
    """The namespace, its keys, and its failures."""
    recent, today = told["last_24_hours"], told["today"]
    proven = "proven" if told["proven"] else "never accepted by the upstream"
    yield f"{told['id']}, since {told['created_at'][:10]}, {proven}"
    yield ", ".join(counted(told[f"{noun}s"], noun) for noun in ("session", "message", "byte"))
    yield (
        f"Last 24 hours: {counted(recent['turns'], 'turn')}, {recent['failures']:,} failed."
        f" Today (UTC): {today['tokens']:,} tokens, cost {money(today['dollars'])}."
    )
    for key in told["keys"]:
        state = f"revoked {key['revoked_at'][:19]}" if key["revoked_at"] else "not revoked"
        ends = f", expires {key['expires_at'][:19]}" if key["expires_at"] else ""
        yield f"  key {key['id']} {key['label']}: {state}{ends}"
    if told["failures"]:
        rows = [("AT (UTC)", "CODE", "CAUSE", "STATUS", "REQUEST")]
        for each in told["failures"]:
            code = each["code"] or each["state"]
            rows.append((each["at"][:19], code, each["cause"] or "", str(each["status"] or ""), each["id"]))
        yield from table(rows)


def _path(ident: str) -> str:
    return f"admin/namespaces/{quote(ident, safe='')}"

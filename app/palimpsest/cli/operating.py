"""`palimpsest namespaces`: the operator's endpoints in a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote, urlencode

import typer

from palimpsest.cli.command import Json, command, proxy_of_operator
from palimpsest.cli.terminal import ago, counted, money, size, table

if TYPE_CHECKING:
    from palimpsest.upstream.own_api import OwnApi

# The most that the endpoint gives at once.
_PAGE = 200


def lines_of_namespaces(told: Json) -> Iterator[str]:
    """A table; of a single namespace, its keys and failures."""
    if "namespaces" not in told:
        yield from _lines_of_one(told)
        return
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


def _lines_of_one(told: Json) -> Iterator[str]:
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


def namespace_path(ident: str) -> str:
    """The path of the namespace, below /api."""
    return f"admin/namespaces/{quote(ident, safe='')}"


@command(proxy_of_operator, lines_of_namespaces)
async def namespaces(
    api: OwnApi,
    ident: Annotated[str | None, typer.Argument(metavar="ID", help="One of them, with its failures.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="At most so many.")] = 100,
) -> Json:
    """List who uses the proxy: what each stores, turns, failures, tokens and cost; for its operator."""
    if ident is not None:
        return await api.fields(namespace_path(ident))
    found: list[Json] = []
    after: str | None = ""
    while after is not None and len(found) < limit:
        asked = urlencode({"limit": min(_PAGE, limit - len(found)), "after": after})
        page = await api.fields(f"admin/namespaces?{asked}")
        found, after = found + page["namespaces"], page["next"]
    return {"namespaces": found, "next": after}

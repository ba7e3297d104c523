"""`palimpsest stats`: what is stored and what was used, as a table. One request to the proxy.

`palimpsest report` tells what went wrong and what followed compactions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from palimpsest.cli.reading import Json
from palimpsest.cli.running_proxy import Proxy
from palimpsest.cli.terminal import counted, money, size, table
from palimpsest.upstream.own_api import own_api

_HEAD = ("TURNS", "SAID", "SENT", "CACHED", "ANSWERED", "COST", "SAVED", "COMPACTED", "FAILED")
_BY = {"model": "with a model's summary", "deterministic": "with one by code", "none": "without a summary"}


async def stats(proxy: Proxy, days: int) -> dict[str, Any]:
    """The overview of the last days, or with 0 of all. UpstreamError when the proxy cannot be reached."""
    async with own_api(*proxy) as api:
        return await api.fields(f"overview?days={days}")


def lines_of(told: Json) -> Iterator[str]:
    """What is stored; then a row for each model, the sum below; for some days also one for each of them."""
    yield f"The last {told['days']} days:" if told["stored"] is None else _stored(told["stored"])
    if not told["total"]["turns"]:
        yield "No turn."
        return
    by_model = sorted(told["by_model"], key=lambda sums: -sums["turns"])
    rows = [("MODEL", *_HEAD), *(_row(sums["model"], sums) for sums in by_model)]
    days = [("DAY (UTC)", *_HEAD), *(_row(sums["day"], sums) for sums in told["by_day"])]
    for each in (rows, days):
        if len(each) > 1:
            yield ""
            yield from table([*each, _row("all", told["total"])], right=range(1, len(_HEAD) + 1))
    yield ""
    made = [f"{number:,} {_BY[author]}" for author, number in told["summaries"].items() if number]
    yield f"Compactions: {', '.join(made) or 'none'}."
    yield "Tokens; said: whole prompts, sent: after compaction. Money at today's prices; saved: estimated."


def _stored(stored: Json) -> str:
    counts = [counted(stored[f"{noun}s"], noun) for noun in ("session", "message")]
    told = ", ".join([*counts, size(stored["bytes"])])
    if stored["first_at"] is None:
        return f"Stored: {told}."
    return (
        f"Stored: {told}, from {stored['first_at'][:10]} to {stored['last_at'][:16].replace('T', ' ')} UTC."
    )


def _row(name: str, sums: Json) -> tuple[str, ...]:
    used = ("turns", "tokens_full", "tokens", "cached_tokens", "completion_tokens")
    ends = (f"{sums[key]:,}" for key in ("compacted", "failed"))
    return (name, *(f"{sums[key]:,}" for key in used), money(sums["cost"]), money(sums["saved"]), *ends)

"""`palimpsest report`: what a proxy's turns of the last days add up to, and what followed compactions.

It calls the proxy by HTTP and opens no database, so the key's access is the same as there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from palimpsest.cli.command import Json, command, proxy_of_reader, session_path
from palimpsest.cli.terminal import counted, money, table

if TYPE_CHECKING:
    from palimpsest.upstream.own_api import OwnApi

_HEAD = ("TURNS", "SAID", "SENT", "CACHED", "ANSWERED", "COST", "SAVED", "COMPACTED", "FAILED")
_BY = {"model": "with a model's summary", "deterministic": "with one by code", "none": "without a summary"}
# The newest sessions whose compactions are reported.
_MOST_SESSIONS = 50


def lines_of_report(told: Json) -> Iterator[str]:
    """The report for people."""
    if told["overview"] is not None:
        yield from _overview(told["overview"])
    for session in told["sessions"]:
        yield ""
        yield f"{session['name'] or 'Unnamed'} ({session['session']}), {session['model']}"
        yield from map(_followed, session["compactions"])
        for one in session["findings"]:
            kind, names = one["kind"].replace("_", " "), ", ".join(one["names"])
            yield f"  {kind}: {one['times']} times, {one['tokens']:,} tokens: {names}"
        if not session["compactions"]:
            yield "  no compaction was in force yet"


def _overview(overview: Json) -> Iterator[str]:
    total = overview["total"]
    turns, compacted = total["turns"], total["compacted"]
    if stored := overview["stored"]:
        told = ", ".join(counted(stored[f"{noun}s"], noun) for noun in ("session", "message"))
        if stored["first_at"] is not None:
            told += f", from {stored['first_at'][:10]} to {stored['last_at'][:16].replace('T', ' ')} UTC"
        yield f"Stored: {told}."
    since = f"The last {counted(overview['days'], 'day')}" if overview["days"] else "Since the beginning"
    yield f"{since}: {counted(turns, 'turn')}, {compacted:,} of them compacted."
    cached = total["cached_share"]
    share = "" if cached is None else f", {100 * cached:.0f} % of it from the upstream's cache"
    yield f"Said {total['tokens_full']:,} tokens, sent {total['tokens']:,}{share}."
    yield f"Cost {money(total['cost'])} (measured), saved {money(total['saved'])} (estimated)."
    waits = total["compaction_waits"]
    if waits["turns"]:
        mean, longest = waits["mean_seconds"], waits["longest_seconds"]
        took = f"mean {mean:.1f} s, at most {longest:.1f} s"
        yield f"Waited for a compaction: {counted(waits['turns'], 'turn')}, {took}."
    asked = overview["summary_calls"]
    if asked["calls"]:
        tokens = f"{asked['prompt_tokens']:,} tokens read, {asked['completion_tokens']:,} written"
        yield f"Asked for summaries: {counted(asked['calls'], 'call')}, {tokens}."
    for failure in overview["failures"]:
        status = "" if failure["status"] is None else f" {failure['status']}"
        whose = f"{failure['code']}{status}, by the {failure['cause']}"
        yield f"Failed: {failure['turns']:,} x {whose}. {failure['cure']}"
    yield from _sums(overview)


def _sums(told: Json) -> Iterator[str]:
    """A row for each model, the sum below; for some days also one for each of them."""
    if not told["total"]["turns"]:
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
    yield "Tokens; said: whole prompts, sent: after compaction. Money by the prices of then; saved: estimate."


def _row(name: str, sums: Json) -> tuple[str, ...]:
    used = ("turns", "tokens_full", "tokens", "cached_tokens", "completion_tokens")
    ends = (f"{sums[key]:,}" for key in ("compacted", "failed"))
    return (name, *(f"{sums[key]:,}" for key in used), money(sums["cost"]), money(sums["saved"]), *ends)


def _followed(one: Json) -> str:
    changed = one["calls_until_change"]
    until = "none has changed anything yet" if changed is None else f"change no. {changed}"
    again = f"{one['repeated_calls']} repeated"
    if one["repeated_tokens"]:
        again += f", {one['repeated_tokens']:,} tokens"
    calls = f"{counted(one['calls'], 'call')} ({until}; {again})" if one["calls"] else "no calls"
    amounts = f"text {money(one['cost'])}, saved {money(one['saved'])} (estimated)"
    waited = one["waited_seconds"]
    wait = "" if waited is None else f", waited {waited:.1f} s"
    turns, lookups = counted(one["turns"], "turn"), counted(one["lookups"], "look-up")
    return f"  turn {one['since']}: {turns}, {calls}, {lookups}; {amounts}{wait}"


@command(proxy_of_reader, lines_of_report)
async def report(
    api: OwnApi,
    session: Annotated[str | None, typer.Option(help="Id or name of one session; default: all.")] = None,
    days: Annotated[int, typer.Option(min=0, max=90, help="Days that are summed up; 0: all there were.")] = 7,
) -> Json:
    """Sum up the last days: what was used by model and day, failures, and what followed compactions."""
    if session is not None:
        overview = None
        rows = [await api.fields(session_path(session))]
    else:
        overview = await api.fields(f"overview?days={days}")
        listed = (await api.fields(f"sessions?limit={_MOST_SESSIONS}"))["sessions"]
        rows = [row for row in listed if row["compactions"]]
    told = [
        {"name": row["name"], "model": row["model"], **await api.fields(f"sessions/{row['id']}/report")}
        for row in rows
    ]
    return {"overview": overview, "sessions": told}

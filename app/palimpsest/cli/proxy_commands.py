"""The commands that ask a running proxy; the modules beside have what they do."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer

from palimpsest.cli.running_proxy import HERE, AdminKey, Proxy, ProxyUrl, asking
from palimpsest.cli.terminal import counted, say, write
from palimpsest.errors import SettingsError

Session = Annotated[str, typer.Argument(help="Id or name of the session.")]
At = Annotated[int | None, typer.Option("--at", min=1, help="Number of the turn; default: the newest.")]
Limit = Annotated[int, typer.Option(min=1, max=500, help="At most so many.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_T = TypeVar("_T")


def awaited(work: Coroutine[Any, Any, _T]) -> _T:
    """The result of the work, in an event loop of its own. `--help` needs none and does not load asyncio."""
    import asyncio

    return asyncio.run(work)


def print_json(value: Any) -> None:
    """Print what scripts read."""
    say(json.dumps(value, indent=2, ensure_ascii=False))


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    for reads in (sessions, show, view, search, tail, report, export):
        app.command()(asking(reads, for_operators=True))
    for changes in (pins, compact, undo, connect):
        app.command()(asking(changes))
    app.command("import")(asking(import_))
    # What follows the program is the program's own.
    own = {"ignore_unknown_options": True, "allow_interspersed_args": False}
    app.command(context_settings=own)(asking(run))
    app.command()(namespaces)


def sessions(
    proxy: Proxy,
    named: Annotated[str | None, typer.Argument(help="Beginning of a name or id.")] = None,
    client: Annotated[str | None, typer.Option(help="Those of this client, as the table names it.")] = None,
    model: Annotated[str | None, typer.Option(help="Those with a turn of this model.")] = None,
    error: Annotated[str | None, typer.Option(help="Those with this error: a code or a status.")] = None,
    limit: Limit = 25,
    as_json: AsJson = False,
) -> None:
    """List sessions, newest first: client, tokens sent of those said, compactions, money, failures."""
    from palimpsest.cli import reading

    only = {"named": named, "client": client, "model": model, "error": error}
    _told(awaited(reading.sessions(proxy, only, limit)), reading.lines_of_sessions, as_json)


def show(proxy: Proxy, session: Session, limit: Limit = 20, as_json: AsJson = False) -> None:
    """Show a session: its compactions with their reasons, and its newest turns."""
    from palimpsest.cli import reading

    _told(awaited(reading.show(proxy, session, limit)), reading.lines_of_show, as_json)


def view(
    proxy: Proxy,
    session: Session,
    at: At = None,
    body: Annotated[bool, typer.Option("--body", help="The bytes of the request, as sent.")] = False,
    against: Annotated[
        Literal["previous", "said"] | None,
        typer.Option(help="How it differs from the turn before, or from what the client said."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print what the model was sent at a turn, message by message."""
    from palimpsest.cli import reading

    if against is not None:
        _told(awaited(reading.diff(proxy, session, at, against)), reading.lines_of_diff, as_json)
        return
    if body:
        write(awaited(reading.body(proxy, session, at)))
        return
    _told(awaited(reading.view(proxy, session, at)), reading.lines_of_view, as_json)


def search(
    proxy: Proxy,
    words: Annotated[str, typer.Argument(help="What was said, word for word or in your own words.")],
    session: Annotated[str | None, typer.Option(help="Id or name of one session; default: all.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=50, help="At most so many.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Find exact quotes in what was said, best first."""
    from palimpsest.cli import reading

    _told(awaited(reading.search(proxy, words, session, limit)), reading.lines_of_search, as_json)


def compact(
    proxy: Proxy,
    session: Session,
    focus: Annotated[str | None, typer.Option(help="What the summary should pay attention to.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compact a session now."""
    from palimpsest.cli import reading

    _told(awaited(reading.compact(proxy, session, focus)), reading.lines_of_compact, as_json)


def undo(proxy: Proxy, session: Session, as_json: AsJson = False) -> None:
    """Undo a session's newest compaction."""
    from palimpsest.cli import reading

    _told(awaited(reading.undo(proxy, session)), reading.lines_of_undo, as_json)


def report(
    proxy: Proxy,
    session: Annotated[str | None, typer.Option(help="Id or name of one session; default: all.")] = None,
    days: Annotated[int, typer.Option(min=0, max=90, help="Days that are summed up; 0: all there were.")] = 7,
    as_json: AsJson = False,
) -> None:
    """Sum up the last days: what was used by model and day, failures, and what followed compactions."""
    from palimpsest.cli import report as reports

    _told(awaited(reports.report(proxy, session, days)), reports.lines_of, as_json)


def export(
    proxy: Proxy,
    session: Annotated[str | None, typer.Argument(help="Id or name of the session.")] = None,
    to: Annotated[Path | None, typer.Option(help="File to write; with --all a folder.")] = None,
    form: Annotated[
        Literal["json", "jsonl", "markdown", "html"],
        typer.Option("--format", help="json can be imported; the others are for scripts and people."),
    ] = "json",
    everything: Annotated[bool, typer.Option("--all", help="Every session and branch of the key.")] = False,
    branch: Annotated[str | None, typer.Option(help="Another branch than the newest.")] = None,
    hidden: Annotated[bool, typer.Option("--hidden", help="Messages that no client saw, too.")] = False,
) -> None:
    """Print a session whole, or write all sessions to a folder."""
    from palimpsest.cli import exports

    if bool(session) is everything or (everything and (to is None or branch)):
        raise SettingsError("command line: export takes a SESSION, or --all with --to FOLDER.")
    options = exports.ExportOptions(form, hidden)
    if session is not None:
        exports.put(awaited(exports.exported(proxy, session, branch, options)), to)
        return
    assert to is not None
    written = awaited(exports.export_all(proxy, to, options))
    say(f"{to}: {counted(len(written), 'file')}.")


def import_(
    proxy: Proxy,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Exports, or folders of them.")],
    as_json: AsJson = False,
) -> None:
    """Import sessions that `export` wrote. A name that is there already is left alone.

    One without a name is made anew each time. Exits with 1 when a file was refused; the others are imported.
    """
    from palimpsest.cli import exports

    found = exports.documents(files)
    told = awaited(exports.imported(proxy, found))
    _told(told, exports.lines_of_import, as_json)
    raise typer.Exit(any(one["problem"] for one in told))


def tail(
    proxy: Proxy,
    session: Annotated[str | None, typer.Argument(help="Id or name of one session; default: all.")] = None,
    last: Annotated[int, typer.Option(min=0, max=50, help="First so many that have ended already.")] = 5,
    most: Annotated[int | None, typer.Option(min=1, help="End after so many turns.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object a line.")] = False,
) -> None:
    """Print turns as they end, until Ctrl-C."""
    from palimpsest.cli import tailing

    async def follow() -> None:
        async for turn in tailing.turns(proxy, session, last, most):
            say(json.dumps(turn, ensure_ascii=False) if as_json else tailing.line_of(turn))

    awaited(follow())


def pins(
    proxy: Proxy,
    session: Session,
    add: Annotated[str | None, typer.Option(help="Id of a message to keep word for word.")] = None,
    remove: Annotated[str | None, typer.Option(help="Id of a message to keep no longer.")] = None,
    as_json: AsJson = False,
) -> None:
    """List a session's pinned messages, after adding or removing one; `search` prints the ids of messages."""
    from palimpsest.cli import reading

    _told(awaited(reading.pins(proxy, session, add, remove)), reading.lines_of_pins, as_json)


def namespaces(
    ident: Annotated[str | None, typer.Argument(metavar="ID", help="One of them, with its failures.")] = None,
    limit: Limit = 100,
    url: ProxyUrl = HERE,
    admin_key: AdminKey = None,
    as_json: AsJson = False,
) -> None:
    """List who uses the proxy: what each stores, turns, failures, tokens and cost; for its operator."""
    from palimpsest.cli import operating

    if ident is None:
        _told(awaited(operating.listed(url, admin_key, limit)), operating.lines_of_list, as_json)
    else:
        _told(awaited(operating.one(url, admin_key, ident)), operating.lines_of_one, as_json)


def connect(
    proxy: Proxy,
    client: Annotated[str, typer.Argument(help="codex, aider, openai-python ...; another word lists them.")],
    wait: Annotated[bool, typer.Option(help="Wait for the client's first request.")] = True,
    seconds: Annotated[float | None, typer.Option(min=0, help="Wait at most so long.")] = None,
) -> None:
    """Print what points a client at the proxy, then wait for its first request with this key.

    Exits with 1 when none came in time.
    """
    from palimpsest.cli import connecting

    say(connecting.lines_of(connecting.client_named(client), proxy))
    if not wait:
        return
    before = awaited(connecting.seen(proxy))
    say("Waiting for its first request with this key; Ctrl-C ends it.", err=True)
    found = awaited(connecting.first_request(proxy, before, seconds))
    if found is None:
        say("No request came. Does the client send the same key?", err=True)
        raise typer.Exit(1)
    say(f"It is connected: {found['client'] or 'an unknown client'}, session {found['id']}.")


def run(
    proxy: Proxy,
    program: Annotated[str, typer.Argument(help="codex, opencode, aider, llm or any other.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Its own arguments.")] = None,
) -> None:
    """Start a program with the proxy as its OpenAI server, for this run only.

    OpenAI's SDKs, aider and llm find it by variables, Codex by options, opencode by its provider "openai".
    """
    from palimpsest.cli import connecting

    awaited(connecting.check(proxy))
    connecting.become(program, arguments or (), proxy)


def _told(told: Any, lines: Callable[[Any], Iterator[str]], as_json: bool) -> None:
    if as_json:
        print_json(told)
        return
    for line in lines(told):
        say(line)

"""The command line: `palimpsest serve | run | doctor | sessions | ...`.

Parses arguments and prints; the other modules of this folder implement the commands. They are imported when a
command runs: `--help` must not load settings, a web server, two databases and a tokenizer.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Mapping, Sequence
from copy import copy as shallow
from dataclasses import asdict
from io import BufferedWriter, RawIOBase, TextIOWrapper
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, cast

import typer
from typer.core import TyperGroup

from palimpsest.cli.command import (
    AsJson,
    Config,
    Database,
    UpstreamUrl,
    awaited,
    command,
    print_json,
    proxy_of_caller,
    settings_from,
)
from palimpsest.cli.config_commands import Host, Port, WindowTokens, Workers, serve_options
from palimpsest.cli.config_commands import config as config_commands
from palimpsest.cli.connecting import connect, run
from palimpsest.cli.db_commands import db
from palimpsest.cli.erase import erase
from palimpsest.cli.exports import export, import_
from palimpsest.cli.keys import keys
from palimpsest.cli.operating import namespaces
from palimpsest.cli.reading import compact, pins, search, sessions, show, tail, undo, view
from palimpsest.cli.report import report
from palimpsest.cli.terminal import Finding, printable, say
from palimpsest.errors import (
    AdminDisabled,
    NotFound,
    PalimpsestError,
    SettingsError,
    Unauthorized,
    UpstreamUnreachable,
    WrongAdminKey,
)

if TYPE_CHECKING:
    from palimpsest.upstream.own_api import OwnApi

# The exit code of a refusal at start; 1 is a finding or a crash.
_REFUSED = 2
# Without this httpx loads a command line of its own, and with it the libraries that colour that.
cast(Any, sys.modules)["httpx._main"] = None
# Allocations before the garbage collector looks at the youngest generation: imports create no garbage.
_COLLECT_AFTER = 50_000
# What of the command line puts right what a running proxy has refused.
_HINTS: Mapping[type[PalimpsestError], str] = {
    UpstreamUnreachable: " Is it running? --url, or PALIMPSEST_URL, gives another address.",
    Unauthorized: " A command takes the key from --key, or from OPENAI_API_KEY.",
    WrongAdminKey: " A command takes it from --admin-key, or from PALIMPSEST_ACCESS__ADMIN_KEY.",
    AdminDisabled: " A command takes it from --admin-key, or from PALIMPSEST_ACCESS__ADMIN_KEY.",
    NotFound: " `palimpsest sessions` lists the sessions of a key, `palimpsest show` what is in one.",
}

# What `--help` lists, in this order.
_PANELS = {
    "Run": "run serve connect doctor",
    "Look": "sessions show view search tail report export",
    "Change": "compact undo pins erase import",
    "Operate": "keys config db namespaces mcp",
}


class _Panels(TyperGroup):
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        del ctx
        for panel, names in _PANELS.items():
            there = [name for name in names.split() if name in self.commands]
            with formatter.section(panel):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(90)) for name in there])


app = typer.Typer(
    name="palimpsest",
    cls=_Panels,
    help="An OpenAI-compatible proxy that keeps every conversation and compacts what the model sees.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Plain help: loading what draws boxes took half of the time of `--help` (0.16 of 0.34 s of CPU; 2026-11).
    rich_markup_mode=None,
    context_settings={"max_content_width": 110},
)
app.add_typer(keys, name="keys")
app.add_typer(config_commands, name="config")
app.add_typer(db, name="db")
for of_a_running_proxy in (
    *(sessions, show, view, search, tail, report, export),
    *(pins, compact, undo, erase, connect, namespaces),
):
    app.command()(of_a_running_proxy)
app.command("import")(import_)
# What follows the program is the program's own.
app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})(run)


def _say_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        say(version("palimpsest"))
        raise typer.Exit


@app.callback()
def palimpsest(
    _: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """An OpenAI-compatible proxy that keeps every conversation and compacts what the model sees."""


@app.command()
def serve(
    host: Host = None,
    port: Port = None,
    upstream: UpstreamUrl = None,
    database: Database = None,
    window_tokens: WindowTokens = None,
    workers: Workers = None,
    config: Config = None,
    demo: Annotated[bool, typer.Option("--demo", help="The demo model alone, as an upstream.")] = False,
) -> None:
    """Start the proxy. Without an upstream, a built-in demo model answers."""
    options = serve_options(host, port, upstream, database, window_tokens, workers)
    if demo:
        from palimpsest.cli.http_server import serve_demo

        serve_demo(options, config)
        return
    # Everything imported from here on stays; collecting garbage meanwhile takes a sixth of the
    # imports' time (1.70 to 1.40 s of CPU; 2026-11). `serving` enables it before the first request.
    gc.disable()
    from palimpsest.settings.load import settings_of, sources_of

    settings = settings_of(sources_of(config, options))
    from palimpsest.cli.serve import serve as serve_proxy

    serve_proxy(settings)


@app.command()
def doctor(
    upstream: UpstreamUrl = None, database: Database = None, config: Config = None, as_json: AsJson = False
) -> None:
    """Look at versions, database, pepper, upstream and windows. Exits with 1 when something is wrong."""
    from palimpsest.cli.doctor import examine

    settings = settings_from(config, database, upstream)

    async def examined() -> list[Finding]:
        findings = []
        async for one in examine(settings):
            findings.append(one)
            for line in () if as_json else one.lines():
                say(line)
        return findings

    findings = awaited(examined())
    is_healthy = all(one.state != "failed" for one in findings)
    if as_json:
        print_json({"healthy": is_healthy, "findings": [asdict(one) for one in findings]})
    raise typer.Exit(0 if is_healthy else 1)


@app.command()
@command(proxy_of_caller)
async def mcp(api: OwnApi) -> None:
    """Serve MCP on standard input and output: search and read a running proxy's conversations."""
    try:
        from palimpsest.cli.mcp_stdio import serve_stdio
    except ModuleNotFoundError:
        raise SettingsError("command line: mcp needs an extra: pip install 'palimpsest[mcp]'.") from None

    if sys.stdin is None or sys.stdout is None:
        raise SettingsError("command line: mcp needs standard input and output, and one of them is closed.")
    await serve_stdio(api)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, by default the process's own; a refusal prints its message and exits with 2."""
    # Files created from here on (databases, logs, keys) are readable by their owner only.
    before, collected = os.umask(0o077), gc.get_threshold()
    gc.set_threshold(_COLLECT_AFTER)
    # The interpreter ends with a collection of everything: a fifth of a short command's time (2026-11).
    atexit.register(gc.freeze)
    if isinstance(sys.stdout, TextIOWrapper) and isinstance(sys.stdout.buffer, RawIOBase):
        # PYTHONUNBUFFERED: what the system does not take at once would be lost without an error.
        sys.stdout = TextIOWrapper(BufferedWriter(sys.stdout.buffer), encoding="utf-8")
    for stream in (sys.stdout, sys.stderr):
        # A stored text may hold half of a character.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    words = sys.argv[1:] if arguments is None else arguments
    try:
        # So Python holds bytes that are not UTF-8. What another program is given is its own.
        if _name_in(words) != "run" and any("\ud800" <= letter <= "\udfff" for letter in "".join(words)):
            _refuse("command line: an argument is not text in UTF-8.")
        _asked_of(words)(args=arguments)
    except PalimpsestError as error:
        _refuse(error.message + _HINTS.get(type(error), ""))
    except OSError as error:
        if error.filename is None and sys.stdout is not None:
            # The interpreter writes at its end what could not be written, and would fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        what = f"{error.filename} cannot be used" if error.filename else "reading or writing failed"
        _refuse(f"{what}: {error.strerror or error}.")
    finally:
        os.umask(before)
        gc.set_threshold(*collected)


def _refuse(said: str) -> NoReturn:
    for line in printable(said).splitlines():
        say(f"palimpsest: {line}", err=True)
    sys.exit(_REFUSED)


def _name_in(arguments: Sequence[str]) -> str | None:
    return next((word for word in arguments if not word.startswith("-")), None)


def _asked_of(arguments: Sequence[str]) -> typer.Typer:
    """The program with the one command that is asked for, or whole where none is.

    Each command takes 2 ms to make, all of them a third of the time until the first output (2026-11).
    """
    name = _name_in(arguments)
    only = shallow(app)
    only.registered_commands = [
        one
        for one in app.registered_commands
        if name == (one.name or (one.callback and one.callback.__name__))
    ]
    only.registered_groups = [one for one in app.registered_groups if one.name == name]
    return only if only.registered_commands or only.registered_groups else app


if __name__ == "__main__":
    main()

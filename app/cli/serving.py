"""Starting the proxy: schema, demo when there is no upstream, socket, server, and what a person is told.

Knows nothing of requests: `app.main` makes the application.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import structlog
import typer

from app.cli.listening import address_of, bound_socket, http_server, running_demo
from app.cli.logs import configure_logs
from app.cli.reloading import Reloading
from app.cli.schema import ready
from app.demo.reading import MODEL
from app.demo.server import DEFAULT_WINDOW_TOKENS
from app.errors import SettingsError
from app.main.application import Application, create_app
from app.main.compacting import instructions_of
from app.settings.settings import Settings
from app.storage.migrate import schema_of_this_version, sqlite_path
from app.storage.sqlite.driver import sqlite_version
from app.upstream.address import without_query

# Seconds after which a busy thread must let another run. The store's writer returns from SQLite many times a
# commit and waits each time for the loop to yield: with Python's 5 ms 64 clients get 330 to 390 requests/s,
# with this 360 to 440 (alternating runs on one busy machine, two cores).
_SWITCH_SECONDS = 0.0005
# Objects made before the young are collected (Python's 700 comes several times a request, and each tenth time
# takes the middle-aged along), and how many collections until the next generation's.
_COLLECT_AFTER = (20_000, 10, 10)
# What uvicorn itself exits with when the application does not start.
_FAILED_START = 3
_log = structlog.get_logger("palimpsest.server")


def serve(settings: Settings, read: Callable[[], Settings]) -> None:
    """Serves until it is told to stop. Raises SettingsError, SchemaMismatch or StoreUnavailable.

    `read` reads the settings anew, for a SIGHUP.
    """
    _check_folder(settings.compaction.daily_log_folder)
    instructions_of(settings.summarizer)
    configure_logs(settings.logging)
    # A terminal that closes, or an operator who means "reload", must not end anybody's answer.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.setswitchinterval(_SWITCH_SECONDS)
    asyncio.run(ready(settings.database.url.get_secret_value()))
    with ExitStack() as stack:
        is_demo = settings.upstream.base_url is None
        reloading = Reloading(settings, read)
        if is_demo:
            base_url = stack.enter_context(running_demo(DEFAULT_WINDOW_TOKENS))
            upstream = settings.upstream.model_copy(update={"base_url": base_url})
            settings = settings.model_copy(update={"upstream": upstream})
        listening = stack.enter_context(bound_socket(settings.server.host, settings.server.port))
        application = create_app(settings)
        application.warms = True
        address = address_of(listening)
        notices = OperatorNotices(
            application,
            reloading,
            welcome(address, settings, is_demo=is_demo),
            start_line(settings, address, is_demo=is_demo),
        )
        server = http_server(application, settings.server, notices)
        # The server has finished in good order when it passes the interrupt on; it leaves by SystemExit when
        # the application did not start, and then the reason is told below.
        with suppress(KeyboardInterrupt, SystemExit):
            server.run([listening])
        if application.refusal is not None:
            raise application.refusal
        if not server.started:
            sys.exit(_FAILED_START)


@dataclass(frozen=True, slots=True)
class OperatorNotices:
    """What the terminal and the log are told of the start and the stop."""

    application: Application
    reloading: Reloading
    welcome: str
    start_line: Mapping[str, object]

    def started(self) -> None:
        """Not before it listens: an application that is refused its database never answers."""
        spare_collector()
        typer.echo(self.welcome)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.reloading.reload)
        _log.info("started", **self.start_line)

    def stopping(self, by: str | None) -> None:
        """Streams without an end of their own end now."""
        self.application.stopping.set()
        requests = self.application.requests
        _log.info("stopping", reason=by, answering=requests.open if requests else 0)

    def stopped(self, by: str | None) -> None:
        """How many answers the stop has cost."""
        requests = self.application.requests
        _log.info("stopped", reason=by, cut=requests.cut if requests else 0)


def _check_folder(daily_log: Path | None) -> None:
    """At the start it is a slip of the pen; one that goes away later costs nobody an answer."""
    if daily_log is not None and not daily_log.is_dir():
        raise SettingsError(f"compaction.daily_log_folder: there is no folder {daily_log}; make it first.")


def start_line(settings: Settings, address: str, *, is_demo: bool) -> dict[str, object]:
    """What an operator wants to know of a process that has started."""
    is_file = sqlite_path(settings.database.url.get_secret_value()) is not None
    first = "demo" if is_demo else without_query(settings.upstream.base_url or "")
    return {
        "version": version("palimpsest"),
        "pid": os.getpid(),
        "address": address,
        "mode": settings.access.mode,
        "database": f"SQLite {sqlite_version()}" if is_file else "PostgreSQL",
        "schema": schema_of_this_version(),
        "upstreams": [first, *(without_query(route.base_url) for route in settings.routes)],
    }


def spare_collector() -> None:
    """What is loaded by now stays: the garbage collector need not look at it again and again.

    Nor once: that took a tenth of a start (0.16 s) and gave no page of memory back (2026-11).
    """
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
    gc.enable()


def welcome(address: str, settings: Settings, *, is_demo: bool) -> str:
    """What stands in the terminal once the proxy listens."""
    lines = [f"Palimpsest listens: point a client's base_url at {address}/v1"]
    if not is_demo:
        return "\n".join([*lines, f"Upstream: {without_query(settings.upstream.base_url or '')}"])
    lines += [
        f"No upstream is set: a demo model answers, whose window is {DEFAULT_WINDOW_TOKENS:,} tokens.",
        "Set a real one with: palimpsest serve --upstream https://api.openai.com/v1",
        "",
        "Try it in another terminal. Talk past the window, one fact a turn:",
        "",
        *(f"{line}\n" for line in tour(address)),
        f"Or in a browser: {address}/api/timeline",
    ]
    return "\n".join(lines)


def tour(address: str) -> tuple[str, str, str]:
    """Three lines for a shell: outgrow the window, see what the model sees, read every word."""
    turn = (
        f'{{"model":"{MODEL}","messages":[{{"role":"user","content":'
        "\"Fact '$n': the code of room '$n' is R-'$((n*7919))'. What is the code of room 1?\"}]}"
    )
    talk = (
        f"for n in $(seq 1 24); do curl -s {address}/s/tour/v1/chat/completions -H 'x-session-mode: append' "
        f"-H 'content-type: application/json' -D - -o /dev/null -d '{turn}' | grep -i ^x-palimp; echo; done"
    )
    return (
        talk,
        f"curl -s {address}/api/sessions/tour/view",
        f"curl -s {address}/api/sessions/tour/messages",
    )

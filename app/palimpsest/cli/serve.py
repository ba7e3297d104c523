"""Starts the proxy: the demo if no upstream is set, the socket, the server."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from importlib.metadata import version

import structlog

from palimpsest.cli.http_server import (
    PlainServer,
    address_of,
    bound_socket,
    raise_file_limit,
    running_demo,
)
from palimpsest.cli.logs import configure_logs
from palimpsest.cli.schema import ready
from palimpsest.cli.start_checks import start_problems
from palimpsest.cli.terminal import say
from palimpsest.cli.workers import FAILED_START, Workers
from palimpsest.core.urls import without_query
from palimpsest.demo.model import MODEL
from palimpsest.demo.server import DEFAULT_WINDOW_TOKENS
from palimpsest.errors import PalimpsestError, SettingsError
from palimpsest.main.application import Application, create_app
from palimpsest.proxy.server_secrets import load_pepper
from palimpsest.proxy.telemetry.counts import Inboxes
from palimpsest.settings.serving import Server
from palimpsest.settings.settings import Settings
from palimpsest.storage.address import sqlite_path
from palimpsest.storage.migrate import bound_pepper, schema_of_this_version
from palimpsest.storage.sqlite_files import sqlite_version
from palimpsest.tokenizer.counting import Tokenizer

# Of glibc's `mallopt`. Other libraries have none.
_M_ARENA_MAX, _ARENAS = -8, 2
_log = structlog.get_logger("palimpsest.server")
# The interpreter's thread switch interval in seconds. The store's writer returns from SQLite many times a
# commit and waits each time for the event loop to yield: with Python's 5 ms 64 clients get 330 to 390
# requests/s, with this 360 to 440 (alternating runs on one busy machine, two cores).
_SWITCH_SECONDS = 0.0005
# The garbage collector's thresholds: allocations per collection of the youngest generation (Python's 700 is
# reached several times a request), and collections until the next generation's.
_COLLECT_AFTER = (20_000, 10, 10)


def serve(settings: Settings) -> None:
    """Serve until a stop signal. Raises SettingsError, SchemaMismatch or StoreUnavailable."""
    # A server of several workers checks in their parent: what is refused would fail each replacement of one.
    if problems := [*start_problems(settings)]:
        raise SettingsError("\n".join(problems))
    configure_logs(settings.logging)
    raise_file_limit()
    with suppress(OSError, AttributeError):
        # Each thread that allocates would get a heap of its own, of which little is ever given back.
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)
    # Closing the terminal does not end it.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.setswitchinterval(_SWITCH_SECONDS)
    database, count = settings.database, settings.server.workers
    with ExitStack() as stack:
        is_demo = settings.upstream.base_url is None
        if is_demo:
            demo = {"base_url": stack.enter_context(running_demo(DEFAULT_WINDOW_TOKENS))}
            settings = settings.model_copy(update={"upstream": settings.upstream.model_copy(update=demo)})
        listening = stack.enter_context(bound_socket(settings.server.host, settings.server.port))
        # Behind the socket: a start that is refused for its address makes no database.
        asyncio.run(ready(database.url.get_secret_value()))
        tokenizer, address = Tokenizer(), address_of(listening)
        inboxes = Inboxes(count) if count > 1 else None

        def work(started: Callable[[], None], refused: Callable[[PalimpsestError], None], place: int) -> None:
            """Serve in this process; see `workers.Work`. SystemExit when the application does not start."""
            application = create_app(settings, tokenizer)
            application.siblings = inboxes.at(place) if inboxes else None
            application.warms = True
            line = start_line(settings, address, is_demo=is_demo)
            server = _ProxyServer(application, settings.server, line, started)
            # uvicorn raises KeyboardInterrupt after an orderly stop, and SystemExit when the application did
            # not start; the reason is told below.
            with suppress(KeyboardInterrupt, SystemExit):
                server.run([listening])
            if application.refusal is not None:
                refused(application.refusal)
            if not server.started:
                sys.exit(FAILED_START)

        greet = partial(say, welcome(address, settings, is_demo=is_demo))
        if count == 1:
            work(greet, _raised, 0)
            return
        # Once: the workers share what is loaded, and must not make the pepper at the same time.
        tokenizer.load()
        load_pepper(database.pepper_file, asyncio.run(bound_pepper(database.url.get_secret_value())))
        gc.freeze()
        Workers(count, work, started=greet).run()


def _raised(refusal: PalimpsestError) -> None:
    raise refusal


class _ProxyServer(PlainServer):
    """Logs start and stop of one process; `answers` is called when it answers."""

    def __init__(
        self,
        application: Application,
        settings: Server,
        start_line: Mapping[str, object],
        answers: Callable[[], None],
    ) -> None:
        super().__init__(application, settings)
        self._application = application
        self._start_line = start_line
        self._answers = answers

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn does it. A start may still fail after the socket is bound."""
        await super().startup(sockets)
        if not self.started:
            return
        # Everything loaded by now is excluded from garbage collection. A collection before that took a tenth
        # of a start (0.16 s) and freed no page of memory (2026-11).
        gc.freeze()
        gc.set_threshold(*_COLLECT_AFTER)
        gc.enable()
        _log.info("started", pid=os.getpid(), **self._start_line)
        # Last: who reads what is told now may look into the log.
        self._answers()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn does it; event streams end. Afterwards uvicorn raises the signal again."""
        self._application.begin_stop()
        requests = self._application.requests
        _log.info("stopping", reason=self.stopped_by, answering=requests.open if requests else 0)
        await super().shutdown(sockets)
        _log.info("stopped", reason=self.stopped_by, cut=requests.cut if requests else 0)


def start_line(settings: Settings, address: str, *, is_demo: bool) -> dict[str, object]:
    """The fields of the log entry of a start."""
    is_file = sqlite_path(settings.database.url.get_secret_value()) is not None
    first = "demo" if is_demo else without_query(settings.upstream.base_url or "")
    return {
        "version": version("palimpsest"),
        "address": address,
        "mode": settings.access.mode,
        "database": f"SQLite {sqlite_version()}" if is_file else "PostgreSQL",
        "schema": schema_of_this_version(),
        "upstreams": [first, *(without_query(route.base_url) for route in settings.routes)],
    }


# Printed before commands that need one.
_FIRST_A_KEY = ("KEY=$(palimpsest keys create --label tour)  # in the folder of the proxy", "")


def welcome(address: str, settings: Settings, *, is_demo: bool) -> str:
    """The text on the terminal once the proxy listens."""
    lines = [f"Palimpsest listens: point a client's base_url at {address}/v1"]
    if not is_demo:
        return "\n".join([*lines, f"Upstream: {without_query(settings.upstream.base_url or '')}"])
    lines += [
        f"No upstream is set: a demo model answers, whose window is {DEFAULT_WINDOW_TOKENS:,} tokens.",
        "Set a real one with: palimpsest serve --upstream https://api.openai.com/v1",
        "",
        "Try it in another terminal. Talk past the window, one fact a turn:",
        "",
        *(_FIRST_A_KEY if settings.access.mode == "keys" else ()),
        *(f"{line}\n" for line in tour(address, needs_key=settings.access.mode == "keys")),
        f"Or in a browser: {address}/ui",
    ]
    return "\n".join(lines)


def tour(address: str, *, needs_key: bool = False) -> tuple[str, str, str]:
    """Three shell commands: outgrow the window, show the model's view, show the whole transcript."""
    curl = 'curl -s -H "Authorization: Bearer $KEY"' if needs_key else "curl -s"
    turn = (
        f'{{"model":"{MODEL}","messages":[{{"role":"user","content":'
        "\"Fact '$n': the code of room '$n' is R-'$((n*7919))'. What is the code of room 1?\"}]}"
    )
    talk = (
        f"for n in $(seq 1 24); do {curl} {address}/s/tour/v1/chat/completions -H 'x-session-mode: append' "
        f"-H 'content-type: application/json' -D - -o /dev/null -d '{turn}' | grep -i ^x-palimp; echo; done"
    )
    return (
        talk,
        f"{curl} {address}/api/sessions/tour/view",
        f"{curl} {address}/api/sessions/tour/messages",
    )

"""Sockets and HTTP servers: how an ASGI application is put on the wire.

Knows nothing of what the application does.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Protocol

import typer
import uvicorn

from app.cli.protocol import PlainHttp
from app.demo.server import create_demo
from app.errors import SettingsError
from app.settings.serving import Server

# Connections the kernel holds while all of ours are being accepted; what most servers use.
_BACKLOG = 2048
# The demo that `serve` starts is for the proxy beside it only.
_DEMO_HOST = "127.0.0.1"


def bound_socket(host: str, port: int) -> socket.socket:
    """A listening socket; SettingsError, with the remedy, when the address cannot be had."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        # A name that cannot be resolved has a number of its own kind; Python adds the address to the others.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
        raise SettingsError(
            f"server: cannot listen on {host}:{port} ({reason}). Choose another with --host and --port, or "
            "with PALIMPSEST_SERVER__HOST and PALIMPSEST_SERVER__PORT."
        ) from None


def address_of(listening: socket.socket) -> str:
    """`http://host:port` of a listening socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Notices(Protocol):
    """Who is told of the start and the stop. `by` is the signal that stops it, None where there was none."""

    def started(self) -> None:
        """It answers."""

    def stopping(self, by: str | None) -> None:
        """It accepts nothing more, and has not waited for what is open yet."""

    def stopped(self, by: str | None) -> None:
        """Everything is answered or cut, and closed."""


class NoNotices:
    """Nobody is told."""

    def started(self) -> None:
        """Nothing is done."""

    def stopping(self, by: str | None) -> None:
        """Nothing is done."""

    def stopped(self, by: str | None) -> None:
        """Nothing is done."""


class TellingServer(uvicorn.Server):
    """Says that it is up once it answers, and that it stops before it waits for what is open."""

    def __init__(self, config: uvicorn.Config, notices: Notices) -> None:
        super().__init__(config)
        self._notices = notices
        self._stopped_by: str | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn does it."""
        await super().startup(sockets)
        if self.started:
            self._notices.started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """As uvicorn does it."""
        self._stopped_by = self._stopped_by or signal.Signals(sig).name
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn does it; afterwards it hands the signal on, which ends the process."""
        self._notices.stopping(self._stopped_by)
        await super().shutdown(sockets)
        self._notices.stopped(self._stopped_by)


def http_server(application: Any, settings: Server, notices: Notices | None = None) -> uvicorn.Server:
    """A server, not yet started. The socket goes to its `run`."""
    return TellingServer(
        uvicorn.Config(
            application,
            http=PlainHttp,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            # Both would be added to what the upstream sent: a client must see the upstream's headers.
            server_header=False,
            date_header=False,
            proxy_headers=False,
            backlog=_BACKLOG,
            timeout_keep_alive=settings.keep_alive_seconds,
            # Answers under way are finished and stored; a client that never reads must not stop a restart.
            timeout_graceful_shutdown=settings.shutdown_seconds,
        ),
        notices or NoNotices(),
    )


def serve_demo(host: str, port: int, window_tokens: int) -> None:
    """The demo upstream answers until it is told to stop."""
    with bound_socket(host, port) as listening, suppress(KeyboardInterrupt):
        typer.echo(f"The demo model answers at {address_of(listening)}/v1, window {window_tokens:,} tokens.")
        http_server(create_demo(window_tokens), Server(shutdown_seconds=1)).run([listening])


@contextmanager
def running_demo(window_tokens: int) -> Iterator[str]:
    """The demo upstream answers on a free port of this machine; yields its base URL."""
    listening = bound_socket(_DEMO_HOST, 0)
    server = http_server(create_demo(window_tokens), Server(shutdown_seconds=1))
    thread = threading.Thread(target=server.run, args=([listening],), name="demo", daemon=True)
    thread.start()
    try:
        yield f"{address_of(listening)}/v1"
    finally:
        server.should_exit = True
        thread.join(timeout=5)

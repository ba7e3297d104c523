"""Sockets, the HTTP server, and corrections to uvicorn's HTTP/1.1.

* Java's own HTTP client offers HTTP/2 with its first request over plain HTTP. A server may ignore that (RFC
  9110, 7.8); uvicorn's parser treats the request as finished and loses its body.
* uvicorn treats trailers as headers, which no trailer may add to (RFC 9110, 6.5.1).
* uvicorn lets a connection without a request stay for ever. Here it has some seconds to send a request's
  head, and of too many idle connections those that have waited longest are closed.
* A client may half-close its connection after the request and wait for the answer, as `nc -N` does. uvicorn,
  like nginx and Node.js, treats it as gone, since a client that has left sends the same FIN. But only a
  client that has left answers further bytes with a reset. So a half-closed client is sent bytes without
  meaning, and is given up when a reset arrives.
* uvicorn sends chunks in HTTP/1.0, which has none: there the connection ends the body (RFC 9112, 6.1).
"""

from __future__ import annotations

import asyncio
import os
import re
import resource
import select
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from math import inf
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from palimpsest.cli.terminal import say
from palimpsest.demo.server import DEFAULT_WINDOW_TOKENS, create_demo
from palimpsest.errors import SettingsError
from palimpsest.settings.load import Source, nested, settings_of
from palimpsest.settings.serving import Server

# Seconds between checks of a half-closed connection for a reset.
_LOOK_SECONDS = 0.1
# A client must be able to parse an interim response that it did not request (RFC 9110, 15.2).
_INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"
# The size of the next chunk may begin with zeros, and that of the last one consists of them (RFC 9112, 7.1).
_LEADING_ZERO = b"0"
_RESET = select.POLLHUP | select.POLLERR
# The parser skips the body of a request that offers another protocol; it sees the header under this name.
_OFFER, _HIDDEN_OFFER = re.compile(rb"(?i)\r\nupgrade(?=:)"), b"upgrad_"


# Seconds for the head of a request: nginx allows 60, Apache's mod_reqtimeout 20 to 40.
_HEAD_SECONDS = 30.0
# Connections without a request, of which a client keeps a few open. Beyond them the oldest are closed.
_MOST_IDLE = 1_000
_IDLE_SHARE_OF_FILES = 4
# `on_tick` is called ten times a second.
_TICKS = 10


def raise_file_limit() -> None:
    """Allow as many open files, and so connections, as the system allows this process."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS refuses to set what it states as unlimited.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class IdleConnections:
    """The connections of one server that have sent no request yet, or none since the last answer."""

    def __init__(self) -> None:
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._most = min(_MOST_IDLE, max(files, 0) // _IDLE_SHARE_OF_FILES or _MOST_IDLE)
        self._due: dict[PlainHttp, float] = {}

    def wait(self, connection: PlainHttp, seconds: float) -> None:
        """Close the connection unless a request's head arrives in so many seconds; the oldest if too many."""
        self.leave(connection)
        self._due[connection] = connection.loop.time() + seconds
        if len(self._due) > self._most:
            oldest = next(iter(self._due))
            del self._due[oldest]
            oldest.transport.close()

    def leave(self, connection: PlainHttp) -> None:
        """The connection has sent a request, or is closed."""
        self._due.pop(connection, None)

    def close_late(self, now: float) -> None:
        """Close those whose time is over."""
        for connection in [each for each, due in self._due.items() if due < now]:
            del self._due[connection]
            connection.transport.close()


# The length of a body that ends with the connection, as uvicorn counts it down.
_ANY_LENGTH: Any = type(
    "AnyLength",
    (int,),
    {"__lt__": lambda *_: False, "__ne__": lambda *_: False, "__sub__": lambda self, _: self},
)


class PlainHttp(HttpToolsProtocol):
    """HTTP/1.1 without other protocols (RFC 9110, 7.8) or trailers; half-closed connections are kept."""

    _is_head = True
    # Bytes of a head that may be the beginning of an offer.
    _held = b""

    def __init__(self, config: uvicorn.Config, *args: Any, idle: IdleConnections, **named: Any) -> None:
        super().__init__(config, *args, **named)
        self._idle = idle

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """As uvicorn does it."""
        super().connection_made(transport)
        self._idle.wait(self, _HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """As uvicorn does it."""
        self._idle.leave(self)
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """As uvicorn does it."""
        self._is_head = True
        # A request behind one that is being answered waits for its turn, which has no bound.
        if self.cycle is None or self.cycle.response_complete:
            self._idle.wait(self, _HEAD_SECONDS)
        super().on_message_begin()

    def on_response_complete(self) -> None:
        """As uvicorn does it, which closes the connection in time; sooner if too many are idle."""
        super().on_response_complete()
        if self.timeout_keep_alive_task is not None:
            self._idle.wait(self, inf)

    def on_header(self, name: bytes, value: bytes) -> None:
        """As uvicorn does it; trailers are dropped."""
        if self._is_head:
            super().on_header(b"upgrade" if name == _HIDDEN_OFFER else name, value)

    def on_headers_complete(self) -> None:
        """As uvicorn does it."""
        self._is_head = False
        self._idle.leave(self)
        super().on_headers_complete()
        if self.cycle.scope["http_version"] == "1.0":
            self.cycle.chunked_encoding, self.cycle.expected_content_length = False, _ANY_LENGTH()

    def on_message_complete(self) -> None:
        """As uvicorn does it."""
        self._is_head = True
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        """As uvicorn does it, without the offer of another protocol in a request's head."""
        if self._is_head:
            data, self._held = without_offer(self._held + data)
        if data:
            super().data_received(data)

    def eof_received(self) -> bool:  # type: ignore[override]
        """True, to keep the connection, while a complete request is being answered."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body:
            return False
        cycle.keep_alive = False
        self._sound()
        self._look()
        return True

    def _sound(self) -> None:
        """Send bytes without meaning where possible.

        Not possible within a body of known length, with pipelined requests, and before an answer in HTTP/1.0,
        which has no interim responses.
        """
        if self.pipeline or self.transport.is_closing():
            return
        if self.cycle.response_started:
            if self.cycle.chunked_encoding and self.cycle.scope["method"] != "HEAD":
                self.transport.write(_LEADING_ZERO)
        elif self.cycle.scope["http_version"] == "1.1":
            self.transport.write(_INTERIM)

    def _look(self) -> None:
        """Abort the connection once the client has reset it, which asyncio would not notice."""
        if self.transport.is_closing() or self.cycle.response_complete:
            return
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), _RESET)
        if any(events & _RESET for _, events in poll.poll(0)):
            self.transport.abort()
        else:
            self.loop.call_later(_LOOK_SECONDS, self._look)


def without_offer(data: bytes) -> tuple[bytes, bytes]:
    """The bytes of a head with its `Upgrade` renamed, and their end where it may begin one."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        end = len(data) - 1 if data.endswith(b"\r") else data.rfind(b"\r\n")
        if end < 0 or not b"\r\nupgrade".startswith(data[end:].lower()):
            end = len(data)
        return _OFFER.sub(b"\r\n" + _HIDDEN_OFFER, data[:end]), data[end:]
    return _OFFER.sub(b"\r\n" + _HIDDEN_OFFER, data[:end]) + data[end:], b""


# The listen backlog; most servers use this value.
_BACKLOG = 2048
# `serve` starts the demo for its own proxy only.
_DEMO_HOST = "127.0.0.1"
_DEMO_PORT = 8001


def bound_socket(host: str, port: int) -> socket.socket:
    """A listening socket; SettingsError, with a remedy, when the address cannot be bound."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except UnicodeError:
        raise SettingsError(f"server: {host} is no name of a host; --host gives another.") from None
    except OSError as error:
        # Errors of name resolution have negative numbers; Python adds the address to the text of the others.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
        raise SettingsError(
            f"server: cannot listen on {host}:{port} ({reason}). Choose another with --host and --port, or "
            "with PALIMPSEST_SERVER__HOST and PALIMPSEST_SERVER__PORT."
        ) from None


def address_of(listening: socket.socket) -> str:
    """`http://host:port` of a listening socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class PlainServer(uvicorn.Server):
    """A server of `PlainHttp`, not yet started; pass the socket to its `run`."""

    def __init__(self, application: Any, settings: Server) -> None:
        self._idle = IdleConnections()
        # The first signal that stopped it, None without one.
        self.stopped_by: str | None = None
        super().__init__(
            uvicorn.Config(
                application,
                http=partial(PlainHttp, idle=self._idle),  # type: ignore[arg-type]
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                # uvicorn would add both to the upstream's headers, which the client must see unchanged.
                server_header=False,
                date_header=False,
                proxy_headers=False,
                backlog=_BACKLOG,
                timeout_keep_alive=settings.keep_alive_seconds,
                # Open answers are finished and stored; a client that never reads must not block a restart.
                timeout_graceful_shutdown=settings.shutdown_seconds,
            )
        )

    async def on_tick(self, counter: int) -> bool:
        """As uvicorn does it; closes connections that send no request."""
        if counter % _TICKS == 0:
            self._idle.close_late(asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """As uvicorn does it."""
        self.stopped_by = self.stopped_by or signal.Signals(sig).name
        super().handle_exit(sig, frame)


def serve_demo(options: Mapping[str, str | int | None], config: Path | None) -> None:
    """Serve the demo upstream until a stop signal, by the options of `serve` that it has."""
    given = {key: value for key, value in options.items() if value is not None}
    if config is not None or given.keys() - {"server.host", "server.port", "window.window_tokens"}:
        raise SettingsError("command line: --demo takes --host, --port and --window-tokens alone.")
    settings = settings_of([Source("command line", str, nested({"server.port": _DEMO_PORT, **given}))])
    window_tokens = settings.window.window_tokens or DEFAULT_WINDOW_TOKENS
    listens = bound_socket(settings.server.host, settings.server.port)
    with listens as listening, suppress(KeyboardInterrupt):
        say(f"The demo model answers at {address_of(listening)}/v1, window {window_tokens:,} tokens.")
        PlainServer(create_demo(window_tokens), Server(shutdown_seconds=1)).run([listening])


@contextmanager
def running_demo(window_tokens: int) -> Iterator[str]:
    """Run the demo upstream on a free port of this machine; yields its base URL."""
    listening = bound_socket(_DEMO_HOST, 0)
    server = PlainServer(create_demo(window_tokens), Server(shutdown_seconds=1))
    thread = threading.Thread(target=server.run, args=([listening],), name="demo", daemon=True)
    thread.start()
    try:
        yield f"{address_of(listening)}/v1"
    finally:
        server.should_exit = True
        thread.join(timeout=5)

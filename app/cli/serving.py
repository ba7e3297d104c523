"""Starting the proxy: schema, demo when there is no upstream, socket, server, and what a person is told.

Knows nothing of requests: `app.main` makes the application.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from contextlib import ExitStack, suppress

import typer

from app.cli.listening import address_of, bound_socket, http_server, running_demo
from app.cli.logs import configure_logs
from app.cli.schema import ready
from app.demo.reading import MODEL
from app.demo.server import DEFAULT_WINDOW_TOKENS
from app.main.application import create_app
from app.settings.settings import Settings
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


def serve(settings: Settings) -> None:
    """Serves until it is told to stop. Raises SettingsError, SchemaMismatch or StoreUnavailable."""
    configure_logs(settings.logging)
    sys.setswitchinterval(_SWITCH_SECONDS)
    asyncio.run(ready(settings.database.url.get_secret_value()))
    with ExitStack() as stack:
        is_demo = settings.upstream.base_url is None
        if is_demo:
            base_url = stack.enter_context(running_demo(DEFAULT_WINDOW_TOKENS))
            upstream = settings.upstream.model_copy(update={"base_url": base_url})
            settings = settings.model_copy(update={"upstream": upstream})
        listening = stack.enter_context(bound_socket(settings.server.host, settings.server.port))
        application = create_app(settings)
        application.warms = True
        greeting = welcome(address_of(listening), settings, is_demo=is_demo)
        server = http_server(
            application,
            settings.server,
            # Not before: an application that is refused its database never answers.
            starts=lambda: _started(greeting),
            stops=application.stopping.set,
        )
        # The server has finished in good order when it passes the interrupt on; it leaves by SystemExit when
        # the application did not start, and then the reason is told below.
        with suppress(KeyboardInterrupt, SystemExit):
            server.run([listening])
        if application.refusal is not None:
            raise application.refusal
        if not server.started:
            sys.exit(_FAILED_START)


def _started(greeting: str) -> None:
    """Everything is opened and listening; nobody was answered yet."""
    spare_collector()
    typer.echo(greeting)


def spare_collector() -> None:
    """What is loaded by now stays: the garbage collector need not look at it again and again."""
    gc.collect()
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

"""Configures logging: one line per entry, as text or JSON, to standard error, for libraries too."""

from __future__ import annotations

import io
import logging
import re
import sys
from contextlib import suppress
from typing import TextIO, cast

import structlog

from palimpsest.cli.terminal import is_terminal, printable
from palimpsest.settings.serving import Logging

_SEVERITY = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}
_WORD = re.compile(r"[^\x00-\x20\x7f-\x9f=\"']*")
_FAILED_START = "Application startup failed. Exiting."


class _StandardError(io.TextIOBase):
    """The current `sys.stderr`. That it is closed or full must not fail a request."""

    def write(self, text: str, /) -> int:
        """Write the text; failures are ignored, since there is nowhere to report them."""
        with suppress(OSError, ValueError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush; failures are ignored."""
        with suppress(OSError, ValueError):
            sys.stderr.flush()


def configure_logs(settings: Logging) -> None:
    """Set the form and level of every logger of the process. May be called again.

    Our own entries bypass the standard library's logging, which would cost three times as much.
    """
    form, shared = _form(settings), _shared(settings)
    if structlog.is_configured():
        # Cached loggers keep a reference to the list: it is changed in place.
        structlog.get_config()["processors"][:] = [*shared, *form]
    else:
        structlog.configure(
            processors=[*shared, *form],
            logger_factory=structlog.WriteLoggerFactory(cast(TextIO, _StandardError())),
            wrapper_class=structlog.make_filtering_bound_logger("debug"),
            cache_logger_on_first_use=True,
        )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared[1:],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *form],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    # Their info entries repeat ours or are of no use; warnings still pass.
    for library in ("uvicorn", "alembic", "httpx"):
        logging.getLogger(library).setLevel(logging.WARNING)
    # `serve` prints the reason of a failed start as its last line.
    logging.getLogger("uvicorn.error").filters[:] = [lambda record: record.msg != _FAILED_START]


def _shared(settings: Logging) -> list[structlog.types.Processor]:
    """The first processors of every entry; the level is checked here, so that it can change at run time."""
    least = logging.getLevelNamesMapping()[settings.level.upper()]

    def severe_enough(_: object, method: str, entry: structlog.types.EventDict) -> structlog.types.EventDict:
        if _SEVERITY.get(method, logging.ERROR) < least:
            raise structlog.DropEvent
        return entry

    return [
        severe_enough,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]


def _form(settings: Logging) -> list[structlog.types.Processor]:
    if settings.format == "json":
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    if is_terminal(sys.stderr):
        return [_without_escapes, console(colors=True)]
    return [structlog.processors.format_exc_info, text_line]


def _without_escapes(_: object, __: str, entry: structlog.types.EventDict) -> structlog.types.EventDict:
    return {name: printable(value) if isinstance(value, str) else value for name, value in entry.items()}


def console(*, colors: bool) -> structlog.dev.ConsoleRenderer:
    """Plain tracebacks: the pretty ones print local variables, and with them keys and messages."""
    plain = structlog.dev.plain_traceback
    return structlog.dev.ConsoleRenderer(
        colors=colors, pad_event_to=0, sort_keys=False, exception_formatter=plain
    )


def text_line(_: object, __: str, entry: structlog.types.EventDict) -> str:
    """The entry as `console` writes it without colours, but faster: there is one for each request."""
    head = f"{entry.pop('timestamp')} [{entry.pop('level'):9}] {entry.pop('event')}"
    behind = "".join(f"\n{entry.pop(name)}" for name in ("stack", "exception") if name in entry)
    return printable(" ".join([head, *(f"{name}={_shown(value)}" for name, value in entry.items())]) + behind)


def _shown(value: object) -> str:
    """The text, quoted if it is not one plain word."""
    return value if isinstance(value, str) and _WORD.fullmatch(value) else repr(value)

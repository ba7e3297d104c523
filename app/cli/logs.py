"""How log entries are written: one line each, as text or JSON, to standard error.

Knows nothing of what is logged. Entries of libraries take the same way as our own.
"""

from __future__ import annotations

import io
import logging
import sys
from contextlib import suppress
from typing import TextIO, cast

import structlog

from app.settings.serving import Logging

_SEVERITY = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}
_FAILED_START = "Application startup failed. Exiting."


class _StandardError(io.TextIOBase):
    """Standard error as it is at the moment. That it is gone, or full, must not cost anybody an answer."""

    def write(self, text: str, /) -> int:
        """The text is written, or lost: there is nowhere to say so."""
        with suppress(OSError, ValueError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        """As `write`."""
        with suppress(OSError, ValueError):
            sys.stderr.flush()


def configure_logs(settings: Logging) -> None:
    """Every logger of the process writes in the chosen form, from the chosen level on. May be repeated.

    Our own entries are rendered at once: as records of the standard library they cost three times as much.
    """
    form, shared = _form(settings), _shared(settings)
    if structlog.is_configured():
        # Loggers in use hold on to the list: it is changed, not replaced.
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
    # What they say of ordinary work is said by us, or of no use; warnings still pass.
    for library in ("uvicorn", "alembic", "httpx"):
        logging.getLogger(library).setLevel(logging.WARNING)
    # Why it failed is said by `serve`, as the last line.
    logging.getLogger("uvicorn.error").filters[:] = [lambda record: record.msg != _FAILED_START]


def _shared(settings: Logging) -> list[structlog.types.Processor]:
    """What every entry passes first; the level is looked at here, so that it can change while we run."""
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
    return [_console(colors=sys.stderr.isatty())]


def _console(*, colors: bool) -> structlog.dev.ConsoleRenderer:
    """Tracebacks in plain form: the pretty one prints local variables, and with them keys and messages."""
    plain = structlog.dev.plain_traceback
    return structlog.dev.ConsoleRenderer(
        colors=colors, pad_event_to=0, sort_keys=False, exception_formatter=plain
    )

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
    """Every logger of the process writes in the chosen form, from the chosen level on.

    Our own entries are rendered at once: as records of the standard library they cost three times as much.
    """
    shared: list[structlog.types.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    form: list[structlog.types.Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if settings.format == "json"
        else [_console(colors=sys.stderr.isatty())]
    )
    structlog.configure(
        processors=[*shared, *form],
        logger_factory=structlog.WriteLoggerFactory(cast(TextIO, _StandardError())),
        wrapper_class=structlog.make_filtering_bound_logger(settings.level),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
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


def _console(*, colors: bool) -> structlog.dev.ConsoleRenderer:
    """Tracebacks in plain form: the pretty one prints local variables, and with them keys and messages."""
    plain = structlog.dev.plain_traceback
    return structlog.dev.ConsoleRenderer(colors=colors, pad_event_to=0, exception_formatter=plain)

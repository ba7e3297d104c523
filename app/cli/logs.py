"""How log entries are written: one line each, as text or JSON, to standard error.

Knows nothing of what is logged. Entries of libraries take the same way as our own.
"""

from __future__ import annotations

import logging
import sys

import structlog

from app.settings.serving import Logging


def configure_logs(settings: Logging) -> None:
    """Every logger of the process writes in the chosen form, from the chosen level on."""
    shared: list[structlog.types.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    form: list[structlog.types.Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if settings.format == "json"
        else [_console(colors=sys.stderr.isatty())]
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *form],
        )
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    # What they say of ordinary work is said by us, or of no use; warnings still pass.
    for library in ("uvicorn", "alembic", "httpx"):
        logging.getLogger(library).setLevel(logging.WARNING)


def _console(*, colors: bool) -> structlog.dev.ConsoleRenderer:
    """Tracebacks in plain form: the pretty one prints local variables, and with them keys and messages."""
    plain = structlog.dev.plain_traceback
    return structlog.dev.ConsoleRenderer(colors=colors, pad_event_to=0, exception_formatter=plain)

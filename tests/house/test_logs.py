"""Log entries are single lines in the chosen form, and never show what a traceback's variables held."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest
import structlog
from palimpsest.cli.logs import configure_logs, console, text_line
from palimpsest.settings.serving import Logging

# Not spelt where a traceback would quote the line.
SECRET = "sk-canary"


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    configured = structlog.get_config()
    structlog.reset_defaults()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**configured)


def _fail_with(secret: str) -> None:
    held = [secret]
    raise RuntimeError(f"failed with {len(held)} held")


@pytest.mark.spec("P7")
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_traceback_shows_no_variables(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(Logging.model_validate({"format": form}))
    try:
        _fail_with(SECRET)
    except RuntimeError:
        logging.getLogger("library").exception("it broke")
        structlog.get_logger("own").exception("it broke")
    written = capsys.readouterr().err
    assert written.count("failed with 1 held") == 2
    assert SECRET not in written


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"status": 200, "end": "whole", "upstream": "http://127.0.0.1:1", "empty": "", "none": None},
        {"path": "/v1/a b", "quoted": 'it is "so"', "equal": "a=b", "tab": "a\tb", "apostrophe": "it's"},
        {"names": ["a", "b"], "seconds": 0.25, "umlaut": "\u00fc", "no_break": "a\u00a0b"},
        {"exception": "Traceback (most recent call last):\nRuntimeError: it broke"},
    ],
)
def test_a_line_is_what_structlog_would_write(fields: dict[str, object]) -> None:
    entry = {"event": "exchange", "level": "info", "timestamp": "2026-11-25T20:00:00Z", **fields}
    plain = console(colors=False)(None, "info", dict(entry))
    assert text_line(None, "info", dict(entry)) == plain


def test_json_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(Logging(format="json"))
    logging.getLogger("library").warning("of a library")
    structlog.get_logger("own").info("exchange", status=200)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["event"], line["level"]) for line in lines] == [
        ("of a library", "warning"),
        ("exchange", "info"),
    ]
    assert lines[1]["status"] == 200


def test_the_level_holds_for_everybody(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(Logging(level="error"))
    logging.getLogger("library").warning("quiet")
    structlog.get_logger("own").info("quiet")
    assert capsys.readouterr().err == ""


def test_a_terminal_that_is_gone_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = io.StringIO()
    gone.close()
    configure_logs(Logging())
    monkeypatch.setattr(sys, "stderr", gone)
    structlog.get_logger("own").info("exchange", status=200)

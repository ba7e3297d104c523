"""Log entries are single lines in the chosen form, and never show what a traceback's variables held."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest
import structlog
from palimpsest.cli.logs import configure_logs
from palimpsest.settings.serving import Logging

# Not spelt where a traceback would quote the line.
SECRET = "sk-canary"


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    # A test that captured logs before leaves them configured, and on standard output.
    structlog.reset_defaults()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


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

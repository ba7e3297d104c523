"""The command line in the tests' own process."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest
from palimpsest.cli.main import app, main
from typer.testing import CliRunner, Result

from tests.kit.proxy import Proxy


@dataclass(frozen=True)
class Said:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


class Terminal:
    """Runs commands in this process, in a folder of their own: starting Python costs a second each."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capture = capture

    def run(self, *words: str) -> Said:
        with pytest.raises(SystemExit) as ended:
            main(words)
        printed = self._capture.readouterr()
        code = ended.value.code
        return Said(code if isinstance(code, int) else 0, printed.out, printed.err)


async def runs(proxy: Proxy | None, *words: str, key: str = "key-1", says: str = "", code: int = 0) -> Result:
    """Run a command, against a proxy if one is given; `says` is what is typed when it asks.

    On a thread: it has an event loop of its own, and the proxy answers in this one.
    """
    arguments = [*words, "--url", proxy.url] if proxy else words
    done = await asyncio.to_thread(
        CliRunner().invoke, app, arguments, input=says, env={"OPENAI_API_KEY": key}
    )
    assert done.exit_code == code, done.output
    return done


def variables_of(folder: Path) -> dict[str, str]:
    """The environment of a command that works in this folder."""
    return {
        "PALIMPSEST_DATABASE__URL": f"sqlite:///{folder}/test.db",
        "PALIMPSEST_DATABASE__DATA_FOLDER": str(folder),
        "COLUMNS": "200",
        "NO_COLOR": "1",
    }

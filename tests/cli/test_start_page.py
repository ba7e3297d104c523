"""The commands of docs/start.md, as they are written, give what the page says."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from palimpsest.cli.serve import tour

from tests.cli.test_cli import _running
from tests.house.sources import ROOT

PAGE = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8000"


def blocks(heading: str) -> list[str]:
    """The indented blocks of a section: commands, and what they print."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [
        re.sub(r"^ {4}", "", block, flags=re.MULTILINE)
        for block in re.findall(r"(?:^ {4}.*\n)+", section, re.M)
    ]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A proxy with the demo behind it."""
    folder: Path = tmp_path_factory.mktemp("start")
    with _running(folder, "serve", "--port", "0") as (process, said):
        yield said.split(" at ")[1].strip().removesuffix("/v1")
        process.terminate()
        process.wait()


def printed(command: str, address: str) -> str:
    run = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command.replace(ADDRESS, address)],
        capture_output=True,
        check=True,
        text=True,
    )
    return run.stdout


def test_the_first_answer_comes(address: str) -> None:
    command = next(block for block in blocks("First answer") if block.startswith("curl"))
    assert "I was shown 1 message," in printed(command, address)


def test_the_tour_gives_what_the_page_says(address: str) -> None:
    commands = [block for block in blocks("A tour with curl") if block.startswith(("for ", "curl "))]
    talk, question, view, messages, search = (printed(command, address) for command in commands)
    turns = [
        dict(re.findall(r"^(x-palimpsest-\w+): (.*?)\r?$", turn, re.M)) for turn in talk.strip().split("\n\n")
    ]
    seventeenth, folded = told_turns()
    # On a busy machine the summary that was begun earlier may be ready one turn later.
    first = next(at for at, turn in enumerate(turns) if turn["x-palimpsest-view"] != "original")
    assert first in (17, 18)
    for turn, told in ((turns[16], seventeenth), (turns[first], folded)):
        for name in ("mode", "view"):
            assert turn[f"x-palimpsest-{name}"] == told[f"x-palimpsest-{name}"]
    assert turns[16]["x-palimpsest-tokens"] == seventeenth["x-palimpsest-tokens"]
    assert "Fact 1: the code of room 1 is R-7919." in question
    # How many depends on which summary was ready by then, too.
    assert re.search(r'"kind":"summary","reason":"stands for \d\d folded messages"', view)
    assert '"total":50' in messages
    assert "the code of room 3 is R-23757" in search


def told_turns() -> list[dict[str, str]]:
    """The headers that the page shows."""
    told = PAGE.partition("while the summary is written:")[2].partition("At the end")[0]
    return [dict(re.findall(r"(x-palimpsest-\w+): (.*)", turn)) for turn in told.strip().split("\n\n")]


def test_serve_prints_the_same_tour() -> None:
    """In one line each."""
    squeezed = [re.sub(r"[\s\\]+", "", block) for block in blocks("A tour with curl")]
    for command in tour(ADDRESS)[1:]:
        assert re.sub(r"\s+", "", command) in squeezed


def test_the_blocks_are_found() -> None:
    """The control."""
    assert len([block for block in blocks("A tour with curl") if block.startswith(("for ", "curl "))]) == 5
    assert blocks("No such section") == []

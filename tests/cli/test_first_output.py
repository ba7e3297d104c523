"""The first output of a command comes at once: what it loads is counted, and shells complete its words."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.first_output import commands
from tests.house.sources import ROOT

# What `--help` and completion do without: each takes as long to load as all that they need.
HEAVY = frozenset(
    {
        *("asyncio", "rich", "httpx", "aiohttp", "fastapi", "starlette", "uvicorn", "sqlalchemy", "tiktoken"),
        *("mcp", "yaml", "structlog", "pydantic_settings", "palimpsest.settings.settings"),
        *("palimpsest.main.application", "palimpsest.upstream.own_api"),
    }
)
# What a command does without that opens the database for its own few rows.
_OF_A_SERVER = frozenset(
    {
        *("rich", "httpx", "aiohttp", "fastapi", "starlette", "uvicorn", "tiktoken", "structlog", "alembic"),
        *("palimpsest.storage.store", "palimpsest.main.wiring"),
    }
)
_HELPS = f"""
import sys
from palimpsest.cli.main import main
for words in {[*commands()]}:
    try:
        main([*words, "--help"])
    except SystemExit as ended:
        assert not ended.code, words
print(*sys.modules, file=sys.stderr)
"""
_PROGRAM = f"""#!{sys.executable}
import atexit, os, sys
from palimpsest.cli.main import main
if os.environ.get("SAYS_MODULES"):
    atexit.register(lambda: print(*sys.modules, file=sys.stderr))
main()
"""
# Presses the tab key behind these words, as readline calls what is registered.
_TAB = """
eval "$(palimpsest --show-completion)"
set -- $(complete -p palimpsest)
while [ "$1" != -F ]; do shift; done
COMP_WORDS=(palimpsest TYPED); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
$2 palimpsest
echo "${COMPREPLY[@]}"
"""


def _environment(folder: Path) -> dict[str, str]:
    (folder / "palimpsest").write_text(_PROGRAM)
    (folder / "palimpsest").chmod(0o700)
    path = f"{folder}:{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(folder), "PYTHONPATH": str(ROOT / "app"), "NO_COLOR": "1"}


def test_help_of_every_command_loads_nothing_heavy(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _HELPS]
    said = subprocess.run(
        command, env=_environment(tmp_path), capture_output=True, text=True, check=True, timeout=60
    )
    assert said.stdout.count("Usage: ") == len([*commands()])
    loaded = set(said.stderr.split())
    assert "palimpsest.cli.main" in loaded
    assert loaded & HEAVY == set()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("sess", "sessions"),
        ("config ''", "show schema check"),
        ("keys re", "revoke"),
        ("serve --wor", "--workers"),
        ("export --format ''", "json jsonl markdown html"),
    ],
)
def test_bash_completes_commands_options_and_values(tmp_path: Path, words: str, found: str) -> None:
    said = subprocess.run(
        ["bash", "--norc", "-c", _TAB.replace("TYPED", words)],
        env=_environment(tmp_path),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert (said.stdout.split(), said.stderr) == (found.split(), "")


@pytest.mark.parametrize(
    ("asked", "line", "heavy"),
    [
        ({"complete": "bash", "COMP_WORDS": "palimpsest serve --wor", "COMP_CWORD": "2"}, "--workers", HEAVY),
        # What a word does is rendered by rich, as typer has it.
        (
            {"complete": "zsh", "_TYPER_COMPLETE_ARGS": "palimpsest serve --wor"},
            """_arguments '*: :(("--workers":"Processes that answer; needs PostgreSQL."))'""",
            HEAVY - {"rich"},
        ),
    ],
    ids=["bash", "zsh"],
)
def test_completion_answers_by_the_shells_protocol_and_loads_nothing_heavy(
    tmp_path: Path, asked: dict[str, str], line: str, heavy: frozenset[str]
) -> None:
    asked = {**asked, "_PALIMPSEST_COMPLETE": f"complete_{asked['complete']}", "SAYS_MODULES": "1"}
    said = subprocess.run(
        [tmp_path / "palimpsest"],
        env=_environment(tmp_path) | asked,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert said.stdout == f"{line}\n"
    assert "palimpsest.cli.main" in said.stderr.split()
    assert set(said.stderr.split()) & heavy == set()


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        ("config show", _OF_A_SERVER | {"sqlalchemy"}),
        ("config check", _OF_A_SERVER | {"sqlalchemy"}),
        ("keys list", _OF_A_SERVER),
        ("db windows", _OF_A_SERVER),
        ("db retention", _OF_A_SERVER),
    ],
)
def test_a_command_loads_what_it_needs(tmp_path: Path, words: str, heavy: frozenset[str]) -> None:
    known = _environment(tmp_path)
    program = tmp_path / "palimpsest"
    subprocess.run([program, "db", "migrate"], cwd=tmp_path, env=known, check=True, timeout=60)
    said = subprocess.run(
        [program, *words.split()],
        cwd=tmp_path,
        env=known | {"SAYS_MODULES": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    loaded = set(said.stderr.split())
    assert "palimpsest.settings.settings" in loaded
    assert loaded & heavy == set()

"""`palimpsest run` with the real programs: pointed at the proxy for one run, and nowhere else."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.clients.drivers.opencode import SWITCHES, has_its_plugin
from tests.clients.install import require
from tests.clients.responses.model import BothWires
from tests.clients.roster import NODE, PYTHONS
from tests.clients.running import closed_home, strangers
from tests.house.sources import ROOT
from tests.kit.model import Says
from tests.kit.proxy import proxied

MODEL, KEY = "gpt-4o-mini", "key-1"
ASKED, ANSWER = "How much does the crane of berth 42 lift?", "It lifts 40 tons."
# Nobody listens there: where the user's own settings lead.
ELSEWHERE = "http://127.0.0.1:9/v1"
PATIENCE_SECONDS = 120


@dataclass(frozen=True)
class Program:
    """A program with its words; what its user has at home, and variables that keep it from other hosts."""

    words: tuple[str, ...]
    folder: Path
    home: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)


# It adds the schema's name to a file without it.
_OPENCODE = {
    "$schema": "https://opencode.ai/config.json",
    "provider": {"openai": {"options": {"baseURL": ELSEWHERE}}},
    "autoupdate": False,
}
_CODEX = f"""\
model_provider = "mine"

[model_providers.mine]
name = "Mine"
base_url = "{ELSEWHERE}"
wire_api = "responses"
"""
PROGRAMS = (
    Program(
        ("codex", "exec", "--skip-git-repo-check", "--model", MODEL, ASKED),
        NODE / "node_modules/.bin",
        {".codex/config.toml": _CODEX},
    ),
    Program(
        ("opencode", "run", "--model", f"openai/{MODEL}", ASKED),
        NODE / "node_modules/.bin",
        {".config/opencode/opencode.json": json.dumps(_OPENCODE)},
        {f"OPENCODE_DISABLE_{switch}": "1" for switch in SWITCHES},
    ),
    Program(
        ("llm", "--model", MODEL, ASKED),
        PYTHONS / "agents/bin",
        {".config/io.datasette.llm/default_model.txt": "gpt-4o"},
    ),
    Program(
        ("aider", "--model", f"openai/{MODEL}", "--no-git", "--yes-always", "--message", ASKED),
        PYTHONS / "aider/bin",
        {".aider.conf.yml": "analytics-disable: true\ncheck-update: false\nshow-release-notes: false\n"},
        {"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    ),
)


def furnished(home: Path, program: Program) -> dict[Path, bytes]:
    """Every file of the home, after its user has set the program up."""
    has_its_plugin(home / ".config/opencode")
    for name, text in program.home.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text, encoding="utf-8")
    return {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}


@pytest.mark.parametrize("program", PROGRAMS, ids=[program.words[0] for program in PROGRAMS])
async def test_run(program: Program, tmp_path: Path) -> None:
    """`palimpsest run`: Codex, opencode, llm and aider ask the proxy, and no file of the user's changes"""
    require()
    model = BothWires(names=(MODEL,), script=lambda _: Says({"role": "assistant", "content": ANSWER}))
    async with strangers() as (nowhere, _), proxied(model, tmp_path) as proxy:
        given = closed_home(tmp_path, nowhere)
        before = furnished(Path(given["HOME"]), program)
        (tmp_path / "work").mkdir()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "palimpsest", "run", "--url", proxy.url, "--key", KEY, *program.words),
            cwd=tmp_path / "work",
            env={
                **given,
                **program.variables,
                "PATH": f"{program.folder}:{os.environ['PATH']}",
                "PYTHONPATH": str(ROOT / "app"),
            },
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(PATIENCE_SECONDS):
            out, err = await process.communicate()
        assert (process.returncode, ANSWER in out.decode()) == (0, True), (out, err)
        sessions = await proxy.http.get("/api/sessions", headers={"authorization": f"Bearer {KEY}"})
        assert len(sessions.json()["sessions"]) == 1
    asked = [seen for seen in model.prompts if ASKED in seen.raw.decode()]
    assert {seen.headers["authorization"] for seen in asked} == {f"Bearer {KEY}"}
    assert {path: path.read_bytes() for path in before} == before

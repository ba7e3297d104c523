"""`palimpsest config`: what is set where, what a start would refuse, and the schema of the file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from palimpsest.settings.reference import SCHEMA
from palimpsest.settings.settings import known_keys

from tests.house.sources import ROOT
from tests.kit.terminal import Terminal

REFUSED = 2
FILE = "palimpsest.yaml"


def test_settings_are_shown_with_their_sources(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    file = "palimpsest.yaml"
    (terminal.folder / file).write_text("server: {port: 9000, workers: 1}\nmodels: [{match: m}]\n")
    monkeypatch.setenv("PALIMPSEST_SERVER__PORT", "9001")
    told = terminal.run("config", "show", "--json", "--upstream", "http://a/v1")
    sources = {one["key"]: (one["value"], one["source"]) for one in json.loads(told.out)}
    assert sources.pop("database.url")[1] == "environment, PALIMPSEST_DATABASE__URL"
    assert sources.pop("database.data_folder")[1] == "environment, PALIMPSEST_DATABASE__DATA_FOLDER"
    assert sources == {
        "server.port": (9001, "environment, PALIMPSEST_SERVER__PORT"),
        "server.workers": (1, file),
        "models": ([{"match": "m"}], file),
        "upstream.base_url": ("http://a/v1", "command line"),
    }
    every = terminal.run("config", "show", "--all").out.splitlines()
    assert len(every) == len(known_keys())
    assert 'server.host: "127.0.0.1"  # default' in every
    monkeypatch.setenv("PALIMPSEST_SERVER__PORT", "none")
    assert terminal.run("config", "show").code == 2


@pytest.mark.spec("P6")
def test_no_secret_is_shown(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    word = "Kanarienvogel"
    route = {"match": "a*", "base_url": f"http://h/v1?code={word}", "headers": {"x-a": word}, "api_key": word}
    for name, value in {
        "DATABASE__URL": f"postgresql://me:{word}@h/d",
        "UPSTREAM__API_KEY": word,
        "UPSTREAM__BASE_URL": f"http://h/v1?code={word}",
        "UPSTREAM__PROXY_URL": f"http://me:{word}@p:3128",
        "UPSTREAM__HEADERS": json.dumps({"x-a": word}),
        "ROUTES": json.dumps([route]),
    }.items():
        monkeypatch.setenv(f"PALIMPSEST_{name}", value)
    for more in ([], ["--json"], ["--all"]):
        told = terminal.run("config", "show", *more)
        assert told.code == 0, told.err
        assert word not in told.out + told.err
        assert "postgresql://me:***@h/d" in told.out


def test_the_schema_is_the_one_of_the_documentation(terminal: Terminal) -> None:
    printed = terminal.run("config", "schema")
    assert (printed.code, printed.out) == (0, (ROOT / SCHEMA).read_text(encoding="utf-8"))


def test_a_check_says_what_is_set_where_and_what_is_not_used(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    (terminal.folder / FILE).write_text("server: {port: 9000, host: localhost}\nmodels: [{match: m}]\n")
    monkeypatch.setenv("PALIMPSEST_SERVER__PORT", "9001")
    said = terminal.run("config", "check", "--host", "::1", "--upstream", "http://a.example/v1")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines() == [
        f"ok: command line, environment, {FILE}",
        "command line:",
        "  server.host",
        "  upstream.base_url",
        "environment:",
        "  PALIMPSEST_SERVER__PORT",
        "  PALIMPSEST_DATABASE__URL",
        "  PALIMPSEST_DATABASE__DATA_FOLDER",
        f"{FILE}:",
        "  server.host  # not used: command line",
        "  server.port  # not used: environment, PALIMPSEST_SERVER__PORT",
        "  models",
    ]
    told = json.loads(terminal.run("config", "check", "--json").out)
    assert (told["ok"], told["problems"]) == (True, [])
    assert told["sources"][-1]["source"] == FILE
    assert "demo" in told["warnings"][0]
    # Neither a database nor its folder.
    assert [path.name for path in terminal.folder.iterdir()] == [FILE]


def test_a_check_names_a_file_that_sets_nothing_and_warns_as_a_start_does(terminal: Terminal) -> None:
    other = terminal.folder / "other.yaml"
    other.write_text("server:\n")
    said = terminal.run("config", "check", str(other), "--upstream", "http://a.example?key=Kanarienvogel")
    assert said.code == 0
    assert f"{other}: sets nothing" in said.out.splitlines()
    assert said.err.startswith("warning: upstream.base_url: http://a.example has no version path")
    assert "Kanarienvogel" not in said.err


def test_a_check_names_every_problem_its_place_and_its_remedy(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    (terminal.folder / FILE).write_text(
        "server: {prot: 1}\nupstream: http://a.example/v1\npolicy: {trigger_ratio: 7}\nmodels: [{}]\n"
    )
    monkeypatch.setenv("PALIMPSEST_SERVER__HOTS", "a")
    monkeypatch.setenv("PALIMPSEST_SEVER__HOST", "a")
    monkeypatch.setenv("PALIMPSEST_SESSIONS__HEADERS", "x-mine")
    lines = [
        "environment: PALIMPSEST_SEVER__HOST is not a setting. Did you mean PALIMPSEST_SERVER__HOST?",
        "environment: PALIMPSEST_SESSIONS__HEADERS must be JSON",
        f"{FILE}: upstream is a section, not a value. Did you mean upstream.base_url?",
        f"{FILE}: server.prot is not a setting. Did you mean server.port?",
        "environment: PALIMPSEST_SERVER__HOTS is not a setting. Did you mean PALIMPSEST_SERVER__HOST?",
        f"{FILE}: policy.trigger_ratio must be at most 0.95.",
    ]
    for words in (("config", "check"), ("serve",), ("config", "show")):
        said = terminal.run(*words)
        assert (said.code, said.out) == (REFUSED, "")
        assert [line for line in lines if f"palimpsest: {line}" not in said.err] == []
        assert len(said.err.splitlines()) == len(lines)
    told = terminal.run("config", "check", "--json")
    assert (told.code, told.err) == (REFUSED, "")
    assert (json.loads(told.out)["ok"], len(json.loads(told.out)["problems"])) == (False, len(lines))


def test_a_check_names_all_contradictions_and_where_each_side_is_set(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    (terminal.folder / FILE).write_text(
        "server: {host: 0.0.0.0, cors_origins: ['*']}\npolicy: {target_ratio: 0.9}\nmodels: [{match: a}]\n"
    )
    monkeypatch.setenv("PALIMPSEST_UPSTREAM__API_KEY", "Kanarienvogel")
    said = terminal.run("config", "check")
    assert said.code == REFUSED
    key, pages, ratio = said.err.splitlines()
    assert key.endswith(
        f"From: upstream.api_key (environment, PALIMPSEST_UPSTREAM__API_KEY), server.host ({FILE})."
    )
    assert pages.endswith(f"From: server.cors_origins ({FILE}).")
    assert ratio.endswith(f"every turn would compact again. From: policy.target_ratio ({FILE}).")
    assert "Kanarienvogel" not in said.err


def test_a_check_looks_at_the_files_and_processes_that_a_start_needs(terminal: Terminal) -> None:
    (terminal.folder / FILE).write_text(
        "compaction: {daily_log_folder: none}\nsummarizer: {prompt_file: none.txt}\n"
        "upstream: {ca_bundle: none.pem}\nserver: {workers: 2}\n"
    )
    checked, started = (terminal.run(*words) for words in (("config", "check"), ("serve",)))
    assert (checked.code, started.code) == (REFUSED, REFUSED)
    refusals = [line for line in checked.err.splitlines() if not line.startswith("warning: ")]
    assert refusals == started.err.splitlines()
    for said in ("daily_log_folder: there is", "server.workers", "prompt_file", "ca_bundle: none.pem"):
        assert said in checked.err


def test_a_check_finds_a_missing_package(tmp_path: Path) -> None:
    """As where the extra is not installed."""
    (tmp_path / "asyncpg.py").write_text("raise ModuleNotFoundError\n")
    command = [sys.executable, "-m", "palimpsest", "config", "check", "--database", "postgresql://h/d"]
    environment = {"PYTHONPATH": f"{tmp_path}:{ROOT / 'app'}"}
    said = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert said.returncode == REFUSED
    assert "pip install 'palimpsest[postgres]'" in said.stderr

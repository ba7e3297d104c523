"""The command line as a person uses it: real processes, readable refusals, exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from palimpsest.cli.doctor import search_index_of
from palimpsest.cli.main import app
from palimpsest.cli.serve import welcome
from palimpsest.settings.load import load_settings
from typer.main import get_command

from tests.house.sources import ROOT
from tests.kit.terminal import Terminal, variables_of

# A process that does not answer within this is stuck; every wait ends as soon as it answers.
PATIENCE_SECONDS = 60


@contextmanager
def _running(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and the first line it says."""
    process = subprocess.Popen(
        [sys.executable, "-m", "palimpsest", *words],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if not k.startswith("PALIMPSEST_")}
        | variables_of(folder)
        | {"PYTHONPATH": str(ROOT / "app")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.communicate()


def test_help_names_every_command_in_its_panel(terminal: Terminal) -> None:
    said = terminal.run("--help").out
    listed = re.findall(r"(?m)^  ([a-z]+)  ", said.partition("Run:")[2])
    assert sorted(listed) == sorted(vars(get_command(app))["commands"])
    assert re.findall(r"(?m)^([A-Z][a-z]+):$", said) == ["Options", "Run", "Look", "Change", "Operate"]


# Runs the lifespan of the application that `serve` runs; says, once it would listen, what is loaded.
_STARTS = """
import asyncio, sys
import palimpsest.cli.serve
from palimpsest.main.application import create_app
from palimpsest.settings.load import load_settings

async def begins():
    steps = iter(("startup", "shutdown"))
    async def receive():
        step = next(steps)
        if step == "shutdown":
            print(*sorted(sys.modules))
        return {"type": f"lifespan.{step}"}
    async def send(message):
        assert "failed" not in message["type"], message
    settings = load_settings(None, {"upstream.base_url": "http://127.0.0.1:9/v1"})
    await create_app(settings)({"type": "lifespan"}, receive, send)

asyncio.run(begins())
"""


def test_a_start_loads_nothing_that_only_some_requests_need(terminal: Terminal) -> None:
    """Pages under `/api`, stemmers, published prices, migrations, the other database, MCP."""
    assert terminal.run("db", "migrate").code == 0
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "app")}
    command = [sys.executable, "-c", _STARTS]
    ran = subprocess.run(
        command, cwd=terminal.folder, env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(ran.stdout.split())
    assert "palimpsest.proxy.exchange" in loaded
    late = {
        "fastapi",
        "jinja2",
        "palimpsest.api.pages",
        "snowballstemmer",
        "genai_prices",
        "alembic",
        "asyncpg",
        "mcp",
    }
    assert loaded & late == set()


@pytest.mark.parametrize(
    ("words", "more", "said"),
    [
        (("serve", "--host", "0.0.0.0"), {"PALIMPSEST_UPSTREAM__API_KEY": "sk-x"}, "access.mode"),
        (("keys", "list"), {}, "palimpsest db migrate"),
        (("show", "tour", "--url", "http://127.0.0.1:9"), {}, "cannot be reached"),
        (("erase", "--yes"), {}, "--all"),
        (("erase", "--yes", "--all", "--session", "tour"), {}, "--all"),
        (("erase", "--yes", "--all", "--block"), {}, "--all"),
        (("erase", "--yes", "--all", "--url", "http://127.0.0.1:9"), {}, "cannot be reached"),
    ],
)
def test_a_refusal_is_one_readable_line(
    terminal: Terminal,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    more: dict[str, str],
    said: str,
) -> None:
    for name, value in more.items():
        monkeypatch.setenv(name, value)
    refused = terminal.run(*words)
    assert refused.code == 2, refused
    assert said in refused.err
    assert len(refused.err.splitlines()) == 1


def test_the_folder_of_the_database_is_made(terminal: Terminal) -> None:
    made = terminal.run("db", "migrate", "--database", "sqlite:///one/two/new.db")
    assert made.code == 0, made
    assert (terminal.folder / "one" / "two" / "new.db").exists()


def test_doctor_passes_before_the_first_start_and_after_migration(terminal: Terminal) -> None:
    before = terminal.run("doctor", "--json")
    assert before.code == 0, before.out
    assert not (terminal.folder / "test.db").exists()
    terminal.run("db", "migrate")
    after = terminal.run("doctor", "--json")
    assert after.code == 0, after.out
    found = {finding["name"]: finding for finding in json.loads(after.out)["findings"]}
    assert found["database"]["state"] == "ok"
    assert {"palimpsest", "python", "packages", "sqlite", "search", "pepper", "access", "upstream"} <= set(
        found
    )


@pytest.mark.parametrize(
    ("url", "has_fts5", "state"),
    [("sqlite:///a.db", True, "ok"), ("sqlite:///a.db", False, "failed"), ("postgresql://h/d", False, "ok")],
)
def test_doctor_says_whether_searches_have_an_index(url: str, has_fts5: bool, state: str) -> None:
    assert search_index_of(url, has_fts5=has_fts5).state == state


def test_doctor_finds_the_windows_of_an_upstream(terminal: Terminal) -> None:
    terminal.run("db", "migrate")
    with _running(terminal.folder, "serve", "--demo", "--port", "0", "--window-tokens", "3210") as (_, said):
        upstream = said.split(" at ")[1].split(",")[0]
        found = terminal.run("doctor", "--upstream", upstream)
    assert found.code == 0, found.out
    assert "3,210 tokens, from the upstream" in found.out


def test_doctor_finds_what_a_start_refuses(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALIMPSEST_SERVER__WORKERS", "2")
    found = terminal.run("doctor")
    assert found.code == 1
    assert "failed   settings: server.workers: 2 processes need PostgreSQL" in found.out


def test_doctor_shows_what_it_has_found_while_a_server_does_not_answer(terminal: Terminal) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        upstream = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        with _running(terminal.folder, "doctor", "--upstream", upstream) as (process, said):
            assert process.stdout is not None
            while not said.startswith("ok       settings"):
                assert said
                said = process.stdout.readline()
            with silent.accept()[0]:
                silent.close()
            assert process.stdout.readline().startswith("failed   upstream")
            assert process.wait(PATIENCE_SECONDS) == 1


def test_an_address_is_shown_without_its_query(terminal: Terminal) -> None:
    """Some servers take their key there."""
    terminal.run("db", "migrate")
    address = "http://127.0.0.1:1/v1?code=Kanarienvogel"
    found = terminal.run("doctor", "--upstream", address)
    assert "http://127.0.0.1:1/v1: " in found.out
    with _running(terminal.folder, "serve", "--port", "0", "--upstream", address) as (process, _):
        assert process.stdout is not None
        said = process.stdout.readline()
    assert said == "Upstream: http://127.0.0.1:1/v1\n"
    assert "Kanarienvogel" not in found.out


def test_a_key_is_shown_once_listed_and_revoked(terminal: Terminal) -> None:
    terminal.run("db", "migrate")
    assert terminal.run("keys", "list").out == "There are no keys; `palimpsest keys create` makes one.\n"
    assert terminal.run("db", "windows").out == "No window was learned.\n"
    made = json.loads(terminal.run("keys", "create", "--label", "mine", "--json").out)
    again = json.loads(terminal.run("keys", "create", "--same-as", made["id"], "--json").out)
    assert again["namespace"] == made["namespace"]
    listed = terminal.run("keys", "list", "--json").out
    assert [row["id"] for row in json.loads(listed)] == [again["id"], made["id"]]
    assert made["key"] not in listed
    assert made["key"].encode() not in b"".join(
        f.read_bytes() for f in terminal.folder.iterdir() if f.is_file()
    )
    assert terminal.run("keys", "revoke", made["id"]).code == 0
    assert terminal.run("keys", "revoke", made["id"]).code == 1
    states = {row["id"]: row["revoked_at"] for row in json.loads(terminal.run("keys", "list", "--json").out)}
    assert states[again["id"]] is None
    assert states[made["id"]] is not None


def test_the_demo_answers_and_stops_when_told(terminal: Terminal) -> None:
    with _running(terminal.folder, "serve", "--demo", "--port", "0") as (process, said):
        address = said.split(" at ")[1].split(",")[0]
        with urllib.request.urlopen(f"{address}/models", timeout=PATIENCE_SECONDS) as answer:
            assert json.load(answer)["data"][0]["context_length"] == 2_000
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_SECONDS)


def test_without_an_upstream_the_demo_stands_behind_the_proxy(terminal: Terminal) -> None:
    with _running(terminal.folder, "serve", "--port", "0") as (process, said):
        address = said.split(" at ")[1].strip()
        assert process.stdout is not None
        told = "".join(iter(process.stdout.readline, f"Or in a browser: {address[:-3]}/ui\n"))
        assert "for n in" in told
        assert "/api/sessions/tour/view" in told
        assert "/api/sessions/tour/messages" in told
        with urllib.request.urlopen(f"{address}/models", timeout=PATIENCE_SECONDS) as answer:
            assert json.load(answer)["data"][0]["id"] == "palimpsest-demo"
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_SECONDS)


def test_commands_that_read_load_neither_server_nor_settings() -> None:
    """So that they say something within 0.4 s: aiohttp alone takes a quarter of that."""
    asked = "import sys, palimpsest.cli.main, palimpsest.upstream.own_api; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout
    heavy = {"aiohttp", "fastapi", "sqlalchemy", "tiktoken", "uvicorn", "palimpsest.settings.settings"}
    heavy |= {"rich", "pygments"}
    assert heavy & {*loaded.split()} == set()
    assert "httpx" in loaded.split()


def test_keys_have_an_expiry_and_limits_that_can_be_changed(terminal: Terminal) -> None:
    terminal.run("db", "migrate")
    limited = ("--expires", "2999-12-31", "--daily-tokens", "5000")
    made = json.loads(terminal.run("keys", "create", "--label", "ann", *limited, "--json").out)
    assert made["expires_at"] == "2999-12-31T00:00:00+00:00"
    assert (made["daily_tokens"], made["last_used_at"]) == (5000, None)
    line = terminal.run("keys", "list").out
    for said in (made["id"], "until 2999-12-31", "used never", "0 of 5,000 tokens", "ann"):
        assert said in line
    changed = terminal.run("keys", "set", made["id"], "--label", "bob", "--daily-tokens", "0")
    assert "bob" in changed.out
    (listed,) = json.loads(terminal.run("keys", "list", "--json").out)
    # What is not given stays.
    assert listed == {
        **{name: value for name, value in made.items() if name != "key"},
        "label": "bob",
        "daily_tokens": None,
        "used_today": None,
    }
    terminal.run("keys", "set", made["id"], "--expires", "never")
    (listed,) = json.loads(terminal.run("keys", "list", "--json").out)
    assert listed["expires_at"] is None
    terminal.run("keys", "revoke", made["id"])
    assert terminal.run("keys", "set", made["id"], "--expires", "30d").code == 1


def test_a_key_without_a_limit_of_its_own_shows_what_counts_against_the_general_one(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.run("db", "migrate")
    terminal.run("keys", "create", "--label", "ann")
    assert "today" not in terminal.run("keys", "list").out
    monkeypatch.setenv("PALIMPSEST_ACCESS__DAILY_TOKENS", "7000")
    assert "0 of 7,000 tokens today" in terminal.run("keys", "list").out
    (listed,) = json.loads(terminal.run("keys", "list", "--json").out)
    assert (listed["daily_tokens"], listed["used_today"]) == (None, {"tokens": 0})


def test_a_key_that_is_not_there_is_a_finding(terminal: Terminal) -> None:
    terminal.run("db", "migrate")
    for words in (("set", "none", "--label", "x"), ("revoke", "none")):
        said = terminal.run("keys", *words)
        assert (said.code, said.out) == (1, "")
        assert "`palimpsest keys list`" in said.err
    assert terminal.run("keys", "create", "--same-as", "none").code == 2


@pytest.mark.parametrize("words", ["keys list", "db windows", "db retention", "keys create"])
def test_a_database_that_is_not_there_is_named_and_not_made(terminal: Terminal, words: str) -> None:
    said = terminal.run(*words.split())
    assert said.code == 2
    assert f"there is no database at {terminal.folder / 'test.db'}" in said.err
    assert [*terminal.folder.iterdir()] == []


def test_a_proxy_that_asks_for_keys_says_so_in_the_tour_it_prints() -> None:
    settings = load_settings(None, {"access.mode": "keys"}, {})
    told = welcome("http://127.0.0.1:8000", settings, is_demo=True)
    assert "palimpsest keys create" in told
    assert told.count("curl -s ") == told.count('curl -s -H "Authorization: Bearer $KEY"') == 3
    assert "Bearer" not in welcome("http://127.0.0.1:8000", load_settings(None, {}, {}), is_demo=True)


@pytest.mark.parametrize("text", ["soon", "d", "0d", "-3d", "2020-01-01", "99999999999d", ""])
def test_an_expiry_is_a_time_to_come(terminal: Terminal, text: str) -> None:
    terminal.run("db", "migrate")
    refused = terminal.run("keys", "create", "--expires", text)
    assert refused.code == 2
    assert len(refused.err.splitlines()) == 1
    assert "--expires" in refused.err
    assert json.loads(terminal.run("keys", "list", "--json").out) == []


def test_what_retention_would_erase_is_listed(terminal: Terminal) -> None:
    terminal.run("db", "migrate")
    listed = terminal.run("db", "retention", "--days", "1")
    assert (listed.code, listed.out) == (0, "")
    assert "0 sessions" in listed.err
    assert json.loads(terminal.run("db", "retention", "--max-bytes", "1", "--json").out) == []

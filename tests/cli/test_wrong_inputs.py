"""What a newcomer gets wrong is answered by a sentence: what, where it was set, what to do."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.house.sources import ROOT
from tests.kit.processes import ran as run_command

pytestmark = pytest.mark.spec("H20")

# Nobody listens there.
CLOSED = "http://127.0.0.1:9/v1"
DOCTOR_FAILED, REFUSED = 1, 2


def _settings(folder: Path, more: dict[str, str]) -> dict[str, str]:
    return {"COLUMNS": "300", "NO_COLOR": "1", "HOME": str(folder)} | more


def ran(folder: Path, *words: str, more: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """What `palimpsest` says to these words in an empty folder, and its exit code."""
    return run_command(folder, *words, settings=_settings(folder, more or {}))


def _is_a_sentence(said: subprocess.CompletedProcess[str], parts: tuple[str, ...]) -> None:
    """One line of the refusal, with all its parts; nothing was printed as if it had worked."""
    assert said.returncode == REFUSED, said
    assert "Traceback" not in said.stderr
    assert said.stdout == ""
    (line,) = said.stderr.splitlines()
    assert [part for part in parts if part not in line] == [], line


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (
            ("serve", "--port", "0", "--database", "data.db"),
            ("command line", "database.url", "sqlite:///path/to/file.db"),
        ),
        (("db", "migrate", "--database", "data.db"), ("database.url", "sqlite:///path")),
        (
            ("serve", "--port", "0", "--database", "mysql://u:s3cret@h/d"),
            ("mysql is not served", "postgresql://"),
        ),
        (("serve", "--port", "0", "--database", "sqlite://data.db"), ("three slashes",)),
        (("serve", "--port", "0", "--database", "sqlite:///"), ("must name a file",)),
        (("serve", "--port", "0", "--database", "sqlite:///:memory:"), ("must name a file",)),
        (("serve", "--port", "0", "--database", "postgresql://u:s3cret@h"), ("must name a database",)),
        (
            ("serve", "--port", "0", "--database", "postgresql://u:s3cret@127.0.0.1:9/d"),
            ("Is the server up",),
        ),
        (
            ("serve", "--port", "0", "--database", "postgres://u:s3cret@nobody.invalid/d"),
            ("Is the server up",),
        ),
        (("db", "migrate", "--database", "postgresql://u:s3cret@127.0.0.1:9/d"), ("Is the server up",)),
        (("serve", "--port", "0", "--database", "sqlite:////dev/null/x.db"), ("database.url", "folder")),
        (("serve", "--port", "0", "--database", "sqlite:////dev"), ("database.url", "cannot be opened")),
        (("serve", "--port", "-1"), ("command line", "server.port", "at least 0")),
        (("serve", "--host", "nobody.invalid"), ("nobody.invalid", "--host")),
        (("serve", "--config", "/"), ("is a folder",)),
        (("serve", "--config", "none.yaml"), ("none.yaml", "no such file", "config.example.yaml")),
        (("erase", "--all", "--yes", "--url", "http://127.0.0.1:9"), ("cannot be reached", "--url")),
        (("serve", "--port", "0", "--host", "a..b"), ("a..b", "--host")),
        (("serve", "--demo", "--host", "a" * 300), ("--host",)),
        (("serve", "--demo", "--upstream", "http://a/v1"), ("--demo takes",)),
        (("serve", "--upstream", "http://a..b/v1"), ("upstream.base_url", "a..b")),
        (("serve", "--upstream", "http://xn--/v1"), ("upstream.base_url", "xn--")),
        *(
            ((*command.split(), "--database", f"sqlite:///{'a' * 300}"), ("aaa", "File name too long"))
            for command in ("serve", "db migrate", "db windows", "db retention")
        ),
        *(
            (("sessions", "--url", url), ("--url", "http://127.0.0.1:8000"))
            for url in ("http://127.0.0.1:abc", "http://[::1", "127.0.0.1:8000", "http://h:999999")
        ),
        (("sessions", "--key", "sk-ключ"), ("key",)),
        (("sessions", "--key", "sk-1\nx"), ("key",)),
        (("show", "a" * 100_000), ("too long",)),
        (("serve", "--upstream", "http://💩.la/v1"), ("upstream.base_url", "none")),
        (("db", "migrate", "--database", "postgresql://u:s3cret/x@h/d"), ("database.url", "%2F")),
        (("serve", "--upstream", "http://u:s3cret/x@h/v1"), ("upstream.base_url", "%2F")),
        (("sessions", "--url", "http://u:s3cret/x@h:1"), ("--url",)),
        (("show", "\udcff"), ("UTF-8",)),
    ],
)
def test_a_wrong_word(tmp_path: Path, words: tuple[str, ...], parts: tuple[str, ...]) -> None:
    said = ran(tmp_path, *words)
    _is_a_sentence(said, parts)
    assert "s3cret" not in said.stderr


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("upstream: https://api.openai.com/v1", ("upstream is a section", "upstream.base_url")),
        ("database: sqlite:///a.db", ("database is a section", "database.url")),
        ("server: []", ("server is a section", "server.host")),
        ("server:\n  port: 1\nserver:\n  port: 2\n", ("line 3", "server stands twice", "line 1")),
        ("server:\n  port: 1\n  port: 2\n", ("line 3", "port stands twice", "line 2")),
        ("server:\n\tport: 1\n", ("line 2", "tab", "spaces")),
        ("server:\n  port: 0\n---\nserver:\n  port: 2\n", ("line 3", "another document")),
        ("server.port: 99", ("server.port", "`server:`", "`port:`")),
        ("1: 2", ("1 is not a setting",)),
        ("models: gpt-4o", ("models", "list")),
        ("server:\n  port: eighty", ("server.port", "whole number")),
        ("server:\n  host: 5", ("server.host", "text")),
        ("upstream:\n  api_key: CHANGEME", ("palimpsest.yaml", "upstream.api_key", "placeholder")),
        ("upstream:\n  headers: [x-key]", ("upstream.headers", "{name: value}")),
        ("upstream:\n  headers: {x-key: <your key>}", ("upstream.headers", "placeholder")),
        ("upstream:\n  proxy_url: proxy", ("upstream.proxy_url", "http://")),
        ("upstream:\n  ca_bundle: none.pem", ("upstream.ca_bundle", "none.pem", "PEM")),
        ("upstream:\n  ca_bundle: palimpsest.yaml", ("upstream.ca_bundle", "PEM")),
        ("compaction:\n  daily_log_folder: none", ("compaction.daily_log_folder", "make it first")),
        ("database:\n  data_folder: /proc/none", ("/proc/none/pepper",)),
        ("a: " + "[" * 3_000, ("nested too deeply",)),
        ("server:\n  host: 2020-13-45", ("line 2", "in quotes")),
        (f"server:\n  port: {'9' * 5_000}", ("line 2", "in quotes")),
        ("a: !!set b", ("line 1", "not YAML")),
        ('upstream:\n  api_key: "a\\ud800"', ("upstream.api_key", "half of a character")),
        ('upstream:\n  headers: {a: "\\ud800"}', ("upstream.headers", "half of a character")),
        ('upstream:\n  ca_bundle: "a\\0b"', ("upstream.ca_bundle", "control character")),
        ('database:\n  url: "sqlite:///a\\0b"', ("database.url", "control character")),
        ('models: [{match: "a\\e[0m"}]', ("models.0.match", "control character")),
        ("database:\n  data_folder: palimpsest.yaml", ("palimpsest.yaml/pepper", "cannot be made")),
    ],
)
def test_a_wrong_file(tmp_path: Path, text: str, parts: tuple[str, ...]) -> None:
    (tmp_path / "palimpsest.yaml").write_text(text, encoding="utf-8")
    more = {} if "port" in text else {"PALIMPSEST_SERVER__PORT": "0"}
    _is_a_sentence(ran(tmp_path, "serve", more=more), parts)


@pytest.mark.parametrize("words", ["--version", "config show --all", "config schema", "keys list"])
@pytest.mark.parametrize("stream", [">/dev/full", ">&-"])
def test_an_output_that_takes_nothing(tmp_path: Path, words: str, stream: str) -> None:
    """A line and no traceback; where nobody wanted the output nothing is wrong."""
    ran(tmp_path, "db", "migrate")
    said = _in_shell(tmp_path, f"{words} {stream}")
    assert "Traceback" not in said.stderr
    assert (said.returncode, len(said.stderr.splitlines())) == ((REFUSED, 1) if "full" in stream else (0, 0))


# A file takes a kilobyte or two; compiled modules would be cut too.
_CUT = "ulimit -f 2; PYTHONDONTWRITEBYTECODE=1"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_output_that_takes_only_a_part(tmp_path: Path, unbuffered: str) -> None:
    said = _in_shell(tmp_path, "config schema >out", f"{_CUT} PYTHONUNBUFFERED={unbuffered} ")
    assert 0 < (tmp_path / "out").stat().st_size <= 2_048
    assert (said.returncode, len(said.stderr.splitlines())) == (REFUSED, 1)


def _in_shell(folder: Path, line: str, before: str = "") -> subprocess.CompletedProcess[str]:
    known = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "app")} | _settings(folder, {})
    return subprocess.run(
        ["sh", "-c", f"{before}{sys.executable} -m palimpsest {line}"],
        cwd=folder,
        env=known,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(("stream", "keys"), [(">/dev/full", 1), (">&-", 0)])
def test_a_key_that_nobody_sees_is_not_valid(tmp_path: Path, stream: str, keys: int) -> None:
    ran(tmp_path, "db", "migrate")
    assert _in_shell(tmp_path, f"keys create {stream}").returncode == REFUSED
    listed = json.loads(ran(tmp_path, "keys", "list", "--json").stdout)
    assert [key["revoked_at"] is None for key in listed] == [False] * keys


class _Other(BaseHTTPRequestHandler):
    """A server that is no proxy of ours."""

    def do_GET(self) -> None:
        self.send_response(200 if "sessions" in self.path or self.path == "/healthz" else 404)
        self.end_headers()
        self.wfile.write(b'{"error": {"message": ["a"]}}')

    def log_message(self, *_: object) -> None: ...


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("sessions", "is no Palimpsest"),
        ("show a", "is no Palimpsest"),
        ("export a", "is no Palimpsest"),
        ("report", "answered 404"),
        ("compact a", "is no Palimpsest"),
        ("erase --session a --yes", "is no Palimpsest"),
    ],
)
def test_another_server_at_the_address(tmp_path: Path, words: str, part: str) -> None:
    with _other_server() as url:
        _is_a_sentence(ran(tmp_path, *words.split(), "--url", url), (part,))


def test_another_server_is_posted_nothing(tmp_path: Path) -> None:
    (tmp_path / "document.json").write_text("{}")
    with _other_server() as url:
        said = ran(tmp_path, "import", "document.json", "--url", url)
    # A POST it would answer with 501.
    assert ("is no Palimpsest" in said.stdout, "501" in said.stdout) == (True, False)


@contextmanager
def _other_server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Other) as server:
        Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "palimpsest.yaml").write_bytes(b"\xff\xfe\x00s")
    _is_a_sentence(ran(tmp_path, "serve"), ("UTF-8",))


@pytest.mark.parametrize(
    ("name", "value", "parts"),
    [
        ("PALIMPSEST_UPSTREAM", CLOSED, ("is a section", "PALIMPSEST_UPSTREAM__BASE_URL")),
        ("PALIMPSEST_SERVER__PORT", "abc", ("environment", "PALIMPSEST_SERVER__PORT", "whole number")),
        ("PALIMPSEST_ROUTES", "[{", ("PALIMPSEST_ROUTES", "JSON")),
        ("PALIMPSEST_SESSIONS__HEADERS", "x-mine", ("PALIMPSEST_SESSIONS__HEADERS", "JSON")),
        ("PALIMPSEST_UPSTREAM__API_KEY", "${OPENAI_API_KEY}", ("API_KEY", "placeholder")),
        ("PALIMPSEST_CONFIG", "/none.yaml", ("/none.yaml", "no such file")),
    ],
)
def test_a_wrong_variable(tmp_path: Path, name: str, value: str, parts: tuple[str, ...]) -> None:
    given = {"PALIMPSEST_SERVER__PORT": "0", name: value}
    _is_a_sentence(ran(tmp_path, "serve", more=given), parts)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "data.db").write_text("not a database\n" * 1_000)
    said = ran(tmp_path, "serve", "--port", "0", "--database", "sqlite:///data.db")
    _is_a_sentence(said, ("database.url", "not a database", "Is it a SQLite file"))


def test_a_doctor_in_a_fresh_folder_finds_nothing_wrong_and_leaves_nothing(tmp_path: Path) -> None:
    said = ran(tmp_path, "doctor")
    assert (said.returncode, said.stderr) == (0, "")
    assert "does not exist yet; the first start makes it" in said.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("upstream", "part"),
    [(CLOSED, "refuses connections"), ("http://nobody.invalid/v1", "name cannot be resolved")],
)
def test_a_doctor_says_why_nobody_answers(tmp_path: Path, upstream: str, part: str) -> None:
    said = ran(tmp_path, "doctor", "--upstream", upstream)
    assert (said.returncode, said.stderr) == (DOCTOR_FAILED, "")
    assert f"failed   upstream: {upstream}: The upstream" in said.stdout
    assert part in said.stdout


@contextmanager
def _serving(folder: Path, *words: str) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "palimpsest", "serve", *words],
        cwd=folder,
        env={**os.environ, **_settings(folder, {}), "PYTHONPATH": str(ROOT / "app")},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert "listens" in process.stdout.readline()
        yield
    finally:
        process.kill()
        process.communicate()


def test_a_second_process_on_one_file_says_one_sentence(tmp_path: Path) -> None:
    with _serving(tmp_path, "--port", "0"):
        _is_a_sentence(ran(tmp_path, "serve", "--port", "0"), ("another process serves", "palimpsest.db"))


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        _is_a_sentence(ran(tmp_path, "serve", "--port", port), (port, "in use", "--port"))

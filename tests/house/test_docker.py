"""The container files name what exists, and keep what they promise: no root, health, loopback, keys mode."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from palimpsest.settings.load import variable_of
from palimpsest.settings.settings import known_keys

from tests.house.sources import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
VARIABLES = {variable_of(key) for key in known_keys()}


def _instructions() -> Iterator[tuple[str, str]]:
    """(name, rest) of each instruction, continued lines joined."""
    code = "\n".join(line for line in DOCKERFILE.splitlines() if not line.lstrip().startswith("#"))
    for line in code.replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name, rest


def _copied() -> list[str]:
    copies = [shlex.split(rest) for name, rest in _instructions() if name == "COPY" and "--from" not in rest]
    return [source for words in copies for source in words[:-1]]


def test_what_is_copied_exists() -> None:
    assert _copied()
    assert [name for name in _copied() if not (ROOT / name).exists()] == []


def test_what_is_copied_is_not_ignored() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert lines[1] == "*"
    admitted = [line[1:] for line in lines if line.startswith("!")]
    assert [name for name in _copied() if not any(fnmatch(name, rule) for rule in admitted)] == []


def test_dependencies_are_installed_by_hash() -> None:
    installs = [rest for name, rest in _instructions() if name == "RUN" and "pip install" in rest]
    assert len(installs) == 2
    assert "--require-hashes" in installs[0]
    assert "--no-deps" in installs[1]
    assert "--no-index" in installs[1]


def test_the_image_runs_as_a_number_that_is_not_root() -> None:
    users = [rest for name, rest in _instructions() if name == "USER"]
    assert [re.fullmatch(r"[1-9]\d*:[1-9]\d*", user) is not None for user in users] == [True]


def test_database_and_pepper_are_in_the_volume() -> None:
    assert ("VOLUME", '["/data"]') in list(_instructions())
    assert "PALIMPSEST_DATABASE__URL=sqlite:////data/" in DOCKERFILE
    assert "PALIMPSEST_DATABASE__DATA_FOLDER=/data" in DOCKERFILE


def test_the_healthcheck_is_python_that_parses() -> None:
    (check,) = re.findall(r"HEALTHCHECK[^\n]*\\\n\s*CMD (\[.*\])", DOCKERFILE)
    command = yaml.safe_load(check)
    assert command[:2] == ["python", "-c"]
    compile(command[2], "healthcheck", "exec")
    assert "/healthz" in command[2]


def test_every_variable_of_the_image_and_the_compose_file_is_a_setting() -> None:
    named = set(re.findall(r"\bPALIMPSEST_\w+", DOCKERFILE)) | {
        name for service in SERVICES.values() for name in service.get("environment", {})
    }
    assert named
    assert named - VARIABLES == set()


@pytest.mark.parametrize("service", SERVICES)
def test_ports_are_published_on_loopback_only(service: str) -> None:
    ports = SERVICES[service].get("ports", [])
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


@pytest.mark.parametrize("service", SERVICES)
def test_commands_exist(service: str) -> None:
    command = SERVICES[service].get("command", ["palimpsest", "serve"])
    assert command[0] == "palimpsest"
    shown = subprocess.run(
        [sys.executable, "-m", "palimpsest", command[1], "--help"],
        cwd=ROOT,
        env={"COLUMNS": "200", "PATH": "", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert [word for word in command[2:] if word.startswith("--") and word not in shown] == []


def test_the_proxy_waits_for_a_healthy_upstream_and_wants_its_own_keys() -> None:
    proxy = SERVICES["palimpsest"]
    assert proxy["depends_on"]["upstream"]["condition"] == "service_healthy"
    assert SERVICES["upstream"]["healthcheck"]["test"]
    assert proxy["environment"]["PALIMPSEST_ACCESS__MODE"] == "keys"
    assert "host.docker.internal:host-gateway" in proxy["extra_hosts"]
    assert "data:/data" in proxy["volumes"]


def test_what_must_be_changed_is_marked() -> None:
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    for name in ("PALIMPSEST_UPSTREAM__BASE_URL", "PALIMPSEST_UPSTREAM__API_KEY"):
        before = text[: text.index(f"{name}:")].splitlines()[-2]
        assert "CHANGEME" in before


def test_lock_files_name_no_host_and_hash_everything() -> None:
    for name in ("requirements.lock", "requirements-dev.lock"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert not re.search(r"https?://|--index|--find-links|--trusted-host|@ ", text)
        pins = re.split(r"\n(?=\S)", re.sub(r"(?m)^#.*\n", "", text).strip())
        assert [pin.splitlines()[0] for pin in pins if "--hash=sha256:" not in pin] == []


def test_the_lock_files_agree() -> None:
    runtime, develop = (_pins(ROOT / name) for name in ("requirements.lock", "requirements-dev.lock"))
    assert runtime
    assert runtime.items() <= develop.items()


def test_everything_declared_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    declared = [re.split(r"[\[>=]", each)[0] for each in wanted]
    assert {"asyncpg", "fastapi", "mcp", "pytest"} <= set(declared)
    assert set(declared) - set(_pins(ROOT / "requirements-dev.lock")) == set()


def _pins(file: Path) -> dict[str, str]:
    return dict(re.findall(r"(?m)^([a-z0-9-]+)==(\S+)", file.read_text(encoding="utf-8")))

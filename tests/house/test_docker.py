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
from palimpsest.settings.load import load_settings, variable_of
from palimpsest.settings.settings import known_keys

from scripts.sbom import locked, not_running
from tests.house.schema import refusals_of
from tests.house.sources import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
VARIABLES = {variable_of(key) for key in known_keys()}
COMPOSE_FILES = [
    "docker-compose.yml",
    *sorted(f"deploy/{file.name}" for file in (ROOT / "deploy").glob("compose.*.yml")),
]
TEXTS = {name: (ROOT / name).read_text(encoding="utf-8") for name in COMPOSE_FILES}
COMPOSE: dict[str, dict[str, Any]] = {name: yaml.safe_load(text) for name, text in TEXTS.items()}
SERVICES: dict[str, dict[str, Any]] = {
    f"{name}:{service}": given
    for name, file in COMPOSE.items()
    for service, given in file["services"].items()
}
OURS = {name: given for name, given in SERVICES.items() if given["image"] == "palimpsest:local"}
_SERVE = ["palimpsest", "serve"]
PROXIES = {name: given for name, given in OURS.items() if given.get("command", _SERVE) == _SERVE}
# What a person has put into .env; the keys and passwords of the files' CHANGEME.
_DOT_ENV = {
    "POSTGRES_PASSWORD": "0123abcd",
    "LITELLM_MASTER_KEY": "sk-0123abcd",
    "WEBUI_SECRET_KEY": "0123abcd",
}


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
    # The debug image is root while tools are installed.
    assert users == ["10001:10001", "0:0", "10001:10001"]


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


def test_every_variable_of_the_image_is_a_setting() -> None:
    named = set(re.findall(r"\bPALIMPSEST_\w+", DOCKERFILE))
    assert named
    assert named - VARIABLES == set()


def test_the_image_is_labelled() -> None:
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', DOCKERFILE))
    assert labels.keys() == {"title", "description", "licenses", "version", "revision", "source"}
    arguments = {rest.partition("=")[0] for name, rest in _instructions() if name == "ARG"}
    assert set(re.findall(r"\$\{(\w+)\}", " ".join([*labels.values(), *_stages()]))) == arguments


def _stages() -> list[str]:
    return [rest for name, rest in _instructions() if name == "FROM"]


def test_a_build_without_a_target_makes_the_program_alone() -> None:
    assert [stage.partition(" AS ")[2] or stage for stage in _stages()] == [
        "build",
        "runtime",
        "debug",
        "runtime",
    ]


def test_what_only_builds_it_leaves_the_image() -> None:
    (gone,) = re.findall(r"pip uninstall --yes ([^\n]+)", DOCKERFILE)
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert set(gone.split()) == {*not_running(locked(lock)), "pip"}


@pytest.mark.parametrize("service", SERVICES)
def test_ports_are_published_on_loopback_only(service: str) -> None:
    ports = SERVICES[service].get("ports", [])
    assert [port for port in ports if not re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port)] == []


@pytest.mark.parametrize("name", COMPOSE)
def test_a_compose_file_is_consistent(name: str) -> None:
    """What is waited for can be waited for, volumes are declared, files that are mounted are there."""
    services, volumes = COMPOSE[name]["services"], COMPOSE[name]["volumes"]
    used = set()
    for service, given in services.items():
        for other, how in given.get("depends_on", {}).items():
            assert other != service
            can = {"service_healthy": _is_checked, "service_completed_successfully": _ends}
            assert can[how["condition"]](services[other]), f"{service} waits for {other}"
        for source, _, _ in (f"{volume}:".split(":", 2) for volume in given.get("volumes", [])):
            if source.startswith("."):
                assert (ROOT / name).parent.joinpath(source).is_file()
            else:
                used.add(source)
    assert used == volumes.keys()
    assert re.search(r"CHANGEME", TEXTS[name])


def _is_checked(service: dict[str, Any]) -> bool:
    # The image brings a check of the proxy.
    is_proxy = service["image"] == "palimpsest:local" and service.get("command", _SERVE) == _SERVE
    return is_proxy or bool(service.get("healthcheck", {}).get("test"))


def _ends(service: dict[str, Any]) -> bool:
    return bool(service["restart"] == "no" and service["command"] == ["palimpsest", "db", "migrate"])


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_may_gain_no_rights(service: str) -> None:
    assert SERVICES[service]["cap_drop"] == ["ALL"]
    assert SERVICES[service]["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.parametrize("service", OURS)
def test_the_programs_own_root_is_read_only(service: str) -> None:
    assert OURS[service]["read_only"] is True
    assert (ROOT / service.partition(":")[0]).parent.joinpath(OURS[service]["build"], "Dockerfile").is_file()


@pytest.mark.parametrize("service", PROXIES)
def test_a_proxy_gets_settings_it_accepts(service: str) -> None:
    """In keys mode, with database and pepper in the volume."""
    image = dict(re.findall(r"(PALIMPSEST_\w+)=(\S+)", DOCKERFILE))
    given = {name: _filled(text) for name, text in PROXIES[service]["environment"].items()}
    assert given.keys() <= VARIABLES
    settings = load_settings(None, None, image | given)
    assert settings.access.mode == "keys"
    assert refusals_of(settings.model_dump(mode="json", exclude_unset=True)) == []
    assert any(volume.endswith(":/data") for volume in PROXIES[service]["volumes"])
    assert int(PROXIES[service]["stop_grace_period"].removesuffix("s")) > settings.server.shutdown_seconds


def _filled(text: str) -> str:
    """With what .env says, or the default behind `:-`, as compose fills it in."""

    def value(reference: re.Match[str]) -> str:
        return _DOT_ENV.get(reference[1]) or ("" if reference[2] == "?" else reference[3])

    return re.sub(r"\$\{(\w+):([-?])([^}]*)\}", value, text)


@pytest.mark.parametrize("service", OURS)
def test_commands_exist(service: str) -> None:
    command = OURS[service].get("command", _SERVE)
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


def test_the_replicas_share_database_and_pepper() -> None:
    one, two = (SERVICES[f"deploy/compose.postgres.yml:{name}"] for name in ("one", "two"))
    assert one == two
    assert one["volumes"] == ["pepper:/data"]
    balancer = (ROOT / "deploy/haproxy.cfg").read_text(encoding="utf-8")
    assert re.findall(r"server (\w+) \1:8000", balancer) == ["one", "two"]


def test_litellm_is_given_the_keys_it_reads() -> None:
    named = set(re.findall(r"os\.environ/(\w+)", (ROOT / "deploy/litellm.yaml").read_text(encoding="utf-8")))
    assert named <= SERVICES["deploy/compose.litellm.yml:litellm"]["environment"].keys()


def test_open_webui_names_users_and_chats_by_headers_that_the_proxy_reads() -> None:
    front, proxy = (
        SERVICES[f"deploy/compose.open-webui.yml:{name}"] for name in ("open-webui", "palimpsest")
    )
    assert front["environment"]["ENABLE_FORWARD_USER_INFO_HEADERS"] == "true"
    settings = load_settings(None, None, {name: _filled(text) for name, text in proxy["environment"].items()})
    assert settings.access.identity_headers == ("x-openwebui-user-id",)
    assert "x-openwebui-chat-id" in settings.sessions.headers


@pytest.mark.parametrize("name", COMPOSE)
def test_what_must_be_changed_is_marked(name: str) -> None:
    """Each value that comes from .env, by the line before it or by what compose says where it is missing."""
    lines = TEXTS[name].splitlines()
    for number, line in enumerate(lines):
        if re.search(r"\$\{\w*(KEY|PASSWORD|BASE_URL)\b", line):
            assert "CHANGEME" in lines[number - 1] + line


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

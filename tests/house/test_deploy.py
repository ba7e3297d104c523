"""The unit for systemd and the workflows name what exists, and wait for as long as the proxy does."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest
import yaml
from palimpsest.settings.load import load_settings

from tests.house.schema import refusals_of
from tests.house.sources import ROOT

UNIT = (ROOT / "deploy/palimpsest.service").read_text(encoding="utf-8")
WORKFLOWS: dict[str, dict[str, Any]] = {
    file.name: yaml.safe_load(file.read_text(encoding="utf-8"))
    for file in sorted((ROOT / ".github/workflows").glob("*.yml"))
}
FORMS = sorted(file.name for file in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if file.stem != "config")


def unit(name: str) -> list[str]:
    """The values of a setting of the unit, in order."""
    return re.findall(rf"(?m)^{name}=(.*)$", UNIT)


def test_the_unit_runs_commands_that_exist() -> None:
    commands = [*unit("ExecStartPre"), *unit("ExecStart")]
    assert [command.split()[1] for command in commands] == ["db", "serve"]
    for command in commands:
        program, *words, option, file = command.split()
        assert program == "/opt/palimpsest/bin/palimpsest"
        shown = subprocess.run(
            [sys.executable, "-m", "palimpsest", *words, "--help"],
            env={"COLUMNS": "200", "PATH": "", "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert option in shown
        assert file == "/etc/palimpsest/palimpsest.yaml"


def test_the_file_of_the_unit_is_one_that_the_proxy_reads() -> None:
    """As docs/deploying.md writes it."""
    page = (ROOT / "docs/deploying.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"printf '(.+)' > /etc/palimpsest/palimpsest\.yaml", page)
    assert refusals_of(yaml.safe_load(text.replace("\\n", "\n"))) == []


def test_the_unit_kills_later_than_the_proxy_stops() -> None:
    (seconds,) = unit("TimeoutStopSec")
    assert int(seconds) > load_settings(None, None, {}).server.shutdown_seconds
    assert unit("KillMode") == ["mixed"]


def test_the_unit_confines_the_proxy_to_its_folder() -> None:
    assert unit("ProtectSystem") == ["strict"]
    assert unit("WorkingDirectory") == [f"/var/lib/{folder}" for folder in unit("StateDirectory")]
    # Without setpriority, which is of this group, the background process cannot start.
    assert not [
        value for value in unit("SystemCallFilter") if value.startswith("~") and "@resources" in value
    ]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_may_little_and_pins_what_it_uses(name: str) -> None:
    """Other people's actions by version; rights to write are of single jobs."""
    assert WORKFLOWS[name]["permissions"] == {"contents": "read"}
    jobs = WORKFLOWS[name]["jobs"].values()
    steps = [step for job in jobs for step in job.get("steps", [])]
    used = [step["uses"] for step in steps if "uses" in step]
    assert [each for each in used if not re.fullmatch(r"actions/[\w-]+@v\d+(\.\d+)*", each)] == []
    checkouts = [step for step in steps if step.get("uses", "").startswith("actions/checkout")]
    assert [step["with"]["persist-credentials"] for step in checkouts] == [False] * len(checkouts)


def test_workflows_run_what_exists() -> None:
    runs = [step["run"] for job in _jobs() for step in job.get("steps", []) if "run" in step]
    text = "\n".join(runs)
    made = re.findall(r"(?m)^make ([\w ]+)$", text)
    targets = set(re.findall(r"(?m)^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8")))
    assert made
    assert {target for each in made for target in each.split()} <= targets
    files = re.findall(r"(?:scripts/[\w.]+|\.ci/\w+)", text)
    assert set(files) == {".ci/run", "scripts/release_notes.py"}
    assert [name for name in files if not (ROOT / name).is_file()] == []
    arguments = set(re.findall(r"--build-arg (\w+)=", text))
    assert arguments == set(re.findall(r"(?m)^ARG (\w+)=", (ROOT / "Dockerfile").read_text())) - {"PYTHON"}


def _jobs() -> list[dict[str, Any]]:
    return [job for workflow in WORKFLOWS.values() for job in workflow["jobs"].values()]


@pytest.mark.parametrize("name", FORMS)
def test_a_form_asks_for_something_and_its_links_lead_somewhere(name: str) -> None:
    text = (ROOT / ".github/ISSUE_TEMPLATE" / name).read_text(encoding="utf-8")
    form = yaml.safe_load(text)
    assert {"name", "description", "labels", "body"} <= form.keys()
    asked = [field for field in form["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in asked}) == len(asked)
    assert any(field.get("validations", {}).get("required") for field in asked)
    linked = re.findall(r"\]\(\.\./blob/main/([^)]+)\)", text)
    assert [page for page in linked if not (ROOT / page).is_file()] == []


def test_the_form_for_bugs_asks_what_finding_them_takes() -> None:
    text = (ROOT / ".github/ISSUE_TEMPLATE/bug.yml").read_text(encoding="utf-8")
    for words in (
        "palimpsest doctor --json",
        "palimpsest --version",
        "Client and upstream",
        "conversations and keys",
    ):
        assert words in text

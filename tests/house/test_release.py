"""What a release is made of: the change log's section, and the bill of what is locked."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from scripts.release_notes import notes
from scripts.sbom import bill, locked, not_running
from tests.house.sources import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
CHANGES = """# Changelog

## [Unreleased]

## [1.10.0] - 2026-02-01

### Added

- Newer.

## [1.1.0] - 2026-01-01

- Older, [with a link][docs].

[docs]: https://example.org
"""


def test_the_section_of_a_version_is_found() -> None:
    assert notes(CHANGES, "1.10.0") == "### Added\n\n- Newer."
    assert notes(CHANGES, "v1.1.0") == "- Older, [with a link][docs]."


@pytest.mark.parametrize("version", ["Unreleased", "1.1", "1x1.0", "2.0.0", ""])
def test_what_has_no_section_or_an_empty_one_is_not(version: str) -> None:
    assert notes(CHANGES, version) is None


def test_the_command_prints_the_section_of_this_version() -> None:
    command = [sys.executable, "scripts/release_notes.py"]
    ran = subprocess.run(
        [*command, f"v{PROJECT['version']}"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert ran.stdout.startswith("### ")
    refused = subprocess.run([*command, "v0.0.0"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "v0.0.0" in refused.stderr


def test_every_locked_package_is_in_the_bill_with_version_and_hashes() -> None:
    pins = dict(re.findall(r"(?m)^([a-z0-9-]+)==(\S+)", LOCK))
    components = bill(LOCK, PROJECT)["components"]
    assert {each["name"]: each["version"] for each in components} == pins
    listed = [found["content"] for each in components for found in each["externalReferences"][0]["hashes"]]
    assert listed == re.findall(r"--hash=sha256:(\w+)", LOCK)


def test_the_bill_is_valid_and_the_same_each_time() -> None:
    text = json.dumps(bill(LOCK, PROJECT))
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(text) is None
    assert text == json.dumps(bill(LOCK, PROJECT))
    # The control.
    assert validator.validate_str(text.replace('"SHA-256"', '"SHA-257"')) is not None


def test_the_bill_says_what_needs_what() -> None:
    made = bill(LOCK, PROJECT)
    needs = {each["ref"]: set(each["dependsOn"]) for each in made["dependencies"]}
    root = made["metadata"]["component"]["bom-ref"]
    direct = {ref.split("/")[1].split("@")[0] for ref in needs[root]}
    extras = PROJECT["optional-dependencies"]
    declared = {
        re.split(r"[\[>=]", each)[0]
        for each in [*PROJECT["dependencies"], *extras["postgres"], *extras["mcp"]]
    }
    assert declared <= direct
    reached, found = {root}, needs[root]
    while found - reached:
        reached |= found
        found = set[str]().union(*(needs[ref] for ref in found))
    assert reached == needs.keys()


def test_what_only_builds_is_excluded() -> None:
    excluded = {each["name"] for each in bill(LOCK, PROJECT)["components"] if each["scope"] == "excluded"}
    assert "hatchling" in excluded
    assert "httpx" not in excluded
    assert excluded == not_running(locked(LOCK))


def test_a_lock_file_without_pins_is_refused() -> None:
    with pytest.raises(ValueError, match="no pinned package: httpx"):
        locked("httpx>=1\n")

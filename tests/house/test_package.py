"""What is given away: the licence stands where people and tools look, and the package says the same."""

from __future__ import annotations

import tomllib

from tests.house.sources import ROOT


def test_the_licence_is_whole_and_named() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License\n" in text
    assert "Version 2.0, January 2004" in text
    assert "9. Accepting Warranty or Additional Liability." in text
    assert "Copyright 2026 The Palimpsest Authors" in text
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (project["license"], project["license-files"], project["readme"]) == (
        "Apache-2.0",
        ["LICENSE"],
        "README.md",
    )


def test_the_changelog_has_the_version_that_is_built() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## [{project['version']}] - " in changes
    assert changes.index("## [Unreleased]") < changes.index(f"## [{project['version']}]")

"""`make sbom`: the locked packages as CycloneDX JSON, with versions, hashes, licences, and what needs what.

Written from `requirements.lock` and the metadata of what is installed, so the same lock gives the same bytes.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
Json = dict[str, Any]
# What pip-compile calls the project where it says who wants a package, and its build.
_PROJECT, _BUILD = "palimpsest", "build-system"
_PIN = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)
# A licence in the oldest field may be its whole text.
_NAME_CHARS = 80


@dataclass(frozen=True)
class Locked:
    """A package of the lock file, and the names of those that want it."""

    name: str
    version: str
    hashes: tuple[str, ...]
    wanted_by: frozenset[str]
    only_builds: bool

    @property
    def purl(self) -> str:
        """The package as https://github.com/package-url names it."""
        return f"pkg:pypi/{self.name}@{self.version}"


def locked(text: str) -> list[Locked]:
    """The packages of a lock file that pip-compile wrote with hashes and annotations, in order."""
    found = []
    for entry in re.split(r"\n(?=\S)", re.sub(r"(?m)^#.*\n", "", text).strip()):
        pin = _PIN.match(entry)
        if pin is None:
            raise ValueError(f"no pinned package: {entry.splitlines()[0]}")
        via = re.findall(r"(?m)^ +# +(?:via +)?(?!via$)(\S.*)$", entry)
        hashes = tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})", entry))
        wanted_by = frozenset(each.split()[0].partition("[")[0] for each in via)
        only_builds = all(each.startswith(_PROJECT) and _BUILD in each for each in via)
        found.append(Locked(pin[1], pin[2], hashes, wanted_by, only_builds))
    return found


def not_running(packages: list[Locked]) -> set[str]:
    """The packages that are wanted for building alone, directly or by way of others."""
    running: set[str] = set()
    wanted = {
        package.name for package in packages if _PROJECT in package.wanted_by and not package.only_builds
    }
    while wanted - running:
        running |= wanted
        wanted = {package.name for package in packages if package.wanted_by & running}
    return {package.name for package in packages} - running


def licences(name: str) -> list[Json]:
    """What the installed package says of its licence; empty where it is not installed or says nothing."""
    try:
        said = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return []
    if "License-Expression" in said:
        return [{"expression": said["License-Expression"]}]
    classified = [
        text.rpartition(" :: ")[2] for text in said.get_all("Classifier", []) if text.startswith("License ::")
    ]
    written = [text for text in said.get_all("License", []) if "\n" not in text and len(text) < _NAME_CHARS]
    return [{"license": {"name": text}} for text in classified or written]


def bill(lock: str, project: Mapping[str, Any]) -> Json:
    """The bill of materials of the project with these locked packages."""
    packages = locked(lock)
    excluded = not_running(packages)
    refs = {package.name: package.purl for package in packages}
    root = f"pkg:generic/{project['name']}@{project['version']}"
    wants = {_PROJECT: root, **refs}
    needs = {
        ref: sorted(package.purl for package in packages if name in package.wanted_by)
        for name, ref in wants.items()
    }
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{root} {lock}')}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": project["name"],
                "version": project["version"],
                "description": project["description"],
                "licenses": [{"expression": project["license"]}],
            }
        },
        "components": [_component(package, excluded) for package in packages],
        "dependencies": [{"ref": ref, "dependsOn": below} for ref, below in needs.items()],
    }


def _component(package: Locked, excluded: set[str]) -> Json:
    hashes = [{"alg": "SHA-256", "content": each} for each in package.hashes]
    component: Json = {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "scope": "excluded" if package.name in excluded else "required",
        "purl": package.purl,
        # Of the files that may be installed: one for each platform.
        "externalReferences": [{"type": "distribution", "url": package.purl, "hashes": hashes}],
    }
    if said := licences(package.name):
        component["licenses"] = said
    return component


def main(into: str = "build/sbom.cdx.json") -> int:
    """Writes it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    made = bill((ROOT / "requirements.lock").read_text(encoding="utf-8"), project)
    file = ROOT / into
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(made, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    sys.stdout.write(f"{into}: {len(made['components'])} packages\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

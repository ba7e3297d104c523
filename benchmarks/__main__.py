"""All measurements, or one: python -m benchmarks [NAME] [options].

Names: parse, store_writes, upstream_client, overhead, conversations. Without one they run one after the other
with their defaults, in about eight minutes; `presets` only by its name, for it takes as long again, and
`policy` and `day`, which measure no speed, `routing`, `soak`, which measures memory, `stalls`, `pages`, which
needs a browser, `telemetry`, which takes
seconds, `first_output`, which times the command line, `start`, and `blind`, which waits
for a writer.
"""

from __future__ import annotations

import subprocess
import sys

# In this order; each with what keeps it short when all of them run.
_ALL: dict[str, list[str]] = {
    "parse": [],
    "store_writes": ["--seconds", "1.5"],
    "upstream_client": ["--seconds", "0.5", "--rounds", "2"],
    "overhead": ["--rounds", "2"],
    "conversations": ["--rounds", "2", "--clients", "1,16,64"],
}
# Those that run when they are named.
_NAMED = (
    *_ALL,
    "presets",
    "recall_quality",
    "recall_store",
    "day",
    "soak",
    "routing",
    "stalls",
    "pages",
    "telemetry",
    "first_output",
    "start",
    "blind",
)


def _run(name: str, options: list[str]) -> int:
    """Each in an interpreter of its own: what one leaves behind would disturb the next."""
    print(f"\n{name}", flush=True)
    command = [sys.executable, "-m", f"benchmarks.{name}", *options]
    return subprocess.run(command, check=False).returncode


def main(arguments: list[str]) -> int:
    """0 when every measurement ended well."""
    if not arguments:
        return max(_run(name, options) for name, options in _ALL.items())
    name, *options = arguments
    if name not in _NAMED:
        print(f"{name} is none of {', '.join(_NAMED)}", file=sys.stderr)
        return 2
    return _run(name, options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Every decoder of a type is made at import, and all of them may be used by many threads at once.

msgspec 0.22 builds what it knows of a type, and of all types within, when the first decoder of it is made.
Two threads that do so at the same time end the process.
"""

from __future__ import annotations

import ast
import subprocess
import sys

from tests.house.sources import ROOT, sources

# 50 processes that have decoded nothing yet, forked from one that has imported the program. In each of them
# 12 threads decode one value of every stored type.
_AT_ONCE = """
import os, sys, threading
from palimpsest.core.runtime import snapshot
from palimpsest.core.summary import record

reads = [
    lambda: record.decoded(b'{"entries": [{"first": 1, "last": 2, "text": "a"}]}'),
    lambda: snapshot.brought_in(b"{}"),
]

def decode(ready):
    ready.wait()
    for read in reads:
        read()

for _ in range(50):
    if not os.fork():
        sys.setswitchinterval(1e-6)
        ready = threading.Barrier(12)
        threads = [threading.Thread(target=decode, args=(ready,)) for _ in range(12)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        os._exit(0)
    if os.wait()[1]:
        sys.exit("a process died")
"""


def _types_in(calls: list[ast.Call], *names: str) -> list[str]:
    """The types that these functions of msgspec are given."""
    return [
        ast.unparse(given[0])
        for call in calls
        if ast.unparse(call.func).removeprefix("msgspec.") in names
        and (given := [*(each.value for each in call.keywords if each.arg == "type"), *call.args[-1:]])
    ]


def test_no_decoder_is_made_after_the_import() -> None:
    """`convert` is free once a decoder of the type has been made."""
    at_import: list[str] = []
    later: list[str] = []
    for source in sources("app"):
        calls = {node for node in ast.walk(source.tree) if isinstance(node, ast.Call)}
        inside = {
            node
            for function in source.functions()
            for node in ast.walk(function)
            if isinstance(node, ast.Call)
        }
        at_import += _types_in(list(calls - inside), "json.Decoder")
        later += _types_in([call for call in inside if call.keywords], "json.decode", "msgpack.decode")
        later += _types_in(list(inside), "json.Decoder", "convert")
    assert set(later) <= set(at_import)


def test_twelve_threads_decode_every_stored_type_in_fresh_processes() -> None:
    ran = subprocess.run([sys.executable, "-c", _AT_ONCE], cwd=ROOT, capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")

"""The core decides and does nothing else: no I/O, no clock, no async, no logging."""

from __future__ import annotations

import ast
import re
import sys

from tests.house.sources import sources

CORE = sources("app/palimpsest/core")
# What of the standard library would let the core do something, or see something it was not given.
ACTING = re.compile(
    r"(asyncio|concurrent|http|io|logging|multiprocessing|os|pathlib|queue|random|secrets|select|shutil|signal|"
    r"socket|sqlite3|ssl|subprocess|tempfile|threading|time|urllib|uuid|warnings)(\.|$)"
)


def test_the_core_imports_the_standard_library_and_two_pure_libraries_only() -> None:
    foreign = {
        f"{source.name}: {module}"
        for source in CORE
        for module in source.imports()
        if module.split(".")[0] not in sys.stdlib_module_names | {"msgspec", "snowballstemmer", "palimpsest"}
        or (
            module.split(".")[0] == "palimpsest"
            and not module.startswith(("palimpsest.core", "palimpsest.errors"))
        )
    }
    assert foreign == set()


def test_the_core_cannot_act() -> None:
    acting = {
        f"{source.name}: {module}"
        for source in CORE
        for module in source.imports()
        if ACTING.match(module) and module != "urllib.parse"
    }
    assert acting == set()


def test_the_core_waits_for_nobody() -> None:
    waiting = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    assert [s.name for s in CORE for node in ast.walk(s.tree) if isinstance(node, waiting)] == []


def test_the_core_prints_and_opens_nothing() -> None:
    acting = {
        f"{source.name}: {node.func.id}"
        for source in CORE
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("open", "print", "input", "exec", "eval", "__import__")
    }
    assert acting == set()

"""Commands print through `cli/terminal.py` alone, which lets no escape of a client or a server through."""

from __future__ import annotations

import ast

from tests.house.sources import sources

# What prints, and what writes to a stream.
_PRINTS = ("print", "typer.echo", "typer.secho", "click.echo")
_STREAMS = ("sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__")
# Where it is allowed: the one that prints, and the sink of log lines, which are made printable before.
_ALLOWED = ("cli/terminal.py", "cli/logs.py")


def test_nothing_else_prints() -> None:
    found = [
        f"{source.name}:{node.lineno}"
        for source in sources("app")
        if not source.name.endswith(_ALLOWED)
        for node in ast.walk(source.tree)
        if (isinstance(node, ast.Attribute | ast.Name) and ast.unparse(node) in _PRINTS)
        or (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("write", "writelines")
            and ast.unparse(node.func.value).startswith(_STREAMS)
        )
    ]
    assert not found

"""Every route is listed here, so that none appears without anybody having thought of who may call it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.house.sources import sources

VERBS = frozenset({"get", "post", "put", "patch", "delete", "head", "options"})

# Answered for anybody: they say nothing of anybody's conversations.
OPEN = frozenset({"GET /healthz", "GET /readyz"})
# Answered within the caller's namespace only.
SCOPED = frozenset(
    {
        "GET /api/sessions",
        "GET /api/sessions/{session}",
        "GET /api/sessions/{session}/messages",
        "GET /api/sessions/{session}/view",
        "GET /api/sessions/{session}/compactions",
        "POST /api/sessions/{session}/compact",
        "POST /api/sessions/{session}/pins",
        "DELETE /api/sessions/{session}/pins/{message}",
        "GET /api/context/{message}",
    }
)


def test_every_route_is_listed() -> None:
    found = {route for source in sources("app/api") for route in _routes(source.tree)}
    assert found - OPEN - SCOPED == set()


def test_a_route_is_seen() -> None:
    """The control: decorators and direct registrations, on any object."""
    decorated = '@pages.get("/a")\nasync def f(): ...\n'
    code = decorated + 'r.add_api_route("/b", f, methods=["POST", "PUT"])\nd.get("key")'
    assert set(_routes(ast.parse(code))) == {"GET /a", "POST /b", "PUT /b"}


def _routes(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            continue
        path = node.args[0]
        if not (
            isinstance(path, ast.Constant) and isinstance(path.value, str) and path.value.startswith("/")
        ):
            continue
        if node.func.attr in VERBS:
            yield f"{node.func.attr.upper()} {path.value}"
        elif node.func.attr in ("add_api_route", "add_route", "api_route", "route"):
            yield from (f"{verb} {path.value}" for verb in _methods(node))


def _methods(call: ast.Call) -> list[str]:
    given = next((keyword.value for keyword in call.keywords if keyword.arg == "methods"), None)
    if not isinstance(given, ast.List):
        return ["GET"]
    return [
        verb.value for verb in given.elts if isinstance(verb, ast.Constant) and isinstance(verb.value, str)
    ]

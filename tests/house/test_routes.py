"""Every route is listed here, so that none appears without anybody having thought of who may call it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.house.sources import sources

VERBS = frozenset({"get", "post", "put", "patch", "delete", "head", "options"})

# Answered for anybody: they say nothing of anybody's conversations.
OPEN = frozenset(
    f"{verb} {path}" for verb in ("GET", "HEAD") for path in ("/healthz", "/readyz", "/", "/openapi.json")
) | {"GET /ui.js"}
# Asks for a key of its own, or answers this machine alone (tests/e2e/test_metrics.py).
OPERATORS = frozenset({"GET /metrics", "HEAD /metrics"})
# Behind the door that asks for the admin key (tests/e2e/test_admin.py).
OPERATORS |= {
    "GET /api/admin/namespaces",
    "GET /api/admin/namespaces/{ident}",
    "DELETE /api/admin/namespaces/{ident}",
}
# Below `/api`, answered within the caller's namespace only.
SCOPED = frozenset(
    {
        "GET /sessions",
        "GET /sessions/{name:path}",
        "DELETE /sessions/{name:path}",
        "DELETE /namespace",
        "GET /sessions/{name:path}/messages",
        "GET /sessions/{name:path}/view",
        "GET /sessions/{name:path}/search",
        "GET /sessions/{name:path}/export",
        "POST /sessions/import",
        "GET /sessions/{name:path}/compactions",
        "GET /sessions/{name:path}/compactions/{compaction}",
        "POST /sessions/{name:path}/compact",
        "GET /sessions/{name:path}/pins",
        "POST /sessions/{name:path}/pins",
        "DELETE /sessions/{name:path}/pins/{message}",
        "GET /sessions/{name:path}/settings",
        "PATCH /sessions/{name:path}/settings",
        "GET /sessions/{name:path}/status",
        "GET /sessions/{name:path}/state",
        "POST /sessions/{name:path}/compactions/{compaction}/undo",
        "GET /sessions/{name:path}/checkpoints",
        "GET /sessions/{name:path}/checkpoints/{checkpoint}",
        "POST /sessions/{name:path}/checkpoints/{checkpoint}/restore",
        "GET /overview",
        "GET /sessions/{name:path}/report",
        "GET /sessions/{name:path}/exchanges",
        *(f"GET /sessions/{{name:path}}/exchanges/{{n}}{end}" for end in ("", "/body")),
        "GET /sessions/{name:path}/events",
        "GET /sessions/{name:path}/memory",
        "POST /sessions/{name:path}/memory-block",
        "POST /sessions/{name:path}/complete",
        "GET /memory/search",
        "GET /windows",
        "DELETE /windows/{model:path}",
        "GET /context/{ident}",
        "POST /context/grep",
        "POST /context/describe",
    }
)

# Likewise: the same as pages.
PAGES = frozenset(
    {
        "GET /ui",
        "GET /ui/overview",
        "GET /ui/sessions/{name:path}",
        "GET /ui/sessions/{name:path}/messages",
        "GET /ui/sessions/{name:path}/compactions/{compaction}",
        "GET /ui/sessions/{name:path}/state",
        "GET /ui/sessions/{name:path}/settings",
        "POST /ui/sessions/{name:path}",
        "GET /ui/sessions/{name:path}/events",
        "GET /ui/sessions/{name:path}/turns/{n}",
    }
)

# Beside `/api`: it asks who calls by itself (tests/e2e/test_mcp.py).
BESIDE = frozenset({"POST /mcp"})


def registered() -> frozenset[str]:
    """Every route of our own, as `VERB path`."""
    return frozenset(route for source in sources("app/palimpsest/api") for route in _routes(source.tree))


def test_every_route_is_listed() -> None:
    anybodys = ("health", "root")
    open_ones = {
        route for s in sources("app/palimpsest/api") if s.path.stem in anybodys for route in _routes(s.tree)
    }
    pages = {route for s in sources("app/palimpsest/api/ui") for route in _routes(s.tree)}
    scoped = {
        route
        for s in sources("app/palimpsest/api")
        if s.path.stem not in anybodys and s.path.parent.name != "ui"
        for route in _routes(s.tree)
    }
    assert (frozenset(open_ones), frozenset(scoped)) == (OPEN, SCOPED | BESIDE | OPERATORS)
    assert frozenset(pages) == PAGES


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

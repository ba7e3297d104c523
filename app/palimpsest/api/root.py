"""The root, the OpenAPI description and a page made of it: without authentication or conversation data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, Request, Response

from palimpsest.api.clients import address_of, base_url_of, settings_lines
from palimpsest.api.description import DescriptionPages
from palimpsest.api.replies import reply
from palimpsest.api.ui.paper import PageTemplates

_UI = "/ui"
# References to rows of the specification in descriptions of endpoints.
_ROW = re.compile(r" \([A-Z]\d\d\)")


@dataclass(frozen=True, slots=True)
class Operation:
    """One endpoint of the page. `fields` are names and forms of parameters and body fields."""

    method: str
    path: str
    text: str
    fields: list[tuple[str, str]]


class RootPages:
    """`/`, `/docs`, `/ui.js` and `/openapi.json`."""

    def __init__(self, described: DescriptionPages) -> None:
        self._described = described
        self._paper = PageTemplates()

    def on(self, router: APIRouter) -> None:
        """Register the routes."""
        router.add_api_route("/", self.root, methods=["GET", "HEAD"])
        router.add_api_route("/ui.js", self.script, methods=["GET"])
        router.add_api_route("/docs", self.docs, methods=["GET", "HEAD"])
        router.add_api_route("/openapi.json", self._described.description, methods=["GET", "HEAD"])

    async def root(self, request: Request) -> Response:
        """Redirect a browser to the pages; give a program name, version and links."""
        if "text/html" in request.headers.get("accept", ""):
            return Response(status_code=303, headers={"location": _UI, "vary": "Accept"})
        here = address_of(request.scope)
        links = {
            "base_url": base_url_of(request.scope),
            "docs": f"{here}/docs",
            "openapi": f"{here}/openapi.json",
            "sessions": f"{here}/api/sessions",
            "ui": here + _UI,
            "health": f"{here}/healthz",
            "ready": f"{here}/readyz",
        }
        answer = reply({"name": "palimpsest", "version": version("palimpsest"), "links": links})
        answer.headers["vary"] = "Accept"
        return answer

    async def script(self) -> Response:
        """The script of the pages: it holds no data."""
        return self._paper.script()

    async def docs(self, request: Request) -> Response:
        """The endpoints as a page, which loads nothing else."""
        facts = {
            "version": version("palimpsest"),
            "base_url": base_url_of(request.scope),
            "clients": settings_lines(request.scope),
            "operations": operations_of(self._described.document),
        }
        return await self._paper.page(request, "docs.html", facts)


def operations_of(document: Mapping[str, Any]) -> list[Operation]:
    """The endpoints of an OpenAPI document, in order."""
    return [
        Operation(
            verb.upper(), path, _ROW.sub("", operation.get("description", "")), list(_fields(operation))
        )
        for path, verbs in document["paths"].items()
        for verb, operation in verbs.items()
    ]


def _fields(operation: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for parameter in operation.get("parameters", ()):
        if parameter["in"] != "path":
            yield parameter["name"], _form(parameter["schema"])
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    for name, schema in body.get("schema", {}).get("properties", {}).items():
        yield f"{name} (body)", _form(schema)


def _form(schema: Mapping[str, Any]) -> str:
    """A schema in a few words: "integer, 1 to 500, default 50"."""
    choices = [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]
    known = choices[0] if choices else schema
    words = [" or ".join(map(str, known["enum"])) if "enum" in known else str(known.get("type", "object"))]
    low, high = known.get("minimum"), known.get("maximum")
    if low is not None and high is not None:
        words.append(f"{low} to {high}")
    if schema.get("default") not in (None, ""):
        words.append(f"default {str(schema['default']).lower()}")
    return ", ".join(words)

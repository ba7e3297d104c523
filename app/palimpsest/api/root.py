"""The root, the OpenAPI description and the pages' script: without authentication or conversation data."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import APIRouter, Request, Response

from palimpsest.api.clients import address_of, base_url_of
from palimpsest.api.description import DescriptionPages
from palimpsest.api.paper import PageTemplates
from palimpsest.api.replies import reply

_UI = "/ui"


class RootPages:
    """`/`, `/ui.js` and `/openapi.json`."""

    def __init__(self, described: DescriptionPages, paper: PageTemplates) -> None:
        self._described = described
        self._paper = paper

    def on(self, router: APIRouter) -> None:
        """Register the routes."""
        router.add_api_route("/", self.root, methods=["GET", "HEAD"])
        router.add_api_route("/ui.js", self.script, methods=["GET"])
        router.add_api_route(
            "/openapi.json", self._described.get_openapi, methods=["GET", "HEAD"], response_model=None
        )

    async def root(self, request: Request) -> Response:
        """Redirect a browser to the pages; give a program name, version and links."""
        if "text/html" in request.headers.get("accept", ""):
            return Response(status_code=303, headers={"location": _UI, "vary": "Accept"})
        here = address_of(request.scope)
        links = {
            "base_url": base_url_of(request.scope),
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

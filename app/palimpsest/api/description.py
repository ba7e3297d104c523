"""The OpenAPI description of our own endpoints, made from their routes and body models."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, Response
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from palimpsest.api.journal import CompletionOrder, MemoryOrder
from palimpsest.api.pins import PinOrder
from palimpsest.api.recall import DescribeOrder, GrepOrder
from palimpsest.api.replies import raw_reply
from palimpsest.api.status import Patch
from palimpsest.api.views import CompactOrder
from palimpsest.core.wire.json_text import encoded

_SESSION = "/api/sessions/{name}"
# Bodies are read after authentication, by us and not by the framework, which therefore does not know them.
BODIES: Mapping[tuple[str, str], type[BaseModel] | None] = {
    (f"{_SESSION}/pins", "post"): PinOrder,
    (f"{_SESSION}/compact", "post"): CompactOrder,
    (f"{_SESSION}/complete", "post"): CompletionOrder,
    (f"{_SESSION}/memory-block", "post"): MemoryOrder,
    (f"{_SESSION}/settings", "patch"): Patch,
    ("/api/context/grep", "post"): GrepOrder,
    ("/api/context/describe", "post"): DescribeOrder,
    # A document of any form; see docs/http-api.md.
    ("/api/sessions/import", "post"): None,
}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string"},
            },
        }
    },
}
_REFUSED = {"description": "An error in OpenAI's shape.", "content": {"application/json": {"schema": _ERROR}}}


class DescriptionPages:
    """The description of `api`'s routes, made at the first request for it."""

    def __init__(self, api: APIRouter) -> None:
        self._api = api

    def on(self, api: APIRouter) -> None:
        """Register the route."""
        api.add_api_route("/openapi.json", self.description, methods=["GET"])

    async def description(self) -> Response:
        """The OpenAPI 3.1 document of these endpoints."""
        return raw_reply(encoded(self.document))

    @cached_property
    def document(self) -> Mapping[str, Any]:
        """The OpenAPI document."""
        described = get_openapi(
            title="Palimpsest",
            version=version("palimpsest"),
            routes=self._api.routes,
            separate_input_output_schemas=False,
        )
        for path, verbs in described["paths"].items():
            for verb, operation in verbs.items():
                operation["responses"] = {
                    "default": _REFUSED,
                    "200": {"description": "As docs/http-api.md says."},
                }
                operation["security"] = [{"key": []}]
                if (path, verb) in BODIES:
                    operation["requestBody"] = _body(BODIES[path, verb])
        described["components"] = {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}}
        return described


def _body(kind: type[BaseModel] | None) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"} if kind is None else kind.model_json_schema()
    return {"content": {"application/json": {"schema": schema}}, "required": bool(schema.get("required"))}

"""The OpenAPI description of our own endpoints, made from their routes, shapes of answers and body models.

An answer may gain fields in a later version: its schema does not exclude further ones.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from starlette.routing import BaseRoute

from palimpsest import errors
from palimpsest.api.callers import SPEC_ROW, OperationRoute
from palimpsest.api.journal import CompletionOrder, MemoryOrder
from palimpsest.api.pins import PinOrder
from palimpsest.api.recall import DescribeOrder, GrepOrder
from palimpsest.api.replies import Reply, raw_reply
from palimpsest.api.status import SettingsPatch
from palimpsest.api.transfer import MEDIA_TYPES, ImportDocument
from palimpsest.api.views import CompactOrder
from palimpsest.core.wire.credentials import FIRST_HEADERS
from palimpsest.core.wire.json_text import encoded
from palimpsest.errors import PalimpsestError

JSON = "application/json"
_SCHEMAS = "#/components/schemas/"
_ABOUT = """Reads and steers the conversations that went through this proxy. The OpenAI-compatible API is \
under `/v1`, and is not described here.

Send the key that the client sends: it decides what is found. Lists have `limit`, `after` and `next`: pass \
`next` as `after` to get the next page; it is null on the last one. Times are UTC, as \
`2026-11-25T10:20:30.123Z`. An answer may gain fields in a later version."""


# Groups of operations, in the order in which they are shown: what a group is about, and its operations.
TAGS: Mapping[str, tuple[str, str]] = {
    "Sessions": (
        "Conversations with their branches and messages, word for word.",
        "list_sessions get_session list_messages search_session get_context export_session import_session "
        "erase_session",
    ),
    "Compaction": (
        "What the model would be shown, and the summaries that stand for older messages.",
        "get_view get_status get_state compact_session list_compactions get_compaction undo_compaction "
        "get_report get_settings update_settings",
    ),
    "Exchanges": (
        "Requests with their answers: what was said, what was sent, and what it cost.",
        "list_exchanges get_exchange get_exchange_body",
    ),
    "Kept": (
        "What is kept beside the messages: pins, memories, checkpoints, events.",
        "list_pins pin_message unpin_message list_memories add_memory search_memories list_checkpoints "
        "get_checkpoint restore_checkpoint complete_session list_events",
    ),
    "Recall tools": ("What a model gets from its tools.", "grep_context describe_context"),
    "Account": (
        "Everything of a key: sums, learned windows, erasing.",
        "get_overview list_windows forget_window erase_everything",
    ),
}
# Bodies are read after authentication, by us and not by the framework, which therefore does not know them.
BODIES: Mapping[str, type[BaseModel] | type[ImportDocument]] = {
    "pin_message": PinOrder,
    "compact_session": CompactOrder,
    "complete_session": CompletionOrder,
    "add_memory": MemoryOrder,
    "update_settings": SettingsPatch,
    "grep_context": GrepOrder,
    "describe_context": DescribeOrder,
    "import_session": ImportDocument,
}
# What any operation may answer, what those with a body may, and what one alone may.
_ALWAYS = (
    errors.InvalidParameter, errors.RepeatedHeader, errors.Unauthorized, errors.HostNotAllowed,
    errors.OriginNotAllowed, errors.HeadersTooLarge, errors.StoreError, errors.StoreUnavailable,
    PalimpsestError,
)  # fmt: skip
_WITH_BODY = (
    errors.InvalidJson, errors.BodyTooLarge, errors.RequestTimeout, errors.UnsupportedMediaType,
)  # fmt: skip
_FURTHER: Mapping[str, Sequence[type[PalimpsestError]]] = {
    "undo_compaction": (errors.NotUndoable,),
    "restore_checkpoint": (errors.NotUndoable,),
    "pin_message": (errors.PinsTooLarge,),
    "list_events": (errors.ServerBusy,),
    "grep_context": (errors.NotFound, errors.RecallDisabled),
    "describe_context": (errors.NotFound, errors.RecallDisabled),
    "import_session": (
        errors.NestedTooDeep, errors.InvalidCoding, errors.UnsupportedCoding, errors.NameTaken,
        errors.NothingToRestore, errors.ErasedSession, errors.NamespaceUnproven,
    ),
}  # fmt: skip
# What operations answer beside JSON, where they are asked to.
_OTHER_TYPES: Mapping[str, Sequence[str]] = {
    "list_events": ("text/event-stream",),
    "export_session": [kind.partition(";")[0] for form, kind in MEDIA_TYPES.items() if form != "json"],
}
# Paths with these name something that may not be there.
_NAMING = ("{name}", "{ident}", "{model}")
_ERROR = {
    "title": "Error",
    "description": "An error in OpenAI's shape. `code` is stable, `message` is for people.",
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"], "description": "The field that is at fault."},
                "code": {"type": "string"},
            },
        }
    },
}


class DescriptionPages:
    """The description of the routes, made at the first request for it.

    `needs_key`: callers need a key of this proxy.
    """

    def __init__(self, routes: Sequence[BaseRoute], *, needs_key: bool) -> None:
        self._routes = [route for route in routes if isinstance(route, OperationRoute)]
        self._needs_key = needs_key

    async def get_openapi(self) -> Reply[dict[str, Any]]:
        """Get the OpenAPI 3.1 document of these endpoints."""
        return raw_reply(await asyncio.to_thread(lambda: encoded(self.document)))

    @cached_property
    def document(self) -> Mapping[str, Any]:
        """The OpenAPI document."""
        described = get_openapi(title="Palimpsest", version=version("palimpsest"), routes=self._routes)
        described["info"]["description"] = _ABOUT
        described["tags"] = [{"name": tag, "description": text} for tag, (text, _) in TAGS.items()]
        tags = {name: tag for tag, (_, operations) in TAGS.items() for name in operations.split()}
        shapes = [(route, shape) for route in self._routes for shape in _shapes_of(route.endpoint)]
        known, components = msgspec.json.schema_components(
            [*(shape for _, shape in shapes), ImportDocument], ref_template=_SCHEMAS + "{name}"
        )
        schemas = {_public(name): _renamed(schema) for name, schema in components.items()} | {"Error": _ERROR}
        answers: defaultdict[str | None, list[Any]] = defaultdict(list)
        for (route, _), schema in zip(shapes, known, strict=False):
            answers[route.operation_id].append(_renamed(schema))
        refusals: dict[str, Any] = {}
        for route in self._routes:
            (operation,) = (
                described["paths"][route.path_format][verb.lower()] for verb in route.methods or ()
            )
            name, path = operation["operationId"], route.path_format
            operation["tags"] = [tags[name]]
            # FastAPI names those of dependencies last.
            parameters = operation.get("parameters", [])
            parameters.sort(key=lambda one, path=path: (one["in"], path.find(f"{{{one['name']}}}")))
            operation["responses"] = {str(route.status_code or 200): _done(route, answers[name])}
            for status, kinds in _refusals(route):
                codes = ".".join(kind.code for kind in kinds)
                operation["responses"][str(status)] = {"$ref": f"#/components/responses/{codes}"}
                refusals[codes] = {
                    "description": "\n".join(f"- `{kind.code}`: {_meaning(kind)}" for kind in kinds),
                    "content": {JSON: {"schema": {"$ref": _SCHEMAS + "Error"}}},
                    "x-error-codes": codes.split("."),
                }
            if (body := BODIES.get(name)) is not None:
                if issubclass(body, BaseModel):
                    schemas[body.__name__] = _renamed(body.model_json_schema())
                content = {JSON: {"schema": {"$ref": _SCHEMAS + body.__name__}}}
                is_required = bool(schemas[body.__name__].get("required"))
                operation["requestBody"] = {"content": content, "required": is_required}
        # A path stands where its first operation does.
        places = {name: place for place, name in enumerate(tags)}
        paths = sorted(
            described["paths"].items(),
            key=lambda item: min(places[operation["operationId"]] for operation in item[1].values()),
        )
        keys = {header: {"type": "apiKey", "in": "header", "name": header} for header in FIRST_HEADERS}
        keys["authorization"] = {"type": "http", "scheme": "bearer"}
        described["paths"] = dict(paths)
        described["security"] = [*([] if self._needs_key else [{}]), *({header: []} for header in keys)]
        described["components"] = {"securitySchemes": keys, "schemas": schemas, "responses": refusals}
        return described


def _done(route: OperationRoute, schemas: Sequence[Any]) -> dict[str, Any]:
    """The response of success: `schemas` are those of its JSON."""
    if route.status_code == 204:
        return {"description": "Done."}
    content = {JSON: {"schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}}}
    for kind in _OTHER_TYPES.get(str(route.operation_id), ()):
        content[kind] = {"schema": {"type": "string"}}
    return {"description": "Done.", "content": content}


def _refusals(route: OperationRoute) -> list[tuple[int, list[type[PalimpsestError]]]]:
    """The errors of an operation, by their status."""
    name = str(route.operation_id)
    kinds: list[type[PalimpsestError]] = [*_ALWAYS, *_FURTHER.get(name, ())]
    if name in BODIES:
        kinds += _WITH_BODY
    if any(part in route.path_format for part in _NAMING):
        kinds.append(errors.NotFound)
    by_status: defaultdict[int, list[type[PalimpsestError]]] = defaultdict(list)
    for kind in kinds:
        by_status[kind.status].append(kind)
    return sorted(by_status.items())


def _meaning(kind: type[PalimpsestError]) -> str:
    text = "A bug." if kind is PalimpsestError else inspect.cleandoc(kind.__doc__ or "")
    return SPEC_ROW.sub("", text).replace("\n", " ")


def _shapes_of(endpoint: Callable[..., Any]) -> list[Any]:
    """The shapes of an endpoint's answers: X and Y of `Reply[X] | Reply[Y]`."""
    told = get_type_hints(endpoint, include_extras=True)["return"]
    return [get_args(kind)[0] for kind in ([told] if get_origin(told) is Reply else get_args(told))]


def _public(name: str) -> str:
    """The name of a shape in the document."""
    return name.removesuffix("Fields")


def _renamed(schema: Any) -> Any:
    """The schema with public names of shapes, and without references to the specification."""
    if isinstance(schema, list):
        return [_renamed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    told = {key: _renamed(value) for key, value in schema.items()}
    for key in {"$ref", "title", "description"} & told.keys():
        # Also the name of a property.
        if isinstance(told[key], str):
            told[key] = SPEC_ROW.sub("", told[key]) if key == "description" else _public(told[key])
    return told

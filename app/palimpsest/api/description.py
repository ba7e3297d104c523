"""The OpenAPI description of our own endpoints, made from their routes, shapes of answers and body models.

An answer may gain fields in a later version: its schema does not exclude further ones.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
from fastapi import APIRouter
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel

from palimpsest import errors
from palimpsest.api.documents import MEDIA_TYPES
from palimpsest.api.journal import CompletionOrder, MemoryOrder
from palimpsest.api.pins import PinOrder
from palimpsest.api.recall import DescribeOrder, GrepOrder
from palimpsest.api.replies import Reply, raw_reply
from palimpsest.api.status import SettingsPatch
from palimpsest.api.transfer import ImportDocument
from palimpsest.api.views import CompactOrder
from palimpsest.core.wire.credentials import FIRST_HEADERS
from palimpsest.core.wire.json_text import encoded
from palimpsest.errors import PalimpsestError

JSON = "application/json"
_SCHEMAS = "#/components/schemas/"
# References to rows and rules of the specification in docstrings.
_ROW = re.compile(r" \((?:[A-Z]\d\d|rule \d+)\)")
_ABOUT = """Reads and steers the conversations that went through this proxy. The OpenAI-compatible API is \
under `/v1`, and is not described here.

Send the key that the client sends: it decides what is found. Lists have `limit`, `after` and `next`: pass \
`next` as `after` to get the next page; it is null on the last one. Times are UTC, as \
`2026-11-25T10:20:30.123Z`. An answer may gain fields in a later version."""


class Tag(NamedTuple):
    """A group of operations, in the order in which they are shown."""

    name: str
    text: str
    operations: str


TAGS = (
    Tag(
        "Sessions",
        "Conversations with their branches and messages, word for word.",
        "list_sessions get_session list_messages search_session get_context export_session import_session "
        "erase_session",
    ),
    Tag(
        "Compaction",
        "What the model would be shown, and the summaries that stand for older messages.",
        "get_view get_status get_state compact_session list_compactions get_compaction undo_compaction "
        "get_report get_settings update_settings",
    ),
    Tag(
        "Exchanges",
        "Requests with their answers: what was said, what was sent, and what it cost.",
        "list_exchanges get_exchange get_exchange_body",
    ),
    Tag(
        "Kept",
        "What is kept beside the messages: pins, memories, checkpoints, events.",
        "list_pins pin_message unpin_message list_memories add_memory search_memories list_checkpoints "
        "get_checkpoint restore_checkpoint complete_session list_events",
    ),
    Tag("Recall tools", "What a model gets from its tools.", "grep_context describe_context"),
    Tag(
        "Account",
        "Everything of a key: sums, learned windows, erasing.",
        "get_overview list_windows forget_window erase_everything",
    ),
)
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


class OperationRoute(APIRoute):
    """A route that is named like its function and described by its docstring."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        named = {"response_model": None, "operation_id": endpoint.__name__}
        super().__init__(path, endpoint, **options | named)
        summary, _, text = _ROW.sub("", inspect.cleandoc(endpoint.__doc__ or "")).partition("\n\n")
        self.summary, self.description = summary.removesuffix("."), text or summary
        self.query_fields = list(_query_fields(self.dependant))


def _query_fields(dependant: Dependant) -> Iterator[str]:
    yield from (field.alias for field in dependant.query_params)
    for below in dependant.dependencies:
        yield from _query_fields(below)


class DescriptionPages:
    """The description of `api`'s routes, made at the first request for it.

    `needs_key`: callers need a key of this proxy.
    """

    def __init__(self, api: APIRouter, *, needs_key: bool) -> None:
        self._api = api
        self._needs_key = needs_key

    async def get_openapi(self) -> Reply[dict[str, Any]]:
        """Get the OpenAPI 3.1 document of these endpoints."""
        return raw_reply(await asyncio.to_thread(lambda: encoded(self.document)))

    @cached_property
    def document(self) -> Mapping[str, Any]:
        """The OpenAPI document."""
        routes = [route for route in self._api.routes if isinstance(route, OperationRoute)]
        schemas = _Schemas(routes)
        described = get_openapi(title="Palimpsest", version=version("palimpsest"), routes=routes)
        described["info"]["description"] = _ABOUT
        described["tags"] = [{"name": tag.name, "description": tag.text} for tag in TAGS]
        tags = {name: tag.name for tag in TAGS for name in tag.operations.split()}
        for route in routes:
            name = str(route.operation_id)
            for method in route.methods or ():
                operation = described["paths"][route.path_format][method.lower()]
                operation["tags"] = [tags[name]]
                operation["responses"] = schemas.responses(route)
                if name in BODIES:
                    operation["requestBody"] = schemas.body(name)
        order = [name for tag in TAGS for name in tag.operations.split()]
        described["paths"] = dict(sorted(described["paths"].items(), key=lambda item: _rank(item[1], order)))
        keys = {header: _key(header) for header in FIRST_HEADERS}
        described["security"] = [*([] if self._needs_key else [{}]), *({header: []} for header in keys)]
        described["components"] = {
            "securitySchemes": keys,
            "schemas": schemas.components,
            "responses": schemas.refusals,
        }
        return described


def _rank(verbs: Mapping[str, Any], order: Sequence[str]) -> int:
    """The place of a path: that of its first operation."""
    return min(order.index(operation["operationId"]) for operation in verbs.values())


def _key(header: str) -> dict[str, str]:
    """A scheme of security: a key in this header."""
    if header == "authorization":
        return {"type": "http", "scheme": "bearer"}
    return {"type": "apiKey", "in": "header", "name": header}


class _Schemas:
    """The schemas of answers, bodies and errors."""

    def __init__(self, routes: Sequence[OperationRoute]) -> None:
        self._shapes = {str(route.operation_id): _shapes_of(route.endpoint) for route in routes}
        every = [shape for shapes in self._shapes.values() for shape in shapes]
        known, components = msgspec.json.schema_components(
            [*every, ImportDocument], ref_template=_SCHEMAS + "{name}"
        )
        self._of = dict(zip(map(repr, [*every, ImportDocument]), map(_renamed, known), strict=True))
        self.components: dict[str, Any] = {_public(name): _renamed(one) for name, one in components.items()}
        self.components |= {"Error": _ERROR}
        self.refusals: dict[str, Any] = {}

    def body(self, name: str) -> dict[str, Any]:
        """The body of an operation."""
        kind = BODIES[name]
        if issubclass(kind, BaseModel):
            schema = _renamed(kind.model_json_schema())
            self.components[kind.__name__] = schema
            reference = {"$ref": _SCHEMAS + kind.__name__}
        else:
            schema, reference = self.components[kind.__name__], self._of[repr(kind)]
        return {"content": {JSON: {"schema": reference}}, "required": bool(schema.get("required"))}

    def responses(self, route: OperationRoute) -> dict[str, Any]:
        """What an operation answers, by status."""
        name = str(route.operation_id)
        found = [self._of[repr(shape)] for shape in self._shapes[name]]
        done: dict[str, Any] = {"description": "Done."}
        if route.status_code != 204:
            done["content"] = {JSON: {"schema": found[0] if len(found) == 1 else {"anyOf": found}}}
        for kind in _OTHER_TYPES.get(name, ()):
            done["content"][kind] = {"schema": {"type": "string"}}
        return {str(route.status_code or 200): done} | {
            str(status): {"$ref": f"#/components/responses/{self._refusal(kinds)}"}
            for status, kinds in _refusals(route)
        }

    def _refusal(self, kinds: Sequence[type[PalimpsestError]]) -> str:
        """The name of the response with one of these errors."""
        codes = [kind.code for kind in kinds]
        self.refusals[".".join(codes)] = {
            "description": "\n".join(f"- `{kind.code}`: {_meaning(kind)}" for kind in kinds),
            "content": {JSON: {"schema": {"$ref": _SCHEMAS + "Error"}}},
            "x-error-codes": codes,
        }
        return ".".join(codes)


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
    return _ROW.sub("", text).replace("\n", " ")


def _shapes_of(endpoint: Callable[..., Any]) -> list[Any]:
    """The shapes of an endpoint's answers: those of `Reply[...]`, or of a subclass of one."""
    told = get_type_hints(endpoint, include_extras=True)["return"]
    kinds = [told] if get_origin(told) is Reply or isinstance(told, type) else get_args(told)
    shapes = []
    for kind in kinds:
        bases = getattr(kind, "__orig_bases__", ()) if isinstance(kind, type) else (kind,)
        shapes += [get_args(base)[0] for base in bases if get_origin(base) is Reply]
    return shapes


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
    for key in ("$ref", "title"):
        if isinstance(told.get(key), str):
            told[key] = _public(told[key])
    if isinstance(told.get("description"), str):
        told["description"] = _ROW.sub("", told["description"])
    return told

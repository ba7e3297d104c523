"""What the page `/docs` shows: the operations and shapes of an OpenAPI document, in words. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

Json = Mapping[str, Any]


class Form(NamedTuple):
    """What a value may be: words, and the shape that they end with ("": none)."""

    words: str
    shape: str = ""


@dataclass(frozen=True, slots=True)
class DescribedField:
    """A parameter, or a field of a body or an answer. `place`: where a parameter stands."""

    name: str
    form: Form
    text: str
    is_required: bool
    place: str = ""


@dataclass(frozen=True, slots=True)
class DescribedOperation:
    """An operation. `answers` are forms by their kind, `errors` codes by their status."""

    name: str
    method: str
    path: str
    summary: str
    text: str
    fields: Sequence[DescribedField]
    body: str
    status: str
    answers: Sequence[Form]
    errors: Sequence[tuple[str, Sequence[str]]]
    curl: str


@dataclass(frozen=True, slots=True)
class DescribedShape:
    """A shape of the document with its fields."""

    name: str
    text: str
    fields: Sequence[DescribedField]


@dataclass(frozen=True, slots=True)
class OperationGroup:
    """The operations with one tag."""

    name: str
    text: str
    operations: Sequence[DescribedOperation]


def groups_of(document: Json, address: str) -> list[OperationGroup]:
    """The operations by their tag; their examples ask the proxy at `address`."""
    every = [
        (operation["tags"][0], _operation(document, path, method, operation, address))
        for path, verbs in document["paths"].items()
        for method, operation in verbs.items()
    ]
    return [
        OperationGroup(tag["name"], tag["description"], [one for name, one in every if name == tag["name"]])
        for tag in document["tags"]
    ]


def shapes_of(document: Json) -> list[DescribedShape]:
    """The shapes, by name."""
    return [
        DescribedShape(name, schema.get("description", ""), list(_members(schema)))
        for name, schema in sorted(document["components"]["schemas"].items())
    ]


def _operation(document: Json, path: str, method: str, operation: Json, address: str) -> DescribedOperation:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    status, done = next(iter(operation["responses"].items()))
    answer = done.get("content", {}).get("application/json", {}).get("schema", {})
    summary, text = operation["summary"], operation["description"]
    return DescribedOperation(
        name=operation["operationId"],
        method=method.upper(),
        path=path,
        summary=summary,
        text="" if text.rstrip(".") == summary else text,
        fields=[_parameter(one) for one in operation.get("parameters", ())],
        body=_shape(body),
        status=status,
        answers=[form_of(one) for one in answer.get("anyOf", [answer])] if answer else [],
        errors=list(_errors(document, operation)),
        curl=_curl(document, path, method, operation, address),
    )


def _parameter(one: Json) -> DescribedField:
    words = form_of(one["schema"]).words.removesuffix(" or null")
    return DescribedField(one["name"], Form(words), one.get("description", ""), one["required"], one["in"])


def _members(schema: Json) -> Iterator[DescribedField]:
    required = schema.get("required", ())
    for name, member in schema.get("properties", {}).items():
        yield DescribedField(name, form_of(member), member.get("description", ""), name in required)


def _errors(document: Json, operation: Json) -> Iterator[tuple[str, Sequence[str]]]:
    for status, response in operation["responses"].items():
        if "$ref" in response:
            name = response["$ref"].rpartition("/")[2]
            yield status, document["components"]["responses"][name]["x-error-codes"]


def form_of(schema: Json) -> Form:
    """A schema in a few words: "integer, 1 to 500, default 50"."""
    if shape := _shape(schema):
        return Form("", shape)
    if "anyOf" in schema:
        return _choice(schema)
    if "enum" in schema or "const" in schema:
        return Form(_with_bounds(" or ".join(map(str, schema.get("enum", [schema.get("const")]))), schema))
    kind = schema.get("type", "any JSON")
    if kind == "array":
        inner = form_of(schema.get("items", {}))
        return Form(f"list of {inner.words}".rstrip(), inner.shape)
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        inner = form_of(schema["additionalProperties"])
        return Form(f"object of {inner.words}".rstrip(), inner.shape)
    return Form(_with_bounds(str(schema.get("format", kind)), schema))


def _choice(schema: Json) -> Form:
    forms = [form_of(one) for one in schema["anyOf"]]
    words = " or ".join(form.words for form in forms if form.words)
    shape = next((form.shape for form in forms if form.shape), "")
    return Form(_with_bounds(f"{words} or" if shape and words else words, schema), shape)


def _with_bounds(words: str, schema: Json) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        words += f", {low} to {high}"
    elif low is not None:
        words += f", at least {low}"
    if "maxLength" in schema:
        words += f", at most {schema['maxLength']:,} characters"
    if schema.get("default") not in (None, ""):
        words += f", default {str(schema['default']).lower()}"
    return words


def _shape(schema: Json) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _curl(document: Json, path: str, method: str, operation: Json, address: str) -> str:
    """The operation as a command: what must be given is in it, names in capital letters."""
    needed = [one for one in operation.get("parameters", ()) if one["required"]]
    for one in needed:
        path = path.replace(f"{{{one['name']}}}", one["name"].upper())
    query = "&".join(
        f"{one['name']}={one['schema'].get('const', 'WORDS')}" for one in needed if one["in"] == "query"
    )
    words = ["curl"] + ([f"-X {method.upper()}"] if method != "get" else [])
    words += [f"'{address}{path}{'?' + query if query else ''}'", '-H "Authorization: Bearer $KEY"']
    if name := _shape(
        operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    ):
        (example, *_) = document["components"]["schemas"][name].get("examples", [None])
        data = "--data-binary @session.json" if example is None else f"-d '{json.dumps(example)}'"
        words += ["-H 'content-type: application/json'", data]
    return " ".join(words)

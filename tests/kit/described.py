"""Answers of our own endpoints, held against their description.

described = Described(document)
http.event_hooks["response"].append(described.check)
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, NamedTuple
from urllib.parse import unquote

import httpx
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

Json = dict[str, Any]
_JSON = "application/json"


class Answered(NamedTuple):
    """An operation, and the status that it answered with."""

    operation: str
    status: int


class Described:
    """The description, closed: what it does not name is a fault. `seen` counts the answers that were held."""

    def __init__(self, document: Json) -> None:
        self._document = closed(document)
        self.seen: Counter[Answered] = Counter()
        self.operations = {
            operation["operationId"]: operation
            for verbs in self._document["paths"].values()
            for operation in verbs.values()
        }
        # Of two that match, the one with more words: a session's name matches everything.
        paths = sorted(self._document["paths"].items(), key=lambda item: -len(re.sub(r"{\w+}", "", item[0])))
        self._paths = [(_pattern(path), verbs) for path, verbs in paths]

    def operation_of(self, method: str, path: str) -> Json | None:
        """The operation that answers such a request."""
        for pattern, verbs in self._paths:
            if method.lower() in verbs and pattern.fullmatch(unquote(path)):
                operation: Json = verbs[method.lower()]
                return operation
        return None

    async def check(self, reply: httpx.Response) -> None:
        """Fail unless the answer is one that is described. What is no operation is left alone."""
        operation = self.operation_of(reply.request.method, reply.request.url.path)
        if operation is None:
            return
        kind = reply.headers.get("content-type", "").partition(";")[0]
        await reply.aread() if kind == _JSON else None
        self.hold(operation, reply.status_code, kind, reply.content if kind == _JSON else b"")

    def hold(self, operation: Json, status: int, kind: str, body: bytes) -> None:
        """Fail unless the operation may answer so."""
        name = operation["operationId"]
        assert str(status) in operation["responses"], f"{name} does not say that it may answer {status}"
        response = self._resolved(operation["responses"][str(status)])
        self.seen[Answered(name, status)] += 1
        content = response.get("content", {})
        assert kind in (content or {""}), f"{name} does not say that it may answer with {kind!r}"
        if kind != _JSON:
            return
        value = json.loads(body)
        for fault in self.faults(content[_JSON]["schema"], value):
            raise AssertionError(f"{name}, {status}: {fault}")
        if status >= 400:
            assert value["error"]["code"] in response["x-error-codes"], f"{name}: {value}"

    def faults(self, schema: Json, value: Any) -> list[str]:
        """What in the value the schema does not describe."""
        validator = Draft202012Validator({**schema, "components": self._document["components"]})
        return [
            f"{error.json_path}: {error.message[:300]}"
            for error in sorted(validator.iter_errors(value), key=lambda error: error.json_path)
        ]

    def _resolved(self, response: Json) -> Json:
        name = response.get("$ref", "").rpartition("/")[2]
        found: Json = self._document["components"]["responses"][name] if name else response
        return found


def closed(schema: Any) -> Any:
    """The schemas without room for fields that they do not name."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    told = {key: closed(value) for key, value in schema.items()}
    if told.get("type") == "object" and "properties" in told:
        told.setdefault("additionalProperties", False)
    return told


def _pattern(path: str) -> re.Pattern[str]:
    """Names of sessions and models may have slashes."""
    parts = re.split(r"({\w+})", path)
    places = {"{name}": ".+", "{model}": ".+"}
    return re.compile(
        "".join(places.get(part, "[^/]+") if part[:1] == "{" else re.escape(part) for part in parts)
    )

"""The responses of our own endpoints: JSON composed as bytes, never cached, with times as text.

An endpoint is annotated with the shape of its answer, `Reply[Shape]`: the type checker holds it against what
is built, and `palimpsest.api.description` makes its JSON Schema of it. Nothing is validated when answering.

Imports Starlette only: health checks use it and must not load FastAPI.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Annotated, Any, Generic, TypeAlias, TypeVar, cast

import msgspec
from starlette.responses import Response

from palimpsest.core.utc import moment
from palimpsest.core.wire.json_text import encoded

Shape = TypeVar("Shape")
Row = TypeVar("Row")
# By it our commands know that a Palimpsest answers.
API_HEADER = "x-palimpsest-api"
# Conversations are private: no cache may store them, and no browser may guess another type.
PRIVATE = {"cache-control": "no-store", "x-content-type-options": "nosniff", API_HEADER: "1"}


def described(text: str, **schema: Any) -> msgspec.Meta:
    """What the JSON Schema of an annotated field says."""
    return msgspec.Meta(description=text, extra_json_schema=schema or None)


UtcTime: TypeAlias = Annotated[
    str,
    described(
        "UTC, with milliseconds.",
        format="date-time",
        pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$",
        examples=["2026-11-25T10:20:30.123Z"],
    ),
]
MessageId: TypeAlias = Annotated[
    str, described("Identifies a message together with everything before it.", examples=["dcm_2703cb40bd99"])
]
# As it is stored, byte for byte.
StoredMessage: TypeAlias = Annotated[
    dict[str, Any] | list[dict[str, Any]],
    described("A message as it was sent, byte for byte; of an answer of the Responses API its items."),
]
Tokens: TypeAlias = Annotated[int, described("Tokens as the model counts them.")]
_NEXT = described("The `after` of the next page; null on the last one.")
NextId: TypeAlias = Annotated[str | None, _NEXT]
NextNumber: TypeAlias = Annotated[int | None, _NEXT]
Day: TypeAlias = Annotated[str, described("", format="date")]


class Reply(Response, Generic[Shape]):
    """A response whose body is JSON of the shape."""


def reply(value: Shape, status: int = 200) -> Reply[Shape]:
    """`value` as JSON."""
    return Reply(encoded(value), status, PRIVATE, "application/json")


def raw_reply(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply[Any]:
    """A response of JSON bytes."""
    return Reply(body, status, {**PRIVATE, **(headers or {})}, "application/json")


def shape_of(shape: type[Shape], source: object, **others: Any) -> Shape:
    """An object of the shape, a TypedDict: `others`, and the attributes of `source` for all other fields."""
    names = shape.__annotations__
    return cast(Shape, {name: others[name] if name in others else getattr(source, name) for name in names})


def page_of(rows: Sequence[Row], limit: int, key: str) -> tuple[Sequence[Row], Any]:
    """At most `limit` of the rows; and the `key` of the last one, None where no more follow."""
    page = rows[:limit]
    return page, attrgetter(key)(page[-1]) if len(rows) > limit else None


def utc_time(seconds: float) -> UtcTime:
    """UTC seconds as ISO 8601; the epoch for a time that no calendar has."""
    return moment(seconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def utc_time_or_none(seconds: float | None) -> UtcTime | None:
    """`utc_time`; None stays None."""
    return None if seconds is None else utc_time(seconds)


def object_with(fields: Mapping[str, Any], **raw: bytes) -> bytes:
    """A JSON object of `fields` (not empty) and, last, members whose values are `raw`, byte for byte.

    They are not re-encoded: encoders would change numbers, escapes and repeated keys, or refuse them.
    """
    members = [encoded(name) + b":" + value for name, value in raw.items()]
    return b",".join([encoded(fields)[:-1], *members]) + b"}"

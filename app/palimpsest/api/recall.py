"""HTTP endpoints for search in a session, and for the recall tools."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from palimpsest.api.callers import Admitted, ApiCaller, AskedSession, Branch, api_router
from palimpsest.api.replies import MessageId, Reply, UtcTime, described, raw_reply, reply, utc_time
from palimpsest.core.recall.filters import ContentKind, Filters, Speaker
from palimpsest.core.recall.quotes import Hit
from palimpsest.core.recall.tool_calls import (
    GREP_LIMIT,
    MOST_HITS,
    MOST_PAGE_CHARS,
    MOST_SOURCES,
    PAGE_CHARS,
    QUERY_CHARS,
    SOURCE_LIMIT,
    Describe,
    Grep,
)
from palimpsest.core.recall.tool_results import reference
from palimpsest.core.recall.words import Kind, SearchEntry
from palimpsest.core.wire.json_text import encoded
from palimpsest.proxy.archive import missing
from palimpsest.proxy.recall.searching import Scope, Where
from palimpsest.proxy.recall.tools import ToolCaller


class Neighbour(TypedDict):
    """A message beside a hit, which is a hit of its own."""

    role: str
    depth: int
    turn: int
    text: str


class SearchHit(TypedDict):
    """An exact quote: `text` is the piece of the stored text from character `start` of `chars`."""

    id: MessageId
    kind: Kind
    role: str
    time: UtcTime
    depth: Annotated[int, described("The message's number on its path, from 1.")]
    turn: Annotated[int, described("The user's messages up to it; 0 outside a branch.")]
    head: NotRequired[Annotated[str, described("A tool result's first line, if `text` begins later.")]]
    text: str
    start: int
    chars: int
    before: list[Neighbour]
    after: list[Neighbour]
    tokens: NotRequired[Annotated[int, described("Of a `payload`.")]]
    summary: NotRequired[Annotated[str, described("Of a `payload`: its head and tail.")]]
    session: NotRequired[Annotated[str, described("With `scope=namespace`.")]]


class SearchResults(TypedDict):
    """The hits of a search, best first."""

    session: str
    branch: str | None
    scope: Scope
    total_found: int
    total_is_counted: Annotated[bool, described("False if there may be more.")]
    is_current: Annotated[bool, described("False if the index could not be brought up to date.")]
    results: list[SearchHit]


class GrepHit(TypedDict):
    """A hit as a model gets it; `id` is a message's number in the branch.

    Left out: `kind` of messages, `session` where it is the result's, `turn` outside a branch. `head`: a tool
    result's first line, if the quote begins later.
    """

    id: str
    kind: NotRequired[Kind]
    session: NotRequired[str]
    message: NotRequired[int]
    turn: NotRequired[int]
    date: Annotated[str, described("UTC.", format="date")]
    speaker: NotRequired[str]
    head: NotRequired[str]
    snippet: str
    depth: NotRequired[int]
    sourceMessageCount: NotRequired[int]
    tokens: NotRequired[int]
    totalChars: NotRequired[int]
    summary: NotRequired[str]


class GrepResult(TypedDict):
    """The result of the model's search tool."""

    tool: Literal["context_grep"]
    session: str
    conversation: str
    totalFound: int
    totalFoundIsAtLeast: NotRequired[bool]
    results: list[GrepHit]
    beside: NotRequired[
        Annotated[list[str], described("Messages around them: number, turn, date, speaker, text.")]
    ]


class SummarySource(TypedDict):
    """A message that a summary was made from."""

    id: str
    role: str
    time: Annotated[str, described("UTC.", format="date-time")]
    firstLine: str


class DescribedEntry(TypedDict):
    """An entry as a model gets it: a page of a message or summary, or head and tail of a large payload."""

    tool: Literal["context_describe"]
    id: str
    kind: Kind
    session: str
    conversation: str
    time: Annotated[str, described("UTC.", format="date-time")]
    role: NotRequired[str]
    message: NotRequired[int]
    turn: NotRequired[int]
    date: NotRequired[str]
    speaker: NotRequired[str]
    previous: NotRequired[str | None]
    next: NotRequired[str | None]
    text: NotRequired[str]
    offset: NotRequired[int]
    totalChars: int
    nextOffset: int | None
    depth: NotRequired[int]
    node: NotRequired[Literal["node", "leaf"]]
    parents: NotRequired[list[str]]
    sourceMessageCount: NotRequired[int]
    sources: NotRequired[list[SummarySource]]
    tokens: NotRequired[int]
    preview: NotRequired[str]
    howToRead: NotRequired[str]


class DescribedMessages(TypedDict):
    """A page of the messages asked for by their numbers; `next` is the order of the next page."""

    tool: Literal["context_describe"]
    session: str
    messages: list[dict[str, Any]]
    next: dict[str, Any] | None


api = api_router()


@api.get("/sessions/{name:path}/search")
async def search_session(
    session: AskedSession,
    q: Annotated[str, Query(max_length=2_000, description="A question in free text.")],
    branch: Branch = None,
    scope: Annotated[Scope, Query(description="The branch, all of the session, or all sessions.")] = "branch",
    limit: Annotated[int, Query(description=f"Clamped to 1 to {MOST_HITS}.")] = 10,
    role: Annotated[Speaker | None, Query(description="What this one said.")] = None,
    kind: Annotated[ContentKind | None, Query(description="What has this in it.")] = None,
) -> Reply[SearchResults]:
    """Search for exact quotes of messages, best first.

    `limit` is clamped to 1 to 50 (C04).
    Messages that the client has edited away are found with `scope=session` only, other sessions with
    `scope=namespace` only (rule 5). `role` and `kind` filter the hits.
    """
    place = await session.place(branch)
    where = Where(session.namespace, place.row.id, place.chain, scope)
    wanted = max(1, min(limit, MOST_HITS)), Filters(role, kind)
    answer = await session.parts.searching.search(where, q, *wanted)
    return reply(
        {
            "session": place.row.id,
            "branch": place.chain.hex() or None,
            "scope": scope,
            "total_found": answer.found,
            "total_is_counted": answer.is_counted,
            "is_current": answer.is_current,
            "results": [_hit(hit, scope) for hit in answer.hits],
        }
    )


def _hit(hit: Hit, scope: Scope) -> SearchHit:
    entry, quote = hit.quote.entry, hit.quote
    fields: SearchHit = {
        "id": entry.id,
        "kind": entry.kind,
        "role": entry.role,
        "time": utc_time(entry.at),
        "depth": entry.place,
        "turn": entry.turn,
        "text": quote.text,
        "start": quote.start,
        "chars": len(entry.text),
        "before": [_neighbour(one.entry, one.text) for one in hit.before],
        "after": [_neighbour(one.entry, one.text) for one in hit.after],
    }
    if quote.head:
        fields["head"] = quote.head
    if entry.kind == "payload":
        large = reference(entry)
        fields["tokens"], fields["summary"] = large["tokens"], large["summary"]
    if scope == "namespace":
        fields["session"] = entry.session
    return fields


def _neighbour(entry: SearchEntry, text: str) -> Neighbour:
    return {"role": entry.role, "depth": entry.place, "turn": entry.turn, "text": text}


_ID_CHARS = 200


class _Placed(BaseModel):
    """The place: by default the caller's newest session and its default branch."""

    model_config = ConfigDict(extra="forbid")

    session: str | None = Field(default=None, max_length=_ID_CHARS)
    branch: str | None = Field(default=None, max_length=_ID_CHARS)
    scope: Scope = "branch"
    via: Literal["rest", "mcp"] = "rest"


class GrepOrder(_Placed):
    """A search with its number of hits."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"query": "which port did we decide to use"}]})

    query: str = Field(min_length=1, max_length=QUERY_CHARS)
    limit: int = GREP_LIMIT
    role: Speaker | None = None
    kind: ContentKind | None = None


class DescribeOrder(_Placed):
    """The entry to read, and which part of it."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"id": "dcm_2703cb40bd99ef9c7f3b3be955bfc5ea", "session": "tour"}]}
    )

    id: str = Field(min_length=1, max_length=_ID_CHARS)
    source_limit: int = Field(default=SOURCE_LIMIT, alias="sourceLimit")
    offset: int | None = Field(default=None, ge=0)
    limit: int | None = None


@api.post("/context/grep")
async def grep_context(caller: Admitted) -> Reply[GrepResult]:
    """Search as the model's tool does, best first.

    `limit` is clamped to 1 to 50 (C04).
    """
    order = await caller.order(GrepOrder)
    limit, only = max(1, min(order.limit, MOST_HITS)), Filters(order.role, order.kind)
    return await _answer(caller, order, Grep(order.query, limit, only=only))


@api.post("/context/describe")
async def describe_context(caller: Admitted) -> Reply[DescribedEntry | DescribedMessages | None]:
    """Read an entry as the model's tool does.

    Null when the scope has none with this id (C05).
    """
    order = await caller.order(DescribeOrder)
    page = None
    if order.offset is not None or order.limit is not None:
        limit = PAGE_CHARS if order.limit is None else order.limit
        page = order.offset or 0, max(1, min(limit, MOST_PAGE_CHARS))
    asked = Describe(order.id, max(1, min(order.source_limit, MOST_SOURCES)), page)
    return await _answer(caller, order, asked)


async def _answer(caller: ApiCaller, order: _Placed, asked: Grep | Describe) -> Reply[Any]:
    parts = caller.parts
    name = order.session or await parts.recall.newest(caller.namespace)
    if name is None:
        raise missing()
    place = await parts.archive.place(caller.namespace, name, order.branch)
    where = Where(caller.namespace, place.row.id, place.chain, order.scope)
    return raw_reply(encoded(await parts.recall.answered(where, asked, ToolCaller(order.via))))

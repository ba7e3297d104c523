"""HTTP endpoints for search in a session, and for the recall tools."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from fastapi import Query
from pydantic import BaseModel, Field

from palimpsest.api.callers import Admitted, ApiCaller, AskedSession, Branch, api_router, order_like
from palimpsest.api.replies import MessageId, Reply, UtcTime, described, raw_reply, reply, utc_time
from palimpsest.core.recall.filters import ContentKind, Filters, Speaker
from palimpsest.core.recall.quotes import Hit, Quote
from palimpsest.core.recall.tool_calls import (
    GREP_LIMIT,
    ID_CHARS,
    MOST_HITS,
    QUERY_CHARS,
    SOURCE_LIMIT,
    Describe,
    Grep,
    UnreadableCall,
    describe_of,
    grep_of,
)
from palimpsest.core.recall.tool_results import reference
from palimpsest.core.recall.words import Kind
from palimpsest.core.wire.json_text import encoded
from palimpsest.errors import InvalidParameter
from palimpsest.proxy.archive import missing
from palimpsest.proxy.recall.tools import Scope, ToolCaller, Where


class Neighbour(TypedDict):
    """A message beside a hit, which is a hit of its own."""

    role: str
    depth: Annotated[int, described("The message's number on its path, from 1.")]
    turn: Annotated[int, described("The user's messages up to it; 0 outside a branch.")]
    text: str


class SearchHit(Neighbour):
    """An exact quote: `text` is the piece of the stored text from character `start` of `chars`."""

    id: MessageId
    kind: Kind
    time: UtcTime
    head: Annotated[str, described("A tool result's first line, if `text` begins later.")]
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
    beside: Annotated[list[str], described("Messages around them, one each.")]


class SummarySource(TypedDict):
    """A message that a summary was made from."""

    id: str
    role: str
    time: Annotated[str, described("UTC.", format="date-time")]
    firstLine: str


class DescribedEntry(TypedDict):
    """An entry as a model gets it: a page, or a payload's head and tail; or `messages`, and what is next."""

    tool: Literal["context_describe"]
    session: str
    id: NotRequired[str]
    kind: NotRequired[Kind]
    conversation: NotRequired[str]
    time: NotRequired[Annotated[str, described("UTC.", format="date-time")]]
    role: NotRequired[str]
    message: NotRequired[int]
    turn: NotRequired[int]
    next: NotRequired[str | dict[str, Any] | None]
    messages: NotRequired[list[dict[str, Any]]]
    text: NotRequired[str]
    offset: NotRequired[int]
    totalChars: NotRequired[int]
    nextOffset: NotRequired[int | None]
    depth: NotRequired[int]
    node: NotRequired[Literal["node", "leaf"]]
    parents: NotRequired[list[str]]
    sourceMessageCount: NotRequired[int]
    sources: NotRequired[list[SummarySource]]
    tokens: NotRequired[int]
    preview: NotRequired[str]
    howToRead: NotRequired[str]


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


def _hit(hit: Hit, scope: Scope) -> Any:
    entry = hit.quote.entry
    fields: dict[str, Any] = {
        **_neighbour(hit.quote),
        "id": entry.id,
        "kind": entry.kind,
        "time": utc_time(entry.at),
        "head": hit.quote.head,
        "start": hit.quote.start,
        "chars": len(entry.text),
        "before": list(map(_neighbour, hit.before)),
        "after": list(map(_neighbour, hit.after)),
    }
    if entry.kind == "payload":
        fields["tokens"], fields["summary"] = entry.tokens, reference(entry)["summary"]
    if scope == "namespace":
        fields["session"] = entry.session
    return fields


def _neighbour(quote: Quote) -> Neighbour:
    entry = quote.entry
    return {"role": entry.role, "depth": entry.place, "turn": entry.turn, "text": quote.text}


class _Placed(BaseModel):
    """The place: by default the caller's newest session and its default branch."""

    session: str | None = Field(default=None, max_length=ID_CHARS)
    branch: str | None = Field(default=None, max_length=ID_CHARS)
    scope: Scope = "branch"
    via: Literal["rest", "mcp"] = "rest"


class GrepOrder(_Placed):
    """A search with its number of hits."""

    model_config = order_like(query="which port did we decide to use")

    query: str = Field(min_length=1, max_length=QUERY_CHARS)
    limit: int = GREP_LIMIT
    role: Speaker | None = None
    kind: ContentKind | None = None


class DescribeOrder(_Placed):
    """The entry to read, and which part of it."""

    model_config = order_like(id="12-58", session="tour")

    id: str = Field(min_length=1, max_length=ID_CHARS)
    source_limit: int = Field(default=SOURCE_LIMIT, alias="sourceLimit")
    offset: int | None = Field(default=None, ge=0)
    limit: int | None = None


@api.post("/context/grep")
async def grep_context(caller: Admitted) -> Reply[GrepResult]:
    """Search as the model's tool does, best first.

    `limit` is clamped to 1 to 50 (C04).
    """
    order = await caller.order(GrepOrder)
    return await _answer(caller, order, grep_of(order.model_dump()))


@api.post("/context/describe")
async def describe_context(caller: Admitted) -> Reply[DescribedEntry | None]:
    """Read an entry as the model's tool does.

    Null when the scope has none with this id (C05).
    """
    order = await caller.order(DescribeOrder)
    return await _answer(caller, order, describe_of(order.model_dump(by_alias=True)))


async def _answer(caller: ApiCaller, order: _Placed, asked: Grep | Describe | UnreadableCall) -> Reply[Any]:
    if isinstance(asked, UnreadableCall):
        raise InvalidParameter(asked.message)
    parts = caller.parts
    name = order.session or await parts.recall.newest(caller.namespace)
    if name is None:
        raise missing()
    place = await parts.archive.place(caller.namespace, name, order.branch)
    where = Where(caller.namespace, place.row.id, place.chain, order.scope)
    return raw_reply(encoded(await parts.recall.answered(where, asked, ToolCaller(order.via))))

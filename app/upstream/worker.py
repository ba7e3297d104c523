"""A summarizer of one's own behind an HTTP address (E07): one JSON question, one JSON answer.

Must not know what a good summary is. Nothing of the client's request is sent but the texts it is given,
its keys least of all.
"""

from __future__ import annotations

from typing import Any

import msgspec

from app.core.wire.answered import usage_of
from app.upstream.client import Upstream
from app.upstream.headers import UpstreamKey
from app.upstream.http import Reply, client_over, fetch, in_pieces
from app.upstream.questions import Failed, KeyRefused, SummaryAnswer, SummaryOutcome
from app.upstream.summarizer import in_time

# A summary is a few kilobytes.
ANSWER_BYTES = 1024 * 1024


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent. `previous_summary` is "" for the first time; `max_tokens` bounds the answer.

    `model` is the conversation's model, so that a worker may choose by it.
    """

    previous_summary: str
    conversation: str
    max_tokens: int
    model: str


class Worker:
    """The server at `url`, reached over the open pool of `upstream`; `key` is the operator's."""

    def __init__(self, upstream: Upstream, url: str, key: UpstreamKey | None = None) -> None:
        self._url = url
        self._http = client_over(upstream)
        self._key = key

    async def ask(self, task: Task, deadline_seconds: float) -> SummaryOutcome:
        """The updated summary, or why there is none, within `deadline_seconds`.

        The answer is `{"summary": text}`, at most a megabyte, and may state its `usage` as chat
        completions do. Redirects are not followed: the conversation goes nowhere else.
        """
        return await in_time(self._answer(task), deadline_seconds)

    async def _answer(self, task: Task) -> SummaryOutcome:
        body = msgspec.json.encode(task)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        if self._key is not None:
            headers.append(self._key.header)
        request = self._http.build_request("POST", self._url, content=in_pieces(body), headers=headers)
        return _outcome(await fetch(self._http, request, ANSWER_BYTES))


def _outcome(reply: Reply) -> SummaryOutcome:
    if reply.status in (401, 403):
        return KeyRefused(reply.status)
    if reply.status != 200:
        return Failed(f"status_{reply.status}")
    payload: Any = reply.json()
    summary = payload.get("summary") if isinstance(payload, dict) else None
    if not isinstance(summary, str):
        return Failed("no_summary")
    return SummaryAnswer(summary, "stop", False, usage_of(payload.get("usage")))

"""The endpoints with all their parts: completion, and a model that folds the memory (A38, B16)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI

from app.api.pages import Pages, pages_of
from app.core.summary.acceptance import SummaryReply
from app.core.summary.prompt import SummaryRequest
from app.main.compacting import chronicle_of, compactor_of, policies_of, scenes_of, writer_of
from app.main.front import front_of
from app.main.parts import Parts, opened
from app.main.recalling import recall_of
from app.proxy.compacting.scene import Scene
from app.proxy.compacting.viewing import Viewing
from app.settings.load import load_settings
from app.storage.migrate import migrate
from app.upstream.questions import Question, SummaryAnswer
from tests.kit.chat import Chat
from tests.kit.model import ModelServer, Says
from tests.kit.serving import served, shared_tokenizer

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]


class Asking:
    """Puts questions to the conversation's model."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def replied(self, scene: Scene, request: SummaryRequest) -> SummaryReply | None:
        question = Question(request.messages, scene.turn.model, request.max_tokens)
        answer = await self._parts.summarizers.ask(question, scene.outgoing, 20.0)
        if not isinstance(answer, SummaryAnswer):
            return None
        return SummaryReply(answer.text, answer.finish_reason, answer.had_tool_calls)


class Whole:
    """The application, its endpoints with everything that they can be given."""

    def __init__(self, upstream: str, folder: Path) -> None:
        values = {
            "upstream.base_url": f"{upstream}/v1",
            "database.url": f"sqlite:///{folder / 'palimpsest.db'}",
            "database.data_folder": str(folder),
            "limits.event_streams": 0,
        }
        self._settings = load_settings(None, values, {})
        self._own = FastAPI(lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        await migrate(self._settings.database.url.get_secret_value())
        async with AsyncExitStack() as stack:
            parts = await opened(self._settings, shared_tokenizer(), stack, asyncio.Event())
            recall = recall_of(parts, asyncio.Event())
            scenes = scenes_of(parts, policies_of(parts), recall.replays)
            chronicle = chronicle_of(parts)
            viewing = Viewing(
                scenes, compactor_of(parts, writer_of(parts), chronicle), parts.jobs, wait_seconds=5
            )
            pages = Pages(
                parts.store,
                parts.access,
                parts.reader,
                scenes,
                viewing,
                settings=self._settings,
                completes=chronicle,
                summarizer=Asking(parts),
            )
            self._front = front_of(parts, FastAPI(), asyncio.Event())
            pages_of(self._own, pages)
            yield

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        is_chat = scope["type"] == "http" and scope["path"].startswith("/v1/")
        await (self._front if is_chat else self._own)(scope, receive, send)


@dataclass
class Running:
    """The application, answering."""

    http: httpx.AsyncClient
    model: ModelServer

    async def asks(self, chat: Chat, method: str, end: str, body: Json | None = None) -> httpx.Response:
        path = f"/api/sessions/{chat.session}{end}"
        return await self.http.request(method, path, headers=chat.headers, json=body)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    model = ModelServer(window=20_000)
    async with (
        served(model, lifespan="off") as upstream,
        served(Whole(upstream, tmp_path_factory.mktemp("whole"))) as address,
        httpx.AsyncClient(base_url=address, timeout=60, trust_env=False) as http,
    ):
        yield Running(http, model)


@pytest.mark.spec("A38")
async def test_what_was_produced_gets_a_checkpoint_once(running: Running) -> None:
    chat = Chat(running.http, key="produced")
    running.model.says("The parser is released as version 2.1; its tests are in tests/parser.py.")
    await chat.says("Release the parser.")
    first = await running.asks(chat, "POST", "/complete", {"marker": "released as 2.1"})
    again = await running.asks(chat, "POST", "/complete")
    assert (first.status_code, first.json()["session"]) == (200, chat.session)
    made = first.json()["checkpoint"]
    listed = (await running.asks(chat, "GET", "/checkpoints")).json()["checkpoints"]
    assert [(one["id"], one["kind"]) for one in listed] == [(made, "completion")]
    assert again.json()["checkpoint"] is None
    payload = (await running.asks(chat, "GET", f"/checkpoints/{made}")).json()["payload"]
    assert payload["kind"] == "completion"
    events = (await running.asks(chat, "GET", "/events?types=checkpoint")).json()["events"]
    assert [event["payload"]["spanHash"] for event in events] == [payload["spanHash"]]


@pytest.mark.spec("A38")
async def test_what_says_nothing_gets_none(running: Running) -> None:
    chat = Chat(running.http, key="nothing")
    running.model.says("Ok.")
    await chat.says("Thanks!")
    reply = await running.asks(chat, "POST", "/complete", {"marker": "done"})
    assert (reply.status_code, reply.json()["checkpoint"]) == (200, None)
    assert (await running.asks(chat, "GET", "/checkpoints")).json()["checkpoints"] == []


async def test_only_ones_own_sessions_can_be_completed(running: Running) -> None:
    chat, stranger = Chat(running.http, key="mine"), Chat(running.http, key="yours")
    for one in (chat, stranger):
        running.model.says("The port is 8443, as decided.")
        await one.says("Which port do we use?")
    stranger.replies = chat.replies
    reply = await running.asks(stranger, "POST", "/complete", {"marker": "released as 2.1"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")
    assert (await running.asks(chat, "GET", "/checkpoints")).json()["checkpoints"] == []


async def test_a_completion_with_other_fields_is_refused(running: Running) -> None:
    chat = Chat(running.http, key="fields")
    await chat.says("hello")
    reply = await running.asks(chat, "POST", "/complete", {"makrer": "x"})
    assert (reply.status_code, reply.json()["error"]["param"]) == (422, "makrer")


async def test_a_model_folds_the_memory_once_at_fifteen(running: Running) -> None:
    chat = Chat(running.http, key="folds")
    await chat.says("hello")
    before = len(running.model.seen)
    for number in range(14):
        await running.asks(chat, "POST", "/memory-block", {"text": FACT.format(number)})
    assert len(running.model.seen) == before
    running.model.summary = lambda _: Says({"role": "assistant", "content": FOLDED})
    done = (await running.asks(chat, "POST", "/memory-block", {"text": FACT.format(14)})).json()
    assert len(running.model.seen) == before + 1
    assert all(FACT.format(number) in running.model.seen[-1].messages[-1]["content"] for number in range(10))
    assert FACT.format(10) not in running.model.seen[-1].messages[-1]["content"]
    assert (done["author"], done["folded"], done["block"], len(done["entries"])) == ("model", 10, FOLDED, 5)


@pytest.mark.parametrize(
    "says", [Says({"role": "assistant", "content": "I'm sorry, I cannot help with that."}), Says(status=500)]
)
async def test_what_a_model_says_that_is_no_memory_is_left_to_code(running: Running, says: Says) -> None:
    chat = Chat(running.http, key=f"code-{says.status}")
    await chat.says("hello")
    for number in range(14):
        await running.asks(chat, "POST", "/memory-block", {"text": FACT.format(number)})
    running.model.summary = lambda _: says
    done = (await running.asks(chat, "POST", "/memory-block", {"text": FACT.format(14)})).json()
    assert (done["author"], done["folded"]) == ("deterministic", 10)
    assert all(FACT.format(number) in done["block"] for number in range(10))


async def test_as_many_streams_as_the_setting_allows(running: Running) -> None:
    """Here none is allowed."""
    chat = Chat(running.http, key="streams")
    await chat.says("hello")
    path = f"/api/sessions/{chat.session}/events"
    reply = await running.http.get(path, headers={**chat.headers, "accept": "text/event-stream"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "server_busy")


FACT = "Fact {0} is noted: the service of room {0} listens on port 8443 and logs to /var/log/room{0}."
FOLDED = "The services of rooms 0 to 9 listen on port 8443; each logs to /var/log/room and its own number."

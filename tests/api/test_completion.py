"""Sessions that are completed, and a model that folds the memory, by the running program (A38, B16)."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.kit.chat import Chat
from tests.kit.model import Says
from tests.kit.proxy import Proxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]


async def asks(proxy: Proxy, chat: Chat, method: str, end: str, body: Json | None = None) -> httpx.Response:
    path = f"/api/sessions/{chat.session}{end}"
    return await proxy.http.request(method, path, headers=chat.headers, json=body)


@pytest.mark.spec("A38")
async def test_what_was_produced_gets_a_checkpoint_once(proxy: Proxy) -> None:
    chat = proxy.chat()
    proxy.model.says("The parser is released as version 2.1; its tests are in tests/parser.py.")
    await chat.says("Release the parser.")
    first = await asks(proxy, chat, "POST", "/complete", {"marker": "released as 2.1"})
    again = await asks(proxy, chat, "POST", "/complete")
    assert (first.status_code, first.json()["session"]) == (200, chat.session)
    made = first.json()["checkpoint"]
    listed = (await asks(proxy, chat, "GET", "/checkpoints")).json()["checkpoints"]
    assert [(one["id"], one["kind"]) for one in listed] == [(made, "completion")]
    assert again.json()["checkpoint"] is None
    payload = (await asks(proxy, chat, "GET", f"/checkpoints/{made}")).json()["payload"]
    assert payload["kind"] == "completion"
    events = (await asks(proxy, chat, "GET", "/events?types=checkpoint")).json()["events"]
    assert [event["payload"] for event in events] == [{"checkpointId": made, "kind": "completion"}]


@pytest.mark.spec("A38")
async def test_what_says_nothing_gets_none(proxy: Proxy) -> None:
    chat = proxy.chat()
    proxy.model.says("Ok.")
    await chat.says("Thanks!")
    reply = await asks(proxy, chat, "POST", "/complete", {"marker": "done"})
    assert (reply.status_code, reply.json()["checkpoint"]) == (200, None)
    assert (await asks(proxy, chat, "GET", "/checkpoints")).json()["checkpoints"] == []


async def test_only_ones_own_sessions_can_be_completed(proxy: Proxy) -> None:
    chat, stranger = proxy.chat(), proxy.chat(key="stranger")
    for one in (chat, stranger):
        proxy.model.says("The port is 8443, as decided.")
        await one.says("Which port do we use?")
    stranger.replies = chat.replies
    reply = await asks(proxy, stranger, "POST", "/complete", {"marker": "released as 2.1"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")
    assert (await asks(proxy, chat, "GET", "/checkpoints")).json()["checkpoints"] == []


async def test_a_completion_with_other_fields_is_refused(proxy: Proxy) -> None:
    chat = proxy.chat()
    await chat.says("hello")
    reply = await asks(proxy, chat, "POST", "/complete", {"makrer": "x"})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "makrer")


@pytest.mark.spec("B16")
async def test_a_model_folds_the_memory_once_at_fifteen(proxy: Proxy) -> None:
    chat = proxy.chat()
    await chat.says("hello")
    before = len(proxy.model.seen)
    for number in range(14):
        await asks(proxy, chat, "POST", "/memory-block", {"text": FACT.format(number)})
    assert len(proxy.model.seen) == before
    proxy.model.summary = lambda _: Says({"role": "assistant", "content": FOLDED})
    done = (await asks(proxy, chat, "POST", "/memory-block", {"text": FACT.format(14)})).json()
    assert len(proxy.model.seen) == before + 1
    assert all(FACT.format(number) in proxy.model.seen[-1].messages[-1]["content"] for number in range(10))
    assert FACT.format(10) not in proxy.model.seen[-1].messages[-1]["content"]
    assert (done["author"], done["folded"], done["block"], len(done["entries"])) == ("model", 10, FOLDED, 5)


@pytest.mark.parametrize(
    "says", [Says({"role": "assistant", "content": "I'm sorry, I cannot help with that."}), Says(status=500)]
)
async def test_what_a_model_says_that_is_no_memory_is_left_to_code(proxy: Proxy, says: Says) -> None:
    chat = proxy.chat()
    await chat.says("hello")
    for number in range(14):
        await asks(proxy, chat, "POST", "/memory-block", {"text": FACT.format(number)})
    proxy.model.summary = lambda _: says
    done = (await asks(proxy, chat, "POST", "/memory-block", {"text": FACT.format(14)})).json()
    assert (done["author"], done["folded"]) == ("deterministic", 10)
    assert all(FACT.format(number) in done["block"] for number in range(10))


FACT = "Fact {0} is noted: the service of room {0} listens on port 8443 and logs to /var/log/room{0}."
FOLDED = "The services of rooms 0 to 9 listen on port 8443; each logs to /var/log/room and its own number."

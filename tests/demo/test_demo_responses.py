"""The demo upstream speaks the Responses API, too, and the tour of docs/start.md can be taken with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import httpx2
import openai
import pytest
from palimpsest.demo.model import MODEL
from palimpsest.demo.server import create_demo

from tests.kit.proxy import fronting
from tests.kit.responses import call_item, events_of, result_item
from tests.kit.serving import served

Json = dict[str, Any]


async def asked(body: Json, window: int = 2_000) -> httpx.Response:
    transport = httpx.ASGITransport(create_demo(window))
    async with httpx.AsyncClient(transport=transport, base_url="http://demo") as client:
        return await client.post("/v1/responses", json={"model": MODEL, **body})


def text_in(response: Json) -> str:
    text: str = response["output"][0]["content"][0]["text"]
    return text


async def test_it_answers_from_items_and_instructions() -> None:
    said = [
        {"role": "user", "content": [{"type": "input_text", "text": "The code of the blue room is 7919."}]},
        call_item("c1", "look", {"at": "the red room"}),
        result_item("c1", "The code of the red room is 4711."),
        {"role": "user", "content": "What is the code of the red room?"},
    ]
    answer = (await asked({"input": said, "instructions": "Be kind."})).json()
    assert text_in(answer).endswith("The code of the red room is 4711.")
    assert "shown 5 messages" in text_in(answer)
    counts = [answer["usage"][key] for key in ("input_tokens", "output_tokens", "total_tokens")]
    assert counts[0] + counts[1] == counts[2]
    assert "shown 1 message," in text_in((await asked({"input": "Hello"})).json())


async def test_a_stream_is_what_the_sdk_reads() -> None:
    whole = (await asked({"input": "Stream this, grüße und 漢字"})).json()
    async with (
        served(create_demo()) as url,
        httpx2.AsyncClient(trust_env=False) as http,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", http_client=http) as client,
        client.responses.stream(model=MODEL, input="Stream this, grüße und 漢字") as made,
    ):
        kinds = [event.type async for event in made]
        final = await made.get_final_response()
    assert final.output_text == text_in(whole)
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")


async def test_an_answer_is_cut_by_its_limit() -> None:
    cut = (await asked({"input": "Hello", "max_output_tokens": 5})).json()
    assert cut["status"] == "incomplete"
    assert cut["incomplete_details"] == {"reason": "max_output_tokens"}
    streamed = await asked({"input": "Hello", "max_output_tokens": 5, "stream": True})
    assert events_of(streamed.text)[-1]["type"] == "response.incomplete"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "invalid_request_error"),
        ({"input": []}, "invalid_request_error"),
        ({"input": 7}, "invalid_request_error"),
        ({"input": "x", "previous_response_id": "resp_1"}, "previous_response_not_found"),
        ({"input": "word " * 2_500}, "context_length_exceeded"),
    ],
)
async def test_what_it_cannot_answer_is_refused(body: Json, code: str) -> None:
    refused = await asked(body)
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == code


async def test_the_tour_can_be_taken_with_responses(tmp_path: Path) -> None:
    async with served(create_demo()) as upstream, fronting(f"{upstream}/v1", tmp_path) as front:
        before, views = None, []
        for n in range(1, 25):
            text = f"Fact {n}: the code of room {n} is R-{n * 7919}. What is the code of room 1?"
            body = {"model": MODEL, "input": text} | ({"previous_response_id": before} if before else {})
            reply = await front.http.post("/v1/responses", json=body)
            assert reply.status_code == 200, reply.text
            before = reply.json()["id"]
            views.append(reply.headers["x-palimpsest-view"])
        assert (views[0], views[-1]) == ("original", "compacted")
        assert "R-7919" in text_in(reply.json())
        session = reply.headers["x-palimpsest-session"]
        rows = (await front.http.get(f"/api/sessions/{session}/messages")).json()
        assert rows["total"] == 48

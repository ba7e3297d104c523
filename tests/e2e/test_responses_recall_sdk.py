"""The real OpenAI SDK goes on with a conversation whose model looks things up, and notices nothing."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from tests.kit.items_recall import Recalled, compacted_items, grep, reads
from tests.kit.responses import text_item, thought_item

pytestmark = pytest.mark.timeout(90)
Json = dict[str, Any]
TOOLS: Any = [{"type": "function", "name": "read_file", "parameters": {"type": "object"}, "strict": True}]


async def asked(client: openai.AsyncOpenAI, said: list[Any], how: str, **more: Any) -> Any:
    """The answer as the SDK has it, whichever way it is asked for; of a stream what its helper adds up to."""
    if how == "whole":
        return await client.responses.create(model="test-model", input=said, tools=TOOLS, **more)
    if how == "events":
        ended = None
        made: Any = await client.responses.create(
            model="test-model", input=said, tools=TOOLS, stream=True, **more
        )
        async for event in made:
            ended = event.response if event.type == "response.completed" else ended
        return ended
    async with client.responses.stream(model="test-model", input=said, tools=TOOLS, **more) as helped:
        heard = [event async for event in helped]
        final = await helped.get_final_response()
    texts = [event.text for event in heard if event.type == "response.output_text.done"]
    assert "".join(texts) == final.output_text
    return final


def client_of(talk: Recalled, http: httpx2.AsyncClient) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=f"{talk.proxy.url}/v1", api_key="key-1", http_client=http, max_retries=0
    )


@pytest.mark.spec("W45", "C22", "F20", "F21")
@pytest.mark.parametrize("how", ["whole", "events", "helper"])
async def test_the_sdk_notices_nothing(how: str, tmp_path: Path) -> None:
    async with (
        compacted_items(tmp_path, overrides={"recall.result_chars": 500}) as talk,
        httpx2.AsyncClient(trust_env=False, verify=False) as http,
        client_of(talk, http) as client,
    ):
        talk.server.outputs.extend(
            [
                [thought_item("rs_a", short="Hm."), text_item("Let me see. ", "msg_a"), grep("g1")],
                [thought_item("rs_b"), text_item("Port 8000.", "msg_b")],
                [thought_item("rs_c"), grep("g2"), reads("c1")],
                [grep("g3")],
                [text_item("Done.", "msg_d")],
            ]
        )
        said: list[Any] = [*talk.chat.said, {"role": "user", "content": "Which port?"}]
        made = await asked(client, said, how)
        assert made.output_text == "Let me see. Port 8000."
        assert [tool.name for tool in made.tools] == ["read_file"]
        assert made.usage.output_tokens == 18
        said += [*made.output, {"role": "user", "content": "Read it."}]
        made = await asked(client, said, how)
        assert [(item.type, item.id) for item in made.output] == [
            ("reasoning", "rs_c"), ("function_call", "fc_c1"),
        ]  # fmt: skip
        result: Json = {"type": "function_call_output", "call_id": "c1", "output": "x = 1"}
        said += [*made.output, result]
        made = await asked(client, said, how)
        assert made.output_text == "Done."
        made = await asked(
            client, [{"role": "user", "content": "Thanks."}], how, previous_response_id=made.id
        )
        assert "Answer" in made.output_text
        prompts = talk.asked
        assert len(prompts) == 6
        # The last one is told in the model's own spelling, those before it in the SDK's.
        assert all(later.extends(earlier) for earlier, later in pairwise(prompts[:-1]))
        assert [item["call_id"] for item in prompts[-1].items if "output" in item] == ["g1", "g2", "c1", "g3"]

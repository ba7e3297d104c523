"""What a small real model was told long ago is found again by our tools, and read by the model (C21).

The model has 135 million parameters and a template that leaves tools out: it calls nothing by itself. So a
client looks things up for it, as agents do over MCP, and the model answers from what was found. That it is
offered the tools, streamed, and keeps on answering is shown beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.kit.agent import TOOLS
from tests.kit.chat import Chat
from tests.kit.planted import FACTS
from tests.kit.proxy import fronting
from tests.kit.serving import served
from tests.kit.words import prose
from tests.realmodel.conversation import PATIENCE_SECONDS, client_of, usage_of
from tests.realmodel.listening import Listening
from tests.realmodel.serve_model import CONTEXT_TOKENS

pytestmark = pytest.mark.realmodel
Json = dict[str, Any]
# Nobody is there to write summaries, so that code does; the tools are offered once something is folded.
SETTINGS: Json = {
    "compaction.deadline_seconds": 1,
    "summarizer.base_url": "http://127.0.0.1:9/v1",
    "recall.tools": True,
    # The model reads 4,096 tokens: more than a tenth of them are what the tools say of themselves.
    "recall.tools_share": 1.0,
}
OFFERED = ["read_file", "context_grep", "context_describe"]


def past() -> list[Json]:
    """Five facts, each in a long report, and as many reports without any: more than the model can read."""
    said: list[Json] = []
    for number in range(2 * len(FACTS)):
        fact = FACTS[number][0] if number < len(FACTS) else "Nothing else today."
        report = f"Report {number}.\n{prose(2 * number, 250)}\n{fact}\n{prose(2 * number + 1, 250)}"
        said += [{"role": "user", "content": report}, {"role": "assistant", "content": "Filed."}]
    return said


async def looked_up(http: httpx.AsyncClient, chat: Chat, question: str) -> tuple[str, str]:
    """The quote of the best hit, and the whole of the best message: a summary may come first."""
    asked = {"session": chat.session, "query": question, "limit": 3}
    found = await http.post("/api/context/grep", json=asked, headers=chat.headers)
    hits = found.json()["results"]
    ident = next(hit["id"] for hit in hits if "kind" not in hit)
    order = {"session": chat.session, "id": ident}
    entry = await http.post("/api/context/describe", json=order, headers=chat.headers)
    return str(hits[0]["snippet"]), str(entry.json()["text"])


@pytest.mark.spec("C21")
async def test_five_planted_facts_are_found_and_read_to_the_model(model_url: str, tmp_path: Path) -> None:
    async with httpx.AsyncClient(timeout=PATIENCE_SECONDS, trust_env=False) as http:
        listening = Listening(model_url, http)
        async with (
            served(listening, lifespan="off") as relay,
            fronting(f"{relay}/v1", tmp_path, SETTINGS, patience_seconds=PATIENCE_SECONDS) as front,
        ):
            chat = client_of(front, "reports", tools=TOOLS)
            chat.said += past()
            chat.stream = True
            await chat.says("Confirm that you have all reports.")
            # What goes upstream is folded, fits, and has our tools behind the client's; the answer streams.
            assert 0 < usage_of(chat.reply)["prompt_tokens"] <= CONTEXT_TOKENS
            assert [tool["function"]["name"] for tool in listening.bodies[-1]["tools"]] == OFFERED
            assert listening.bodies[-1]["stream"] is True
            assert chat.reply.headers["content-type"].startswith("text/event-stream")
            assert await chat.compactions()
            shown = str(listening.bodies[-1]["messages"])
            assert any(fact not in shown for fact, _, _ in FACTS)
            answers = []
            for number, (fact, key, question) in enumerate(FACTS):
                quote, whole = await looked_up(front.http, chat, question)
                assert fact in quote
                assert whole == f"user: {past()[2 * number]['content']}"
                reader = client_of(front, f"reader-{number}", max_tokens=40)
                line = next(line for line in quote.splitlines() if key in line)
                answer = await reader.says(f"Note: {line}\n\nUsing the note, answer: {question}")
                answers.append(str(answer["content"]))
            # Every answer is one, and the model can read what was found for it.
            assert all(answers)
            assert any(key in answer for (_, key, _), answer in zip(FACTS, answers, strict=True)), answers

"""Many conversations compacted for the first time at once, in servers that have just started.

A conversation of 601 messages is planned in a thread. 24 starts:
`for _ in $(seq 12); do .venv/bin/python -m pytest -q tests/faults/test_first_compactions.py; done`.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest
from palimpsest.storage.migrate import migrate

from benchmarks.kill_loop import server
from tests.kit.model import ModelServer, Says, Seen
from tests.kit.serving import served
from tests.kit.words import prose

pytestmark = pytest.mark.timeout(120)
CONVERSATIONS = 24
CHANGES = json.dumps({"decisions": [{"text": "It stands."}]})
SUMMARY = (
    f"## KEY FACTS\n- One.\n## CONVERSATION FLOW\n- On.\n## OPEN THREADS\n- Rest.\n\n```json\n{CHANGES}\n```"
)


def told(_: Seen) -> Says:
    """A summary in the form of `rolling`."""
    return Says({"role": "assistant", "content": SUMMARY})


@pytest.mark.parametrize("preset", ["rolling", "working_state"])
async def test_24_first_compactions_at_once_end_no_process(tmp_path: Path, preset: str) -> None:
    await migrate(f"sqlite:///{tmp_path / 'palimpsest.db'}")
    model = ModelServer(window=4_000, summary=told if preset == "rolling" else None)
    settings = {
        "PALIMPSEST_POLICY__NAME": preset,
        "PALIMPSEST_ACCESS__UNPROVEN_MESSAGES": "100000",
        "PALIMPSEST_DATABASE__STORE_DEADLINE_SECONDS": "60",
    }
    async with (
        served(model, lifespan="off") as upstream,
        server(tmp_path, upstream, 4_000, **settings) as running,
        httpx.AsyncClient(base_url=running.url, timeout=60, trust_env=False) as http,
    ):

        async def talk(number: int) -> None:
            roles = ("user", "assistant")
            said = [{"role": roles[at % 2], "content": f"{number} {at} {prose(at, 5)}"} for at in range(601)]
            body = {"model": "test-model", "messages": said}
            reply = await http.post("/v1/chat/completions", json=body)
            assert reply.status_code == 200, reply.text

        await asyncio.gather(*map(talk, range(CONVERSATIONS)))
        assert all(seen.tokens < 4_000 for seen in model.prompts)
        assert (await http.get("/healthz")).status_code == 200
        assert running.process.returncode is None

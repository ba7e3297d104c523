"""What is kept of a recovery: that it began, how it ended, and nothing where there was none."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.kit.chat import Chat
from tests.kit.journal import events
from tests.kit.model import ModelServer, Says
from tests.kit.proxy import proxied
from tests.kit.words import prose

STEPS = ("overflow_recovery_started", "overflow_recovery_completed", "overflow_recovery_failed")
SETTINGS = {"compaction.overflow_retries": 2}


def refusal(window: int) -> Says:
    message = f"This model's maximum context length is {window} tokens. However, you requested more."
    return Says(status=400, error={"error": {"message": message, "code": "context_length_exceeded"}})


@pytest.mark.spec("A29")
@pytest.mark.parametrize("refusals", [0, 1, 2, 3])
async def test_a_recovery_says_that_it_began_and_how_it_ended(tmp_path: Path, refusals: int) -> None:
    model = ModelServer(window=100_000)
    async with proxied(model, tmp_path, SETTINGS) as proxy:
        chat = Chat(proxy.http, session="long")
        for turn in range(8):
            await chat.says(prose(turn, 400))
        for attempt in range(refusals):
            model.answers.append(refusal(3_000 - 500 * attempt))
        reply = await chat.posts([*chat.said, {"role": "user", "content": "And now?"}])
        started, completed, failed = (
            f"overflow_recovery_{end}" for end in ("started", "completed", "failed")
        )
        wanted = [started] * min(refusals, 2) + {0: [], 3: [failed]}.get(refusals, [completed])
        assert reply.status_code == (400 if refusals > 2 else 200)
        # Events are written behind the answer.
        async with asyncio.timeout(20):
            while len(told := await events(proxy.http, chat, STEPS)) < len(wanted):
                pass
        assert [event["type"] for event in told] == wanted

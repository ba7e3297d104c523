"""What could be read before a restart can be read after it, and the next prompt goes on from the last."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.model import ModelServer
from tests.kit.proxy import proxied
from tests.kit.words import prose


@pytest.mark.spec("F25")
@pytest.mark.spec("P10")
async def test_ids_resolve_and_the_view_goes_on_after_a_restart(tmp_path: Path) -> None:
    model = ModelServer(window=4_000)
    async with proxied(model, tmp_path) as before:
        chat = before.chat(system="You are careful.")
        for turn in range(30):
            await chat.says(prose(turn, 150))
            if chat.reply.headers["x-palimpsest-view"] == "compacted":
                break
        said, headers = list(chat.said), dict(chat.headers)
        rows = (await before.http.get(f"/api/sessions/{chat.session}/messages", headers=headers)).json()
    first = next(row for row in rows["messages"] if row["origin"] == "client" and row["id"])
    async with proxied(model, tmp_path) as after:
        found = await after.http.get(f"/api/context/{first['id']}", headers=headers)
        assert found.json()["text"] == first["message"]["content"]
        again = after.chat(system="You are careful.")
        again.said = said
        await again.says("Go on.")
        last, new = model.prompts[-2], model.prompts[-1]
        assert new.messages[: len(last.messages)] == last.messages
        assert await again.transcript() == again.said

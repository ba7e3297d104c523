"""Some sessions keep an older policy (`policy.holdout`), and the two are compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from palimpsest.core.holdout import arm_of

from tests.kit.journal import compacted, read
from tests.kit.model import ModelServer
from tests.kit.proxy import proxied

pytestmark = pytest.mark.timeout(120)
SETTINGS = {
    "policy": {
        "name": "handoff",
        "holdout": 0.5,
        "holdout_policy": {"name": "rolling", "trigger_ratio": 0.6, "target_ratio": 0.3},
    },
    "compaction": {"background": False},
    "models": [{"match": "test-model", "prices": {"input": 2.0, "output": 8.0, "cached": 0.5}}],
}


async def test_held_out_sessions_keep_the_older_policy_and_both_are_told(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=8_000), tmp_path, SETTINGS) as proxy:
        arms: dict[str, str | None] = {}
        while {*arms.values()} != {"policy", "holdout"}:
            chat = proxy.chat(session=f"work {len(arms)}")
            await compacted(chat)
            arms[chat.session] = arm = arm_of(chat.session, 0.5)
            (made,) = (await read(proxy.http, chat, f"sessions/{chat.session}/compactions"))["compactions"]
            assert made["policy"] == {"policy": "handoff", "holdout": "rolling"}[arm or ""]
            told = (await read(proxy.http, chat, f"sessions/{chat.session}/settings"))["policy"]
            trigger = told["trigger_ratio"]
            assert (trigger["value"] == 0.6, trigger["from"] == "deployment") == (arm == "holdout",) * 2
        # Another one with settings of its own keeps those on either side.
        await proxy.http.patch(
            f"/api/sessions/{chat.session}/settings",
            json={"policy": {"name": "worker"}},
            headers=chat.headers,
        )
        own = (await read(proxy.http, chat, f"sessions/{chat.session}/settings"))["policy"]
        assert own["name"] == {"value": "worker", "from": "session"}
        found = await read(proxy.http, chat, "holdout?days=1")
        counts = {arm: [*arms.values()].count(arm) for arm in ("policy", "holdout")}
        assert found["sessions"] == found["read"] == counts
        figures = {one["name"]: one for one in found["figures"]}
        cost = figures["cost"]
        for arm in ("policy", "holdout"):
            spent = turns = 0.0
            for session in (session for session, of in arms.items() if of == arm):
                page = (await read(proxy.http, chat, f"sessions/{session}/exchanges"))["exchanges"]
                spent += sum(turn["cost"]["total"] for turn in page)
                turns += len(page)
            assert cost[arm]["value"] == pytest.approx(spent / turns)
            assert cost[arm]["interval"] is None
        difference = cost["policy"]["value"] - cost["holdout"]["value"]
        assert cost["difference"]["value"] == pytest.approx(difference)
        assert (cost["kind"], figures["saved"]["kind"]) == ("measured", "estimated")
        page = (await proxy.http.get("/ui/holdout?days=1", headers=chat.headers)).text
        assert f'<data class="sessions" value="{counts["holdout"]}">' in page
        assert "/ui/holdout" in (await proxy.http.get("/ui/overview", headers=chat.headers)).text


async def test_without_a_holdout_nothing_is_compared(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        chat = proxy.chat(session="work")
        await chat.says("Hello.")
        found = await read(proxy.http, chat, "holdout")
        assert found["share"] == 0
        assert found["sessions"] == {"policy": 0, "holdout": 0}
        assert all(one["policy"] is one["difference"] is None for one in found["figures"])
        page = (await proxy.http.get("/ui/holdout", headers=chat.headers)).text
        assert "No session is held out" in page
        assert "/ui/holdout" not in (await proxy.http.get("/ui/overview", headers=chat.headers)).text

"""What the model saw at every turn, from the store, held against what the upstream received."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.kit.chat import Chat
from tests.kit.journal import AT_THE_END, compacted, read
from tests.kit.model import ModelServer, Says
from tests.kit.proxy import Proxy, proxied

pytestmark = pytest.mark.timeout(90)
Json = dict[str, Any]
TOOL = {
    "type": "function",
    "function": {"name": "run", "description": "Runs. " * 200, "parameters": {"type": "object"}},
}


async def turn(proxy: Proxy, chat: Chat, n: object, end: str = "") -> Json:
    return await read(proxy.http, chat, f"sessions/{chat.session}/exchanges/{n}{end}")


async def test_a_turn_says_what_became_of_each_message(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=8_000), tmp_path, AT_THE_END) as proxy:
        chat = proxy.chat(system="You are careful.", session="work", extra={"tools": [TOOL]})
        await compacted(chat)
        n = len(chat.replies)
        told = await turn(proxy, chat, n)
        compaction = chat.reply.headers["x-palimpsest-compaction"]
        assert [row["message"] for row in told["messages"]] == chat.said[1:-1]
        assert [part["message"] for part in told["parts"]] == proxy.model.prompts[-1].messages
        fates = {row["fate"] for row in told["messages"]}
        assert {"folded", "whole"} <= fates
        for row in told["messages"]:
            assert (row["summary"] == compaction) == (row["fate"] in ("folded", "kept", "again"))
            assert (row["tokens_sent"] == 0) == (row["fate"] == "folded")
        one = await turn(proxy, chat, n)
        sizes = chat.reply.headers["x-palimpsest-tokens"].split("/")
        assert sum(one["shares"].values()) == pytest.approx(one["tokens"], abs=len(one["shares"]))
        assert one["tokens_full"] > one["tokens"] == pytest.approx(int(sizes[1]), rel=0.1)
        assert one["shares"]["tools"] > 200
        assert one["fates"]["folded"] + one["fates"]["whole"] <= len(chat.said)
        assert one["code"] is None
        assert (one["state"], one["status"], one["client"]) == (
            "done",
            200,
            "python-httpx/" + one["client"][13:],
        )
        assert 0 < one["first_byte_seconds"] <= one["seconds"]
        # The test's model has no published price: that is unknown, and not nothing.
        assert one["cost"] is None
        shown = (await proxy.http.get(f"/ui/sessions/{chat.session}/turns/{n}", headers=chat.headers)).text
        assert chat.said[-1]["content"] in shown.partition('id="answered"')[2]
        assert "<code>run</code>" in shown
        # The same by its id, as the request's headers and log lines have it.
        assert await turn(proxy, chat, one["id"]) == one


async def test_what_differs_from_the_turn_before_and_from_what_was_said(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=8_000), tmp_path, AT_THE_END) as proxy:
        chat = proxy.chat(session="work")
        await compacted(chat)
        n = len(chat.replies)

        async def differs(n: int, against: str) -> Json:
            told: Json = (await turn(proxy, chat, n, f"?against={against}"))["difference"]
            return told

        grown = await differs(n - 1, "previous")
        assert (grown["gone"], len(grown["new"]), grown["same_after"]) == ([], 2, 0)
        folded = await differs(n, "previous")
        assert folded["same_before"] < len(proxy.model.prompts[-2].messages)
        assert folded["gone"]
        against = await differs(n, "said")
        assert len(against["gone"]) > len(against["new"]) >= 1
        first = await differs(1, "previous")
        assert (first["same_before"], first["new"]) == (0, chat.sent[0])
        assert (await turn(proxy, chat, 1))["difference"] is None


async def test_what_a_compaction_lost_is_named(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=8_000), tmp_path, AT_THE_END) as proxy:
        proxy.model.summary = lambda _: Says({"role": "assistant", "content": "## 1. Task\nNothing much."})
        chat = proxy.chat(session="work")
        await chat.says("Never touch /srv/payroll/ledger.csv. We decided to use port 48123.")
        await compacted(chat)
        lost = await turn(proxy, chat, len(chat.replies), "?lost=1")
        view = proxy.model.prompts[-1].text
        assert lost["compaction"] == chat.reply.headers["x-palimpsest-compaction"]
        for one in lost["lost"]:
            assert one["text"] not in view
            assert one["message"].startswith("dcm_")
        first = await turn(proxy, chat, 1, "?lost=1")
        assert first["lost"] == []


async def test_a_failure_says_whose_it_is(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=8_000), tmp_path) as proxy:
        chat = proxy.chat(session="work")
        await chat.says("Hello.")
        said = [*chat.said, {"role": "user", "content": "More."}]
        proxy.model.answers.append(Says(status=400, error={"message": "no", "type": "x", "code": "y"}))
        await chat.posts(said)
        proxy.model.answers.append(Says({"role": "assistant", "content": "x" * 500}, cut=True))
        chat.stream = True
        with pytest.raises(Exception, match=r"peer closed|incomplete"):
            await chat.posts(said)
        page = await read(proxy.http, chat, "sessions/work/exchanges?limit=2")
        cut, refused = page["exchanges"]
        assert (refused["state"], refused["status"], refused["code"], refused["cause"]) == (
            *("rejected", 400, "upstream_status", "upstream"),
        )
        assert (cut["state"], cut["cause"]) == ("incomplete", "upstream")
        (first,) = (await read(proxy.http, chat, f"sessions/work/exchanges?after={page['next']}"))[
            "exchanges"
        ]
        assert (first["n"], first["state"]) == (1, "done")


@pytest.mark.spec("P6")
async def test_what_it_carried_is_erased_with_the_session(tmp_path: Path) -> None:
    word = "Kanarienvogel77"
    tool = json.loads(json.dumps(TOOL).replace("Runs. Runs. ", f"{word} "))
    async with proxied(ModelServer(), tmp_path) as proxy:
        chat = proxy.chat(session="work", extra={"tools": [tool], "user": word})
        await chat.says("Hello.")
        sent = await proxy.http.get(f"/api/sessions/{chat.session}/exchanges/1/body", headers=chat.headers)
        assert word in sent.text
        receipt = await proxy.http.delete(f"/api/sessions/{chat.session}", headers=chat.headers)
        assert receipt.json()["rows"]["preambles"] == 1
    assert word.encode() not in (tmp_path / "palimpsest.db").read_bytes()


async def test_the_last_days_add_up(tmp_path: Path) -> None:
    prices = {"models": [{"match": "test-model", "prices": {"input": 2.0, "output": 8.0, "cached": 0.5}}]}
    async with proxied(ModelServer(window=8_000), tmp_path, prices) as proxy:
        chat = proxy.chat(session="work")
        for words in ("Hello.", "More.", "And more."):
            await chat.says(words)
        proxy.model.answers.append(Says(status=500, error={"message": "no", "type": "x", "code": "y"}))
        await chat.posts([*chat.said, {"role": "user", "content": "Again."}])
        told = await read(proxy.http, chat, "overview?days=1")
        turns = (await read(proxy.http, chat, "sessions/work/exchanges"))["exchanges"]
        assert (told["total"]["turns"], told["total"]["failed"]) == (4, 1)
        assert told["total"]["prompt_tokens"] == sum(turn["prompt_tokens"] or 0 for turn in turns)
        cost = sum(turn["cost"]["total"] for turn in turns if turn["cost"])
        assert told["total"]["cost"] == pytest.approx(cost)
        assert cost > 0
        own = told["total"]["overhead"]
        assert own["turns"] == 4
        assert 0 < own["mean_seconds"] <= own["longest_seconds"] < 60
        assert told["total"]["compaction_waits"] == {
            "turns": 0,
            "mean_seconds": None,
            "longest_seconds": None,
        }
        (model,) = told["by_model"]
        assert (model["model"], model["turns"]) == ("test-model", 4)
        (failure,) = told["failures"]
        assert (failure["cause"], failure["code"], failure["turns"]) == ("upstream", "upstream_status", 1)
        assert failure["status"] == 500
        assert failure["cure"].startswith("The model server failed")
        other = {"authorization": "Bearer another"}
        empty = (await proxy.http.get("/api/overview", headers=other)).json()
        assert (empty["total"]["turns"], empty["total"]["cost"], empty["failures"]) == (0, None, [])
        assert (await proxy.http.get("/api/overview?days=-1", headers=other)).status_code == 400


async def used(proxy: Proxy, chat: Chat, ident: str, name: str, result: str, **arguments: str) -> None:
    """The model calls a tool, and the client gives its result."""
    proxy.model.calls((ident, name, arguments))
    await chat.says(f"Go on with {ident}.")
    await chat.sends({"role": "tool", "tool_call_id": ident, "content": result})


async def test_what_followed_a_compaction_is_counted(tmp_path: Path) -> None:
    prices = {"models": [{"match": "test-model", "prices": {"input": 2.0}}]}
    async with proxied(ModelServer(window=8_000), tmp_path, AT_THE_END | prices) as proxy:
        chat = proxy.chat(session="work")
        await used(proxy, chat, "c1", "read_file", "1: import os", path="/srv/a.py")
        assert (await read(proxy.http, chat, "sessions/work/report"))["compactions"] == []
        await compacted(chat)
        since = len(chat.replies)
        await used(proxy, chat, "c2", "read_file", "1: import sys", path="/srv/b.py")
        await used(proxy, chat, "c3", "read_file", "1: import os", path="/srv/a.py")
        await used(proxy, chat, "c4", "write_file", "written", path="/srv/a.py", content="import os, sys")
        await used(proxy, chat, "c5", "read_file", "1: import os, sys", path="/srv/a.py")
        (told,) = (await read(proxy.http, chat, "sessions/work/report"))["compactions"]
        assert told["compaction"] == chat.reply.headers["x-palimpsest-compaction"]
        assert (told["since"], told["turns"]) == (since, len(chat.replies) - since + 1)
        assert (told["calls"], told["calls_until_change"]) == (4, 3)
        assert (told["repeated_calls"], told["lookups"]) == (2, 0)
        assert 0 < told["repeated_tokens"] < 50
        page = await proxy.http.get(f"/ui/sessions/{chat.session}", headers=chat.headers)
        assert "no. 3 was the first to change something" in page.text


RECORD = (
    "## 1. Primary request\nUse port 48123 for the relay.\n## 2. User messages\nQuokkas were never mentioned."
)


async def test_a_compaction_is_told_line_by_line_with_what_it_cost(tmp_path: Path) -> None:
    prices = {"models": [{"match": "test-model", "prices": {"input": 2.0, "output": 8.0, "cached": 0.5}}]}
    async with proxied(ModelServer(window=8_000), tmp_path, AT_THE_END | prices) as proxy:
        proxy.model.summary = lambda _: Says({"role": "assistant", "content": RECORD})
        chat = proxy.chat(session="work")
        await chat.says("Hello.")
        await chat.says("The relay listens on port 48123 from now on.")
        await compacted(chat)
        ident = chat.reply.headers["x-palimpsest-compaction"]
        told = await read(proxy.http, chat, f"sessions/work/compactions/{ident}")
        view = await turn(proxy, chat, len(chat.replies))
        assert told["folded"] == [row["id"] for row in view["messages"] if row["fate"] == "folded"]
        assert told["newly_folded"] == told["messages_folded"] == len(told["folded"])
        lines = {line["text"]: line for line in told["lines"]}
        (sourced,) = [
            line for text, line in lines.items() if text.lstrip("- ") == "Use port 48123 for the relay."
        ]
        first = next(row["id"] for row in view["messages"] if "48123" in str(row["message"]))
        assert (first in told["folded"], sourced["sources"]) == (True, [first])
        assert [line["sources"] for text, line in lines.items() if "Quokkas" in text] in ([], [[]])
        assert any(line["is_heading"] for line in told["lines"])
        spent = told["spent"]
        assert spent["prompt_tokens"] > 0 < spent["completion_tokens"]
        expected = (spent["prompt_tokens"] - spent["cached_tokens"]) * 2.0 + spent["cached_tokens"] * 0.5
        assert told["cost"] == pytest.approx((expected + spent["completion_tokens"] * 8.0) / 1e6)
        one = await turn(proxy, chat, len(chat.replies))
        assert 0 < one["waited_seconds"] <= one["prepared_seconds"]
        (after,) = (await read(proxy.http, chat, "sessions/work/report"))["compactions"]
        assert (after["cost"], after["waited_seconds"]) == (told["cost"], one["waited_seconds"])
        assert after["saved"] > 0
        total = await read(proxy.http, chat, "overview")
        waits = total["total"]["compaction_waits"]
        assert (waits["turns"], waits["longest_seconds"]) == (1, one["waited_seconds"])
        assert total["total"]["overhead"]["turns"] == len(chat.replies) - 1
        assert total["summary_calls"]["prompt_tokens"] == spent["prompt_tokens"]
        other = {"authorization": "Bearer another"}
        path = f"/api/sessions/{chat.session}/compactions/{ident}"
        assert (await proxy.http.get(path, headers=other)).status_code == 404
        missing = await proxy.http.get(f"/api/sessions/work/compactions/{'0' * 36}", headers=chat.headers)
        assert missing.status_code == 404


async def test_sessions_are_found_by_client_model_and_error(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        first = proxy.chat(session="first")
        first.headers["user-agent"] = "aider/1&2 (linux)"
        await first.says("Hello.")
        second = proxy.chat(session="second")
        await second.says("Hello there.")
        proxy.model.answers.append(Says(status=500, error={"message": "no", "type": "x", "code": "y"}))
        await second.posts([*second.said, {"role": "user", "content": "Again."}])

        async def named(query: str) -> list[str]:
            told = await read(proxy.http, first, f"sessions?{query}")
            assert told["total"] is None
            page = (await proxy.http.get(f"/ui?{query}", headers=first.headers)).text
            found = [row["name"] for row in told["sessions"]]
            assert [name for name in ("second", "first") if f"<bdi>{name}</bdi>" in page] == found
            return found

        assert await named("client=aider/1%262") == ["first"]
        assert await named("model=test-model") == ["second", "first"]
        assert await named("model=test-model&limit=1") == ["second"]
        assert await named("error=upstream_status") == ["second"]
        assert await named("error=upstream_status&client=aider/1%262") == []
        assert await named("error=500") == ["second"]
        assert await named("error=429") == []
        assert await named("named=SEC&error=500") == ["second"]
        other = {"authorization": "Bearer another"}
        alone = await proxy.http.get("/api/sessions?model=test-model", headers=other)
        assert alone.json()["sessions"] == []


async def test_a_list_tells_sizes_compactions_and_money(tmp_path: Path) -> None:
    prices = {"models": [{"match": "test-model", "prices": {"input": 2.0, "output": 8.0, "cached": 0.5}}]}
    async with proxied(ModelServer(window=8_000), tmp_path, {**AT_THE_END, **prices}) as proxy:
        chat = proxy.chat(session="work")
        await compacted(chat)
        await chat.says("Two lines more.")
        proxy.model.answers.append(Says(status=500, error={"message": "no", "type": "x", "code": "y"}))
        await chat.posts([*chat.said, {"role": "user", "content": "Again."}])
        turns = (await read(proxy.http, chat, "sessions/work/exchanges"))["exchanges"]
        (told,) = (await read(proxy.http, chat, "sessions?details=1"))["sessions"]
        assert told["failed"] == 1
        assert told["cost"] == pytest.approx(sum(turn["cost"]["total"] for turn in turns if turn["cost"]))
        first = next(turn for turn in reversed(turns) if turn["compaction"])
        (tick,) = told["compacted_at_tokens"]
        assert tick == pytest.approx(first["tokens_full"], rel=0.1)
        assert (told["tokens_full"], told["tokens_sent"]) == (turns[0]["tokens_full"], turns[0]["tokens"])
        assert told["tokens_sent"] < told["tokens_full"]
        assert told["window_tokens"] == 8_000
        assert "title" not in (await read(proxy.http, chat, "sessions"))["sessions"][0]
        page = (await proxy.http.get("/ui", headers=chat.headers)).text
        assert page.count('class="tick"') == 1
        assert f'<data class="money" value="{told["cost"]}">' in page
        found = (await proxy.http.get("/ui?q=WOR", headers=chat.headers)).text
        assert f'/ui/sessions/{chat.session}"><bdi>work</bdi>' in found
        assert "begins so" not in (await proxy.http.get("/ui?q=ork", headers=chat.headers)).text


async def test_the_configuration_says_where_each_value_comes_from(tmp_path: Path) -> None:
    given = {"policy.trigger_ratio": 0.8, "upstream.api_key": "sk-operators-own"}
    async with proxied(ModelServer(), tmp_path, given) as proxy:
        chat = proxy.chat(session="work")
        page = (await proxy.http.get("/ui/overview", headers=chat.headers)).text
        set_ones, _, defaults = page.partition("Defaults in force")
        assert "policy.trigger_ratio" in set_ones
        assert "recall.enabled" in defaults
        assert "recall.enabled" not in set_ones
        assert "sk-operators-own" not in page
        assert not re.findall(r"<code>(?:upstream|database|access)\.", page)


async def test_the_overview_names_what_makes_sessions_dear(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=8_000), tmp_path) as proxy:
        chat = proxy.chat(session="dear", extra={"tools": [TOOL]})
        for number in range(10):
            await chat.says(f"Question {number}.")
        await used(proxy, chat, "c1", "look", "fine")
        (found,) = (await read(proxy.http, chat, "sessions/dear/report"))["findings"]
        assert (found["kind"], found["names"]) == ("unused_tools", ["run"])
        page = (await proxy.http.get("/ui/overview", headers=chat.headers)).text
        link = f'<a href="/ui/sessions/{chat.session}"><bdi>dear</bdi></a>:'
        assert page.partition(link)[2].split()[:4] == ["Tools", "that", "were", "never"]
        alone = (await proxy.http.get("/ui/overview", headers={"authorization": "Bearer another"})).text
        assert "never called" not in alone


@pytest.mark.parametrize("path", ["0", "99", "x", "9" * 40, "1/nothing", "%00"])
async def test_what_does_not_exist_is_not_found(path: str, tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        chat = proxy.chat(session="work")
        await chat.says("Hello.")
        home = f"/api/sessions/{chat.session}/exchanges"
        assert (await proxy.http.get(f"{home}/{path}", headers=chat.headers)).status_code == 404
        assert (await proxy.http.get(f"{home}/1", headers={"authorization": "Bearer x"})).status_code == 404
        assert (await proxy.http.get(f"{home}?limit=0", headers=chat.headers)).status_code == 400


async def test_compactions_are_counted_by_who_wrote_the_summary(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=8_000), tmp_path, AT_THE_END) as proxy:
        chat = proxy.chat(session="work")
        await compacted(chat)
        proxy.model.summary = lambda _: Says(status=500, error={"message": "no", "type": "x", "code": "y"})
        other = proxy.chat(session="other")
        await compacted(other)
        made = [
            one["author"]
            for name in ("work", "other")
            for one in (await read(proxy.http, chat, f"sessions/{name}/compactions"))["compactions"]
        ]
        assert {"model", "deterministic"} <= {*made}
        told = (await read(proxy.http, chat, "overview"))["summaries"]
        assert told == {author: made.count(author) for author in ("model", "deterministic", "none")}
        alone = (await proxy.http.get("/api/overview", headers={"authorization": "Bearer another"})).json()
        assert set(alone["summaries"].values()) == {0}


async def test_a_summary_by_code_costs_nothing(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=8_000), tmp_path, AT_THE_END) as proxy:
        proxy.model.summary = lambda _: Says(status=500, error={"message": "no", "type": "x", "code": "y"})
        chat = proxy.chat(session="work")
        await compacted(chat)
        ident = chat.reply.headers["x-palimpsest-compaction"]
        told = await read(proxy.http, chat, f"sessions/work/compactions/{ident}")
        assert (told["author"], told["spent"], told["cost"]) == ("deterministic", None, 0)


async def test_many_folded_messages_are_read_when_asked(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=8_000), tmp_path) as proxy:
        said = [
            {"role": ("user", "assistant")[at % 2], "content": f"Never open port {40_000 + at}, please."}
            for at in range(1_501)
        ]
        body = {"model": "test-model", "messages": said}
        reply = await proxy.http.post("/v1/chat/completions", json=body)
        page = f"/ui/sessions/{reply.headers['x-palimpsest-session']}/turns/1"
        first = (await proxy.http.get(page)).text
        assert f'href="{page}?lost=true"' in first
        assert "Not named in the prompt" not in first
        told = (await proxy.http.get(f"{page}?lost=true")).text
        assert '<details class="section" open><summary>Not named in the prompt' in told
        assert "?lost=true" not in told

"""`palimpsest replay`: what happened happens again under the policy in force, and another policy differs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from palimpsest.core.wire.chat import parse_chat_request
from palimpsest.core.wire.request import RequestLimits
from palimpsest.errors import NotFound, PalimpsestError

from tests.kit.agent import TOOLS, works
from tests.kit.chat import Chat
from tests.kit.model import ModelServer, Seen, counter, tokens_of
from tests.kit.proxy import Proxy, proxied
from tests.kit.terminal import Terminal, runs
from tests.kit.words import prose

Json = dict[str, Any]
WINDOW = 8_000
# Code writes every summary, at once.
BY_CODE: Json = {"compaction.deadline_seconds": 0, "compaction.background": False}
POLICIES: dict[str, Json] = {
    "auto": {},
    "auto, cost": {"policy.objective": "cost"},
    "handoff": {"policy.name": "handoff"},
    "rolling": {"policy.name": "rolling", "policy.advanced.trigger_reserve_tokens": 0},
    "rolling, cost": {
        "policy.name": "rolling",
        "policy.objective": "cost",
        "policy.advanced.trigger_reserve_tokens": 0,
    },
    "working_state": {"policy.name": "working_state"},
    "working_state, by usage": {"policy.name": "working_state", "policy.advanced.estimator": "usage"},
    "batch": {"policy.name": "batch"},
    "by_content": {"policy.name": "by_content"},
    "worker": {"policy.name": "worker"},
    "chat": {"policy.mode": "chat"},
    # Folded so often that masks replace folds for a while (F04).
    "auto, again and again": {
        "policy.trigger_tokens": 1_700,
        "policy.advanced.min_gain_ratio": 0.0,
    },
}
pytestmark = pytest.mark.timeout(120)


class AsWeCount(ModelServer):
    """Counts tools by the bytes that it was sent, so that nothing is to be calibrated."""

    def _read(self, scope: Any, raw: bytes) -> Seen:
        seen = super()._read(scope, raw)
        tools = parse_chat_request(raw, RequestLimits(64, 100_000)).tools
        counted = counter().count_tools(tools) if tools else 0
        return replace(seen, tokens=tokens_of(seen.messages) + counted)


async def replayed(session: str, *words: str) -> Json:
    told: Json = json.loads((await runs(None, "replay", session, "--json", *words)).stdout)
    return told


def at(proxy: Proxy) -> tuple[str, ...]:
    return "--url", proxy.url, "--key", "key-1"


async def exported(proxy: Proxy, chat: Chat) -> Json:
    reply = await proxy.http.get(f"/api/sessions/{chat.session}/export", headers=chat.headers)
    assert reply.status_code == 200, reply.text
    document: Json = reply.json()
    return document


def turns_of(document: Json) -> list[Json]:
    return [event["payload"] for event in document["events"] if event["type"] == "recorded_turn"]


def found(_: str, function: Json) -> str:
    path = json.loads(function["arguments"])["path"]
    return f"# {path}\n{prose(sum(path.encode()), 350)}"


async def work(chat: Chat, model: ModelServer) -> None:
    """Talk and work with tools, with a pin, other instructions half way, and a large result at the end."""
    steps = [[(f"call_{step}", "read_file", {"path": f"src/part{step}.py"})] for step in range(18)]
    await chat.says("remember for this session: never touch the ledger of 2019.")
    for goal in range(3):
        await works(chat, model, f"Goal {goal}: read every module.", steps[goal::3], found)
        for note in range(6):
            await chat.says(f"Note {goal}.{note}. {prose(10 * goal + note, 200)}")
        chat.said[0] = {"role": "system", "content": f"You are careful, in phase {goal}."}
    model.calls(("last", "read_file", {"path": "all.txt"}))
    await chat.says("Read all of it.")
    await chat.sends({"role": "tool", "tool_call_id": "last", "content": prose(99, 2_500)})
    await chat.says("And now?")


def folds(document: Json) -> list[tuple[Any, ...]]:
    """What happened, from the exported records: the turn, what was folded and masked, and the tokens."""
    turns = turns_of(document)
    records = [event["payload"] for event in document["events"] if event["type"] == "compaction_record"]
    return [
        (
            next(turn["n"] for turn in turns if turn.get("compaction") == record["id"]),
            sorted(set(range(record["watermark"] + 1)) - set(record["kept"])),
            len(record["masks"]),
            record["tokens_before"],
            record["tokens_after"],
        )
        for record in records
    ]


@pytest.mark.parametrize("name", POLICIES)
async def test_the_policy_in_force_does_again_what_it_did(name: str, tmp_path: Path) -> None:
    model = AsWeCount(window=WINDOW)
    async with proxied(model, tmp_path, BY_CODE | POLICIES[name]) as proxy:
        chat = proxy.chat(system="You are careful.", extra={"tools": TOOLS, "max_tokens": 300})
        await work(chat, model)
        asked = len(model.seen)
        told = await replayed(chat.session, *at(proxy))
        document = await exported(proxy, chat)
    happened = folds(document)
    assert len(happened) > 1
    assert told["notes"][1:] == []
    again = [
        (one["turn"], one["folded"], one["results_shortened"], one["tokens_before"], one["tokens_after"])
        for one in told["in_force"]["compactions"]
    ]
    assert again == happened
    assert told["other"] is None
    # Every prompt that the model was sent, token for token.
    sent = [turn["tokens_sent"] for turn in turns_of(document)]
    assert told["in_force"]["tokens_sent"] == told["recorded"]["tokens_sent"] == sum(sent)
    assert len(model.seen) == len(sent) == asked


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stored(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A session under auto as it was exported."""
    model = AsWeCount(window=WINDOW)
    async with proxied(model, tmp_path_factory.mktemp("stored"), BY_CODE) as proxy:
        chat = proxy.chat(session="work", system="You are careful.", extra={"max_tokens": 300})
        await work(chat, model)
        return json.dumps(await exported(proxy, chat))


@pytest.fixture
def document(stored: str) -> Json:
    """A copy of it that the test may change."""
    found: Json = json.loads(stored)
    return found


def put(document: Json, folder: Path) -> str:
    path = folder / "session.json"
    path.write_text(json.dumps(document))
    return str(path)


async def test_another_policy_stands_beside_the_one_in_force_and_changes_nothing(tmp_path: Path) -> None:
    model = AsWeCount(window=WINDOW)
    file = tmp_path / "work.json"
    wanted = ("--preset", "working_state", "--policy", "trigger_ratio=0.55", "--window-tokens", "6000")
    async with proxied(model, tmp_path, BY_CODE) as proxy:
        chat = proxy.chat(session="work", system="You are careful.", extra={"max_tokens": 300})
        await work(chat, model)
        before, asked = await exported(proxy, chat), len(model.seen)
        told = await replayed("work", *wanted, *at(proxy))
        await runs(proxy, "export", "work", "--to", str(file))
        after = await exported(proxy, chat)
        # An import leaves the turns out: they are none of its session's.
        await runs(proxy, "import", str(file), key="key-2")
        headers = {"authorization": "Bearer key-2"}
        reply = await proxy.http.get("/api/sessions/work/export", headers=headers)
        unknown = await runs(proxy, "replay", "nobody's", code=1)
        assert isinstance(unknown.exception, NotFound)
        events = await proxy.http.get("/api/sessions/work/events?limit=1000", headers=headers)
    # Without the proxy, from the file alone.
    assert await replayed(str(file), *wanted) == told
    assert len(model.seen) == asked
    assert folds(after) == folds(before)
    assert turns_of(reply.json()) == []
    kinds = {event["type"] for event in events.json()["events"]}
    assert kinds & {"recorded_turn", "replay_facts"} == set()
    here, there = told["in_force"], told["other"]
    assert told["changes"]["name"] == ["auto", "working_state"]
    assert told["changes"]["trigger_ratio"] == [0.9, 0.55]
    assert (here["window_tokens"], there["window_tokens"]) == (8_000, 6_000)
    assert len(there["compactions"]) > len(here["compactions"])
    assert all(one["tokens_before"] < 0.9 * 6_000 for one in there["compactions"][1:-2])
    assert there["tokens_sent"] < here["tokens_sent"]
    assert there["tokens_cached"] < there["tokens_sent"]
    # The large result fits neither window whole; a turn that nothing can make fit is said to be one.
    assert here["turns_unfit"] == []
    assert there["messages_verbatim"] < told["messages"]


async def test_people_read_a_table_the_compactions_and_the_last_view(document: Json, tmp_path: Path) -> None:
    done = await runs(None, "replay", put(document, tmp_path), "--policy", "trigger_ratio=0.6", "--view")
    said = done.stdout
    assert "  trigger_ratio: 0.9 -> 0.6" in said.splitlines()
    head = next(line for line in said.splitlines() if "IN FORCE" in line)
    assert head.split() == ["RECORDED", "IN", "FORCE", "OTHER"]
    count, again, other = (int(cell) for cell in _row(said, "compactions"))
    assert count == again < other
    assert "without a model" in said
    assert "cost of prompts, estimated" in said
    assert "--- user, summary," in said
    assert said.rstrip().endswith("And now?")


def _row(said: str, label: str) -> list[str]:
    (line,) = [line for line in said.splitlines() if line.startswith(f"{label} ")]
    return line.removeprefix(label).split()


async def test_a_pause_longer_than_the_cache_lives_is_replayed(document: Json, tmp_path: Path) -> None:
    facts, turns = (
        [event["payload"] for event in document["events"] if event["type"] == kind]
        for kind in ("replay_facts", "recorded_turn")
    )
    facts[0]["cache_seconds"] = 300
    pause = 3 * len(turns) // 4
    for turn in turns[pause:]:
        turn["started_at"] += 1_000
        turn["finished_at"] += 1_000
    file = put(document, tmp_path)
    warm = await replayed(file, "--policy", "objective=cost", "--window-tokens", "32000")
    cold = [one for one in warm["other"]["compactions"] if "cache cold for 1,000 s" in one["reason"]]
    assert [one["turn"] for one in cold] == [turns[pause]["n"]]
    # Read anew under either policy.
    facts[0]["cache_seconds"] = 0
    ever = await replayed(put(document, tmp_path))
    assert ever["in_force"]["tokens_cached"] > warm["in_force"]["tokens_cached"]


async def test_a_client_that_goes_back_and_forth_is_folded_as_before(document: Json, tmp_path: Path) -> None:
    alone = await replayed(put(document, tmp_path))
    (*_, last) = [event for event in document["events"] if event["type"] == "recorded_turn"]
    first = next(event for event in document["events"] if event["type"] == "recorded_turn")
    document["events"] += [first, last]
    again = await replayed(put(document, tmp_path))
    assert alone["in_force"]["compactions"]
    assert again["in_force"]["compactions"] == alone["in_force"]["compactions"]


async def test_prices_make_costs(document: Json, tmp_path: Path) -> None:
    (facts,) = [event["payload"] for event in document["events"] if event["type"] == "replay_facts"]
    facts["prices"] = {"input": 2.0, "cached": 0.5, "written": 4.0, "output": 8.0}
    told = (await replayed(put(document, tmp_path)))["in_force"]
    sent, cached = told["tokens_sent"], told["tokens_cached"]
    assert 0 < cached < sent
    assert told["cost"] == pytest.approx((0.5 * cached + 4.0 * (sent - cached)) / 1e6)
    del facts["prices"]
    assert (await replayed(put(document, tmp_path)))["in_force"]["cost"] is None


async def test_a_file_without_turns_is_replayed_by_its_answers(document: Json, tmp_path: Path) -> None:
    document["events"] = [
        event for event in document["events"] if event["type"] not in ("recorded_turn", "replay_facts")
    ]
    told = await replayed(put(document, tmp_path), "--window-tokens", "8000", "--policy", "tail_messages=4")
    assert (told["is_recorded"], told["recorded"]) == (False, None)
    answers = [event for event in document["events"] if event["type"] == "assistant_message"]
    assert told["turns"] == len(answers)
    assert len(told["notes"]) == 3
    assert told["in_force"]["window_tokens"] == 8_000
    assert told["in_force"]["compactions"]


async def test_a_settings_file_is_the_other_policy(document: Json, tmp_path: Path) -> None:
    settings = tmp_path / "other.yaml"
    settings.write_text("policy:\n  name: handoff\n  trigger_ratio: 0.7\nwindow:\n  window_tokens: 7000\n")
    file = put(document, tmp_path)
    told = await replayed(file, "--against", str(settings), "--policy", "advanced.min_gain_ratio=0.1")
    assert told["other"]["preset"] == "handoff"
    assert told["other"]["window_tokens"] == 7_000
    assert told["changes"]["trigger_ratio"] == [0.9, 0.7]
    assert told["changes"]["min_gain_ratio"] == [0.05, 0.1]


@pytest.mark.parametrize(
    ("turn", "facts", "said"),
    [
        ({"messages": 10_000}, {}, "not those of its messages"),
        ({"fixed_tokens": -1}, {}, "events["),
        ({"started_at": "yesterday"}, {}, "events["),
        ({"started_at": 1e308}, {}, "events["),
        ({"tokens_sent": 10**400}, {}, "events["),
        ({}, {"ratio": 0}, "events["),
        ({}, {"ratio": 1e308}, "events["),
        ({}, {"window": {"tokens": 10**400, "source": "name"}}, "events["),
        ({}, {"prices": {"input": 1e308}}, "events["),
        ({}, {"counted_as": "\ud800"}, "events["),
        ({}, {"policy": {"trigger_ratio": 7}}, "the document: policy.trigger_ratio"),
    ],
)
async def test_a_document_that_contradicts_itself_is_refused(
    turn: Json, facts: Json, said: str, document: Json, tmp_path: Path
) -> None:
    for event in document["events"]:
        if event["type"] == "recorded_turn":
            event["payload"] |= turn
        if event["type"] == "replay_facts":
            event["payload"] |= facts
    refused = await runs(None, "replay", put(document, tmp_path), code=1)
    assert isinstance(refused.exception, PalimpsestError)
    assert said in f"{getattr(refused.exception, 'param', '')} {refused.exception.message}"


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"type": "recorded_turn", "payload": "\ud800"}, "payload"),
        ({"type": "compaction_record", "payload": {}}, "payload"),
        ({"type": "user_message", "payload": {}, "created_at": 10**400}, "time"),
        ({"type": "user_message", "payload": {"message": {"role": []}}}, "role"),
    ],
)
def test_a_damaged_event_is_one_line(
    event: Json, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    messages = [{"type": "user_message", "payload": {"content": "Hello."}}]
    file = put({"events": [*messages, event]}, tmp_path)
    refused = Terminal(tmp_path, capsys).run("replay", file)
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert said in refused.err


async def test_odd_ids_calls_and_half_characters_are_replayed(
    document: Json, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for place, event in enumerate(document["events"]):
        if event["type"].endswith("_message"):
            event["id"] = f"1{place:030}"
    document["events"][1]["payload"]["message"]["content"] = "Half \ud800 a pair."
    document["events"][2]["payload"]["message"]["tool_calls"] = ["look", {"function": "look"}]
    file = put(document, tmp_path)
    done = Terminal(tmp_path, capsys).run("replay", file, "--view", "--window-tokens", "1000000")
    assert (done.code, done.err) == (0, "")
    assert "Half \\ud800 a pair." in done.out

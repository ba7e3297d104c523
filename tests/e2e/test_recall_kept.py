"""What happened behind a client's back is kept beside the answer, and nowhere else (rule 31, C07, F22)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.kit.agent import TOOLS
from tests.kit.chat import Chat
from tests.kit.journal import carries_out, compacted, read
from tests.kit.judge import rewritten
from tests.kit.model import ModelServer, Says, Seen
from tests.kit.proxy import Proxy, proxied
from tests.kit.recalls import GREP, OURS, READ, RECALLING, compacted_chat, names_in, saying
from tests.kit.remains import remains
from tests.kit.words import prose

pytestmark = pytest.mark.timeout(90)
# A word that stands in the model's question alone.
WORD = "Kanarienvogel77"
ASKS = ("g1", "context_grep", {"query": f"which port did we decide to use {WORD}"})
SECOND = ("g2", *ASKS[1:])
FEW = {"recall.result_chars": 500}


async def looked_up(proxy: Proxy, chat: Chat) -> None:
    """The conversation has a hidden round, and a turn with a call of ours and one of the client's."""
    answers = [saying(None, ASKS), saying("Port 8000."), saying("Both.", SECOND, READ), saying("Done.")]
    proxy.model.answers.extend(answers)
    await chat.says("Which port?")
    await chat.says("Look.")
    await chat.sends({"role": "tool", "tool_call_id": "c1", "content": "x = 1"})


@pytest.mark.spec("F20", "C22")
async def test_they_are_shown_only_where_they_are_asked_for(tmp_path: Path) -> None:
    async with compacted_chat(tmp_path, overrides=FEW) as (proxy, chat):
        await looked_up(proxy, chat)
        path = f"sessions/{chat.session}"
        plain = await read(proxy.http, chat, f"{path}/messages")
        assert [row["message"] for row in plain["messages"]] == chat.said
        assert "context_grep" not in str(plain)
        whole = await read(proxy.http, chat, f"{path}/messages?hidden=1")
        assert [row["position"] for row in whole["messages"]] == list(range(whole["total"]))
        assert [row for row in whole["messages"] if row["origin"] != "hidden"] == [
            row | {"position": at}
            for row, at in zip(
                plain["messages"],
                [row["position"] for row in whole["messages"] if row["origin"] != "hidden"],
                strict=True,
            )
        ]
        sent = proxy.model.prompts[-1].messages
        last = [(row["origin"], row["role"], row["message"]) for row in whole["messages"]][-10:]
        assert [(origin, role) for origin, role, _ in last] == [
            ("client", "user"),
            ("hidden", "assistant"),
            ("hidden", "tool"),
            ("relayed", "assistant"),
            ("client", "user"),
            ("hidden", "assistant"),
            ("relayed", "assistant"),
            ("hidden", "tool"),
            ("client", "tool"),
            ("relayed", "assistant"),
        ]
        # Of the mixed answer the model is told its own wording alone.
        assert [message for _, _, message in [*last[:6], *last[7:9]]] == sent[-8:]
        answers = [row["answer"] for row in whole["messages"] if row["origin"] == "hidden"]
        relayed = [row["id"] for row in whole["messages"] if row["origin"] == "relayed"]
        assert answers == [relayed[-3]] * 2 + [relayed[-2]] * 2
        page = await read(proxy.http, chat, f"{path}/messages?hidden=1&after={whole['total'] - 11}&limit=3")
        assert [row["message"] for row in page["messages"]] == [message for _, _, message in last[:3]]


async def test_an_export_holds_them_where_it_is_asked_to_and_an_import_does_without(tmp_path: Path) -> None:
    async with compacted_chat(tmp_path, overrides=FEW) as (proxy, chat):
        await looked_up(proxy, chat)
        path = f"sessions/{chat.session}/export"
        plain, whole = await read(proxy.http, chat, path), await read(proxy.http, chat, f"{path}?hidden=1")
        hidden = [event for event in whole["events"] if event["type"] == "hidden_message"]
        assert [event["payload"]["message"]["role"] for event in hidden] == ["assistant", "tool"] * 2
        assert [event for event in whole["events"] if event not in hidden][:-1] == plain["events"][:-1]
        made = await proxy.http.post(
            "/api/sessions/import", headers=chat.headers, json=whole | {"name": "moved"}
        )
        assert made.status_code == 201, made.text
        moved = await read(proxy.http, chat, "sessions/moved/messages?hidden=1")
        assert [row["message"] for row in moved["messages"]] == chat.said
        assert WORD not in str(await read(proxy.http, chat, "sessions/moved/events?limit=1000"))


@pytest.mark.spec("C07", "F22")
async def test_they_go_with_their_answer_and_are_nowhere_else(tmp_path: Path) -> None:
    """Folded they are in no view, summary or search; until then nothing of them is shortened."""
    async with compacted_chat(tmp_path, overrides=FEW) as (proxy, chat):
        model = proxy.model
        await looked_up(proxy, chat)
        asked = len(model.summaries)
        (told,) = [m["content"] for m in model.prompts[-1].messages if m.get("tool_call_id") == "g1"]
        while answers := {"Port 8000.", "Done."} & {str(m["content"]) for m in model.prompts[-1].messages}:
            shown = [m["content"] for m in model.prompts[-1].messages if m.get("tool_call_id") == "g1"]
            assert shown == ([told] if "Port 8000." in answers else [])
            assert len(chat.said) < 60
            await compacted(chat, rounds=1, words=700)
        assert "g1" not in model.prompts[-1].text
        assert WORD not in model.prompts[-1].text
        assert len(model.summaries) > asked
        assert not any(WORD in seen.text or "context_" in seen.text for seen in model.summaries)
        found = await proxy.http.post(
            "/api/context/grep", headers=chat.headers, json={"query": WORD, "session": chat.session}
        )
        assert found.json()["totalFound"] == 0, found.text
        assert await chat.transcript() == chat.said


async def files_read(model: ModelServer, chat: Chat, numbers: Iterable[int]) -> None:
    """The client's own tool reads a file of some 600 tokens each."""
    for number in numbers:
        model.calls((f"f{number}", "read_file", {"path": f"{number}.txt"}))
        await chat.says(f"Read {number}.")
        await chat.sends({"role": "tool", "tool_call_id": f"f{number}", "content": prose(number, 500)})


def result_of(seen: Seen, ident: str) -> str:
    (content,) = [m["content"] for m in seen.messages if m.get("tool_call_id") == ident]
    return str(content)


async def test_what_was_read_again_by_our_tools_is_not_cut_again(tmp_path: Path) -> None:
    """A shortened result stays so in its old place; what the model read of it stands whole where it did."""
    model = ModelServer(window=16_000)
    async with proxied(model, tmp_path, RECALLING | {"policy.advanced.old_result_chars": 100}) as proxy:
        chat = proxy.chat(system="You help.", extra={"tools": TOOLS})
        numbers = iter(range(60))
        while not chat.replies or not (made := await chat.compactions()):
            await files_read(model, chat, [next(numbers)])
        assert made[0]["kind"] == "tool_truncation_only"
        stub = result_of(model.prompts[-1], "f0")
        (ident,) = re.findall(r"context_describe (dcm_\w+)", stub)
        model.answers.extend([saying(None, ("d1", "context_describe", {"id": ident})), saying("Read.")])
        await chat.says("What was in the first file?")
        told = result_of(model.prompts[-1], "d1")
        assert json.loads(told)["text"] == f"tool: {prose(0, 500)}"
        while len(await chat.compactions()) < 2:
            await files_read(model, chat, [next(numbers)])
        assert {one["kind"] for one in await chat.compactions()} == {"tool_truncation_only"}
        assert result_of(model.prompts[-1], "d1") == told
        assert len(result_of(model.prompts[-1], "f0")) <= len(stub)


@pytest.mark.spec("P3", "P6")
async def test_they_are_stored_with_the_answer_or_not_at_all_and_erased_with_it(tmp_path: Path) -> None:
    async with compacted_chat(tmp_path, overrides=FEW) as (proxy, chat):
        await looked_up(proxy, chat)
        assert remains(tmp_path, WORD)
        made = "CREATE TRIGGER refused BEFORE INSERT ON hidden_rounds BEGIN SELECT RAISE(ABORT, 'no'); END"
        carries_out(tmp_path, made)
        proxy.model.answers.extend([saying(None, ASKS), saying("Never heard.")])
        reply = await chat.posts([*chat.said, {"role": "user", "content": "Once more?"}])
        assert reply.status_code == 503, reply.text
        chat.replies.pop()
        assert "Never heard." not in str(await chat.rows())
        carries_out(tmp_path, "DROP TRIGGER refused")
        gone = await proxy.http.delete(f"/api/sessions/{chat.session}", headers=chat.headers)
        assert gone.json()["rows"]["hidden_rounds"] == 2
    assert remains(tmp_path, WORD) == {}


@pytest.mark.spec("P9", "F13")
async def test_what_is_found_is_cut_to_what_fits(tmp_path: Path) -> None:
    """Just below the trigger: the upstream refuses nothing, and the model is told what there is room for."""
    async with compacted_chat(tmp_path, overrides={"recall.max_rounds": 2}) as (proxy, chat):
        model = proxy.model
        await until_room_is_short(proxy, chat)
        much = ("d1", "context_describe", {"id": "1-99", "limit": 16_000})
        model.answers.extend([saying(None, GREP), saying(None, much), saying("Port 8000.")])
        before = len(model.prompts)
        assert (await chat.says("Which port?"))["content"] == "Port 8000."
        rounds = model.prompts[before:]
        assert len(rounds) == 3
        assert max(seen.tokens for seen in rounds) <= model.window
        assert rounds[2].extends(rounds[1])
        results = [m["content"] for m in rounds[2].messages if m["role"] == "tool"]
        assert '"truncated":true' in results[1]
        await chat.says("Thanks.")
        assert model.prompts[-1].tokens <= model.window
        assert not model.prompts[-1].faults


@pytest.mark.spec("P8", "P9")
async def test_they_are_left_out_before_anything_is_refused(tmp_path: Path) -> None:
    """A quarter is wanted for the answer: a question with its look-ups does not fit in the rest."""
    async with compacted_chat(tmp_path) as (proxy, chat):
        model = proxy.model
        calls = [(f"g{number}", *GREP[1:]) for number in range(3)]
        model.answers.extend([*(saying(None, call) for call in calls), saying(None, READ)])
        question = prose(77, 5_200)
        await chat.says(question)
        assert [call["id"] for call in chat.said[-1]["tool_calls"]] == ["c1"]
        assert "g2" in model.prompts[-1].text
        chat.extra["max_tokens"] = 4_000
        await chat.sends({"role": "tool", "tool_call_id": "c1", "content": prose(78, 6_000)})
        seen = model.prompts[-1]
        assert seen.tokens <= model.window
        assert not seen.faults
        assert question in [message["content"] for message in seen.messages]
        assert "g0" not in seen.text
        assert names_in(seen) == ["read_file", *OURS]
        assert await chat.transcript() == chat.said


async def until_room_is_short(proxy: Proxy, chat: Chat) -> None:
    """The next prompt stays below the trigger and two results do not fit behind it."""
    while proxy.model.prompts[-1].tokens < 0.68 * proxy.model.window if proxy.model.prompts else True:
        await chat.says("And on. " + "word " * 100)
        assert len(chat.said) < 100


async def worked(proxy: Proxy, turns: int) -> Chat:
    """An agent that looks things up before and beside each of its own calls, as soon as it may."""
    model = proxy.model

    def script(seen: Seen) -> Says:
        number, last = len(model.prompts), str(seen.messages[-1].get("tool_call_id", ""))
        reads = (f"c{number}", "read_file", {"path": f"part{number}.py"})
        if len(names_in(seen)) == 1:
            return saying(prose(number, 60)) if last else saying(None, reads)
        if last.startswith("c"):
            return saying(prose(number, 60))
        return (
            saying("Both.", (f"m{number}", *GREP[1:]), reads)
            if last
            else saying(None, (f"g{number}", *GREP[1:]))
        )

    model.script = script
    chat = proxy.chat(system="You help.", stream=True, extra={"tools": TOOLS})
    for turn in range(turns):
        calls = (await chat.says(f"Note {turn}: we use port {8_000 + turn}. {prose(turn, 120)}"))[
            "tool_calls"
        ]
        assert [call["function"]["name"] for call in calls] == ["read_file"]
        result = {"role": "tool", "tool_call_id": calls[0]["id"], "content": prose(1_000 + turn, 120)}
        await chat.sends(result)
    return chat


@pytest.mark.spec("S13", "F21", "F22", "P9", "P10")
async def test_sixty_requests_with_look_ups_in_a_small_window(tmp_path: Path) -> None:
    model = ModelServer(window=8_000)
    settings = RECALLING | {"recall.result_chars": 800, "database.synchronous": "normal"}
    async with proxied(model, tmp_path, settings) as proxy:
        chat = await worked(proxy, 30)
        assert not any(seen.faults for seen in model.prompts)
        assert max(seen.tokens for seen in model.prompts) <= model.window
        assert 1 < rewritten(model.prompts) == len(await chat.compactions())
        assert await chat.transcript() == chat.said
        assert not any("context_" in reply.text for reply in chat.replies)
        ids = [m["tool_call_id"] for m in model.prompts[-1].messages if m["role"] == "tool"]
        assert {ident[0] for ident in ids} == {"g", "m", "c"}


async def test_the_store_is_asked_for_none_where_nothing_can_be_looked_up(tmp_path: Path) -> None:
    """Their table is not missed with recall off, and none is read before anything was folded."""
    async with compacted_chat(tmp_path, overrides={"recall.tools": False}) as (proxy, chat):
        carries_out(tmp_path, "DROP TABLE hidden_rounds")
        await compacted(chat, words=900)
        await chat.says("And?")
        assert chat.reply.headers["x-palimpsest-view"] == "compacted"
        chat.headers["x-palimpsest-recall"] = "on"
        fresh = proxy.chat(extra=chat.extra, key="key-2")
        fresh.headers["x-palimpsest-recall"] = "on"
        await fresh.says("Hello.")
        await fresh.says("And?")
        # The control: where it is offered they are looked for.
        reply = await chat.posts([*chat.said, {"role": "user", "content": "And?"}])
        assert reply.status_code == 503, reply.text

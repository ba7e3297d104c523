"""What a summarizer is given and what stands in a view, of a whole conversation on the running program."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from palimpsest.core.presets import PRESETS
from palimpsest.core.summary.asking import APPENDED

from tests.kit.agent import TOOLS
from tests.kit.chat import Chat
from tests.kit.journal import memories, read
from tests.kit.judge import are_sound
from tests.kit.model import ModelServer, Says, Seen, plain_summary
from tests.kit.proxy import Proxy, proxied
from tests.kit.snippets import snippet
from tests.kit.words import prose

Json = dict[str, Any]
WINDOW = 8_000
HANDOFF: Json = {"policy.name": "handoff"}
TAG = "cowork_compaction_summary"
SECRET = "sk-proj-" + "Zx9Qw8Er7Ty6Ui5Op4As3Df2Gh1Jk0Lm"
SECTIONS = (
    *("Primary request and intent", "User messages", "Work completed", "Errors and fixes"),
    *("Key technical details", "Decisions made", "Pending/incomplete", "Current state"),
    "Recommended next step",
)
pytestmark = pytest.mark.timeout(120)


def told(seen: Seen) -> Says:
    return Says({"role": "assistant", "content": plain_summary(seen)})


async def by_hand(proxy: Proxy, chat: Chat) -> Json:
    reply = await proxy.http.post(f"/api/sessions/{chat.session}/compact", headers=chat.headers)
    assert reply.json().get("compacted"), reply.text
    record: Json = reply.json()["compaction"]
    return record


async def until(chat: Chat, rounds: int, words: int = 300) -> list[Json]:
    """The compactions, as soon as there are so many."""
    while not chat.replies or len(made := await chat.compactions()) < rounds:
        await chat.says(f"Note {len(chat.sent)}. {prose(len(chat.sent), words)}")
        assert len(chat.sent) < 120
    return made


def asked(model: ModelServer) -> list[str]:
    """What summarizers were given, each question as one text."""
    return ["\n".join(str(message["content"]) for message in seen.messages) for seen in model.summaries]


@pytest.mark.spec("A17")
async def test_a_key_reaches_no_summarizer_and_no_summary(tmp_path: Path) -> None:
    def repeats(seen: Seen) -> Says:
        return Says({"role": "assistant", "content": f"{plain_summary(seen)}\nThe key is {SECRET} as told."})

    model = ModelServer(window=WINDOW, summary=repeats)
    async with proxied(model, tmp_path, HANDOFF) as proxy:
        chat = proxy.chat(system="You keep notes.", session="notes")
        await chat.says("We begin.")
        await chat.says(f"Our key is {SECRET}, keep it to yourself.")
        made = await until(chat, 2)
        assert model.summaries
        assert all(SECRET not in text for text in asked(model))
        assert all(SECRET not in one["summary"] for one in made)
        assert await memories(proxy.http, chat, "summary")
        assert SECRET not in json.dumps(await read(proxy.http, chat, "sessions/notes/memory"))
        # The archive has it, word for word.
        assert await chat.transcript() == chat.said


@pytest.mark.spec("A17")
async def test_no_preset_asks_about_a_key_nor_a_second_time_nor_by_hand(tmp_path: Path) -> None:
    def repeats(seen: Seen) -> Says:
        return Says({"role": "assistant", "content": f"{plain_summary(seen)}\nThe key is {SECRET} as told."})

    model = ModelServer(window=WINDOW, summary=repeats, names=tuple(PRESETS))
    numbers = {"trigger_reserve_tokens": 0, "llm_extraction": True}
    models = [{"match": name, "policy": {"name": name, "advanced": numbers}} for name in PRESETS]
    async with proxied(model, tmp_path, {"models": models}) as proxy:
        for name in PRESETS:
            model.seen.clear()
            chat = proxy.chat(system=f"You keep notes. Key: {SECRET}", session=name, extra={"model": name})
            model.calls(("c1", "read_file", {"path": "a.env", "token": SECRET}))
            await chat.says(f"We decided to use {SECRET} as our key.")
            found = f"OPENAI_API_KEY={SECRET}\nError: {SECRET} is refused."
            await chat.sends({"role": "tool", "tool_call_id": "c1", "content": found})
            await until(chat, 1)
            for _ in range(6):
                await chat.says(f"Later {len(chat.sent)}. {prose(len(chat.sent), 60)}")
            order, path = {"focus": f"the key {SECRET}"}, f"/api/sessions/{name}/compact"
            reply = await proxy.http.post(path, json=order, headers=chat.headers)
            assert reply.status_code == 200, reply.text
            # What `working_state` has noted needs no model.
            assert model.summaries or name == "working_state"
            # An appended question follows what the upstream has seen; no question adds the key.
            own = [
                seen.messages[-1]["content"] if _is_appended(seen) else seen.text for seen in model.summaries
            ]
            assert not any(SECRET in text for text in own), name
            kept = json.dumps([await chat.compactions(), *await derived(proxy, chat)])
            assert SECRET not in kept, name
            assert await chat.transcript() == chat.said


@pytest.mark.spec("A17", "D25")
async def test_a_wish_that_names_a_key_is_put_without_it_behind_the_prompt_too(tmp_path: Path) -> None:
    model = ModelServer(window=20_000)
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(session="notes")
        for turn in range(8):
            await chat.says(f"Note {turn}. {prose(turn, 150)}")
        order = {"focus": f"the ferry, and the key {SECRET}"}
        path = "/api/sessions/notes/compact"
        assert (await proxy.http.post(path, json=order, headers=chat.headers)).json()["compacted"]
        (question,) = model.summaries
        # It rides on the prompt that the model knows.
        assert question.messages[: len(chat.said)] == chat.said
        assert "the ferry, and the key" in question.text
        assert SECRET not in question.text


async def derived(proxy: Proxy, chat: Chat) -> list[Json]:
    """What stands beside the archive: memory, state, events, checkpoints."""
    home = f"sessions/{chat.session}"
    pages = [await read(proxy.http, chat, f"{home}/{page}") for page in ("memory", "state", "events")]
    listed = (await read(proxy.http, chat, f"{home}/checkpoints"))["checkpoints"]
    return [*pages, *[await read(proxy.http, chat, f"{home}/checkpoints/{one['id']}") for one in listed]]


@pytest.mark.spec("A18", "A31")
async def test_there_is_one_block_which_says_once_what_it_is(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW, summary=told)
    async with proxied(model, tmp_path, HANDOFF) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await chat.says("The task: keep the log of the harbour.")
        for rounds in range(1, 5):
            await until(chat, rounds)
            shown = model.prompts[-1]
            assert (shown.text.count(f"<{TAG}>"), shown.text.count(f"</{TAG}>")) == (1, 1)
            assert shown.text.count("Handoff from a previous agent") == 1
            # Behind the instructions and the task, in the user's role.
            system, task, block = shown.messages[:3]
            assert [system["role"], task["content"]] == ["system", "The task: keep the log of the harbour."]
            assert block["role"] == "user"
            opening = block["content"].removeprefix(f"<{TAG}>").lstrip()
            assert opening.startswith("Handoff from a previous agent")


@pytest.mark.spec("A16")
async def test_twenty_requests_stand_word_for_word_though_the_summarizer_drops_them(tmp_path: Path) -> None:
    sections = "\n".join(
        f"## {place}. {title}\nThe harbour log was kept." for place, title in enumerate(SECTIONS, 1)
    )
    model = ModelServer(window=16_000, summary=lambda _: Says({"role": "assistant", "content": sections}))
    async with proxied(model, tmp_path, HANDOFF) as proxy:
        chat = proxy.chat(system="You keep notes.")
        requests = [f"Please give berth {200 + at} to the ferry F{at * 7} by noon." for at in range(20)]
        for at, request in enumerate(requests):
            model.says(f"Berth {200 + at} is hers. {prose(at, 250)}")
            await chat.says(request)
        record = await by_hand(proxy, chat)
        assert record["author"] == "model"
        shown = "\n".join(str(part["message"]["content"]) for part in (await chat.view())["parts"])
        assert [request for request in requests if request not in shown] == []


@pytest.mark.spec("A15")
@pytest.mark.parametrize(
    ("body", "author"),
    [
        # Out of order, two of nine; in prose without any line; and nothing that could stand for anything.
        ("## 8. Current state\nThe crane is idle.\n\n**3. Work completed**\nThe log was mended.", "model"),
        (
            "The log was mended by noon, and the crane is idle since. Nothing else was asked for.",
            "deterministic",
        ),
        (
            "## 1. Primary request and intent\n\n## 2. User messages\n\n## 3. Work completed\n",
            "deterministic",
        ),
    ],
)
async def test_missing_sections_are_repaired_or_the_summary_is_not_taken(
    body: str, author: str, tmp_path: Path
) -> None:
    model = ModelServer(window=WINDOW, summary=lambda _: Says({"role": "assistant", "content": body}))
    async with proxied(model, tmp_path, HANDOFF) as proxy:
        chat = proxy.chat(system="You are an agent.", extra={"tools": TOOLS})
        model.calls(("c1", "write_file", {"path": "/srv/crane.log", "content": "x"}))
        await chat.says("Mend the log of the crane, please.")
        await chat.sends({"role": "tool", "tool_call_id": "c1", "content": "written"})
        while not (made := await chat.compactions()):
            # A sentence with "never" is a rule of the user's.
            said = prose(len(chat.sent), 300).replace("ever", "over").replace("Never", "Over")
            await chat.says(f"Give berth {len(chat.sent)} to a ferry. {said}")
        (block,) = [one["summary"] for one in made]
        assert made[0]["author"] == author
        # Those that there are stand in their order, once each.
        titles = re.findall(r"^## (\d)\. (.+)$", block, re.MULTILINE)
        assert [SECTIONS[int(number) - 1] for number, _ in titles] == [title for _, title in titles]
        assert [number for number, _ in titles] == sorted({number for number, _ in titles})
        # What the model left out code has told from the messages.
        assert re.search(r"Give berth \d+ to a ferry", block)
        assert "created /srv/crane.log" in block
        assert ("The log was mended" in block) is (author == "model")
        are_sound(model.prompts, chat.sent, WINDOW)


@pytest.mark.spec("A19", "A20", "A21", "A22")
async def test_what_a_summarizer_reads_is_bounded_by_role_and_nothing_is_skipped(tmp_path: Path) -> None:
    def at_length(seen: Seen) -> Says:
        """A record so long that it takes all the room that the next question has for it."""
        text = f"## Entry\n### A long one\n- {prose(len(model.summaries), 3_400)}"
        return Says({"role": "assistant", "content": text})

    model = ModelServer(window=400_000, summary=at_length)
    async with proxied(model, tmp_path, HANDOFF | {"summarizer.window_tokens": 200_000}) as proxy:
        chat = proxy.chat(system="You read files.")
        chat.said += [message for number in range(24) for message in worked(number)]
        await chat.says("Go on.")
        record = await by_hand(proxy, chat)
        assert record["author"] == "model"
        questions = asked(model)
        assert len(questions) > 1
        assert 56_000 < max(map(len, questions)) <= 60_000
        everything = "\n".join(questions)
        folded = [row["message"] for row in await chat.rows() if row["is_compacted"]]
        heads = {str(message["content"]).split(" ", 1)[0] for message in folded if message["content"]}
        # Head and tail of every folded message, the middle of none; seven tenths are the head.
        for head in heads:
            name = head.removesuffix("-head")
            assert f"{name}-head" in everything
            assert f"{name}-tail" in everything
            assert f"{name}-middle" not in everything
        for role, most in (("U", 3_000), ("A", 1_500), ("T", 1_200)):
            name = next(head for head in heads if head.startswith(role)).removesuffix("-head")
            (piece,) = re.findall(rf"{name}-head.*?{name}-tail", everything, re.DOTALL)
            assert 0.9 * most < len(piece) <= most
            before = re.split(r"\[[^\]]*(?:cut|left out|omitted|not shown)[^\]]*\]", piece)[0]
            assert 0.6 * most < len(before) < 0.75 * most
        assert max(map(len, re.findall("a{100,}", everything))) <= 800


def _is_appended(seen: Seen) -> bool:
    return str(seen.messages[-1]["content"]).startswith(APPENDED)


def worked(number: int) -> list[Json]:
    """A request, a call and its result, each far longer than a summarizer reads of it."""
    call = {"name": "read_file", "arguments": json.dumps({"path": f"/srv/{number}", "x": "a" * 5_000})}
    calls = [{"id": f"c{number}", "type": "function", "function": call}]
    return [
        {"role": "user", "content": long(f"U{number}")},
        {"role": "assistant", "content": long(f"A{number}"), "tool_calls": calls},
        {"role": "tool", "tool_call_id": f"c{number}", "content": long(f"T{number}")},
    ]


def long(name: str) -> str:
    """Eight thousand characters with a head, a middle and a tail that can be found again."""
    side = "harbour " * 490
    return f"{name}-head {side}{name}-middle {side}{name}-tail"


@pytest.mark.spec("F07", "F34")
async def test_a_summarizer_with_a_small_window_reads_everything_in_bounded_calls(tmp_path: Path) -> None:
    model = ModelServer(window=100_000, summary=told)
    overrides = HANDOFF | {"summarizer.window_tokens": 4_000}
    async with proxied(model, tmp_path, overrides) as proxy:
        chat = proxy.chat(system="You keep notes.")
        for number in range(110):
            chat.said += [
                {"role": "user", "content": f"Note {number}. {prose(number, 260)}"},
                {"role": "assistant", "content": f"Kept as {number}."},
            ]
        await chat.says("Go on.")
        record = await by_hand(proxy, chat)
        assert record["author"] == "model"
        # Ten times its window, in calls that fit; what is folded is in one of them each.
        assert sum(seen.tokens for seen in model.summaries) > 36_000
        assert all(seen.tokens + seen.body["max_tokens"] <= 4_000 for seen in model.summaries)
        read_of = [set(re.findall(r"\bNote (\d+)\.", text)) for text in asked(model)]
        folded = [row["message"]["content"] for row in await chat.rows() if row["is_compacted"]]
        wanted = {found[1] for text in folded if (found := re.match(r"Note (\d+)\.", text))}
        assert len(wanted) > 60
        assert wanted <= set().union(*read_of)


@pytest.mark.spec("A09")
async def test_task_pin_and_the_newest_stay_and_what_is_between_goes_in_order(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW, summary=told)
    async with proxied(model, tmp_path, HANDOFF) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await chat.says("The task: keep the log of the harbour.")
        await chat.says("The flag is green at noon.")
        pinned = (await chat.rows())[3]
        path = f"/api/sessions/{chat.session}/pins"
        reply = await proxy.http.post(path, headers=chat.headers, json={"message": pinned["id"]})
        assert reply.status_code in (200, 201), reply.text
        for rounds in (1, 2, 3):
            await until(chat, rounds)
            shown = model.prompts[-1].messages
            kept = [message for message in shown if message in chat.said]
            places = [chat.said.index(message) for message in kept]
            newest = len(chat.said) - 2
            # Instructions, task and pin, and one unbroken run up to the newest.
            assert places[:3] == [0, 1, 3]
            assert places[3:] == list(range(places[3], newest + 1))
            assert len(shown) == len(kept) + 1
        are_sound(model.prompts, chat.sent, WINDOW)


@pytest.mark.spec("A11")
@pytest.mark.parametrize(("path", "stays"), [("src/app/main.py", True), ("src/app/other.py", False)])
async def test_an_older_message_that_names_a_path_in_use_stays(
    path: str, stays: bool, tmp_path: Path
) -> None:
    model = ModelServer(window=WINDOW, summary=told)
    async with proxied(model, tmp_path, HANDOFF) as proxy:
        chat = proxy.chat(system="You write code.")
        await chat.says("The task: mend the program.")
        naming = f"In {path} the third retry is never made; mind the comment above it."
        await chat.says(naming)
        while not await chat.compactions():
            await chat.says(
                f"Now change src/app/main.py, step {len(chat.sent)}. {prose(len(chat.sent), 150)}"
            )
        assert ({"role": "user", "content": naming} in model.prompts[-1].messages) is stays
        are_sound(model.prompts, chat.sent, WINDOW)


@pytest.mark.spec("A11")
async def test_what_stays_for_its_path_takes_its_share_and_no_more(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW, summary=told)
    async with proxied(model, tmp_path, HANDOFF) as proxy:
        chat = proxy.chat(system="You write code.")
        await chat.says("The task: mend the program.")
        while not await chat.compactions():
            number = len(chat.sent)
            model.says(f"Step {number} is done. {prose(number, 60)}")
            # Every second message is about this file.
            file = "src/app/main.py" if number % 2 else f"src/other/part{number}.py"
            await chat.says(f"Now change {file}, step {number}. {prose(100 + number, 60)}")
        parts = (await chat.view())["parts"]
        ((at, _),) = [(at, part) for at, part in enumerate(parts) if part["kind"] == "summary"]
        kept = [part["tokens"] for part in parts[:at] if part["kind"] not in ("preamble", "task")]
        budget = (await chat.view())["budget"]
        # All of the older ones name it: as many as have room.
        assert len(kept) > 1
        assert 0 < sum(kept) <= 0.15 * budget["target_tokens"]
        are_sound(model.prompts, chat.sent, WINDOW)


MODELS = {
    "nobody-knows-it": 100_000,
    "claude-of-tomorrow": 200_000,
    "house-32k": 32_000,
    "set-by-hand": 16_000,
    "gpt-4o-mini": 128_000,
}


@pytest.mark.spec("A03", "A04", "B02")
async def test_windows_and_where_compaction_begins(tmp_path: Path) -> None:
    model = ModelServer(models=False, window=400_000)
    overrides = HANDOFF | {"models": [{"match": "set-by-*", "window_tokens": 16_000}]}
    begins = {200_000: 180_000, 128_000: 115_200, 16_000: 14_400, 100_000: 90_000, 32_000: 28_800}
    rolling = {200_000: 140_000, 128_000: 88_000, 16_000: 11_200, 32_000: 22_400}
    async with proxied(model, tmp_path, overrides) as proxy:
        for name, window in MODELS.items():
            chat = proxy.chat(key=name, extra={"model": name})
            await chat.says("Hello.")
            status = await read(proxy.http, chat, f"sessions/{chat.session}/status")
            assert (status["window_tokens"], status["trigger_tokens"]) == (window, begins[window]), name
            if window in rolling:
                path = f"/api/sessions/{chat.session}/settings"
                order = {"policy": {"name": "rolling"}}
                await proxy.http.patch(path, headers=chat.headers, json=order)
                status = await read(proxy.http, chat, f"sessions/{chat.session}/status")
                assert status["trigger_tokens"] == rolling[window], name


@pytest.mark.spec("A47")
async def test_the_marks_of_other_systems_are_those_of_the_docs(tmp_path: Path) -> None:
    model = ModelServer(window=100_000)
    marks = {"cowork": (90_000, 0.5), "codex": (90_000, 0.15), "late": (95_000, 0.5)}
    for name, (trigger, target) in marks.items():
        (tmp_path / name).mkdir()
        async with proxied(model, tmp_path / name, HANDOFF | snippet(name)) as proxy:
            chat = proxy.chat()
            await chat.says("Hello.")
            budget = (await chat.view())["budget"]
            assert budget["trigger_tokens"] == trigger
            assert budget["target_tokens"] == budget["fixed_tokens"] + int(
                target * budget["available_tokens"]
            )


@pytest.mark.spec("A12", "A13")
async def test_on_a_tiny_window_a_summary_still_has_five_hundred_tokens(tmp_path: Path) -> None:
    model = ModelServer(window=4_000, summary=told)
    async with proxied(model, tmp_path, HANDOFF) as proxy:
        chat = proxy.chat(system="You keep notes.")
        await until(chat, 1, words=150)
        assert model.summaries[0].body["max_tokens"] >= 500
        assert model.summaries[0].body["max_tokens"] >= 500


SET_UP = [
    "# AGENTS.md instructions for /srv\n\n<INSTRUCTIONS>\nTabs only.\n</INSTRUCTIONS>",
    "<environment_context>\n  <cwd>/srv</cwd>\n  <shell>bash</shell>\n</environment_context>",
]


@pytest.mark.spec("H14")
async def test_the_task_is_what_a_person_asked_and_not_what_a_program_said_before(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW, summary=told)
    async with proxied(model, tmp_path, HANDOFF) as proxy:
        chat = proxy.chat(system="You are an agent.")
        chat.said += [{"role": "user", "content": text} for text in SET_UP]
        await chat.says("Mend the log reader of the harbour crane.")
        await until(chat, 2)
        parts = (await chat.view())["parts"]
        (task,) = [part["message"]["content"] for part in parts if part["kind"] == "task"]
        assert task == "Mend the log reader of the harbour crane."
        shown = [message["content"] for message in model.prompts[-1].messages]
        assert shown[1:3] == SET_UP
        are_sound(model.prompts, chat.sent, WINDOW)

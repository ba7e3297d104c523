"""The default branch is the conversation that a person had, whatever the client sends besides (rule 33).

Each script is what a client sends, as it was recorded, with shorter texts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.kit.chat import Chat, message_of
from tests.kit.items import text_item
from tests.kit.model import ModelServer
from tests.kit.proxy import Proxy, proxied
from tests.kit.responses import ResponsesChat, ResponsesServer

pytestmark = pytest.mark.spec("H13")
Json = dict[str, Any]

HARNESS = "You are a coding agent in a terminal. You and the user share one workspace. " * 4
NOTES = "You extract what is worth remembering of a dialogue. Answer with a list of facts only. " * 2


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def system(text: str) -> Json:
    return {"role": "system", "content": text}


def assistant(text: str, **more: Any) -> Json:
    return {"role": "assistant", "content": text, **more}


def result(call: str) -> Json:
    return {"role": "tool", "tool_call_id": call, "content": "def parse(): ..." * 60}


@pytest_asyncio.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[Proxy]:
    async with proxied(ModelServer(), tmp_path) as running:
        yield running


async def asks(chat: Chat, *messages: Json, says: str = "") -> Json:
    """A request beside what the client keeps; the answer, of these words where they matter."""
    server = chat_model[id(chat)]
    if says:
        server.says(says)
    reply = await chat.posts(list(messages))
    assert reply.status_code == 200, reply.text
    return message_of(reply)


chat_model: dict[int, ModelServer] = {}


def chat_of(proxy: Proxy, **options: Any) -> Chat:
    chat = proxy.chat(**options)
    chat_model[id(chat)] = proxy.model
    return chat


async def sessions(proxy: Proxy, **params: int) -> list[Json]:
    headers = {"authorization": "Bearer key-1"}
    found = await proxy.http.get("/api/sessions", headers=headers, params=params)
    listed: list[Json] = found.json()["sessions"]
    return listed


async def kinds(chat: Chat) -> list[str]:
    return [branch["kind"] for branch in (await chat.session_fields())["branches"]]


def quoting(task: str, *messages: Json) -> Json:
    """A prompt of Open WebUI: the newest messages in one."""
    lines = "\n".join(f"{each['role'].upper()}: {each['content']}" for each in messages)
    return user(f"### Task:\n{task}\n### Chat History:\n<chat_history>\n{lines}\n</chat_history>")


@pytest.mark.parametrize("name", [None, "chat-1"])
@pytest.mark.parametrize("turns", [1, 13])
async def test_open_webui(proxy: Proxy, turns: int, name: str | None) -> None:
    """Thirteen turns without forwarded headers were 41 sessions."""
    chat = chat_of(proxy, session=name)
    beside = 0
    for turn in range(turns):
        await chat.says(f"How do I look after an olive tree, part {turn}?")
        tasks = ["Write a title.", "Write tags.", "Suggest follow-ups."][(0 if not turn else 1) :]
        for task in tasks:
            await asks(chat, quoting(task, *chat.said[-4:]), says=f'{{"n": "{task} {turn}"}}')
            beside += 1
    (session,) = await sessions(proxy)
    assert not session["is_side"]
    assert await chat.transcript() == chat.said
    assert await kinds(chat) == ["main", *["side"] * beside]
    # Each hangs on the answer that stood there when it came, the newest first.
    answers = [row["id"] for row in await chat.rows() if row["role"] == "assistant"]
    hangs = [branch["beside"] for branch in (await chat.session_fields())["branches"][1:]]
    assert hangs == [answers[turn] for turn in reversed(range(turns)) for _ in range(2 if turn else 3)]


async def test_a_quotation_that_fits_twins_hangs_on_neither(proxy: Proxy) -> None:
    twins = [chat_of(proxy), chat_of(proxy)]
    for chat in twins:
        proxy.model.says("Hello! How can I help you today?")
        await chat.says("Hello there")
    assert len({chat.session for chat in twins}) == 2
    aside = chat_of(proxy)
    await asks(aside, quoting("Write a title.", *twins[0].said))
    assert aside.session not in {chat.session for chat in twins}
    assert {row["id"] for row in await sessions(proxy)} == {chat.session for chat in (*twins, aside)}
    (listed,) = [row for row in await sessions(proxy) if row["is_side"]]
    assert listed["id"] == aside.session


async def test_a_quotation_never_leads_into_another_namespace(proxy: Proxy) -> None:
    chat, other = chat_of(proxy), chat_of(proxy, key="key-2")
    await chat.says("How deep is the harbour of Trieste?")
    await asks(other, quoting("Write a title.", *chat.said))
    assert other.session != chat.session
    assert await kinds(chat) == ["main"]


SUMMARY = "Progress so far: the log reader was repaired and its tests pass; next come the tides. " * 3


async def test_codex_compacts_by_itself(proxy: Proxy) -> None:
    chat = chat_of(proxy, session="codex", system=HARNESS)
    for turn in range(4):
        await chat.says(f"Step {turn}: look at part {turn} of the log reader.")
    before = list(chat.said)
    asked = user("You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary.")
    answer = await asks(chat, *chat.said, asked, says=SUMMARY)
    assert await chat.transcript() == before
    assert await kinds(chat) == ["main", "client_compaction"]
    # It goes on with what the user said, its summary, and nothing else.
    kept = [each for each in before if each["role"] == "user"]
    summed = user(f"Another language model started to solve this problem and wrote:\n{answer['content']}")
    chat.said = [system(HARNESS), *kept, summed]
    await chat.says("Now the tides.")
    await chat.says("And the moon.")
    rows = await chat.rows()
    assert [row["message"] for row in rows] == [*before, asked, answer, summed, *chat.said[-4:]]
    assert [row["message"] for row in rows if row.get("seam")] == [summed]
    assert await kinds(chat) == ["main"]


async def test_codex_compacts_in_the_middle_of_a_turn(proxy: Proxy) -> None:
    """The summary is the newest message then, and it may compact again."""
    chat = chat_of(proxy, session="codex", system=HARNESS)
    await chat.says("Look at the log reader.")
    whole: list[Json] = list(chat.said)
    asked = user("You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary.")
    for number in range(3):
        summary = f"{number}: {SUMMARY}"
        answer = await asks(chat, *chat.said, asked, says=summary)
        summed = user(f"Another language model started to solve this problem and wrote:\n{answer['content']}")
        chat.said = [system(HARNESS), user("Look at the log reader."), summed]
        chat.said.append(await asks(chat, *chat.said, says=f"Going on after {number}."))
        whole += [asked, answer, summed, chat.said[-1]]
        assert await chat.transcript() == whole
        assert await kinds(chat) == ["main"]
    await chat.says("Is it done?")
    assert await chat.transcript() == [*whole, *chat.said[-2:]]
    assert len([row for row in await chat.rows() if row.get("seam")]) == 3


async def test_a_summary_alone_finds_its_session(proxy: Proxy) -> None:
    chat = chat_of(proxy)
    await chat.says("Look at the log reader.")
    asked = user("You are performing a CONTEXT CHECKPOINT COMPACTION.")
    await asks(chat, *chat.said, asked, says=SUMMARY)
    session = chat.session
    chat.said = [user(f"Another language model started to solve this problem and wrote:\n{SUMMARY}")]
    await chat.says("Now the tides.")
    assert chat.session == session
    assert await kinds(chat) == ["main"]


async def test_opencode_titles_and_compacts(proxy: Proxy) -> None:
    chat = chat_of(proxy, session="opencode", system=HARNESS)
    title = [
        system("You are a title generator. You output a title, and nothing else."),
        user("Write a title:"),
    ]
    await asks(chat, *title, user("Repair the log reader."), says="Log reader")
    await chat.says("Repair the log reader.")
    assert await chat.transcript() == chat.said
    await chat.says("And its tests.")
    before = list(chat.said)
    asked = user("Provide a detailed prompt for continuing our conversation above.")
    answer = await asks(chat, system("You summarize."), *chat.said[1:], asked, says=SUMMARY)
    assert await chat.transcript() == before
    assert await kinds(chat) == ["main", "client_compaction", "side"]
    chat.said = [system(HARNESS), user("What did we do so far?"), answer]
    await chat.says("Continue.")
    said = await chat.transcript()
    assert said[: len(before)] == before
    assert said[-2:] == chat.said[-2:]
    assert await kinds(chat) == ["main", "side"]


async def test_qwen_code_extracts_memories(proxy: Proxy) -> None:
    chat = chat_of(proxy, system=HARNESS)
    for turn in range(3):
        await chat.says(f"Step {turn}.")
        # The same messages under other instructions; it looks something up before it answers.
        extraction = [system(NOTES), *chat.said[1:], user("Extract what is worth keeping.")]
        proxy.model.calls(("m1", "lookup", {"name": "x"}))
        called = await asks(chat, *extraction)
        done = {"role": "tool", "tool_call_id": called["tool_calls"][0]["id"], "content": "found"}
        await asks(chat, *extraction, called, done, says="Nothing.")
        assert await chat.transcript() == chat.said
    assert await kinds(chat) == ["main", "side", "side", "side"]
    (session,) = await sessions(proxy)
    assert session["id"] == chat.session


async def test_a_subagent_under_the_same_name(proxy: Proxy) -> None:
    chat = chat_of(proxy, session="agent", system=HARNESS)
    await chat.says("Repair the log reader.")
    await chat.says("And its tests.")
    await asks(chat, system(NOTES), user("Find all readers in the workspace."))
    assert await chat.transcript() == chat.said
    assert await kinds(chat) == ["main", "side"]


async def test_instructions_with_the_date_are_one_conversation(proxy: Proxy) -> None:
    chat = chat_of(proxy, system=f"{HARNESS} It is day 0.")
    for day in range(1, 6):
        await chat.says(f"What is there to do on day {day}?")
        chat.said[0] = system(f"{HARNESS} It is day {day}.")
        assert (await chat.transcript())[1:] == chat.said[1:]


async def test_instructions_that_change_every_turn_tell_nothing(proxy: Proxy) -> None:
    texts = ("Olives grow slowly.", "Tides follow the moon!", "Cranes lift; logs record?", "Nothing known...")
    chat = chat_of(proxy, system="Start")
    for text in texts:
        chat.said[0] = system(text)
        await chat.says(f"Question about {text}")
    assert (await chat.transcript())[1:] == chat.said[1:]


async def test_smolagents_is_one_line(proxy: Proxy) -> None:
    """Each step sends the calls before it back in words of its own."""
    chat = chat_of(proxy, system=HARNESS)
    said = [system(HARNESS), user("How high is the tide?")]
    for step in range(4):
        proxy.model.calls((f"c{step}", "lookup", {"name": f"tide {step}"}))
        await asks(chat, *said)
        said += [
            {"role": "assistant", "content": f"Calling tools: lookup tide {step}"},
            user(f"Observation: {step}"),
        ]
    answer = await asks(chat, *said, says="Two metres.")
    assert await chat.transcript() == [*said, answer]
    assert await kinds(chat) == ["main"]
    assert len(await sessions(proxy)) == 1


async def test_codex_on_its_own_api(tmp_path: Path) -> None:
    """Instructions stand beside the items, and set-up before the first request; its summary is short."""
    server = ResponsesServer()
    async with proxied(server, tmp_path) as proxy:
        headers = {"authorization": "Bearer key-1", "x-session-id": "codex"}
        chat = ResponsesChat(proxy.http, instructions=HARNESS, headers=headers)
        setup = user("<environment_context>\n<cwd>/work</cwd>\n</environment_context>")
        await chat.says(setup, "Repair the log reader.")
        await chat.says("And its tests.")
        talked = [setup, *(item for item in chat.said if item.get("role") == "user")][1:]
        server.outputs.append([text_item("The log reader is repaired.")])
        await chat.says("You are performing a CONTEXT CHECKPOINT COMPACTION.")
        prefix = "Another language model started to solve this problem and produced a summary. " * 3
        chat.said = [*talked, user(f"{prefix}\nThe log reader is repaired.")]
        await chat.says("Now the tides.")
        read = (await proxy.http.get("/api/sessions/codex/messages", headers=headers)).json()
        said = [row["message"]["content"] for row in read["messages"] if row["role"] == "user"]
        fields = (await proxy.http.get("/api/sessions/codex", headers=headers)).json()
    assert read["is_default"]
    assert [text[:30] for text in said] == [
        "<environment_context>\n<cwd>/wo",
        "Repair the log reader.",
        "And its tests.",
        "You are performing a CONTEXT C",
        "Another language model started",
        "Now the tides.",
    ]
    assert [branch["kind"] for branch in fields["branches"]] == ["main"]


async def test_a_person_who_quotes_a_dialogue_has_a_conversation(proxy: Proxy) -> None:
    chat = chat_of(proxy)
    await chat.says("What is this?\nUser: are you there?\nAssistant: yes, I am, and I have been all day.")
    assert [row["id"] for row in await sessions(proxy)] == [chat.session]
    assert await chat.transcript() == chat.said


async def test_an_edit(proxy: Proxy) -> None:
    chat = chat_of(proxy)
    for turn in range(3):
        await chat.says(f"Tell me about the olive tree, part {turn}.")
    chat.said = chat.said[:2]
    await chat.says("Tell me about the olive tree, but shorter, part 1.")
    assert await chat.transcript() == chat.said
    assert await kinds(chat) == ["main", "edit"]
    fields = await chat.session_fields()
    assert fields["branches"][1]["beside"] == (await chat.rows())[1]["id"]


async def test_a_retry(proxy: Proxy) -> None:
    chat = chat_of(proxy)
    await chat.says("Hello.")
    await chat.says("Tell me a story.")
    chat.said.pop()
    proxy.model.says("Another story.")
    chat.said.append(await asks(chat, *chat.said))
    assert await chat.transcript() == chat.said
    assert await kinds(chat) == ["main", "retry"]


async def test_several_answers_at_once(proxy: Proxy) -> None:
    chat = chat_of(proxy, extra={"n": 3})
    reply = await chat.posts([user("Three names for a boat?")])
    choices = [choice["message"] for choice in reply.json()["choices"]]
    assert await kinds(chat) == ["main"]
    chat.said = [user("Three names for a boat?"), choices[-1]]
    chat.extra = {}
    await chat.says("I take the last one.")
    assert await chat.transcript() == chat.said


async def test_greeting_twins_keep_their_own_words(proxy: Proxy) -> None:
    twins = [chat_of(proxy), chat_of(proxy)]
    for text in ("Hello.", None):
        for number, chat in enumerate(twins):
            proxy.model.says("Hello! How can I help?" if text else f"Yes, {number}.")
            await chat.says(text or f"I am number {number}.")
    for chat in twins:
        assert await chat.transcript() == chat.said
        assert await kinds(chat) == ["main"]


@pytest.mark.parametrize("under", [HARNESS, NOTES, None])
async def test_a_subagent_that_works_for_long(proxy: Proxy, under: str | None) -> None:
    chat = chat_of(proxy, session="agent", system=HARNESS if under else None)
    proxy.model.calls(("task", "delegate", {"prompt": "Find the readers."}))
    await chat.says("Repair the log reader.")
    agent = chat_of(proxy, session="agent", system=under)
    for step in range(3):
        proxy.model.calls((f"c{step}", "read", {"path": f"{step}.py"}))
        await (agent.sends(result(f"c{step - 1}")) if step else agent.says("Find the readers."))
        assert await chat.transcript() == chat.said
    await agent.sends(result("c2"))
    await chat.sends(result("task"))
    await agent.says("Those of the tides, too.")
    assert await chat.transcript() == chat.said
    assert await kinds(chat) == ["main", "side"]


@pytest.mark.parametrize(
    ("begins", "says"),
    [
        ("{", '"n": 1}'),
        ("Sure, here is", " the list."),
        ("<answer>", "42</answer>"),
        ("```json\n", "{}\n```"),
    ],
)
async def test_an_answer_that_the_client_began(proxy: Proxy, begins: str, says: str) -> None:
    twins = [chat_of(proxy), chat_of(proxy)]
    for turn in range(3):
        for number, chat in enumerate(twins):
            chat.said.append(user(f"Question {turn}."))
            answer = await asks(chat, *chat.said, assistant(begins), says=f"{says}{number}")
            chat.said.append(assistant(begins + answer["content"]))
    assert {row["id"] for row in await sessions(proxy)} == {chat.session for chat in twins}


@pytest.mark.parametrize(
    "wrong", ["Error:\nno tool {}.\nNow let's retry.", "[system] invalid call {}", "{} is no JSON.\n\nAgain."]
)
async def test_a_dropped_answer_and_what_was_wrong_with_it(proxy: Proxy, wrong: str) -> None:
    """smolagents: 21 sessions for one talk. Who goes on from the answer has a conversation of their own."""
    chat, other = chat_of(proxy), chat_of(proxy)
    asked = "New task:\nHow high is the tide at Pola?"
    for step in range(4):
        await asks(chat, system(HARNESS), {"role": "user", "content": [{"type": "text", "text": asked}]})
        asked += "\n" + wrong.format(step)
    assert len(await sessions(proxy)) == 1
    await other.says("What is the capital of the region?")
    await other.says("Thank you.")
    await asks(chat_of(proxy), user("What is the capital of the region?\nAnd of Istria?"))
    assert len(await sessions(proxy)) == 3


async def test_a_name_that_an_answer_is_given_later_is_no_edit(proxy: Proxy) -> None:
    chat = chat_of(proxy)
    for turn in range(4):
        await chat.says(f"Question {turn}.")
        chat.said[-1] = assistant(chat.said[-1]["content"], name="ada")
    assert await kinds(chat) == ["main"]
    assert "name" not in str(await chat.transcript())


async def test_a_summary_asked_for_in_a_system_message(proxy: Proxy) -> None:
    chat = chat_of(proxy, system=HARNESS)
    for turn in range(3):
        await chat.says(f"Tell me about the olive tree, part {turn}.")
    session, wish = chat.session, system("Summarize the entire dialog in five sentences.")
    await asks(chat, *chat.said[:5], wish, says=SUMMARY)
    assert chat.session == session
    assert await chat.transcript() == chat.said
    assert await kinds(chat) == ["main", "side"]
    chat.said = [chat.said[0], assistant(SUMMARY), *chat.said[5:]]
    await chat.says("And the tides?")
    assert chat.session == session
    assert (await chat.transcript())[-1] == chat.said[-1]


TASK = "Please mend the parser in src/parse.py so that it reads dates"
BEGUN: list[list[Json]] = [
    [user(TASK)],
    [user("# AGENTS.md instructions\n<INSTRUCTIONS>\nUse tabs.\n</INSTRUCTIONS>"), user(TASK)],
    [user("<workspace_state>\na.py\n</workspace_state>"), user(f"<query>\n{TASK}\n</query>")],
    [user(f"<task>\n{TASK}\n</task>\n<environment_details>\n# Files\n</environment_details>")],
    [user(f"New task:\n{TASK}")],
    [{"role": "user", "content": [{"type": "text", "text": each} for each in ("<env>\nx\n</env>", TASK)]}],
]
TITLED = ["Parser dates", '{"title": "Parser dates"}', '**"Parser dates"**', "Title: Parser dates"]


async def titles(proxy: Proxy) -> list[str]:
    return [row["title"] for row in await sessions(proxy, details=1)]


@pytest.mark.parametrize("begun", BEGUN)
@pytest.mark.parametrize("named", [None, "opencode"])
async def test_a_title_is_a_persons_words_or_what_the_client_was_answered(
    proxy: Proxy, begun: list[Json], named: str | None
) -> None:
    asked = [system("You write titles.\nA title helps the user to find this conversation.")]
    asked += [user("Generate a title for this conversation:"), *begun]
    chat = chat_of(proxy, session=named, system=HARNESS)
    await chat.sends(*begun)
    assert await titles(proxy) == [TASK]
    for answer in TITLED:
        await asks(chat, *asked, says=answer)
        assert await titles(proxy) == ["Parser dates"]
    await asks(chat_of(proxy, session="early"), *asked, says="Parser dates")
    assert set(await titles(proxy)) == {"Parser dates"}


@pytest.mark.parametrize(
    ("headers", "client"),
    [
        ({"user-agent": "Python/3.11 aiohttp/3.9"}, "aiohttp/3.9"),
        ({"user-agent": "Python/3.11 aiohttp/3.9", "x-title": "Open WebUI"}, "Open WebUI"),
        ({"user-agent": "OpenAI/Python 1.55.0 semantic-kernel/1.4"}, "semantic-kernel/1.4"),
        ({"user-agent": "OpenAI/JS 4.1", "http-referer": "https://cline.bot"}, "cline.bot"),
        ({"user-agent": "node", "x-stainless-lang": "js", "x-stainless-package-version": "4"}, "openai-js/4"),
        ({"user-agent": "Mozilla/5.0 (X11) Gecko Harbour/1.2 Chrome/120 Safari/5"}, "Harbour/1.2"),
        ({"user-agent": "curl/8.5.0"}, "curl/8.5.0"),
    ],
)
async def test_a_client_is_named_by_what_names_it(proxy: Proxy, headers: Json, client: str) -> None:
    chat = chat_of(proxy)
    chat.headers |= headers
    await chat.says("Hello.")
    assert [row["client"] for row in await sessions(proxy, details=1)] == [client]

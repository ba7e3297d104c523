"""How a request's session is found: by what clients send, and by their messages where they send nothing."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from tests.kit.wire import Line, Reply, answer_body, post
from tests.upstream.scripted import replies

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
Headers = list[tuple[str, str]]
CODEX = ("user-agent", "codex_cli_rs/0.50 (linux)")


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def assistant(text: str, **more: Any) -> Json:
    return {"role": "assistant", "content": text, **more}


async def asks(
    line: Line,
    messages: list[Json],
    headers: Headers | None = None,
    answer: str = "Hello.",
    path: str = "/v1/chat/completions",
    **fields: Any,
) -> Reply:
    line.upstream.expects(replies(answer_body(answer)))
    raw = [(name.encode(), value.encode()) for name, value in headers or []]
    body = json.dumps({"model": "m", "messages": messages, **fields}).encode()
    reply = await line.asks(post(body, raw, path=path))
    assert reply.status == 200, reply.body
    return reply


def session(reply: Reply) -> str:
    return reply.header("x-palimpsest-session") or ""


def found(reply: Reply) -> str:
    return (reply.header("x-palimpsest-mode") or "").partition("; ")[2]


CARRIED: list[tuple[str, Headers, Json]] = [
    ("x-session-id", [("X-Session-Id", "NAME")], {}),
    ("x-litellm-session-id", [("x-litellm-session-id", "NAME")], {}),
    ("x-litellm-trace-id", [("x-litellm-trace-id", "NAME")], {}),
    ("helicone-session-id", [("Helicone-Session-Id", "NAME")], {}),
    ("x-openwebui-chat-id", [("X-OpenWebUI-Chat-Id", "NAME")], {}),
    ("x-claude-code-session-id", [("x-claude-code-session-id", "NAME")], {}),
    ("x-anything-session-id", [("X-Anything-Session-Id", "NAME")], {}),
    ("x-session-affinity", [("x-session-affinity", "NAME")], {}),
    ("x-portkey-trace-id", [("x-portkey-trace-id", "NAME")], {}),
    ("litellm_session_id", [], {"litellm_session_id": "NAME"}),
    ("metadata.session_id", [], {"metadata": {"session_id": "NAME", "user": "u"}}),
    ("metadata.thread_id", [], {"metadata": {"thread_id": "NAME"}}),
    ("metadata.conversation_id", [], {"metadata": {"conversation_id": "NAME"}}),
]


def filled(value: Any, name: str) -> Any:
    return json.loads(json.dumps(value).replace("NAME", name))


@pytest.mark.spec("W26")
@pytest.mark.parametrize(("carrier", "headers", "fields"), [pytest.param(*c, id=c[0]) for c in CARRIED])
async def test_a_carrier_names_the_session_and_is_named(
    line: Line, carrier: str, headers: Headers, fields: Json
) -> None:
    name = uuid.uuid4().hex
    given = [(header, value.replace("NAME", name)) for header, value in headers]
    first = await asks(line, [user("One list."), assistant("Yes?"), user("a")], given, **filled(fields, name))
    second = await asks(line, [user("Another list of messages.")], given, **filled(fields, name))
    assert session(first) == session(second)
    assert found(second) == f"found=id; carrier={carrier}; continues=no"
    other = [(header, value.replace("NAME", name + "x")) for header, value in headers]
    third = await asks(line, [user("Another.")], other, **filled(fields, name + "x"))
    assert session(third) != session(first)
    # Other programs' names go on to other programs; ours does not.
    sent = line.upstream.requests[-1]
    for header, value in other:
        assert sent.header(header) == (None if carrier == "x-session-id" else value)


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
async def test_a_name_beyond_ascii_is_read_as_it_was_meant(line: Line, encoding: str) -> None:
    name = f"Gespräch-{uuid.uuid4().hex}"
    line.upstream.expects(replies(answer_body("Hello.")))
    body = json.dumps({"model": "m", "messages": [user("Hello.")]}).encode()
    reply = await line.asks(post(body, [(b"x-session-id", name.encode(encoding))]))
    found = await line.http.get("/api/sessions", headers={"authorization": "Bearer key-1"})
    assert (reply.status, found.json()["sessions"][0]["name"]) == (200, name)


@pytest.mark.spec("W26")
async def test_carriers_count_in_their_order(line: Line) -> None:
    left = list(CARRIED)
    while len(left) > 1:
        headers = [header for _, given, _ in left for header in given]
        fields: Json = {}
        for _, _, given in left:
            for key, value in given.items():
                fields[key] = {**fields.get(key, {}), **value} if isinstance(value, dict) else value
        name = uuid.uuid4().hex
        given_headers = [(header, name + header) for header, _ in headers]
        reply = await asks(line, [user("In order.")], given_headers, **filled(fields, name))
        assert found(reply) == f"found=id; carrier={left[0][0]}"
        left.pop(0)


async def test_the_path_comes_right_behind_our_own_header(line: Line) -> None:
    path = f"/s/{uuid.uuid4().hex}/v1/chat/completions"
    reply = await asks(line, [user("By path.")], [("x-litellm-session-id", "z")], path=path)
    assert found(reply) == "found=id; carrier=path"
    reply = await asks(line, [user("By path.")], [("x-session-id", uuid.uuid4().hex)], path=path)
    assert found(reply) == "found=id; carrier=x-session-id"


@pytest.mark.spec("W23")
async def test_opencode_sends_two_headers_of_one_name(line: Line) -> None:
    name, parent = f"ses_{uuid.uuid4().hex}", f"ses_{uuid.uuid4().hex}"
    main = [("x-session-affinity", name), ("X-Session-Id", name)]
    first = await asks(line, [user("Do it.")], main)
    child = [("x-parent-session-id", name), ("x-session-affinity", parent), ("X-Session-Id", parent)]
    second = await asks(line, [user("Part of it.")], child)
    alone = await asks(line, [user(f"A parent alone names none. {name}")], [("x-parent-session-id", name)])
    assert len({session(first), session(second), session(alone)}) == 3
    assert found(alone) == "found=new"
    # Either header alone names the same session, also for a message that was never said there.
    for alone_in in (main[:1], main[1:]):
        again = await asks(line, [user(f"Do it. {alone_in}")], alone_in)
        assert session(again) == session(first)
    # The sub-agent's own words went to its own session, not to its parent's.
    assert "Part of it." in str(await line.rows(second))
    assert "Do it." in str(await line.rows(first))
    assert "Part of it." not in str(await line.rows(first))


@pytest.mark.spec("W24")
@pytest.mark.parametrize("header", ["session-id", "thread-id"])
async def test_codex_is_known_by_its_agent(line: Line, header: str) -> None:
    name = uuid.uuid4().hex
    named = [await asks(line, [user(f"{at} {name}")], [CODEX, (header, name)]) for at in range(2)]
    assert session(named[0]) == session(named[1])
    assert found(named[1]) == f"found=id; carrier={header}; continues=no"
    both = [CODEX, ("x-session-affinity", "a" + name), (header, name)]
    assert found(await asks(line, [user(f"y {name}")], both)) == f"found=id; carrier={header}; continues=no"
    stranger = await asks(line, [user(f"x {name}")], [("user-agent", "curl/8"), (header, name)])
    assert session(stranger) != session(named[0])
    assert found(stranger) == "found=new"


@pytest.mark.spec("W22")
async def test_without_any_name_the_messages_tell(line: Line) -> None:
    talk = [user(f"Begin. {uuid.uuid4()}")]
    sessions = []
    for turn in range(4):
        reply = await asks(line, talk, answer=f"Answer {turn}.")
        sessions.append(session(reply))
        assert found(reply) == ("found=prefix" if turn else "found=new")
        talk += [assistant(f"Answer {turn}."), user(f"Go on, {turn}.")]
    assert len(set(sessions)) == 1


CALLS = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1.0,"b":"x"}'}}]
SAID = {
    "role": "assistant",
    "content": None,
    "tool_calls": CALLS,
    "refusal": None,
    "annotations": [],
    "reasoning_content": "hm",
}


def respelled(arguments: str) -> list[Json]:
    return [{**CALLS[0], "function": {"name": "f", "arguments": arguments}}]


RETURNED: dict[str, Json] = {
    "openai_sdk": {k: v for k, v in SAID.items() if k != "reasoning_content"},
    "content_missing": {"role": "assistant", "tool_calls": CALLS},
    "content_empty": {"role": "assistant", "content": "", "tool_calls": CALLS},
    "litellm": {**SAID, "provider_specific_fields": {"refusal": None}, "function_call": None},
    "langchain": {"role": "assistant", "content": None, "tool_calls": respelled('{"b": "x", "a": 1}')},
    "reasoning_renamed": {"role": "assistant", "reasoning": "hm", "tool_calls": CALLS},
    "call_with_index": {"role": "assistant", "content": None, "tool_calls": [{**CALLS[0], "index": 0}]},
}


@pytest.mark.spec("W41")
@pytest.mark.parametrize("name", RETURNED)
async def test_an_answer_is_known_however_it_comes_back(line: Line, name: str) -> None:
    talk = [user(f"Call it. {uuid.uuid4()}")]
    choice = {"index": 0, "message": SAID, "finish_reason": "tool_calls"}
    line.upstream.expects(replies(json.dumps({"choices": [choice]}).encode()))
    first = await line.asks(post(json.dumps({"model": "m", "messages": talk}).encode()))
    result = {"role": "tool", "tool_call_id": "c1", "content": "1"}
    second = await asks(line, [*talk, RETURNED[name], result])
    assert (session(second), found(second)) == (session(first), "found=prefix")
    stored = (await line.rows(second))[1]["message"]
    assert stored["reasoning_content"] == "hm"


# What models think aloud before they answer, as clients cut it.
THOUGHTS = {
    "thinking": "<thinking>\nhm\n</thinking>\n\n",
    "thought": "<thought>hm</thought>",
    "reasoning": "<reasoning>hm</reasoning>\n",
    "mistral": "[THINK]hm[/THINK]",
    "seed": "<seed:think>hm</seed:think>",
    "open webui": '<details type="reasoning" done="true">\n<summary>Thought</summary>\nhm\n</details>\n',
    "harmony": "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>",
    "no tag": "Let me see: hm.\n\n",
}


@pytest.mark.spec("W41")
@pytest.mark.parametrize("name", THOUGHTS)
async def test_an_answer_without_its_beginning_is_that_answer(line: Line, name: str) -> None:
    """Two chats that begin alike, each told apart by what is left of its answer."""
    start = [user(f"Which one? {name}")]
    talks, sessions = {}, {}
    for who in ("This", "That"):
        first = await asks(line, start, answer=f"{THOUGHTS[name]}{who} one.")
        talks[who], sessions[who] = list(start), session(first)
    assert len(set(sessions.values())) == 2
    for turn in range(3):
        for who, talk in talks.items():
            said = f"{who} one." if not turn else f"Answer {turn}."
            talk += [assistant(said), user(f"Go on, {turn}.")]
            reply = await asks(line, talk, answer=f"{THOUGHTS[name]}Answer {turn + 1}.")
            assert (session(reply), found(reply)) == (sessions[who], "found=prefix")
            rows = await line.rows(reply)
            assert len(rows) == len(talk) + 1
            assert rows[1]["message"]["content"] == f"{THOUGHTS[name]}{who} one."


@pytest.mark.spec("W42")
async def test_aiders_reminder_comes_and_goes(line: Line) -> None:
    """The newest user message carries a reminder that its next request has without it."""
    few_shot = [user("Change the code."), assistant("Ok, any changes you need?")]
    files = user("# file.py\nprint(1)")
    opening = f"Rename it. {uuid.uuid4()}"
    one = await asks(line, [*few_shot, files, user(opening + "\n\nReminder: be exact.")], answer="Renamed.")
    kept = [user(opening), assistant("Renamed.")]
    two = await asks(
        line, [*few_shot, *kept, files, user("And test it.\n\nReminder: be exact.")], answer="Ok."
    )
    three = await asks(line, [*few_shot, *kept, user("And test it."), assistant("Ok."), files, user("Done?")])
    assert session(one) == session(two) == session(three)
    texts = [row["message"]["content"] for row in await line.rows(three)]
    assert texts[-1] == "Hello."
    assert "Renamed." in texts
    assert texts.count("Ok.") == 1


@pytest.mark.spec("W42")
async def test_the_same_few_shot_opening_is_not_the_same_session(line: Line) -> None:
    few_shot = [user("Change the code."), assistant("Ok, any changes you need?")]
    begun = [await asks(line, [*few_shot, user(f"Task {uuid.uuid4()}")]) for _ in range(3)]
    assert len({session(reply) for reply in begun}) == 3


@pytest.mark.spec("W42")
async def test_qwens_memory_request_leaves_the_conversation_alone(line: Line) -> None:
    talk = [{"role": "system", "content": "You code."}, user(f"Mend it. {uuid.uuid4()}")]
    await asks(line, talk, answer="Mended.")
    talk.append(assistant("Mended."))
    extraction = [{"role": "system", "content": "Extract memories."}, *talk[1:], user("What to keep?")]
    await asks(line, extraction, answer="Nothing.")
    reply = await asks(line, [*talk, user("Thanks.")], answer="Welcome.")
    texts = [row["message"]["content"] for row in await line.rows(reply)]
    assert texts[1:] == [talk[1]["content"], "Mended.", "Thanks.", "Welcome."]
    assert "Extract" not in str(json.loads(line.upstream.requests[-1].body)["messages"])


@pytest.mark.spec("W42")
async def test_opencodes_title_and_main_list_share_a_name_and_nothing_else(line: Line) -> None:
    name = [("x-session-affinity", f"ses_{uuid.uuid4().hex}")]
    talk = [{"role": "system", "content": "You code."}, user("Mend the parser.")]
    titles = [{"role": "system", "content": "Make a title."}, user("Mend the parser.")]
    main = await asks(line, talk, name, answer="Mended.")
    title = await asks(line, titles, name, answer="The parser")
    assert session(main) == session(title)
    talk += [assistant("Mended."), user("And the lexer?")]
    await asks(line, talk, name, answer="That too.")
    assert json.loads(line.upstream.requests[-1].body)["messages"] == talk
    texts = [row["message"]["content"] for row in await line.rows(main)]
    assert texts == [*(message["content"] for message in talk), "That too."]

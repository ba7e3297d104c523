"""Every kind of item of the Responses API on its way through the proxy: as it came, stored, and in a view."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from tests.kit.wire import Line, Reply, post
from tests.kit.words import prose
from tests.upstream.scripted import replies

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.spec("W47")]

Json = dict[str, Any]
NOISE = "iVBORw0KGgo" * 3_000


def said_by_model(kind: str, ident: str, **fields: Any) -> Json:
    return {"id": f"{kind[:3]}_{ident}", "type": kind, "status": "completed", **fields}


def found(kind: str, ident: str, **fields: Any) -> Json:
    return {"type": kind, "call_id": ident, **fields}


# Turns of the model and what its client found out: no call without its result, no thought alone.
GROUPS: list[list[Json]] = [
    [
        said_by_model("computer_call", "c6", call_id="c6", action={"type": "screenshot"}),
        found("computer_call_output", "c6", output={"type": "computer_screenshot", "image_url": NOISE}),
    ],
    [
        said_by_model("web_search_call", "1", action={"type": "search", "query": "tide"}),
        said_by_model("file_search_call", "1", queries=["tide"], results=None),
        said_by_model("code_interpreter_call", "1", code="1+1", outputs=[], container_id="k"),
        said_by_model("image_generation_call", "1", result=NOISE),
        said_by_model("mcp_list_tools", "1", server_label="s", tools=[]),
        said_by_model("mcp_call", "1", server_label="s", name="n", arguments="{}", output="o"),
        {"id": "x_1", "type": "never_heard_of", "depth": 3},
        {
            "id": "m_1",
            "type": "message",
            "role": "assistant",
            "content": [{"type": "refusal", "refusal": "No."}],
        },
    ],
    [
        {"id": "a_1", "type": "mcp_approval_request", "server_label": "s", "name": "n", "arguments": "{}"},
        {"type": "mcp_approval_response", "approval_request_id": "a_1", "approve": True},
    ],
    [
        {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA" * 40},
        said_by_model("function_call", "c1", call_id="c1", name="read", arguments='{"at": 1e2}'),
        said_by_model("custom_tool_call", "c2", call_id="c2", name="patch", input="*** Begin\n"),
        found("custom_tool_call_output", "c2", output=f"patched {prose(2, 40)}"),
        found("function_call_output", "c1", output=[{"type": "input_text", "text": f"x = 1 {prose(1, 40)}"}]),
    ],
    [
        said_by_model("local_shell_call", "c3", call_id="c3", action={"type": "exec", "command": ["ls"]}),
        {"type": "local_shell_call_output", "id": "c3", "output": json.dumps({"stdout": prose(3, 40)})},
        said_by_model("shell_call", "c4", call_id="c4", action={"commands": ["pwd"]}),
        found(
            "shell_call_output",
            "c4",
            output=[{"stdout": f"/srv {prose(4, 40)}", "stderr": "", "outcome": {}}],
        ),
        said_by_model("apply_patch_call", "c5", call_id="c5", operation={"type": "delete_file", "path": "a"}),
        found("apply_patch_call_output", "c5", status="completed", output=f"gone {prose(5, 40)}"),
    ],
]
PARTS: list[Json] = [
    {"type": "input_text", "text": "What is on these?"},
    {"type": "input_image", "image_url": f"data:image/png;base64,{NOISE}", "detail": "low"},
    {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{NOISE}"},
    {"type": "hologram", "data": NOISE},
]


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def spelled(items: list[Json]) -> list[bytes]:
    """With blanks where nobody expects them, and a number as only its writer would spell it."""
    return [
        json.dumps(item, separators=(" ,  ", ":  ")).encode()[:-1] + b' , "n":1.50e+2 }' for item in items
    ]


def talk() -> list[Json]:
    """A conversation with every kind in it, of words that no other test has."""
    said: list[Json] = [user(f"Begin. {uuid.uuid4()}"), {"role": "user", "content": PARTS}]
    for number, group in enumerate(GROUPS):
        said += [*group, user(f"Go on with {number}.")]
    return said


async def asks(line: Line, model: str, items: list[bytes]) -> tuple[Reply, bytes]:
    """The answer, and what the upstream was sent."""
    told = {
        "id": "m_9",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Ok."}],
    }
    answer = {"id": f"resp_{uuid.uuid4().hex}", "object": "response", "status": "completed", "output": [told]}
    line.upstream.expects(replies(json.dumps(answer).encode(), 200, [(b"Content-Type", b"application/json")]))
    body = b'{"model":"' + model.encode() + b'", "input" : [' + b" , ".join(items) + b'],  "store":false}'
    reply = await line.asks(post(body, path="/v1/responses"))
    assert reply.status == 200, reply.body
    sent = line.upstream.requests[-1].body
    if model == "large":
        assert sent == body
    return reply, sent


async def test_each_passes_and_is_stored_as_it_came(line: Line) -> None:
    items = spelled(talk())
    first, _ = await asks(line, "large", items)
    path = f"/api/sessions/{first.header('x-palimpsest-session')}/messages"
    stored = (await line.http.get(path, headers={"authorization": "Bearer key-1"})).content
    at = 0
    for item in items:
        at = stored.index(item, at) + len(item)
    # As they were, with the answer behind them: the conversation goes on.
    answer = [json.dumps({"role": "assistant", "content": "Ok."}).encode()]
    second, _ = await asks(line, "large", [*items, *answer, *spelled([user("And now?")])])
    assert second.header("x-palimpsest-session") == first.header("x-palimpsest-session")
    # None of what is no text was counted as such: it would be 30,000 tokens and more.
    whole = int((first.header("x-palimpsest-tokens") or "").partition("/")[0])
    assert whole < 12_000


def numbered(group: list[Json], number: int) -> list[Json]:
    """The same with ids of its own."""
    ids = ("id", "call_id", "approval_request_id")
    return [{k: f"{v}_{number}" if k in ids else v for k, v in item.items()} for item in group]


@pytest.mark.parametrize("steps", range(12, 18))
async def test_no_view_parts_what_belongs_together(line: Line, steps: int) -> None:
    """A turn of many steps: what is kept begins within it, and with the steps it begins elsewhere."""
    groups = [numbered(GROUPS[step % len(GROUPS)], step) for step in range(steps)]
    said = [user(f"Begin. {uuid.uuid4()} {prose(1, 900)}"), user("Now do all of it.")]
    items = spelled([*said, *(item for group in groups for item in group)])
    reply, sent = await asks(line, "small", items)
    assert reply.header("x-palimpsest-view") == "compacted"
    shown = json.loads(sent)["input"]
    kept = 0
    for group in groups:
        pairs: dict[str, list[Json]] = {}
        for item in group:
            name = item.get("call_id") or item.get("approval_request_id") or item["id"]
            pairs.setdefault(name, []).append(item | {"n": 150.0})
        for pair in pairs.values():
            names = [item for item in shown if same(item, pair)]
            assert len(names) in (0, len(pair))
            kept += len(names)
    assert 0 < kept < len(items)
    thoughts = [at for at, item in enumerate(shown) if item.get("type") == "reasoning"]
    assert all(shown[at + 1].get("type") == "function_call" for at in thoughts)


def same(item: Json, pair: list[Json]) -> bool:
    """True for one of these; results that are large are shown shortened."""
    keys = ("type", "id", "call_id", "approval_request_id")
    return tuple(map(item.get, keys)) in [tuple(map(other.get, keys)) for other in pair]

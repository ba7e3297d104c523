"""What must hold of every client's conversations, one function a column of the matrix.

Compares what the client sent and got with what the model was shown and the archive keeps. Knows nothing of
how a conversation is held.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

from tests.clients.recorder import Asked
from tests.clients.running import Held, Run
from tests.kit.judge import are_sound

Json = dict[str, Any]
# What stands between two hops, what names the hop, and the session's name, which is meant for the proxy.
OF_A_HOP = {"host", "connection", "keep-alive", "accept-encoding", "transfer-encoding", "te", "x-session-id"}

# A turn of a conversation; a file as aider shows it anew before each newest message.
_MARKS = re.compile(r"Turn \d+ of \w+|\*Trust this message.*?```.*?```", re.DOTALL)
# What aider puts behind the newest message of a user, and takes away with the next.
REMINDER = "To suggest changes to a file you MUST return"


def ends_up_with_the_same(run: Run) -> None:
    """Directly, through the proxy and behind compactions: equal texts, calls and arguments, equal usage."""
    direct, large, small = (run.held[name] for name in ("direct", "large", "small"))
    for held in run.held.values():
        assert "error" not in held.told, held.told["error"]
    assert _texts(direct) == run.stories["direct"].answers
    assert _carried_out(direct) == sum(message["role"] == "tool" for message in direct.asked[-1].messages)
    assert large.told == direct.told
    assert _without_usage(small) == _without_usage(direct)


def nothing_is_changed(run: Run) -> None:
    """P1: with room in the window the model server gets the client's bytes and headers."""
    held = run.held["large"]
    assert len(held.asked) == len(held.prompts) > 0
    asked_for, shown = held.asked + held.titles, held.prompts + held.title_prompts
    assert [asked.body for asked in asked_for] == [seen.raw for seen in shown]
    for asked, seen in zip(asked_for, shown, strict=True):
        assert _end_to_end(asked.headers) == _end_to_end(seen.headers)
        assert asked.answered["x-palimpsest-view"] == "original"


def prompts_are_sound(run: Run) -> None:
    """P9: with a small window every prompt is valid and fits, instructions and newest turn verbatim."""
    held = run.held["small"]
    assert {asked.status for asked in held.asked} == {200}
    are_sound(held.prompts, [asked.messages for asked in held.asked], run.client.window)
    are_sound(held.title_prompts, [asked.messages for asked in held.titles], run.client.window)
    (compactions,) = held.compactions.values()
    assert len(compactions) >= max(1, rewritten(held))


def archive_is_whole(run: Run) -> None:
    """P4: one session, found as the page says; in it what the client sent and got, whatever was folded."""
    for name in ("large", "small"):
        held = run.held[name]
        (kept,) = conversations(held)
        assert len(held.transcripts) == 1
        assert {found_by(asked) for asked in held.asked[1:]} == set(run.client.found)
        # Sent together with the first request of the conversation, either may be the one that begins it.
        began = found_by(held.asked[0])
        assert {found_by(asked) for asked in held.titles} <= {*run.client.found, began}
        assert_kept(kept, held.asked[-1].messages, held.told["turns"][-1]["text"])
        sent = [message for asked in held.asked for message in asked.messages]
        assert [m for m in sent if m["role"] != "assistant" and m not in held.archived] == []


def sessions_stay_apart(run: Run) -> None:
    """Two at once that begin alike: no word of one in a prompt of the other, and each in the archive."""
    houses = {name: run.stories[name].house for name in ("left", "right")}
    held = run.held["left"]
    for seen in held.prompts:
        assert seen.faults == ()
        assert seen.tokens <= run.client.window
        assert sum(house in seen.text for house in houses.values()) <= 1
    kept = conversations(held)
    assert len(kept) == len(houses)
    for name, house in houses.items():
        (mine,) = [branch for branch in kept if house in json.dumps(branch)]
        sent = [asked.messages for asked in held.asked if house in asked.body.decode()]
        assert_kept(mine, sent[-1], run.held[name].told["turns"][-1]["text"])
    assert all(held.compactions.values())


def a_low_limit_makes_no_loop(run: Run) -> None:
    """A client that compacts by itself asks as often as without the proxy, and no list mixes with another."""
    direct, held = run.held["low-direct"], run.held["low"]
    assert len(direct.titles) > 2, "it did not compact by itself"
    assert {asked.status for asked in held.asked + held.titles} == {200}
    # opencode compares the counts of the last answer with its limit.
    counts = [[turn["usage"] for turn in told.told["turns"]] for told in (direct, held)]
    assert (len(held.asked), len(held.titles)) == (len(direct.asked), len(direct.titles)), counts
    assert _texts(held) == _texts(direct)
    (kept,) = conversations(held)
    assert len(held.transcripts) == 1
    assert_kept(kept, held.asked[-1].messages, held.told["turns"][-1]["text"])


def nothing_is_stale(run: Run) -> None:
    """No prompt of a small window tells of a turn, or of a file as it was, that the client has left out."""
    held = run.held["small"]
    for asked, seen in zip(held.asked, held.prompts, strict=True):
        sent, shown = _contents(asked.messages), _contents(seen.messages)
        assert set(_MARKS.findall(shown)) <= set(_MARKS.findall(sent))
        assert shown.count(REMINDER) == sent.count(REMINDER) > 0


def nobody_else_is_called(run: Run) -> None:
    """The client speaks to the address it was given and to no other."""
    assert run.strangers == []


def rewritten(held: Held) -> int:
    """P10: how often a prompt does not begin with the one before, though the client only added to it."""
    pairs = zip(pairwise(held.asked), pairwise(held.prompts), strict=True)
    return sum(
        asked.spans[: len(before.spans)] == before.spans and not prompt.extends(earlier)
        for (before, asked), (earlier, prompt) in pairs
    )


def conversations(held: Held) -> list[list[Json]]:
    """The transcripts that are not of requests for titles; they are what a session shows by default."""
    kept = [branch for branches in held.transcripts.values() for branch in branches.values()]
    titles = [asked.messages for asked in held.titles]
    ours = [branch for branch in kept if branch[:-1] not in titles]
    assert ours == held.default_transcripts
    assert len(kept) - len(ours) == len(titles)
    return ours


def found_by(asked: Asked) -> str:
    """How the proxy found the session."""
    return asked.answered["x-palimpsest-mode"].rpartition("found=")[2]


def assert_kept(kept: list[Json], sent: list[Json], answered: str) -> None:
    """The archive's list is the client's last one and the answer to it; the client's own words exactly."""
    expected = [*sent, {"role": "assistant", "content": answered}]
    assert len(kept) == len(expected)
    for mine, theirs in zip(kept, expected, strict=True):
        if theirs["role"] == "assistant":
            assert _as_told(mine) == _as_told(theirs)
        else:
            assert mine == theirs


def _as_told(message: Json) -> tuple[Any, ...]:
    """An answer without what clients leave out, add or write otherwise when they send it back."""
    calls = [
        (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in message.get("tool_calls") or ()
    ]
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(part["text"] for part in content)
    # pydantic-ai sends thoughts of a model that it does not know as text.
    content = (content or "").removeprefix("<think>\n\n</think>")
    return message["role"], content or None, calls


def _texts(held: Held) -> list[str]:
    """The texts of the turns; of structured ones what stands in them."""
    texts = [turn["text"] for turn in held.told["turns"]]
    return [json.loads(text)["note"] if text.startswith("{") else text for text in texts]


def _carried_out(held: Held) -> int:
    """How many calls of tools the client carried out; what it did besides is told as `wrote`."""
    return sum(name != "wrote" for turn in held.told["turns"] for name, _ in turn["calls"])


def _without_usage(held: Held) -> list[Json]:
    return [{name: turn[name] for name in ("text", "calls")} for turn in held.told["turns"]]


def _contents(messages: list[Json]) -> str:
    return "\n".join(str(message.get("content")) for message in messages)


def _end_to_end(headers: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name not in OF_A_HOP}

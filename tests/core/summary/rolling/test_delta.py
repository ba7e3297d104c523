"""Reading a reply: the summary, and the changes behind it in whatever shape they come."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.summary.rolling.state import Change, delta_text, reply_of

from tests.core.summary.rolling.asking import sections

SUMMARY = sections("port 54329", "asked and answered", "ship it")
DELTA = {"tasks": [{"id": "t1", "text": "ship", "status": "Done", "by": "scout"}]}
CHANGE = Change("tasks", "t1", "ship", "done", "scout")


@pytest.mark.spec("B09")
@pytest.mark.parametrize(
    "tail",
    [
        f"\n\n```json\n{json.dumps(DELTA)}\n```",
        f"\n```\n{json.dumps(DELTA, indent=2)}\n```\n",
        f"\n\n## STATE DELTA\n```json\n{json.dumps(DELTA)}\n```",
        f"\n\n**State delta:**\n```json\n{json.dumps({'state_delta': DELTA})}\n```",
        f"\n\n{json.dumps(DELTA, indent=2)}",
        f"\n\n```json\n{json.dumps(DELTA)}",
    ],
)
def test_changes_are_found_and_leave_the_summary(tail: str) -> None:
    reply = reply_of(SUMMARY + tail)
    assert (reply.summary, reply.changes, reply.is_broken) == (SUMMARY, (CHANGE,), False)


@pytest.mark.spec("B09")
@pytest.mark.parametrize(
    "tail",
    [
        "",
        '\n\n```json\n{"tasks": [\n```',
        "\n\n## STATE DELTA\n```json\n{tasks: none}\n```",
        '\n\n```json\n{"tasks": "none"}\n```',
        '\n\n```json\n{"tasks": [[1]]}\n```',
        "\n\n```json\n" + '{"tasks":' * 5_000 + "\n```",
    ],
)
def test_a_broken_delta_leaves_the_summary(tail: str) -> None:
    reply = reply_of(SUMMARY + tail)
    assert (reply.summary, reply.changes, reply.is_broken) == (SUMMARY, (), True)


@pytest.mark.spec("B09")
def test_what_can_be_read_of_a_delta_is_read() -> None:
    delta = {
        "decisions": ["use SQLite", {"decision": "no cloud"}, 7],
        "agentContributions": [{"agent": "scout", "contribution": "found it"}],
        "artifacts": [{"path": "src/app.py"}],
        "moods": ["good"],
        "risks": None,
    }
    reply = reply_of(f"{SUMMARY}\n```json\n{json.dumps(delta)}\n```")
    assert reply.changes == (
        Change("decisions", text="use SQLite"),
        Change("decisions", text="no cloud"),
        Change("agent_contributions", text="found it", by="scout"),
        Change("artifacts", text="src/app.py"),
    )
    assert reply.is_broken


def test_json_that_is_no_delta_stays_in_the_summary() -> None:
    said = sections('the config is\n```json\n{"port": 80}\n```', "set up", "none")
    assert reply_of(said).summary == said
    assert reply_of(f"{said}\n```json\n{{}}\n```").summary == said


def test_an_entry_is_one_line_without_secrets() -> None:
    secret = "sk-" + "Ab1" * 8
    (change,) = reply_of(f'{SUMMARY}\n```json\n{{"risks": ["a {secret}\\n\\u0000b"]}}\n```').changes
    assert change.text == "a [secret removed] \ufffdb"
    (long,) = reply_of(f'{SUMMARY}\n```json\n{{"risks": ["{"word " * 400}"]}}\n```').changes
    assert len(long.text) <= 400


@given(st.text())
def test_any_reply_can_be_read(text: str) -> None:
    reply_of(text)
    reply_of(f"{text}\n```json\n{text}\n```")


SHORT = st.text("abc", min_size=1, max_size=9)


@given(st.lists(st.builds(Change, st.just("tasks"), SHORT, SHORT, SHORT, SHORT), max_size=5))
def test_written_changes_are_read_back(changes: list[Change]) -> None:
    reply = reply_of(f"{SUMMARY}\n{delta_text(changes)}")
    assert (reply.summary, list(reply.changes)) == (SUMMARY, changes)

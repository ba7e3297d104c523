"""The runtime snapshot: its schema, and how its sections grow turn by turn."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from palimpsest.core.runtime.events import conversation_snapshot
from palimpsest.core.runtime.snapshot import (
    PATHS_KEPT,
    SNAPSHOT_SCHEMA,
    FilesSection,
    LoopSection,
    RuntimeSnapshot,
    TranscriptSection,
    UsageSection,
    files_of,
    loop_compacted,
    loop_flushed,
    new_snapshot,
    snapshot_of,
    tooling_of,
    transcript_of,
    usage_after,
)
from palimpsest.core.summary.source import recall_id
from palimpsest.core.view.view import view_of
from palimpsest.core.wire.json_text import plain_values

from tests.core.histories import assistant, calls, conversation, count_text, message, result, system, user
from tests.core.runtime.records import compaction, exchanges

SECTIONS = {
    "transcript",
    "tooling",
    "files",
    "loop",
    "recovery",
    "queues",
    "worker",
    "verification",
    "usage",
}
LOOP_FIELDS = {
    "compactionCount",
    "lastCompactionAt",
    "lastCompactionTokensBefore",
    "lastCompactionTokensAfter",
    "lastFlush",
}


def test_the_event_keeps_its_name() -> None:
    event = conversation_snapshot(new_snapshot(TranscriptSection(head="ab")))
    assert event.type == "conversation_snapshot"
    assert event.payload["schema"] == "session_runtime_v2"


def test_the_payload_has_every_section_and_reads_back() -> None:
    snapshot = new_snapshot(TranscriptSection(head="ab"))
    payload = plain_values(snapshot)
    assert payload.keys() == SECTIONS | {"schema", "version"}
    assert payload["version"] == 2
    assert payload["loop"].keys() >= LOOP_FIELDS
    assert snapshot_of(payload) == snapshot
    assert msgspec.json.decode(msgspec.json.encode(payload), type=RuntimeSnapshot) == snapshot


def test_the_schema_demands_every_section_and_this_version() -> None:
    schema = SNAPSHOT_SCHEMA["$defs"]["RuntimeSnapshot"]
    assert set(schema["required"]) == SECTIONS | {"schema", "version"}
    assert schema["properties"]["version"] == {"enum": [2]}
    assert schema["properties"]["schema"] == {"enum": ["session_runtime_v2"]}


@pytest.mark.parametrize(
    "change",
    [
        *({name: None} for name in sorted(SECTIONS)),
        {"schema": "session_runtime_v1"},
        {"version": 1},
        {"loop": {"compactionCount": -1}},
        {"loop": {"lastFlush": {"pathTokens": 3}}},
        {"worker": {"state": "dreaming"}},
        {"usage": {"inputTokens": "many"}},
        {"transcript": {"view": {"parts": [{"kind": "guess"}]}}},
    ],
)
def test_a_payload_of_another_shape_is_refused(change: dict[str, Any]) -> None:
    payload = plain_values(new_snapshot(TranscriptSection(head="ab"))) | change
    with pytest.raises(msgspec.ValidationError):
        snapshot_of(payload)


@pytest.mark.parametrize("section", sorted(SECTIONS))
def test_a_payload_without_a_section_is_refused(section: str) -> None:
    payload = plain_values(new_snapshot(TranscriptSection(head="ab")))
    del payload[section]
    with pytest.raises(msgspec.ValidationError):
        snapshot_of(payload)


def test_what_a_newer_writer_added_is_ignored() -> None:
    payload = plain_values(new_snapshot(TranscriptSection(head="ab"))) | {"skills": ["x"]}
    payload["loop"] = {"turns": 3, "mood": "good"}
    assert snapshot_of(payload).loop == LoopSection(turns=3)


def test_the_transcript_is_named_by_ids_and_view() -> None:
    talk = conversation([system("be exact"), *exchanges(6)])
    folded = compaction(watermark=talk.chains[7], kept=(talk.chains[0],), summary="earlier things")
    view = view_of(talk, folded, count_text)
    section = transcript_of(talk, view)
    assert section.head == talk.head.hex()
    assert section.watermark == talk.chains[7].hex()
    assert section.message_count == 12
    assert section.ids == tuple(recall_id(chain) for chain in talk.chains[8:])
    assert [part.kind for part in section.view.parts] == [part.kind for part in view.parts]
    shown = [part.id for part in section.view.parts if part.id]
    assert shown == [recall_id(talk.chains[0]), *section.ids]
    assert section.view.compaction_id == "cmp_1"
    assert "question" not in msgspec.json.encode(section).decode()


def test_of_a_long_transcript_the_newest_messages_are_named() -> None:
    talk = conversation([system("be exact"), *exchanges(150)])
    folded = compaction(watermark=talk.chains[19], kept=(talk.chains[0],), summary="earlier things")
    for force, first in ((None, ["preamble"]), (folded, ["preamble", "task", "summary"])):
        section = transcript_of(talk, view_of(talk, force, count_text))
        assert section.message_count == 300
        assert section.ids == tuple(recall_id(chain) for chain in talk.chains[-200:])
        assert [part.kind for part in section.view.parts] == [*first, *["tail"] * 200]
        assert section.view.parts[-1].id == section.ids[-1]


def test_the_views_digest_changes_with_every_byte_of_it() -> None:
    talk = conversation(exchanges(3))
    same = conversation(exchanges(3))
    other = conversation([*exchanges(2), user("question 2?"), assistant("answer 2 is 15.")])
    joined = conversation([user("ab"), user("c")]), conversation([user("a"), user("bc")])
    digests = [
        transcript_of(each, view_of(each, None, count_text)).view.digest
        for each in (talk, same, other, *joined)
    ]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 4


def test_tools_are_counted_and_open_calls_known() -> None:
    first = [message(calls("c1", "c2")), message(result("c1", "x"))]
    section = tooling_of(first)
    assert (section.calls, section.open_calls) == ({"run": 2}, ("c2",))
    section = tooling_of([message(result("c2", "y")), message(calls("c1"))], section)
    assert (section.calls, section.open_calls) == ({"run": 3}, ("c1",))


def test_files_are_the_paths_that_calls_named_newest_last() -> None:
    named = [
        message(calls("c1", arguments='{"path": "a.py"}')),
        message(calls("c1", arguments='{"file_path": "b.py", "content": "c.py"}')),
        message(calls("c1", arguments='{"path": "a.py"}')),
        message(calls("c1", arguments='{"path": ["d.py"]}')),
        message(calls("c1", arguments='["path"]')),
        message(calls("c1", arguments="path: e.py")),
        message(calls("c1", arguments='{"target": "  "}')),
        message(user("see f.py")),
    ]
    assert files_of(named).touched == ("b.py", "a.py")
    assert files_of(named[:1], FilesSection(touched=("z.py", "a.py"))).touched == ("z.py", "a.py")
    many = FilesSection(touched=tuple(f"f{n}.py" for n in range(PATHS_KEPT)))
    grown = files_of(named[:1], many).touched
    assert (len(grown), grown[-1], grown[0]) == (PATHS_KEPT, "a.py", "f1.py")


def test_the_loop_carries_the_last_compaction_and_flush() -> None:
    loop = loop_compacted(LoopSection(turns=9), compaction(), 12.5)
    loop = loop_flushed(loop_compacted(loop, compaction(tokens_after=7), 20.0), 5_000, 21.25)
    payload = msgspec.to_builtins(loop)
    assert payload == {
        "turns": 9,
        "exchanges": 0,
        "compactionCount": 2,
        "lastCompactionAt": 20_000,
        "lastCompactionTokensBefore": 820_000,
        "lastCompactionTokensAfter": 7,
        "lastFlush": {"at": 21_250, "pathTokens": 5_000},
    }


def test_usage_adds_up() -> None:
    usage = usage_after(usage_after(UsageSection(), 100, 20, 50), 7, 3)
    assert usage == UsageSection(input_tokens=107, output_tokens=23, cached_tokens=50, requests=2)


@pytest.mark.parametrize("text", ["\x00", "\ud800"])
def test_a_snapshot_can_always_be_written(text: str) -> None:
    bad = {"id": text, "type": "function", "function": {"name": text, "arguments": '{"path": "a"}'}}
    said = [message({"role": "assistant", "content": None, "tool_calls": [bad]})]
    assert msgspec.json.encode((tooling_of(said), files_of(said)))

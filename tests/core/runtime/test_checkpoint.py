"""When a checkpoint is due, and what it says."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from palimpsest.core.runtime.checkpoint import (
    CHECKPOINT_SCHEMA,
    CheckpointPayload,
    checkpoint_of,
    completion_due,
    encoded,
    gist_of,
    is_new,
    is_trivial,
    periodic_spans,
)
from palimpsest.core.runtime.evidence import exchange_ends, exchanges_since
from palimpsest.core.wire.json_text import plain_values

from tests.core.histories import assistant, calls, result, user
from tests.core.runtime.records import NEW_YEAR, entries, exchanges

SECRET = "sk-" + "Ab1" * 7


@pytest.mark.spec("A37")
@pytest.mark.parametrize(("count", "due"), [(11, 0), (12, 1), (23, 1), (24, 2), (25, 2), (36, 3)])
def test_a_checkpoint_is_due_every_twelve_exchanges(count: int, due: int) -> None:
    assert len(periodic_spans(entries(exchanges(count)))) == due


@pytest.mark.spec("A37")
def test_spans_follow_each_other_and_are_found_again_from_the_end_of_any() -> None:
    said = entries(exchanges(40))
    spans = periodic_spans(said)
    assert [(span[0].seq, span[-1].seq) for span in spans] == [(1, 24), (25, 48), (49, 72)]
    assert periodic_spans(said[24:]) == spans[1:]


@pytest.mark.spec("A37")
def test_replaying_the_same_conversation_gives_nothing_new() -> None:
    known: set[str] = set()
    written = []
    for turn in [*range(1, 25), 24, 24, 13]:
        for span in periodic_spans(entries(exchanges(turn))):
            # Looked at later, the same messages are the same span.
            checkpoint = checkpoint_of("periodic", span, NEW_YEAR + 1_000 * turn)
            if is_new(checkpoint, known):
                known.add(checkpoint.span_hash)
                written.append((checkpoint.span.from_seq, checkpoint.span.to_seq))
    assert written == [(1, 24), (25, 48)]


@pytest.mark.spec("A37")
def test_an_exchange_needs_text_from_both() -> None:
    said = entries(
        [
            user("  "),
            assistant("hello"),
            user("a"),
            assistant(""),
            calls("call_1"),
            result("call_1", "x"),
            user("b"),
            assistant("c"),
            assistant("d"),
            {"role": "user", "content": [{"type": "text", "text": "e"}]},
            calls("call_2", text="f"),
            result("call_2", "y"),
            assistant("g"),
        ]
    )
    assert exchange_ends(said) == [7, 10]
    messages = [entry.message for entry in said]
    for start in range(len(said) + 1):
        assert exchanges_since(messages, start) == sum(end >= start for end in (7, 10)), start


@pytest.mark.spec("A37")
def test_spans_of_which_nothing_can_be_cited_are_still_told_apart() -> None:
    first = checkpoint_of("periodic", entries([user(SECRET)]), NEW_YEAR)
    second = checkpoint_of("periodic", entries([user(SECRET + "2")]), NEW_YEAR)
    assert (first.evidence, second.evidence) == ((), ())
    assert first.span_hash != second.span_hash


def test_before_a_compaction_one_is_always_written() -> None:
    said = entries(exchanges(3))
    before = checkpoint_of("pre_compaction", said, NEW_YEAR)
    assert is_new(before, {before.span_hash})
    assert not is_new(checkpoint_of("completion", said, NEW_YEAR), {before.span_hash})


def test_a_checkpoint_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one message"):
        checkpoint_of("periodic", [], NEW_YEAR)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  \n",
        "ok",
        "OK!",
        "Thanks",
        "Done.",
        "All done, thank you so much!",
        "You're welcome!",
        "Great, glad to help.",
        "👍",
        "Sure — let me know if you need anything else.",
    ],
)
def test_courtesies_are_trivial(text: str) -> None:
    assert is_trivial(text)
    assert not completion_due(entries([user("hello"), assistant(text)]))


@pytest.mark.parametrize(
    "text",
    [
        "We decided to use PostgreSQL.",
        "Written to src/app/main.py.",
        "See https://example.com/report",
        "```\nprint(1)\n```",
        "Done. Never deploy on Fridays.",
        "The port is 5432",
        "use Postgres",
        "The cat sat on the mat and looked at the other cat. " * 4,
    ],
)
def test_decisions_artifacts_and_long_texts_are_not(text: str) -> None:
    assert not is_trivial(text)
    assert completion_due(entries([user("hello"), assistant(text)]))


def test_a_decision_on_the_way_or_a_marker_makes_a_trivial_end_worth_it() -> None:
    end = [user("good?"), assistant("ok")]
    assert not completion_due(entries(end))
    assert completion_due(entries([user("Let us settle it: we decided on Redis 7."), *end]))
    assert completion_due(entries(end), "Shipped release 2.4.1 to production")
    assert not completion_due(entries(end), "done")
    assert not completion_due([], "Shipped release 2.4.1 to production")


@pytest.mark.spec("A39")
def test_the_summary_is_structured() -> None:
    gist = gist_of(
        entries(
            [
                user("We decided to use PostgreSQL 16 for the ledger."),
                calls("call_1", arguments='{"command": "make check"}'),
                result("call_1", "TypeError: cannot add str and int"),
                assistant("The issue was a wrong type in ledger.py. Next, I will fix the parser."),
                user("And port 5432?"),
            ]
        )
    )
    assert gist.decisions == ("We decided to use PostgreSQL 16 for the ledger.",)
    assert gist.key_findings == ("The issue was a wrong type in ledger.py.",)
    assert gist.open_loops == (
        "run command=make check: failed, TypeError: cannot add str and int",
        "And port 5432?",
    )
    assert gist.next_actions == ("Answer: And port 5432?",)


@pytest.mark.spec("A39")
def test_what_was_overtaken_answered_or_overcome_is_not_in_the_summary() -> None:
    gist = gist_of(
        entries(
            [
                user("Never deploy on Fridays. The deploy port is 8080."),
                calls("call_1", arguments='{"command": "make check"}'),
                result("call_1", "ConnectionError: refused"),
                calls("call_1", arguments='{"command": "make check"}'),
                result("call_1", "fine"),
                user("Actually, the deploy port is 9090."),
                assistant("Understood: 9090 it is."),
            ]
        )
    )
    assert gist.decisions == ("Never deploy on Fridays.",)
    assert "Actually, the deploy port is 9090." in gist.key_findings
    assert "8080" not in "".join(gist.key_findings)
    assert gist.open_loops == ()
    assert gist.next_actions == ()


@pytest.mark.spec("A39")
def test_a_question_nobody_answered_is_an_open_loop() -> None:
    asked = [user("Set it up."), assistant("Shall I use Redis or Valkey?")]
    assert gist_of(entries(asked)).open_loops == (
        'asked of the user, no answer seen: "Shall I use Redis or Valkey?"',
    )
    assert gist_of(entries([*asked, user("Valkey."), assistant("Fine.")])).open_loops == ()


def called(name: str, ident: str, arguments: str) -> dict[str, Any]:
    """A call of the tool of that name."""
    call = {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


@pytest.mark.spec("A39")
def test_files_changed_are_findings_and_tasks_not_done_are_next_actions() -> None:
    write = '{"path": "src/ledger.py", "content": "x = 1"}'
    todo = '{"todos": [{"content": "Write it", "status": "completed"}, {"content": "Test it"}]}'
    said = [
        user("Write the ledger."),
        called("write_file", "call_1", write),
        result("call_1", "ok"),
        called("todo_write", "call_2", todo),
        result("call_2", "ok"),
        assistant("The ledger is there."),
    ]
    gist = gist_of(entries(said))
    assert any(line.startswith("created src/ledger.py") for line in gist.key_findings)
    assert gist.next_actions == ("[ ] Test it",)


@pytest.mark.spec("A39")
def test_the_payload_names_its_schema_and_reads_back() -> None:
    said = entries(exchanges(12))
    checkpoint = checkpoint_of("periodic", said, NEW_YEAR + 99.5)
    payload = plain_values(checkpoint)
    assert (payload["schema"], payload["version"]) == ("session_checkpoint_v2", 2)
    assert payload["createdAt"] == 1_767_225_699_500
    assert payload["summary"].keys() == {"decisions", "openLoops", "nextActions", "keyFindings"}
    assert payload["evidence"][0].keys() == {"id", "timestamp", "type", "seq", "excerpt"}
    assert payload["span"] == {
        "fromId": said[0].id,
        "toId": said[-1].id,
        "fromSeq": 1,
        "toSeq": 24,
        "messages": 24,
    }
    assert payload.keys() == CHECKPOINT_SCHEMA["$defs"]["CheckpointPayload"]["properties"].keys()
    assert msgspec.json.decode(encoded(checkpoint), type=CheckpointPayload) == checkpoint

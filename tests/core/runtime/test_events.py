"""Events: their payloads are plain and complete, and a compaction's come in one order."""

from __future__ import annotations

from itertools import product

import msgspec
import pytest
from palimpsest.core.runtime import events
from palimpsest.core.runtime.checkpoint import checkpoint_of
from palimpsest.core.runtime.events import EVENT_TYPES, Effort, Event, context_summarized, layers_of
from palimpsest.core.runtime.flow import ORDER, Steps, compaction_events, events_before_removal
from palimpsest.core.runtime.restore import Restored
from palimpsest.core.runtime.snapshot import (
    RecoverySection,
    TranscriptSection,
    carried_counters,
    new_snapshot,
)
from palimpsest.core.view.compaction import Trigger

from tests.core.runtime.records import MASK, NEW_YEAR, compaction, entries, exchanges

CHECKPOINT = events.checkpoint_event(checkpoint_of("pre_compaction", entries(exchanges(2)), NEW_YEAR))
FLUSH = events.flush_event("## Decisions\nNone.", 5, 900, 12_000)
GUARD = events.overflow_guard("cmp_1", 900, 400, 15_000)
MEMORY = events.memory_event("cmp_1", "mem_1")
FULL = Steps(CHECKPOINT, FLUSH, GUARD, MEMORY)
EFFORT = Effort(watermark_from=b"\x01" * 32, turns=6, passes=2, run_id="run_9")
BROUGHT = new_snapshot(TranscriptSection(message_count=2))
NONE = RecoverySection()
EVERY = (
    CHECKPOINT,
    FLUSH,
    events.compaction_started(compaction()),
    context_summarized(compaction(), None, EFFORT),
    GUARD,
    events.pinned_insert(compaction(), None),
    MEMORY,
    events.compaction_completed(compaction(), None),
    events.compaction_failed("timeout", "proactive", b"\x01"),
    events.overflow_recovery_started(1, 3, 20_000),
    events.overflow_recovery_completed(1, "cmp_1", 9_000),
    events.overflow_recovery_failed(3, "context_length_exceeded"),
    events.prompt_cut(20_000, 4_000, None),
    events.session_not_continued(1),
    events.client_changed_prefix(9, 7),
    events.conversation_snapshot(new_snapshot(TranscriptSection(head="ab"))),
    events.compaction_undone(compaction(), None),
    events.state_delta_invalid("cmp_1", ["not_json"]),
    events.spending_limit(1.5, 1.0, "usd"),
    events.session_restored(
        Restored("snapshot_legacy", BROUGHT, "e1"), "e1", carried_counters(BROUGHT, 0, NONE)
    ),
    events.context_recalled(events.Recalled("context_grep", "gate\ud800", 3, 9), "model", "tour", True, "s1"),
)


def test_every_type_has_a_builder_and_every_payload_is_plain_json() -> None:
    assert tuple(event.type for event in EVERY) == EVENT_TYPES
    for kind, payload in EVERY:
        assert isinstance(payload, dict), kind
        assert msgspec.json.decode(msgspec.json.encode(payload)) == payload


def test_a_summary_is_an_event_with_counts_and_tokens() -> None:
    previous = compaction(id="cmp_0", messages_folded=15)
    payload = context_summarized(compaction(), previous, EFFORT).payload
    assert payload["title"] == "Session context compacted"
    assert payload["summary"] == compaction().summary
    assert (payload["removedCount"], payload["foldedCount"]) == (25, 40)
    assert (payload["tokensBefore"], payload["tokensAfter"]) == (820_000, 400_000)
    assert payload["tokensFreed"] == 420_000
    assert payload["proactive"] is True


@pytest.mark.spec("E11")
def test_the_same_event_is_the_complete_log_entry() -> None:
    payload = context_summarized(compaction(masks=(MASK,)), None, EFFORT).payload
    told = {
        "trigger": "proactive",
        "reason": "820000 / 1000000 at 0.8",
        "watermarkFrom": "01" * 32,
        "watermarkTo": "02" * 32,
        "turnsSummarised": 6,
        "passes": 2,
        "tokensBefore": 820_000,
        "tokensAfter": 400_000,
        "layersApplied": ["tool_thinning", "summarisation"],
        "summarizerRunId": "run_9",
        "model": "m-1",
        "author": "model",
    }
    assert {key: payload[key] for key in told} == told
    assert payload.keys() >= {"summary", "removedCount", "proactive", "title"}


@pytest.mark.spec("E11")
def test_layers_are_what_this_compaction_added() -> None:
    before = compaction(masks=(MASK,))
    assert layers_of(compaction(masks=(MASK,)), before, Effort()) == ("summarisation",)
    masks_only = compaction(kind="tool_truncation_only", masks=(MASK,))
    assert layers_of(masks_only, None, Effort()) == ("tool_thinning",)
    assert layers_of(before, None, Effort(strips_reasoning=True)) == (
        "reasoning_strip",
        "tool_thinning",
        "summarisation",
    )


@pytest.mark.spec("A26")
@pytest.mark.parametrize(
    ("trigger", "proactive"),
    [("proactive", True), ("background", True), ("manual", True), ("reactive", False), ("overflow", False)],
)
def test_the_label_follows_the_trigger(trigger: Trigger, proactive: bool) -> None:
    flow = compaction_events(compaction(trigger=trigger), None, FULL, EFFORT)
    labels = [event.payload["proactive"] for event in flow if "proactive" in event.payload]
    assert labels == [proactive, proactive]


def test_the_whole_flow_is_in_order() -> None:
    types = tuple(event.type for event in compaction_events(compaction(), None, FULL, EFFORT))
    assert types == ORDER
    assert types == (
        "checkpoint",
        "flush",
        "compaction_started",
        "context_summarized",
        "overflow_guard",
        "pinned_insert",
        "memory",
        "compaction_completed",
    )


def test_whatever_is_left_out_the_order_stays() -> None:
    for flush, guard, memory in product((None, FLUSH), (None, GUARD), (None, MEMORY)):
        flow = compaction_events(compaction(), None, Steps(CHECKPOINT, flush, guard, memory), EFFORT)
        places = [ORDER.index(event.type) for event in flow]
        assert places == sorted(places)
        assert len(flow) == 5 + sum(each is not None for each in (flush, guard, memory))


def test_masks_alone_have_no_summary_and_need_no_checkpoint() -> None:
    masks = compaction(kind="tool_truncation_only", masks=(MASK,), summary="", author="none", model=None)
    types = [event.type for event in compaction_events(masks, None, Steps(), Effort())]
    assert types == ["compaction_started", "compaction_completed"]


def test_no_messages_are_removed_without_a_checkpoint_before() -> None:
    with pytest.raises(ValueError, match="A36"):
        compaction_events(compaction(), None, Steps(flush=FLUSH), EFFORT)
    before = events_before_removal(compaction_events(compaction(), None, FULL, EFFORT))
    assert [event.type for event in before] == ["checkpoint", "flush", "compaction_started"]


def test_an_event_in_the_place_of_another_is_refused() -> None:
    with pytest.raises(ValueError, match="memory in the place of flush"):
        compaction_events(compaction(), None, Steps(CHECKPOINT, flush=MEMORY), EFFORT)


def test_the_block_replaces_the_earlier_one() -> None:
    inserted = events.pinned_insert(compaction(), compaction(id="cmp_0"))
    assert inserted == Event("pinned_insert", {"compactionId": "cmp_1", "replaces": "cmp_0"})
    assert events.pinned_insert(compaction(), compaction(summary="")).payload["replaces"] is None

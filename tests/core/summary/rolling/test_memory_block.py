"""The memory block: when it folds, what remains, what is injected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.summary.acceptance import SummaryReply
from app.core.summary.rolling.memory_block import (
    MemoryBlock,
    MemoryFold,
    MemoryRules,
    accepted_fold,
    encoded_memory,
    fold_of,
    fold_request,
    folded,
    folded_by_code,
    memory_of,
    memory_text,
    with_entry,
)
from app.errors import SummaryRejected
from tests.core.summary.talk import count

RULES = MemoryRules()
SUMMARY = "The user lives in Lisbon, likes teal and deploys on Fridays only; the rest is settled."


def filled(entries: int, summary: str = "") -> MemoryBlock:
    block = MemoryBlock(summary)
    for number in range(1, entries + 1):
        block = with_entry(block, f"entry {number}: the user said something worth keeping for long")
    return block


def due(entries: int, summary: str = "") -> MemoryFold:
    fold = fold_of(filled(entries, summary), RULES)
    assert fold is not None
    return fold


def test_at_fourteen_nothing_is_folded_and_at_fifteen_the_oldest_ten() -> None:
    assert fold_of(filled(14), RULES) is None
    block = filled(15)
    fold = due(15)
    assert fold.entries == block.entries[:10]
    after = folded(block, fold, SUMMARY)
    assert after == MemoryBlock(SUMMARY, block.entries[10:])
    assert len(after.entries) == 5
    assert fold_of(after, RULES) is None


def test_the_request_holds_the_summary_so_far_and_the_ten_entries() -> None:
    request = fold_request(due(15, "what was before"), 8_000, 500, count)
    assert "<previous-memory-summary>\nwhat was before\n<" in request.user
    assert "[1] entry 1:" in request.user
    assert "[10] entry 10:" in request.user
    assert "entry 11" not in request.user
    assert request.max_tokens == 500


def test_summary_and_remaining_entries_are_both_injected() -> None:
    text = memory_text(folded(filled(15), due(15), SUMMARY))
    assert text.startswith(SUMMARY)
    assert [f"- entry {n}:" in text for n in (10, 11, 15)] == [False, True, True]
    assert memory_text(MemoryBlock()) == ""


def test_entries_added_meanwhile_stay_and_a_stale_fold_changes_nothing() -> None:
    fold = due(15)
    assert len(folded(with_entry(filled(15), "late"), fold, SUMMARY).entries) == 6
    once = folded(filled(15), fold, SUMMARY)
    assert folded(once, fold, "again") == once
    assert folded(filled(15), fold, "  ") == filled(15)
    assert folded(filled(15, "another"), fold, SUMMARY) == filled(15, "another")
    other = MemoryBlock("", filled(16).entries[1:])
    assert folded(other, fold, SUMMARY) == other


def test_an_answer_is_judged_like_any_summary() -> None:
    fold = due(15)
    request = fold_request(fold, 8_000, 500, count)
    assert accepted_fold(SummaryReply(SUMMARY, "stop"), request, fold, count) == SUMMARY
    for answer in (
        SummaryReply(SUMMARY, "length"),
        SummaryReply("", "stop"),
        SummaryReply("x " * 900, "stop"),
    ):
        with pytest.raises(SummaryRejected):
            accepted_fold(answer, request, fold, count)


def test_without_a_model_each_entry_leaves_a_line_and_the_oldest_go_first() -> None:
    text = folded_by_code(due(15, "before"), 400, count)
    assert text.split("\n")[0] == "before"
    assert text.count("\n- entry ") == 10
    small = folded_by_code(due(15, "before"), 60, count)
    assert count(small) <= 60
    assert "entry 10:" in small
    assert "entry 1:" not in small


def test_numbers_are_settings() -> None:
    rules = MemoryRules(trigger=3, fold=2)
    assert fold_of(filled(2), rules) is None
    fold = fold_of(filled(3), rules)
    assert fold is not None
    assert len(fold.entries) == 2


def test_secrets_and_tags_stay_out_and_what_says_nothing_is_no_entry() -> None:
    secret = "sk-" + "Ab1" * 8
    block = with_entry(filled(14), f"the key is {secret} </memory-entries>")
    fold = MemoryFold("", block.entries)
    assert secret not in fold_request(fold, 8_000, 500, count).user
    assert fold_request(fold, 8_000, 500, count).user.count("</memory-entries>") == 1
    assert secret not in memory_text(block)
    assert secret not in folded_by_code(fold, 500, count)
    assert with_entry(block, " \n") == block


def test_a_request_fits_a_small_window() -> None:
    fold = MemoryFold("word " * 3_000, tuple("word " * 2_000 for _ in range(10)))
    request = fold_request(fold, 2_000, 300, count)
    assert count(request.system) + count(request.user) + 300 <= 2_000


@given(st.lists(st.text(max_size=50), max_size=20), st.text(max_size=50))
def test_the_bytes_give_the_block_back(entries: list[str], summary: str) -> None:
    block = MemoryBlock(summary)
    for entry in entries:
        block = with_entry(block, entry)
    assert memory_of(encoded_memory(block)) == block


@pytest.mark.parametrize("damaged", [b"", b"{", b"[]", b'{"entries":5}', b'{"version":9}', b"\xff"])
def test_damaged_bytes_are_an_empty_block(damaged: bytes) -> None:
    assert memory_of(damaged) == MemoryBlock()

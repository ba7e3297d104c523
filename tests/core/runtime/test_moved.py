"""Compactions on their way to another archive: named by place there, and by their chains here."""

from __future__ import annotations

from dataclasses import replace

import pytest
from palimpsest.core.runtime.session_import import exported_compaction, imported_compaction
from palimpsest.core.view.compaction import Mask, context_id

from tests.core.histories import conversation, user
from tests.core.runtime.records import compaction, exchanges

TALK = conversation(exchanges(6))
THERE = replace(TALK, chains=tuple(bytes(reversed(chain)) for chain in TALK.chains))
NAMES = {context_id(here): context_id(there) for here, there in zip(TALK.chains, THERE.chains, strict=True)}
RECORD = compaction(
    watermark=TALK.chains[7],
    kept=(TALK.chains[0], TALK.chains[3]),
    masks=(Mask(TALK.chains[9], 600),),
    summary=f"Half \ud800 a pair; see {context_id(TALK.chains[2])} and dcm_{'0' * 32}.",
    state=f'{{"from":"{context_id(TALK.chains[5])}"}}'.encode(),
    parents=("cmp_0",),
)


def test_a_compaction_folds_the_same_messages_there_and_names_them_rightly() -> None:
    record = exported_compaction(RECORD, TALK)
    assert record is not None
    assert imported_compaction(record, TALK, {}) == RECORD
    assert imported_compaction(record, THERE, NAMES) == replace(
        RECORD,
        watermark=THERE.chains[7],
        kept=(THERE.chains[0], THERE.chains[3]),
        masks=(Mask(THERE.chains[9], 600),),
        summary=f"Half \ud800 a pair; see {context_id(THERE.chains[2])} and dcm_{'0' * 32}.",
        state=f'{{"from":"{context_id(THERE.chains[5])}"}}'.encode(),
    )


def test_what_is_not_of_the_conversation_does_not_go() -> None:
    assert exported_compaction(RECORD, conversation([user("Elsewhere.")])) is None
    record = exported_compaction(RECORD, TALK)
    assert record is not None
    assert imported_compaction(record, conversation(exchanges(2)), {}) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"watermark":7', b'"watermark":-2'),
        (b'"watermark":7', b'"watermark":"7"'),
        (b'"kept":[0', b'"kept":[null'),
        (b'"kept":[0,3]', b'"kept":5'),
        (b'"limit_chars"', b'"limit"'),
        (b'"kind":"message_removal"', b'"kind":"other"'),
        (b'"state":"', b'"state":0,"s":"'),
        (b'"details":"{', b'"details":"[{'),
        (b'"tokens_before":', b'"tokens_before":9999999999'),
        (b'"limit_chars":', b'"limit_chars":9999999999'),
        (b"{", b"["),
        (b"cmp_1", b"\xff"),
    ],
)
def test_a_damaged_record_is_none(old: bytes, new: bytes) -> None:
    record = exported_compaction(RECORD, TALK)
    assert record is not None
    assert old in record
    assert imported_compaction(record.replace(old, new, 1), TALK, {}) is None

"""Evidence: every excerpt stands in the message it cites, and nothing secret in any excerpt."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.runtime.checkpoint import checkpoint_of
from palimpsest.core.runtime.evidence import EXCERPT_CHARS, SPANS, ArchivedMessage, evidence_of, span_hash
from palimpsest.core.text.secrets import without_secrets

from tests.core.histories import assistant, result, user
from tests.core.runtime.records import entries

SECRET = "sk-" + "Ab1" * 7
PIECES = st.sampled_from(
    [
        "We decided to use PostgreSQL 16. ",
        f"The key is {SECRET}, keep it. ",
        "password=hunter2hunter2 ",
        "a" * 700,
        "QUJDRGVm" * 60 + " ",
        "```\ncode = [1, 2]\n```\n",
        "\x00",
        "\ud800",
        "[secret removed]",
        "[base64 data, 480 characters]",
        "\n\n  ",
        "漢字仮名 ",
    ]
)
TEXTS = st.lists(st.one_of(PIECES, st.text(max_size=80)), max_size=8).map("".join)
PARTS = st.lists(TEXTS.map(lambda text: {"type": "text", "text": text}), min_size=1, max_size=3)
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
MESSAGES = st.one_of(
    st.builds(user, TEXTS),
    st.builds(assistant, TEXTS),
    st.builds(result, st.just("call_1"), TEXTS),
    st.builds(lambda parts: {"role": "user", "content": [*parts, IMAGE]}, PARTS),
)


@pytest.mark.spec("A39")
@given(st.lists(MESSAGES, min_size=1, max_size=20))
def test_every_span_is_a_substring_of_the_stored_message_it_cites(fields: list[dict[str, Any]]) -> None:
    said = entries(fields)
    by_id = {entry.id: entry for entry in said}
    spans = evidence_of(said)
    assert len(spans) <= SPANS
    for span in spans:
        entry = by_id[span.id]
        assert span.excerpt.strip()
        assert len(span.excerpt) <= EXCERPT_CHARS
        assert any(span.excerpt in text for text in _strings(entry.message.fields["content"]))
        assert (span.seq, span.timestamp, span.type) == (entry.seq, entry.milliseconds, entry.type)
        assert SECRET not in span.excerpt
        assert without_secrets(span.excerpt) == span.excerpt
    assert [span.seq for span in spans] == sorted({span.seq for span in spans})


@pytest.mark.spec("A39")
@given(st.lists(MESSAGES, min_size=1, max_size=20))
def test_whatever_was_said_the_checkpoint_can_be_written(fields: list[dict[str, Any]]) -> None:
    said = entries(fields)
    body = msgspec.json.encode(checkpoint_of("periodic", said, said[-1].at))
    value = msgspec.json.decode(body)
    assert (value["schema"], value["version"]) == ("session_checkpoint_v2", 2)
    assert b"\\u0000" not in body
    assert SECRET.encode() not in body


def test_the_first_request_and_the_newest_text_are_always_cited() -> None:
    loud = [assistant(f"We decided that port {5000 + n} must never be used.") for n in range(30)]
    said = entries([user("please begin"), *loud, assistant("well then")])
    excerpts = [span.excerpt for span in evidence_of(said)]
    assert len(excerpts) == SPANS
    assert (excerpts[0], excerpts[-1]) == ("please begin", "well then")


def test_of_a_long_text_the_part_that_says_most_is_cited() -> None:
    text = "Some talk about nothing. " * 200 + "We decided to use port 5432 always. " + "More talk. " * 200
    (span,) = evidence_of(entries([assistant(text)]))
    assert span.excerpt.startswith("We decided to use port 5432 always.")
    assert len(span.excerpt) >= EXCERPT_CHARS - 1


def test_a_secret_cut_in_two_at_the_edge_of_what_is_read_is_not_cited() -> None:
    end = f" {SECRET} We decided that it must always be sk-"
    text = "x" * (100_000 - len(end) - 8) + end + "Ab1" * 7
    assert text[:100_000].endswith(" sk-Ab1Ab1Ab")
    assert all("sk-A" not in span.excerpt for span in evidence_of(entries([user(text)])))


def test_a_word_that_looks_like_a_secret_when_cut_is_not_cited() -> None:
    end = "sk-" + "1" * 30 + " it was.\nWe decided that it must always be port 5432."
    whole = evidence_of(entries([user("x" * (EXCERPT_CHARS - len(end)) + end)]))
    assert whole[0].excerpt.endswith(end)
    assert evidence_of(entries([user("x" * 40 + end + " " * (EXCERPT_CHARS - len(end)))])) == ()


@pytest.mark.spec("A37")
def test_the_hash_is_of_id_time_type_and_excerpt() -> None:
    said = entries([user("one"), assistant("two")])
    spans = evidence_of(said)
    assert span_hash(spans) == span_hash(evidence_of(entries([user("one"), assistant("two")])))
    later = [ArchivedMessage(e.chain, e.message, e.seq, e.at + 1) for e in said]
    changed = [
        msgspec.structs.replace(spans[0], id="other"),
        msgspec.structs.replace(spans[0], type="tool_result"),
        msgspec.structs.replace(spans[0], excerpt="One"),
    ]
    others = [span_hash(evidence_of(later)), *(span_hash((each, spans[1])) for each in changed)]
    assert len({span_hash(spans), *others}) == 5


def _strings(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    for part in content if isinstance(content, list) else ():
        if part["type"] == "text":
            yield part["text"]

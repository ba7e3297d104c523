from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.history.message import Message, conversation_of, seed_of
from palimpsest.core.history.read import read_message

ROLES = st.sampled_from(["system", "developer", "user", "assistant", "tool"])
MESSAGES = st.builds(
    lambda role, content: read_message(
        json.dumps({"role": role, "content": content}).encode(), lambda fields: 1
    ),
    ROLES,
    st.sampled_from(["a", "b", "yes"]),
)
LISTS = st.lists(MESSAGES, max_size=6)
SEED = seed_of("here")


@given(LISTS, LISTS)
def test_what_follows_does_not_change_the_digests_before(first: list[Message], second: list[Message]) -> None:
    alone, together = conversation_of(first, SEED), conversation_of(first + second, SEED)
    assert together.chains[: len(alone.chains)] == alone.chains


@given(LISTS)
def test_leading_instructions_stand_apart(messages: list[Message]) -> None:
    conversation = conversation_of(messages, SEED)
    assert [*conversation.preamble, *conversation.messages] == messages
    assert all(message.is_instruction for message in conversation.preamble)
    assert not (conversation.messages and conversation.messages[0].is_instruction)
    assert len(conversation.chains) == len(conversation.messages)


@given(LISTS, st.text(max_size=5), st.text(max_size=5))
def test_two_namespaces_share_no_digest(messages: list[Message], one: str, other: str) -> None:
    first, second = conversation_of(messages, seed_of(one)), conversation_of(messages, seed_of(other))
    assert (seed_of(one) == seed_of(other)) is (one == other)
    if one != other:
        assert not set(first.chains) & set(second.chains)

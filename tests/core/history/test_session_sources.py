from __future__ import annotations

from typing import Any

import pytest
from palimpsest.core.history.session_sources import SessionName, SessionSources, session_name_of
from palimpsest.errors import InvalidField

CARRIERS = SessionSources(
    headers=("x-session-id", "helicone-session-id", "x-*-session-id", "x-session-affinity"),
    codex_headers=("session-id",),
    body_keys=("litellm_session_id",),
    metadata_keys=("session_id", "thread_id"),
)


def named(
    *headers: tuple[str, str], path: str | None = None, body: dict[str, Any] | None = None
) -> SessionName | None:
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    return session_name_of(raw, path, body or {}, CARRIERS)


@pytest.mark.spec("W26")
def test_headers_count_in_the_configured_order() -> None:
    found = named(("x-acme-session-id", "a"), ("x-session-affinity", "s"), ("helicone-session-id", "h"))
    assert found == SessionName("h", "helicone-session-id", may_append=False)


@pytest.mark.spec("W26")
def test_a_pattern_finds_other_vendors_headers() -> None:
    found = named(("x-session-affinity", "s"), ("x-acme-session-id", "a"))
    assert found == SessionName("a", "x-acme-session-id", may_append=False)


@pytest.mark.spec("W24")
def test_codex_headers_count_for_codex_only() -> None:
    assert named(("session-id", "s")) is None
    found = named(("session-id", "s"), ("user-agent", "codex_cli_rs/1.0"))
    assert found == SessionName("s", "session-id", may_append=False)


@pytest.mark.spec("W26")
def test_the_body_comes_last() -> None:
    body = {"litellm_session_id": "l", "metadata": {"session_id": "m"}}
    assert named(body=body) == SessionName("l", "litellm_session_id", may_append=False)
    assert named(body={"metadata": {"thread_id": "t"}}) == SessionName(
        "t", "metadata.thread_id", may_append=False
    )
    assert named(("x-acme-session-id", "a"), body=body) == SessionName(
        "a", "x-acme-session-id", may_append=False
    )


@pytest.mark.parametrize("value", ["x" * 201, "a\x07b"])
def test_a_bad_name_of_ours_is_refused(value: str) -> None:
    with pytest.raises(InvalidField):
        named(("x-session-id", value))
    with pytest.raises(InvalidField):
        named(path=value)


@pytest.mark.parametrize("value", ["x" * 201, "a\x07b", ""])
def test_a_bad_name_of_somebody_else_is_passed_over(value: str) -> None:
    found = named(("x-acme-session-id", value), ("x-session-affinity", "s"))
    assert found == SessionName("s", "x-session-affinity", may_append=False)

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.upstream.headers import UpstreamKey, answer_headers, request_headers

ALL = {"gzip", "deflate", "br", "zstd"}


def test_everything_else_is_kept_in_order() -> None:
    sent = [
        (b"Authorization", b"Bearer k"),
        (b"X-Stainless-Lang", b"python"),
        (b"x-twice", b"1"),
        (b"X-Twice", b"\xff2"),
        (b"content-length", b"12"),
        (b"x-session-affinity", b"s"),
        (b"Cookie", b"a=b"),
    ]
    assert request_headers(sent, ALL) == sent


def test_hop_by_hop_and_what_connection_names_go() -> None:
    received = [
        (b"Host", b"localhost"),
        (b"Connection", b"keep-alive, X-Hop"),
        (b"connection", b"x-other"),
        (b"X-Hop", b"1"),
        (b"x-Other", b"1"),
        (b"Keep-Alive", b"timeout=5"),
        (b"TE", b"trailers"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Upgrade", b"h2c"),
        (b"Proxy-Authorization", b"secret"),
        (b"Expect", b"100-continue"),
        (b"x", b"1"),
    ]
    assert request_headers(received, ALL) == [(b"x", b"1")]


def test_connection_cannot_take_away_what_matters() -> None:
    received = [
        (b"Connection", b"authorization, content-length"),
        (b"Authorization", b"k"),
        (b"Content-Length", b"1"),
    ]
    assert request_headers(received, ALL) == received[1:]


@pytest.mark.parametrize(
    "name",
    [b"X-Palimpsest", b"x-palimpsest-mode", b"X-Palimpsest-Anything", b"X-Session-Id", b"x-session-mode"],
)
def test_our_own_controls_stay_here(name: bytes) -> None:
    assert request_headers([(name, b"v")], ALL) == []


@pytest.mark.parametrize(
    ("key", "header"),
    [
        (UpstreamKey("op"), (b"Authorization", b"Bearer op")),
        (UpstreamKey("op", "api-key"), (b"api-key", b"op")),
    ],
)
def test_the_operators_key_replaces_every_credential(key: UpstreamKey, header: tuple[bytes, bytes]) -> None:
    callers = [
        (b"authorization", b"Bearer c"),
        (b"API-Key", b"c"),
        (b"x-api-key", b"c"),
        (b"X-Goog-Api-Key", b"c"),
    ]
    assert request_headers([*callers, (b"x", b"1")], ALL, key) == [(b"x", b"1"), header]
    assert "op" not in repr(key).replace("scheme", "")


@pytest.mark.parametrize(
    ("asked", "decodable", "told"),
    [
        (b"gzip, deflate, br, zstd", ALL, b"gzip, deflate, br, zstd"),
        (b"gzip,br;q=0.5,  zstd", ALL, b"gzip,br;q=0.5,  zstd"),
        (b"gzip, br;q=0.9, dcb, zstd", {"gzip", "deflate"}, b"gzip"),
        (b"br", {"gzip"}, b"identity"),
        (b"dcz, identity;q=0", ALL, b"identity;q=0"),
        (b"*", {"gzip", "br"}, b"br, gzip"),
        (b"*;q=0.1", {"gzip", "br"}, b"br, gzip"),
        (b"*;q=0", ALL, b"identity"),
        (b"snappy, *; q=0.000", ALL, b"identity"),
        (b"gzip;q=1.0, *;q=0.5", ALL, b"gzip;q=1.0"),
        (b"GZip", ALL, b"GZip"),
        (b"", ALL, b"identity"),
    ],
)
def test_accept_encoding_is_narrowed(asked: bytes, decodable: set[str], told: bytes) -> None:
    assert request_headers([(b"Accept-Encoding", asked)], decodable) == [(b"Accept-Encoding", told)]


def test_an_absent_accept_encoding_stays_absent() -> None:
    assert request_headers([], ALL) == []


ANSWER = [
    (b"Date", b"now"),
    (b"Content-Length", b"5"),
    (b"Content-Encoding", b"gzip"),
    (b"Set-Cookie", b"a"),
    (b"Set-Cookie", b"b"),
    (b"Retry-After", b"3"),
    (b"x-ratelimit-remaining-tokens", b"9"),
    (b"openai-processing-ms", b"7"),
]


def test_answers_are_relayed_but_for_the_hop() -> None:
    hop = [(b"Connection", b"close, x-hop"), (b"X-Hop", b"1"), (b"Transfer-Encoding", b"chunked")]
    assert answer_headers([*hop, *ANSWER]) == ANSWER
    assert answer_headers(ANSWER, "replaced") == [ANSWER[0], *ANSWER[3:]]
    assert answer_headers(ANSWER, "decoded") == [ANSWER[0], *ANSWER[3:]]


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=12), st.binary(max_size=12)), max_size=8))
def test_nothing_is_invented_and_order_is_kept(received: list[tuple[bytes, bytes]]) -> None:
    rest = iter(received)
    for name, value in request_headers(received, ALL):
        assert any(name == n and (value == v or n.lower() == b"accept-encoding") for n, v in rest)
    rest = iter(received)
    for name, value in answer_headers(received):
        assert any(name == n and value == spaced(v) for n, v in rest)


def spaced(value: bytes) -> bytes:
    """A value without what may not stand in one."""
    return bytes(32 if byte == 127 or (byte < 32 and byte != 9) else byte for byte in value)

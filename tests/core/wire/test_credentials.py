"""What counts as a credential, by its name and place."""

from __future__ import annotations

import pytest
from palimpsest.core.wire.credentials import FIRST_HEADERS, USUAL_NAMES, CredentialNames

pytestmark = pytest.mark.spec("H03")


@pytest.mark.parametrize(
    "name",
    [
        *FIRST_HEADERS,
        "Ocp-Apim-Subscription-Key", "x-portkey-api-key", "x-portkey-config", "cf-aig-authorization",
        "X-Auth-Token", "Helicone-Auth", "x-bf-vk", "cf-access-client-id",
        # Nobody has heard of these.
        "x-acme-key", "x-acme-token", "acme-secret", "x-acmeapikey", "x-password", "x-acme-jwt", "x_api_key",
        "x-acme-accesstoken", "x-authorisation", "x-acme-credential-2",
    ],
)  # fmt: skip
def test_headers_that_count(name: str) -> None:
    assert USUAL_NAMES.counts(name, "header")


@pytest.mark.parametrize(
    "name",
    [
        "idempotency-key", "x-idempotency-key", "sec-websocket-key", "x-csrf-token", "x-xsrf-token",
        "x-request-id", "traceparent", "x-amz-date", "x-session-id", "session-id", "x-session-affinity",
        "x-session-mode", "x-stainless-retry-count", "openai-organization", "user-agent", "x-author",
        "x-max-tokens", "x-keyboard", "proxy-authorization", "x-auth-nonce", "x-auth-timestamp", "cookie",
        "x-portkey-trace-id", "x-prompt-cache-key", "content-type", "x-monkeys",
    ],
)  # fmt: skip
def test_headers_that_do_not(name: str) -> None:
    assert not USUAL_NAMES.counts(name, "header")


def test_cookies_count_by_their_own_names() -> None:
    for name in (
        "session",
        "sessionid",
        "connect.sid",
        "PHPSESSID",
        "token",
        "_oauth2_proxy",
        "jwt",
        "auth_key",
    ):
        assert USUAL_NAMES.counts(name, "cookie")
    for name in ("__cf_bm", "AWSALB", "csrftoken", "_xsrf", "_ga", "theme", "next-auth.csrf-token"):
        assert not USUAL_NAMES.counts(name, "cookie")


def test_fields_of_a_query_count_however_they_are_spelled() -> None:
    for name in ("key", "api_key", "api-key", "API_KEY", "subscription-key", "access_token", "acme-secret"):
        assert USUAL_NAMES.counts(name, "query")
    for name in ("api-version", "page_token", "pageToken", "limit", "after", "next_token", "order"):
        assert not USUAL_NAMES.counts(name, "query")
    assert USUAL_NAMES.further([], "/x?%6bey=1") == ["query:key", "1"]


def test_what_is_further_does_not_depend_on_order_and_tells_places_apart() -> None:
    one = [(b"x-token", b"a"), (b"cookie", b"theme=dark; session=s; __cf_bm=1"), (b"authorization", b"z")]
    assert USUAL_NAMES.further(one, "/m?key=k&n=1") == USUAL_NAMES.further(one[::-1], "/m?n=2&key=k")
    assert USUAL_NAMES.further(one, "/m?key=k") == [
        "cookie:session", "s", "header:x-token", "a", "query:key", "k",
    ]  # fmt: skip
    assert USUAL_NAMES.further([(b"authorization", b"z"), (b"x-request-id", b"1")], "/m?n=1") == []
    assert USUAL_NAMES.further([(b"x-token", b"a"), (b"x-token", b"b")], "") == [
        "header:x-token", "a", "header:x-token", "b",
    ]  # fmt: skip


def test_an_operator_may_add_names_and_take_some_out() -> None:
    names = CredentialNames(("x-badge", "cookie"), ("who",), ("x-acme-token",))
    assert names.counts("x-badge", "header")
    assert names.counts("who", "query")
    assert not names.counts("x-acme-token", "header")
    assert not names.counts("x-bf-vk", "header")
    assert all(names.counts(name, "header") for name in FIRST_HEADERS)
    assert names.further([(b"cookie", b"theme=dark")], "") == ["header:cookie", "theme=dark"]
    assert names.without([(b"cookie", b"theme=dark")]) == []

"""Which strings are secrets, and which only look alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.text.secrets import REMOVED, without_secrets

A20 = "Ab1" * 7
SECRETS = [
    "sk-" + A20,
    "sk-proj-" + A20,
    "sk-ant-api03-" + A20,
    "sk_live_" + A20,
    "ghp_" + A20 * 2,
    "github_pat_" + A20 * 2,
    "glpat-" + A20,
    "AKIA" + "ABCD1234EFGH5678",
    "AIza" + A20 * 2,
    "xoxb-1234567890-abcdefghij",
    "hf_" + A20,
    "SG." + A20 + "." + A20,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\nabcdef==\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\nnever ends",
]
HARMLESS = [
    "550e8400-e29b-41d4-a716-446655440000",
    "9fceb02d0ae598e95dc970b74767f19372d61af8",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "/usr/lib/python3.11/site-packages/sk_learn/token_store.py",
    "order #4815162342, tracking 1Z999AA10123456784",
    "https://api.example.com/v1/models?limit=20",
    "https://example.com:8443/a@b",
    "task-management-application-of-the-team",
    "max_tokens=4096, total_tokens: 128000, token: string",
    "api_key=os.environ['OPENAI_API_KEY']",
    "password: ${DB_PASSWORD}",
    'the key is "name" and the secret of success is patience',
    "the bearer of this letter arrived on 1234567890",
    "dcm_0123456789abcdef0123456789abcdef",
    "HAT028 JG7FMM credit_card_2929732 gift_card_3481935",
    "-----BEGIN CERTIFICATE-----",
]


@pytest.mark.spec("A17")
@pytest.mark.parametrize("secret", SECRETS)
def test_key_shaped_strings_go(secret: str) -> None:
    shown = without_secrets(f"I set it to {secret} and it worked")
    assert secret not in shown
    assert REMOVED in shown
    assert shown.startswith("I set it to ")


@pytest.mark.spec("A17")
@pytest.mark.parametrize(
    ("text", "gone", "left"),
    [
        ("password=hunter2!", "hunter2!", "password="),
        ('{"password": "correct horse"}', '"correct', '"password": '),
        ('{\\"client_secret\\": \\"abcdefgh\\"}', "abcdefgh", "client_secret"),
        ("Authorization: Bearer abcdefgh12345678", "abcdefgh12345678", "Authorization: Bearer "),
        ("authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz", "Basic "),
        ("postgres://app:s3cr3t@db.internal:5432/x", "s3cr3t", "@db.internal:5432/x"),
        ("The password is now hunter22, ok?", "hunter22", "The password is now "),
        (
            "export AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY",
            "wJalr",
            "AWS_SECRET_ACCESS_KEY=",
        ),
        ("access_token: 'a1b2c3d4e5'", "a1b2c3d4e5", "access_token: "),
    ],
)
def test_named_values_go_and_their_names_stay(text: str, gone: str, left: str) -> None:
    shown = without_secrets(text)
    assert gone not in shown
    assert left in shown


@pytest.mark.parametrize("text", HARMLESS)
def test_ids_hashes_paths_and_placeholders_stay(text: str) -> None:
    assert without_secrets(text) == text


@given(st.lists(st.sampled_from([*SECRETS, *HARMLESS, "password=hunter22x", " ", "\n", "and"])))
def test_removing_twice_changes_nothing(parts: list[str]) -> None:
    once = without_secrets(" ".join(parts))
    assert without_secrets(once) == once

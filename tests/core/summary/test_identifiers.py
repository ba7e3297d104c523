"""What an identifier is, and which of them are worth a token."""

from __future__ import annotations

import pytest

from app.core.summary.carry.identifiers import Sighting, identifiers_in, kind_of, ranked


@pytest.mark.parametrize(
    ("run", "kind"),
    [
        ("https://api.test/v1?x=1", "url"),
        ("ana@crew.test", "email"),
        ("550e8400-e29b-41d4-a716-446655440000", "uuid"),
        ("src/app/main.py", "path"),
        ("/etc/nginx/nginx.conf", "path"),
        ("../lib/x.so", "path"),
        ("setup.cfg", "file"),
        ("9fceb02d0ae598e95dc970b74767f19372d61af8", "id"),
        ("credit_card_2929732", "id"),
        ("OPS-48213", "id"),
        ("JG7FMM", "id"),
        ("10.0.0.4:8443", "address"),
        ("2024-05-21", "date"),
        ("$1,250.50", "number"),
        ("54329", "number"),
        ("40%", "number"),
        ("MAX_RETRIES", "code"),
        ("x1", "short"),
        ("/div", "short"),
        ("hello", None),
        ("and/or", None),
        ("e.g", None),
        ("example.com", None),
        ("10:30", None),
        ("7", None),
    ],
)
def test_kinds(run: str, kind: str | None) -> None:
    assert kind_of(run) == kind


def test_identifiers_are_found_in_prose_json_and_assignments() -> None:
    text = 'See (src/a.py), "id": "QX7-99", port=54329, url: https://x.test/y. Total $1,250,000!'
    assert [name for name, _ in identifiers_in(text, {})] == [
        "src/a.py",
        "QX7-99",
        "54329",
        "https://x.test/y",
        "$1,250,000",
    ]


def sighting(text: str, **facts: object) -> Sighting:
    known: dict[str, object] = {
        "kind": "id",
        "origin": "",
        "last": 5,
        "mentions": 1,
        "weight": 1.0,
        "roles": frozenset({"tool"}),
    }
    return Sighting(text=text, **{**known, **facts})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (sighting("AB-123", mentions=4), sighting("AB-124")),
        (sighting("AB-123", last=9), sighting("AB-124", last=0)),
        (sighting("AB-123", weight=2.0), sighting("AB-124")),
        (sighting("AB-123", roles=frozenset({"tool", "user"})), sighting("AB-124")),
        (sighting("AB-123"), sighting("AB-123-and-so-on-and-on")),
        (sighting("AB-123"), sighting("123456", kind="number")),
    ],
)
def test_what_is_used_new_told_or_cheap_comes_first(better: Sighting, worse: Sighting) -> None:
    assert ranked([worse, better], 10) == [better, worse]

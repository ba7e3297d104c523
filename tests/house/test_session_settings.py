"""The settings of one session: merged, checked as a whole, and refused with the field named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from palimpsest.core.presets import PRESETS
from palimpsest.errors import InvalidParameter
from palimpsest.settings.session import patched, session_policy
from palimpsest.settings.settings import Settings

DEPLOYMENT = Settings()


def _patched(*patches: dict[str, Any]) -> bytes | None:
    stored: bytes | None = None
    for patch in patches:
        stored = patched(stored, patch, DEPLOYMENT)
    return stored


def test_patches_are_merged_and_null_removes() -> None:
    stored = _patched(
        {"policy": {"name": "rolling", "tail_messages": 9}},
        {"policy": {"tail_messages": None, "wait_for_summary": True}},
    )
    assert stored is not None
    assert json.loads(stored) == {"policy": {"name": "rolling", "wait_for_summary": True}}
    assert _patched({"policy": {"wait_for_summary": True}}, {"policy": {"wait_for_summary": None}}) is None
    assert _patched({"policy": {"wait_for_summary": True}}, {"policy": None}) is None


@pytest.mark.spec("A42")
@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ({"policy": {"trigger_ratio": 2}}, "policy.trigger_ratio"),
        ({"policy": {"name": "other"}}, "policy.name"),
        ({"policy": {"colour": 1}}, "policy.colour"),
        ({"other": 1}, "other"),
        ({"policy": {"target_ratio": 0.9}}, "policy.target_ratio"),
        ({"policy": {"advanced": {"summary_role": "system"}}}, "policy.advanced.summary_role"),
        (
            {
                "policy": {
                    "name": "rolling",
                    "advanced": {"summary_role": "system"},
                    "strict_alternation": True,
                }
            },
            "policy.advanced.summary_role",
        ),
        ({"policy": 3}, "policy"),
    ],
)
def test_what_cannot_be_is_refused_by_name(patch: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        patched(None, patch, DEPLOYMENT)
    assert refused.value.param == field
    assert refused.value.status == 400


def test_a_removed_setting_is_refused_and_says_what_does_its_work() -> None:
    with pytest.raises(InvalidParameter) as refused:
        _patched({"policy": {"holdout": 0.1}})
    assert "policy.holdout was removed: all sessions have the policy" in str(refused.value)


def test_a_removed_setting_that_was_stored_costs_no_other_one() -> None:
    stored = b'{"policy":{"name":"worker","holdout":0.1}}'
    assert session_policy(DEPLOYMENT, "m", stored) == PRESETS["worker"]
    again = patched(stored, {"policy": {"wait_for_summary": True}}, DEPLOYMENT)
    assert again is not None
    assert json.loads(again) == {"policy": {"name": "worker", "wait_for_summary": True}}


def test_the_policy_of_a_session() -> None:
    assert session_policy(DEPLOYMENT, "m", None) == PRESETS["auto"]
    assert session_policy(DEPLOYMENT, "m", _patched({"policy": {"name": "worker"}})) == PRESETS["worker"]


def test_what_an_older_version_stored_and_this_one_does_not_take_counts_as_not_set() -> None:
    for stored in (
        b'{"policy":{"gone":1}}',
        b"not json",
        b'{"policy":{"trigger_ratio":0.5,"target_ratio":0.6}}',
    ):
        assert session_policy(DEPLOYMENT, "m", stored) == PRESETS["auto"]

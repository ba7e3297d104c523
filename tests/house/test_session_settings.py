"""The settings of one session: merged, checked as a whole, and refused with the field named."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from palimpsest.core.presets import PRESETS
from palimpsest.errors import InvalidParameter
from palimpsest.settings.session import origins, patched, session_policy, session_recalls
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
        _patched({"policy": {"identifier_share": 0.1}})
    assert "policy.identifier_share was removed" in str(refused.value)
    assert "policy.advanced.summary_share" in str(refused.value)


def test_a_removed_setting_that_was_stored_costs_no_other_one() -> None:
    stored = b'{"policy":{"name":"worker","identifier_share":0.1}}'
    assert session_policy(DEPLOYMENT, "m", stored) == PRESETS["worker"]
    again = patched(stored, {"policy": {"wait_for_summary": True}}, DEPLOYMENT)
    assert again is not None
    assert json.loads(again) == {"policy": {"name": "worker", "wait_for_summary": True}}


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        ({"waits": True}, "policy.waits is policy.wait_for_summary now."),
        ({"estimator": "usage"}, "policy.estimator is policy.advanced.estimator now."),
        # Who takes back what is called otherwise now would hear that it was done.
        ({"guard_ratio": None}, "policy.guard_ratio is policy.advanced.ceiling_ratio now."),
        ({"advanced": {"template": "x"}}, "policy.advanced.template is policy.advanced.worker_template now."),
    ],
)
def test_a_former_name_is_refused_with_the_one_of_today(patch: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        _patched({"policy": patch})
    assert str(refused.value) == said
    assert refused.value.param == said.split(" ", 1)[0]


def test_what_was_stored_under_former_names_goes_on_to_count() -> None:
    own = {"name": "worker", "waits": True, "estimator": "usage", "guard_ratio": 0.9}
    stored = json.dumps({"policy": own, "recall": {"tools": False}}).encode()
    policy = replace(PRESETS["worker"], wait_for_summary=True, estimator="usage", ceiling_ratio=0.9)
    assert session_policy(DEPLOYMENT, "m", stored) == policy
    assert session_recalls(stored) is False
    assert origins(DEPLOYMENT, "m", stored)["estimator"] == "session"
    again = patched(stored, {"policy": {"advanced": {"estimator": None}}}, DEPLOYMENT)
    assert again is not None
    assert json.loads(again) == {
        "policy": {"name": "worker", "wait_for_summary": True, "advanced": {"ceiling_ratio": 0.9}},
        "recall": {"tools": False},
    }


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

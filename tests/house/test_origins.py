"""Each number of a policy comes from the last layer that sets it."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from palimpsest.core.policy import Policy
from palimpsest.settings.compacting import PolicySettings
from palimpsest.settings.session import origins
from palimpsest.settings.settings import Settings
from palimpsest.settings.upstreams import ModelSettings


def _settings(deployment: dict[str, Any], model: dict[str, Any]) -> Settings:
    entry = ModelSettings(match="m*", policy=PolicySettings.model_validate(model))
    return Settings(policy=PolicySettings.model_validate(deployment), models=(entry,))


def _stored(**policy: Any) -> bytes:
    return json.dumps({"policy": policy}).encode()


def test_every_number_has_an_origin() -> None:
    assert set(origins(Settings(), "m", None)) == {field.name for field in fields(Policy)}
    assert set(origins(Settings(), "m", None).values()) == {"preset"}


def test_the_last_layer_that_sets_a_number_decides_it() -> None:
    settings = _settings(
        {"tail_messages": 3, "wait_for_summary": True, "reuse_prompt_cache": False},
        {"tail_messages": 4, "reuse_prompt_cache": True},
    )
    found = origins(settings, "model", _stored(tail_messages=5))
    assert (found["tail_messages"], found["reuse_prompt_cache"], found["wait_for_summary"]) == (
        "session",
        "model",
        "deployment",
    )
    assert (origins(settings, "other", None)["tail_messages"], found["keep_original_task"]) == (
        "deployment",
        "preset",
    )


def test_a_layer_that_names_another_preset_drops_what_was_set_before() -> None:
    settings = _settings({"tail_messages": 3}, {"name": "rolling"})
    found = origins(settings, "model", _stored(wait_for_summary=True))
    assert (found["name"], found["tail_messages"], found["wait_for_summary"]) == (
        "model",
        "preset",
        "session",
    )
    assert origins(settings, "model", _stored(name="worker", wait_for_summary=True))["name"] == "session"


def test_settings_that_are_not_taken_decide_nothing() -> None:
    for stored in (b"not json", b'{"policy":{"gone":1}}', _stored(target_ratio=0.9, wait_for_summary=True)):
        assert set(origins(Settings(), "m", stored).values()) == {"preset"}

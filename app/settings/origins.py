"""Which layer each number of a session's policy comes from.

Knows nothing of where the settings of a session are kept.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal

from app.core.view.presets import PRESETS
from app.settings.policy import PolicySettings
from app.settings.session import SessionSettings, session_policy
from app.settings.settings import Settings, model_settings, to_policy

Origin = Literal["preset", "deployment", "model", "session"]
# What a set of marks decides; the rest that a preset does not say is the mode's.
_MARKS = frozenset({"trigger_ratio", "target_ratio", "precompute_ratio"})


def origins(settings: Settings, model: str, stored: bytes | None) -> dict[str, Origin]:
    """Field of the policy -> the layer that decides it; "preset" says that nobody has set it.

    What follows from a mode or from marks comes from the layer that names those. Stored settings that are
    not taken any more decide nothing.
    """
    policy = session_policy(settings, model, stored)
    preset = PRESETS[policy.name]
    given = _given(settings, model, stored)
    found: dict[str, Origin] = {}
    for field in (one.name for one in fields(policy)):
        word = "thresholds" if field in _MARKS and "thresholds" in given else "mode"
        implied = given.get(word, "preset") if getattr(policy, field) != getattr(preset, field) else "preset"
        found[field] = given.get(field, implied)
    if settings.window.default_window_tokens is not None:
        found["assumed_window_tokens"] = "deployment"
    return found


def _given(settings: Settings, model: str, stored: bytes | None) -> dict[str, Origin]:
    """What is set -> the last layer that sets it; one that names another preset drops the layers before."""
    entry = model_settings(settings, model)
    layers: list[tuple[Origin, PolicySettings]] = [
        ("deployment", settings.policy),
        ("model", entry.policy if entry else PolicySettings()),
        ("session", _own(settings, model, stored)),
    ]
    found: dict[str, Origin] = {}
    name: Any = "auto"
    for origin, layer in layers:
        said = layer.model_dump(exclude_unset=True)
        if said.get("name", name) != name:
            name = said["name"]
            found.clear()
        found |= dict.fromkeys(said, origin)
    return found


def _own(settings: Settings, model: str, stored: bytes | None) -> PolicySettings:
    if stored is None:
        return PolicySettings()
    try:
        own = SessionSettings.model_validate_json(stored).policy
    except ValueError:
        return PolicySettings()
    is_taken = session_policy(settings, model, stored) == to_policy(settings, model, own)
    return own if is_taken else PolicySettings()

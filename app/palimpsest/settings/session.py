"""Settings of a single session: policy and recall, under the same names as in the deployment's settings.

Stored as the merged JSON that was sent, so that a preset whose numbers change with a release changes for the
sessions that name it. Removed settings are ignored where they were stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from palimpsest.core.policy import Policy
from palimpsest.errors import InvalidParameter
from palimpsest.settings.compacting import PolicySettings
from palimpsest.settings.fields import Section
from palimpsest.settings.removed import why_removed
from palimpsest.settings.settings import Origin, Settings, check_policy, chosen, policy_layers, to_policy


class SessionRecallSettings(Section):
    """Recall settings of a session; None: the deployment's."""

    enabled: bool | None = None
    tools: bool | None = None


class SessionSettings(Section):
    """The settings of one session; unset ones are the model's or the deployment's."""

    policy: PolicySettings = PolicySettings()
    recall: SessionRecallSettings = SessionRecallSettings()


def patched(
    current: bytes | None, patch: Mapping[str, Any], settings: Settings, model: str = ""
) -> bytes | None:
    """The stored settings with `patch` merged in (null removes); None when nothing is left.

    InvalidParameter names a field that is invalid by itself or together with the settings of the session, its
    `model` and the deployment.
    """
    for path in _paths(patch):
        if said := why_removed(path):
            field = ".".join(path)
            raise InvalidParameter(f"{field} {said}", param=field)
    merged = _merged(own_settings(current), patch)
    try:
        session = SessionSettings.model_validate(merged)
        check_policy(to_policy(settings, model, session.policy), "policy")
    except ValidationError as refused:
        error = refused.errors()[0]
        field = ".".join(str(part) for part in error["loc"])
        raise InvalidParameter(f"{field}: {error['msg']}.", param=field) from refused
    except ValueError as refused:
        raise InvalidParameter(f"{refused}.", param=str(refused).split(" ", 1)[0]) from refused
    return json.dumps(merged, separators=(",", ":"), sort_keys=True).encode() if merged else None


def own_settings(stored: bytes | None) -> dict[str, Any]:
    """The session's stored settings, without those that were removed since."""
    return _without_removed(json.loads(stored) if stored else {})


def session_policy(settings: Settings, model: str, stored: bytes | None) -> Policy:
    """The policy of a model in a session with these stored settings.

    Stored settings that this version no longer accepts count as not set.
    """
    own = None if stored is None else _own_policy(settings, model, stored)
    return to_policy(settings, model, own)


def session_recalls(stored: bytes | None) -> bool | None:
    """Whether a session with these settings offers the recall tools; None: as the deployment does."""
    return _own(stored).recall.tools


def recall_enabled(settings: Settings, stored: bytes | None) -> bool:
    """Whether a session with these settings has a word index and answers calls of the recall tools."""
    own = _own(stored).recall.enabled
    return settings.recall.enabled if own is None else own


def origins(settings: Settings, model: str, stored: bytes | None) -> dict[str, Origin]:
    """Each field of the policy with the layer that sets it; "preset" when no layer does.

    Stored settings that are no longer accepted are ignored.
    """
    set_by = chosen(policy_layers(settings, model, _own_policy(settings, model, stored)))
    found: dict[str, Origin] = {field.name: "preset" for field in fields(Policy)}
    found |= {key: origin for key, (_, origin) in set_by.items()}
    if settings.window.default_window_tokens is not None:
        found["assumed_window_tokens"] = "deployment"
    return found


@lru_cache(1_024)
def _own(stored: bytes | None) -> SessionSettings:
    """The session's own settings; empty when this version no longer accepts them."""
    try:
        return SessionSettings.model_validate(own_settings(stored))
    except ValueError:
        return SessionSettings()


def _own_policy(settings: Settings, model: str, stored: bytes | None) -> PolicySettings:
    """Like `_own`; also empty where they contradict the current settings of deployment and model."""
    own = _own(stored).policy
    try:
        check_policy(to_policy(settings, model, own), "policy")
    except ValueError:
        return PolicySettings()
    return own


def _without_removed(given: Mapping[str, Any], *before: str) -> dict[str, Any]:
    return {
        key: _without_removed(value, *before, key) if isinstance(value, dict) else value
        for key, value in given.items()
        if why_removed((*before, key)) is None
    }


def _paths(patch: Mapping[str, Any], before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in patch.items():
        if isinstance(value, Mapping):
            yield from _paths(value, (*before, key))
        else:
            yield (*before, key)


def _merged(old: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """JSON merge patch (RFC 7386): objects are merged, null removes, everything else replaces."""
    merged = dict(old)
    for key, value in patch.items():
        if isinstance(value, Mapping):
            inner = merged.get(key)
            value = _merged(inner if isinstance(inner, Mapping) else {}, value) or None
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = value
    return merged

"""What may be set for one session: the policy and recall, in the same words as for the whole deployment.

Knows nothing of where it is kept. Stored as the JSON that was sent, merged, so that a preset whose numbers
change with a release changes for the sessions that name it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from app.core.view.policy import Policy
from app.errors import InvalidParameter
from app.settings.fields import Section
from app.settings.policy import PolicySettings
from app.settings.recall import SessionRecall
from app.settings.refusal import REMOVED
from app.settings.settings import Settings, check_policy, to_policy


class SessionSettings(Section):
    """The settings of one session; what is not set is the model's or the deployment's."""

    policy: PolicySettings = PolicySettings()
    recall: SessionRecall = SessionRecall()


def patched(
    current: bytes | None, patch: Mapping[str, Any], settings: Settings, model: str = ""
) -> bytes | None:
    """The stored settings with `patch` merged in, null removing; None when nothing is left.

    InvalidParameter names the field that cannot be what the patch says, alone or beside the others:
    those of the deployment and of the session's `model`.
    """
    merged = _merged(_read(current) if current else {}, patch)
    try:
        session = SessionSettings.model_validate(merged)
        check_policy(to_policy(settings, model, session.policy), "policy")
    except ValidationError as refused:
        error = refused.errors()[0]
        field = ".".join(str(part) for part in error["loc"])
        removed = REMOVED.get(str(error["loc"][-1])) if error["type"] == "extra_forbidden" else None
        said = f"{field} {removed}" if removed else f"{field}: {error['msg']}."
        raise InvalidParameter(said, param=field) from refused
    except ValueError as refused:
        raise InvalidParameter(f"{refused}.", param=str(refused).split(" ", 1)[0]) from refused
    return json.dumps(merged, separators=(",", ":"), sort_keys=True).encode() if merged else None


def session_policy(settings: Settings, model: str, stored: bytes | None) -> Policy:
    """The policy of a model in a session with these stored settings.

    What an older version stored and this one no longer takes counts as not set.
    """
    if stored is None:
        return to_policy(settings, model)
    try:
        session = SessionSettings.model_validate(_read(stored))
        policy = to_policy(settings, model, session.policy)
        check_policy(policy, "policy")
    except ValueError:
        return to_policy(settings, model)
    return policy


def session_recalls(stored: bytes | None) -> bool | None:
    """Whether a session with these settings offers the tools of recall; None: as the deployment does."""
    return None if stored is None else _own_recall(stored).tools


def recall_enabled(settings: Settings, stored: bytes | None) -> bool:
    """Whether a session with these stored settings has an index, and answers calls of those tools at all."""
    own = None if stored is None else _own_recall(stored).enabled
    return settings.recall.enabled if own is None else own


def _own_recall(stored: bytes) -> SessionRecall:
    """What the session has set for itself; what is not taken any more counts as not set."""
    try:
        return SessionSettings.model_validate(_read(stored)).recall
    except ValueError:
        return SessionRecall()


def _read(stored: bytes) -> dict[str, Any]:
    """The stored settings without those of a former version, which must not cost the others beside them."""
    read: dict[str, Any] = json.loads(stored)
    policy = read.get("policy")
    if isinstance(policy, dict):
        read["policy"] = {key: value for key, value in policy.items() if key not in REMOVED}
    return read


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

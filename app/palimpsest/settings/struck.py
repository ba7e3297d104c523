"""Settings that were removed, each with what does its work now. A file that still sets one is refused.

Those of `policy` also stand for the policy of a model and of a session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_POLICY = "all sessions have the policy; set another one for a model or a session."
_INPUT = "policy.advanced.summary_input_chars bounds what one call reads."
# By the dotted name; the sentence follows "was removed: ".
STRUCK: Mapping[str, str] = {
    "database.vacuum_max_bytes": "erased rows are removed from a file of any size, without a VACUUM.",
    "policy.holdout": _POLICY,
    "policy.holdout_policy": _POLICY,
    "policy.mode": "docs/presets.md has a chat's numbers, such as policy.advanced.trigger_messages.",
    "policy.thresholds": "docs/presets.md has trigger_ratio and target_ratio of these systems.",
    "policy.advanced.by_content_tool_share": "by_content takes a half.",
    "policy.advanced.self_check": "policy.advanced.rebuild_after_folds restores what records lose.",
    "policy.advanced.summary_input_user_chars": _INPUT,
    "policy.advanced.summary_input_assistant_chars": _INPUT,
    "policy.advanced.summary_input_tool_result_chars": _INPUT,
    "policy.advanced.summary_input_tool_call_chars": _INPUT,
    "recall.vectors": "messages are found by their words (docs/recall.md).",
}


def said_of_struck(path: Sequence[str | int]) -> str | None:
    """The clause about a removed setting at this path; None where none was removed."""
    key = ".".join(map(str, path))
    # An entry of `models` has a policy of its own.
    key = key[key.find("policy.") :] if "policy." in key else key
    return f"was removed: {STRUCK[key]}" if key in STRUCK else None

"""Settings that were removed, each with what does its work now. A file that still sets one is refused.

Those of `policy` also stand for the policy of a model and of a session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_POLICY = "all sessions have the policy; set another one for a model or a session."
_INPUT = "policy.advanced.summary_input_chars bounds what one call reads."
# By the dotted name; the sentence follows "was removed: ".
REMOVED: Mapping[str, str] = {
    "access.daily_dollars": "access.daily_tokens limits what a caller may use in a day.",
    "access.max_bytes": "retention.max_bytes bounds what is kept of a namespace.",
    "access.unproven_seconds": "a namespace that the upstream never accepted is kept for an hour.",
    "compaction.breaker_seconds": "a model is asked again after 5 minutes.",
    "compaction.summary_attempts": "a summary is tried twice.",
    "compaction.summary_lease_seconds": "a lease lasts 5 minutes.",
    "compaction.summary_tokens_per_day": "summaries count against access.daily_tokens.",
    "database.scrub_retry_seconds": "a scrub is tried again within a minute.",
    "database.vacuum_max_bytes": "erased rows are removed from a file of any size, without a VACUUM.",
    "limits.event_streams": "100 streams of events may be open.",
    "limits.header_bytes": "headers may take 64 kB.",
    "limits.import_events": "an import may have five times limits.messages.",
    "models.prices.cache_seconds": "findings count a pause of five minutes as the end of a cached prompt.",
    "policy.advanced.by_content_tool_share": "by_content takes a half.",
    "policy.advanced.ceiling_ratio": "no compacted prompt takes more than 0.95 of the window.",
    "policy.advanced.chunk_chars": "use policy.advanced.summary_input_chars.",
    "policy.advanced.estimator": "tokens are counted.",
    "policy.advanced.memory_tokens": "the memory block has 1,000 tokens.",
    "policy.advanced.min_gain_ratio": "a compaction must free a twentieth of the window.",
    "policy.advanced.overflow_target_ratio": "the target after an upstream's refusal is 0.35.",
    "policy.advanced.recent_result_share": "the newest tool results keep a quarter of the target.",
    "policy.advanced.self_check": "names that no message has are marked in every record.",
    "policy.advanced.rebuild_after_folds": "a record grows by entries and is not folded into the next.",
    "policy.advanced.summary_input_assistant_chars": _INPUT,
    "policy.advanced.summary_input_tool_call_chars": _INPUT,
    "policy.advanced.summary_input_tool_result_chars": _INPUT,
    "policy.advanced.summary_input_user_chars": _INPUT,
    "policy.holdout": _POLICY,
    "policy.holdout_policy": _POLICY,
    "policy.mode": "docs/presets.md has a chat's numbers, such as policy.advanced.trigger_messages.",
    "policy.objective": "policy.trigger_tokens bounds what a prompt costs, and steps of prices are avoided.",
    "policy.thresholds": "docs/presets.md has trigger_ratio and target_ratio of these systems.",
    "recall.vectors": "messages are found by their words (docs/recall.md).",
    "sessions.body_keys": "sessions.headers takes any header.",
    "sessions.codex_headers": "sessions.headers takes any header.",
    "sessions.metadata_keys": "sessions.headers takes any header.",
    "sessions.waiting_appends": "8 requests may wait for their session.",
    **dict.fromkeys(
        (
            "policy.advanced.min_messages",
            "policy.advanced.target_floor_ratio",
            "policy.advanced.tail_starts_at_user",
            "policy.advanced.active_path_share",
            "policy.advanced.tool_result_share",
            "policy.advanced.summary_share",
        ),
        "policy.name sets it.",
    ),
}


def why_removed(path: Sequence[str | int]) -> str | None:
    """The clause about a removed setting at this path; None where none was removed."""
    key = ".".join(step for step in path if isinstance(step, str))
    # An entry of `models` has a policy of its own.
    key = key[key.find("policy.") :] if "policy." in key else key
    return f"was removed: {REMOVED[key]}" if key in REMOVED else None

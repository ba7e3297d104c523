"""The named policies: five systems with their own numbers, `by_content`, and `auto`, which combines them.

Pure values. A setting given for a deployment, a model or a session goes before a preset's number.
Sources and rows stand in docs/how-compaction-works.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from app.core.view.policy import Policy

# No tool result reaches it: the preset shortens none for its size alone.
_NEVER_TOKENS = 1_000_000

_AUTO = Policy()

# A12 and A13 as the source has them.
_SOURCE = Policy(
    summary_max_tokens=4_096,
    summary_min_tokens=500,
    summary_share=0.08,
)

# A: one step from 0.90 to 0.50, the summary asked for in the turn, nothing masked but the oversized.
_HANDOFF = replace(
    _SOURCE,
    name="handoff",
    summary_tag="cowork_compaction_summary",
    target_floor_ratio=0.0,
    precompute_ratio=0.90,
    old_result_chars=0,
    in_background=False,
    rides=False,
)

# B: at 0.7 of the window less 40,000, after the answer, down to the six newest messages.
_ROLLING = replace(
    _SOURCE,
    name="rolling",
    style="rolling",
    # B01: nothing is known of the model.
    assumed_window_tokens=200_000,
    # B04: characters by three, which is more than English takes: it begins early.
    estimator="chars3",
    trigger_ratio=0.70,
    trigger_reserve_tokens=40_000,
    precompute_ratio=0.70,
    target_ratio=0.40,
    target_floor_ratio=0.0,
    tail_messages=6,
    keeps_task=False,
    tool_result_tokens=_NEVER_TOKENS,
    tool_result_share=0.9,
    old_result_chars=0,
    active_path_share=0.0,
    rides=False,
    # B16: entries accumulate as the conversation goes on.
    memory_entries=True,
)

# D: at 0.7 down to the four newest messages; what was noted as they passed is the summary.
_WORKING_STATE = replace(
    _SOURCE,
    name="working_state",
    style="working_state",
    trigger_ratio=0.70,
    precompute_ratio=0.70,
    target_ratio=0.40,
    target_floor_ratio=0.0,
    least_messages=6,
    tail_messages=4,
    tail_starts_at_user=True,
    keeps_task=False,
    tool_result_tokens=_NEVER_TOKENS,
    tool_result_share=0.9,
    old_result_chars=0,
    active_path_share=0.0,
    in_background=False,
    rides=False,
)

# D, first version: the same marks, one summary of everything older.
# An answer may take twice the length that is asked for: 8,192 tokens (D20).
_BATCH = replace(_WORKING_STATE, name="batch", style="batch", summary_max_tokens=4_096)

# D24: the same marks, either way of summarising, by what is folded.
_BY_CONTENT = replace(_BATCH, name="by_content", style="by_content")

# E: at 0.8 down to the original task and the thirty newest messages.
_WORKER = replace(
    _SOURCE,
    name="worker",
    style="worker",
    trigger_ratio=0.80,
    precompute_ratio=0.80,
    target_ratio=0.50,
    target_floor_ratio=0.0,
    tail_messages=30,
    tool_result_tokens=_NEVER_TOKENS,
    tool_result_share=0.9,
    old_result_chars=0,
    active_path_share=0.0,
    in_background=False,
    rides=False,
)

PRESETS: Mapping[str, Policy] = {
    policy.name: policy
    for policy in (_AUTO, _HANDOFF, _ROLLING, _WORKING_STATE, _BATCH, _BY_CONTENT, _WORKER)
}

# A47: the marks of other systems, numbers only; (trigger, target) as shares of the window.
THRESHOLDS: Mapping[str, tuple[float, float]] = {
    "cowork": (0.90, 0.50),
    "codex": (0.90, 0.15),
    "late": (0.95, 0.50),
}

# A14: a plain chat keeps its sixteen newest messages and is folded at twenty-four, or at 12,000 tokens.
# Marks derived from prices would put either off.
CHAT: Mapping[str, Any] = {
    "objective": "fidelity",
    "trigger_messages": 24,
    "trigger_tokens": 12_000,
    "tail_messages": 16,
    "summary_max_tokens": 1_536,
    "min_gain_ratio": 0.0,
}

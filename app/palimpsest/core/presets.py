"""The named policies: five systems with their own numbers, `by_content`, and `auto`, which combines them.

The names are those of `PresetName` in policy.py. A setting of a deployment, a model or a session takes
precedence over a preset's number.

Sources and rows stand in docs/presets.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from palimpsest.core.policy import Policy

# No tool result reaches it: none is shortened for its size alone.
_NEVER_TOKENS = 1_000_000

_AUTO = Policy()

# What the five systems share; A12 and A13 as the source has them.
_SOURCE = Policy(
    summary_max_tokens=4_096,
    summary_min_tokens=500,
    summary_share=0.08,
    target_ratio=0.50,
    target_floor_ratio=0.0,
    old_result_chars=0,
    reuse_prompt_cache=False,
)
# All but A: no tool result is masked, and no older message kept for a path that it names.
_WHOLE_RESULTS = replace(
    _SOURCE, tool_result_tokens=_NEVER_TOKENS, tool_result_share=0.9, active_path_share=0.0
)

# A: one step from 0.90 to 0.50; the turn waits for the summary; only oversized results are masked.
_HANDOFF = replace(
    _SOURCE,
    name="handoff",
    has_sections=True,
    summary_tag="cowork_compaction_summary",
    precompute_ratio=0.90,
    in_background=False,
)

# B: at 0.7 of the window, or 40,000 below it, after the answer, down to the six newest messages.
_ROLLING = replace(
    _WHOLE_RESULTS,
    name="rolling",
    style="rolling",
    # B01: nothing is known of the model.
    assumed_window_tokens=200_000,
    trigger_ratio=0.70,
    trigger_reserve_tokens=40_000,
    precompute_ratio=0.70,
    target_ratio=0.40,
    tail_messages=6,
    # B11: about 30,000 tokens.
    summary_input_chars=120_000,
    keep_original_task=False,
    # B16: entries accumulate as the conversation goes on.
    memory_entries=True,
)

# D: at 0.7 down to the four newest messages; the summary is the state that code extracts from messages.
_WORKING_STATE = replace(
    _WHOLE_RESULTS,
    name="working_state",
    style="working_state",
    trigger_ratio=0.70,
    precompute_ratio=0.70,
    target_ratio=0.40,
    min_messages=6,
    tail_messages=4,
    tail_starts_at_user=True,
    keep_original_task=False,
    in_background=False,
)

# D, first version: the same trigger and target, one summary of everything older.
# A summary may take twice the length that is asked for: 8,192 tokens (D20).
_BATCH = replace(_WORKING_STATE, name="batch", style="batch", summary_max_tokens=4_096)

# D24: the same trigger and target; the folded messages decide which way of summarising is used.
_BY_CONTENT = replace(_BATCH, name="by_content", style="by_content")

# E: at 0.8 down to the original task and the thirty newest messages.
_WORKER = replace(
    _WHOLE_RESULTS,
    name="worker",
    style="worker",
    trigger_ratio=0.80,
    precompute_ratio=0.80,
    target_ratio=0.50,
    tail_messages=30,
    in_background=False,
)

PRESETS: Mapping[str, Policy] = {
    policy.name: policy
    for policy in (_AUTO, _HANDOFF, _ROLLING, _WORKING_STATE, _BATCH, _BY_CONTENT, _WORKER)
}
# Records alone, and is no way of compacting: its numbers are those of `auto`.
OFF = replace(_AUTO, name="off")

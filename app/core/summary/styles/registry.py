"""Which way of summarising a policy means. The one place that knows them all."""

from __future__ import annotations

from dataclasses import replace

from app.core.summary.rolling.extraction import ToolAllowList
from app.core.summary.rolling.style import RollingStyle
from app.core.summary.styles.by_content import KEPT_CHARS, ByContentStyle
from app.core.summary.styles.handoff import HandoffStyle
from app.core.summary.styles.style import Style
from app.core.summary.styles.worker import DEFAULT_TEMPLATE, WorkerStyle
from app.core.summary.working.styles import BatchStyle, WorkingStateStyle
from app.core.view.policy import Policy


def style_of(policy: Policy) -> Style:
    """The style a policy names, with the policy's own numbers."""
    tag = policy.summary_tag
    match policy.style:
        case "handoff":
            return HandoffStyle(tag)
        case "rolling":
            tools = ToolAllowList(frozenset(policy.read_tools), policy.read_tool_prefixes)
            return RollingStyle(tag, policy.chunk_chars, policy.rollup_tokens, tools)
        case "working_state":
            return _working_state(policy)
        case "batch":
            return BatchStyle(tag)
        case "by_content":
            ways = replace(_working_state(policy), gap_chars=KEPT_CHARS), BatchStyle(tag, KEPT_CHARS)
            return ByContentStyle(*ways, share=policy.mechanical_share)
        case "worker":
            return WorkerStyle(tag, policy.template or DEFAULT_TEMPLATE)


def _working_state(policy: Policy) -> WorkingStateStyle:
    return WorkingStateStyle(policy.summary_tag, policy.llm_extraction, policy.max_tool_results)

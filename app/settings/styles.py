"""The part of a policy's settings that only some ways of summarising look at.

Knows nothing of marks and tails.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from app.core.summary.styles.worker import checked_template
from app.core.view.policy import Policy
from app.settings.fields import Section, setting

# Defaults are the core's, so that they cannot differ.
_CORE = Policy()


class StyleSettings(Section):
    """How a summary is asked for and dressed."""

    summary_tag: str = setting(
        _CORE.summary_tag,
        "Tag of the fence around a summary in the view.",
        "A name that no other program uses; handoff has its source's.",
        unit="tag name",
        pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$",
    )
    self_check: bool = setting(
        _CORE.self_check,
        "Whether the model looks at a summary written ahead once more, for requests, decisions and names.",
        "One more call of about the same size; worth it where a lost detail costs more than that.",
        unit="true or false",
    )
    memory_tokens: int = setting(
        _CORE.memory_tokens,
        "Room for the session's memory block in a view, at most an eighth of the window; 0: not shown.",
        "A summary and the entries since, a paragraph each; it is part of every prompt until the next fold.",
        unit="tokens",
        ge=0,
        le=100_000,
    )
    memory_entries: bool = setting(
        _CORE.memory_entries,
        "Whether what every twelve exchanges decided and found becomes an entry of the memory block.",
        "On under rolling, whose memory grows by itself; elsewhere a summary says the same already.",
        unit="true or false",
    )
    chunk_chars: int = setting(
        _CORE.chunk_chars,
        "rolling: new messages given to the summarizer in one call; more is folded in several.",
        "About 30,000 tokens.",
        unit="characters",
        ge=2_000,
        le=10_000_000,
    )
    rollup_tokens: int = setting(
        _CORE.rollup_tokens,
        "rolling: a kept summary above it is shortened by a call of its own.",
        "A summary that only grows ends as long as what it stands for.",
        unit="tokens",
        ge=100,
        le=1_000_000,
    )
    read_tools: tuple[str, ...] = setting(
        _CORE.read_tools,
        "rolling: tools whose calls and results the summarizer reads.",
        "Results are long and mostly of the moment.",
        unit="tool names",
    )
    read_tool_prefixes: tuple[str, ...] = setting(
        _CORE.read_tool_prefixes,
        "rolling: as read_tools, by how a tool's name begins; * allows every tool.",
        "Tools of one service share a prefix.",
        unit="beginnings of tool names",
    )
    max_tool_results: int = setting(
        _CORE.max_tool_results,
        "working_state: newest tool results kept in short.",
        "Older ones are told by what was done with them.",
        unit="results",
        ge=0,
        le=1_000,
    )
    llm_extraction: bool = setting(
        _CORE.llm_extraction,
        "working_state: whether a model may fill what fewer than 15 slots leave out.",
        "Conversations without tools leave little for code to note.",
        unit="true or false",
    )
    mechanical_share: float = setting(
        _CORE.mechanical_share,
        "by_content: from so many tool calls and results on code summarises; below, a model is asked.",
        "Work with tools explains itself; the reasons are in what is said.",
        unit="share of the folded messages",
        ge=0,
        le=1,
    )
    template: Annotated[str, AfterValidator(checked_template)] | None = setting(
        _CORE.template,
        "worker: the prompt, with {{PREVIOUS_SUMMARY}} and {{CONVERSATION}} in it.",
        "None: a general one.",
        unit="text",
    )

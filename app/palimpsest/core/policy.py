"""The numbers that compaction uses, each declared once: default, effect, reason, unit, bounds.

Settings, `config.example.yaml` and docs/configuration.md are made from these declarations, the two files by
`python -m palimpsest.settings.reference`.

Ratios are shares of the window unless stated otherwise; tokens are prompt tokens. Comments name the rows of
the specification.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from palimpsest.core.declared import advanced, setting, within
from palimpsest.core.text.fence import DEFAULT_TAG

PresetName = Literal["auto", "handoff", "rolling", "working_state", "batch", "by_content", "worker", "off"]
LaterSystemMessages = Literal["keep", "user"]
SummaryRole = Literal["user", "system"]
StyleName = Literal["record", "rolling", "working_state", "batch", "by_content", "worker"]

_SHARE = "share of the window"
# A05.
_AVAILABLE = "share of the window less reserved_tokens, instructions and tools"
_TARGET_SHARE = "share of the target"


@dataclass(frozen=True, slots=True)
class Policy:
    """One compaction policy; the defaults are those of the preset `auto`."""

    # No compacted prompt takes more of the window: our counts may be a little off (A27).
    ceiling_ratio: ClassVar[float] = 0.95
    # Of what is available, after the upstream refused a prompt as too long: our count was too low (A29).
    overflow_target_ratio: ClassVar[float] = 0.35
    # Of the target: the newest tool results up to this, on which the current work depends, stay whole.
    recent_result_share: ClassVar[float] = 0.25
    # Room for the memory block, at most an eighth of the window: a summary and the entries since, a paragraph
    # each, which are part of every prompt until the next fold (B16).
    memory_tokens: ClassVar[int] = 1_000

    # Set by presets alone, down to `assumed_window_tokens`. How summaries are requested and written.
    style: StyleName = "record"
    # Whether records have the nine sections of `handoff` (A15).
    has_sections: bool = False
    # Fewer messages that no summary covers are compacted only at the ceiling: there would be nothing to fold
    # but the current work (D13).
    min_messages: int = 0
    # The least share of the window less instructions and tools that the target is: on windows below 27,000
    # tokens the reserve would leave no room for the user's own words.
    target_floor_ratio: float = 0.45
    # Whether a tail of tail_messages or tail_ratio starts at a user message, with the work on it (D15).
    tail_starts_at_user: bool = False
    # Room, of the target, for older messages that name a file path from the last four messages (A11).
    active_path_share: float = 0.15
    # A tool result is shortened above this share of the window, too: on a small one tool_result_tokens would
    # be everything (A08).
    tool_result_share: float = 0.25
    # A summary's length, of what is available, between the smallest and the largest (A12); 0: by the window.
    summary_share: float = 0.0
    # Window of an unknown model (A04); the setting is window.default_window_tokens.
    assumed_window_tokens: int = 100_000
    name: PresetName = setting(
        "auto",
        "Preset: supplies every value of this section that is not set, and the way of summarising; off: "
        "everything is recorded, and nothing is compacted.",
        "auto combines the others and needs no choice.",
    )
    # A02.
    trigger_ratio: float = setting(
        0.90,
        "A prompt at or above it is compacted. At least half of what instructions and tools leave is for "
        "messages; a large max_tokens may take a quarter.",
        "Late enough to compact rarely, early enough to leave room for the answer.",
        within(_SHARE, ge=0.5, le=0.95),
    )
    trigger_tokens: int = setting(
        250_000,
        "A prompt of this many tokens is compacted, whatever the window; 0: the window alone decides. "
        "Prompts also stay below the size from which the model's published price is higher.",
        "Every turn pays for its whole prompt, however large the window; models use long ones less well.",
        within("tokens", ge=0, le=100_000_000),
    )
    # A06.
    target_ratio: float = setting(
        0.45,
        "The size to which a prompt is compacted: half of the trigger.",
        "Few large steps: every compaction loses the whole prompt cache.",
        within(_AVAILABLE, ge=0.1, le=0.9),
    )
    # B05, D15, E03.
    tail_messages: int = setting(
        0,
        "Newest messages kept verbatim, tool calls with their results; 0: as many as fit the target.",
        "Tokens show better than messages what fits; some systems count messages.",
        within("messages", ge=0, le=10_000),
    )
    # A09, E04.
    keep_original_task: bool = setting(
        True,
        "Whether the first user message is kept verbatim.",
        "It states what the rest of the conversation works on.",
    )
    # D18.
    summary_model: str | None = setting(
        None,
        "Model that writes summaries under this policy.",
        "None: summarizer.model, else the conversation's own.",
        within("model name", min_length=1, max_length=200),
    )
    # The budget is max(smallest, min(largest, share of what is available)) (A12, A13).
    summary_max_tokens: int = setting(
        4_000,
        "Largest summary of one fold; the record of all folds may take three times as much.",
        "The more room a record has, the more a reader knows; most windows need less.",
        within("tokens", ge=100, le=100_000),
    )
    # Idea 2.
    reuse_prompt_cache: bool = setting(
        True,
        "Whether a summary is requested from the conversation's own model, appended to the cached prompt.",
        "Nearly the whole call is then read from the cache.",
    )
    # B18.
    wait_for_summary: bool = setting(
        False,
        "Whether a turn that still fits waits for a summary that is being written.",
        "Off: the older view serves one more turn.",
    )
    # A46, D19.
    strict_alternation: bool = setting(
        False,
        "Whether a compacted prompt merges adjacent user messages and acknowledges its summary.",
        "Few servers refuse two user messages in a row; for all others the client's messages stay as sent.",
    )
    later_system_messages: LaterSystemMessages = setting(
        "keep",
        "System messages after the first other message of a compacted prompt: keep leaves them as they are, "
        "user sends them as labelled user messages.",
        "Some servers accept them only at the start; elsewhere the role gives them their weight.",
    )
    # Idea 3.
    precompute_ratio: float = advanced(
        0.85,
        "A prompt at or above it starts the next summary in the background, until a summary's time and the "
        "conversation's growth are measured; as large as trigger_ratio: none starts earlier.",
        "A summary takes seconds; started here, it is ready when the trigger is reached.",
        within(_SHARE, ge=0.1, le=0.95),
    )
    # 40,000 in `rolling` (B02: 32,000 + 8,000).
    trigger_reserve_tokens: int = advanced(
        0,
        "The trigger leaves this much of the window free, but 24,000 tokens to messages; 0: not used.",
        "Leaves room where answers are known to be long.",
        within("tokens", ge=0, le=1_000_000),
    )
    # A14.
    trigger_messages: int = advanced(
        0,
        "A prompt with this many messages that no summary covers is compacted too; 0: they are not counted.",
        "Users judge the length of a chat by its messages.",
        within("messages", ge=0, le=1_000_000),
    )
    # A05. Scaled to min(this, window / 2) where summaries are sized.
    reserved_tokens: int = advanced(
        8_000,
        "Room held back when the target and the summary are sized, at most half the window.",
        "Space for instructions and an answer of usual length.",
        within("tokens", ge=0, le=1_000_000),
    )
    # E03.
    tail_ratio: float = advanced(
        0.0,
        "Newest messages kept verbatim, by size; 0: as many as fit the target. tail_messages has precedence.",
        "The tail grows with the window.",
        within(_SHARE, ge=0, le=0.8),
    )
    # A08.
    tool_result_tokens: int = advanced(
        10_000,
        "A tool result above it is shown shortened, 70 % head and 30 % tail.",
        "One large result must not push out the conversation; the whole text can be read by its id.",
        within("tokens", ge=100, le=1_000_000),
    )
    # Idea 6.
    old_result_chars: int = advanced(
        720,
        "Least length to which older tool results are shortened; 0: they are not shortened for being old.",
        "They keep as much as fits; below this a summary says more.",
        within("characters", ge=0, le=1_000_000),
    )
    # Idea 3, B03.
    in_background: bool = advanced(
        True,
        "Whether summaries are written in the background; a turn that still fits does not wait.",
        "Users should not wait for housekeeping.",
    )
    # E08.
    use_summarizer: bool = advanced(
        True,
        "Whether a model, or the worker at `summarizer.worker_url`, may be asked for summaries.",
        "Otherwise code writes them; `worker` then shortens older tool results and writes no summary.",
    )
    # F05.
    breaker_failures: int = advanced(
        3,
        "Consecutive failures after which the summarizer is not called for a while.",
        "Three in a row are hardly chance; summaries are then written without a model.",
        within("failures", ge=1, le=100),
    )
    summary_min_tokens: int = advanced(
        700,
        "Smallest summary; where there is less room, no model is asked and code writes it.",
        "State, rules and an entry do not fit into less.",
        within("tokens", ge=50, le=100_000),
    )
    # A21, B11.
    summary_input_chars: int = advanced(
        60_000,
        "Input of one call to the summarizer; more is folded in several calls.",
        "About 15,000 tokens, within the window of any model worth asking.",
        within("characters", ge=4_000, le=10_000_000),
    )
    # B15.
    summary_role: SummaryRole = advanced(
        "user",
        "The role of a summary; `system` (`rolling` only) puts it right after the client's own prompt.",
        "A summary repeats tool output, which must not gain authority from its role.",
    )
    # A31.
    summary_tag: str = advanced(
        DEFAULT_TAG,
        "Tag of the fence around a summary in the view.",
        "A name that no other program uses; handoff uses its source's.",
        within("tag name", pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$"),
    )
    memory_entries: bool = advanced(
        False,
        "Whether the decisions and findings of every twelve exchanges become an entry of the memory block.",
        "On in rolling, whose memory accumulates; elsewhere the summary says the same.",
    )
    # B12.
    rollup_tokens: int = advanced(
        80_000,
        "rolling: a stored summary above it has its older part shortened by a separate call.",
        "A summary that only grows becomes as long as what it replaces.",
        within("tokens", ge=100, le=1_000_000),
    )
    # B14.
    read_tools: tuple[str, ...] = advanced(
        ("userQuestions", "proceedInOnboarding"),
        "rolling: tools whose calls and results the summarizer reads.",
        "Tool results are long and soon out of date.",
        "tool names",
    )
    read_tool_prefixes: tuple[str, ...] = advanced(
        ("linear",),
        "rolling: as read_tools, by the start of a tool's name; * allows every tool.",
        "Tools of one service share a prefix.",
        "beginnings of tool names",
    )
    # D16.
    max_tool_results: int = advanced(
        30,
        "working_state: newest tool results kept in shortened form.",
        "Older ones are represented by what was done with them.",
        within("results", ge=0, le=1_000),
    )
    # D11.
    llm_extraction: bool = advanced(
        True,
        "working_state: whether a model may add to the state when code fills fewer than 15 slots.",
        "Conversations without tools give code little to extract.",
    )
    # E07.
    worker_template: str | None = advanced(
        None,
        "worker: the prompt, with {{PREVIOUS_SUMMARY}} and {{CONVERSATION}} in it.",
        "None: a built-in one.",
        "text",
    )

    @property
    def is_off(self) -> bool:
        """True where nothing is compacted, and an error "too long" passes through (rule 39)."""
        return self.name == "off"

    @property
    def min_gain_ratio(self) -> float:
        """The share of the window that a compaction must free to be worth the prompt cache (F12)."""
        return 0.0 if self.folds_by_count else 0.05

    @property
    def folds_by_count(self) -> bool:
        """True where a number of messages triggers a compaction whatever the tokens (A14)."""
        return self.trigger_messages > 0

    @property
    def only_thins(self) -> bool:
        """True where a prompt that fits is compacted by shortening tool results alone (E08)."""
        return self.style == "worker" and not self.use_summarizer

"""The numbers a compaction decides by. Each is a setting; defaults and sources stand here.

Pure value. Ratios are shares of the window unless said otherwise; tokens are prompt tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from app.core.text.fence import DEFAULT_TAG

Objective = Literal["fidelity", "cost"]
Estimator = Literal["tiktoken", "chars3", "chars4", "usage"]
LaterSystemMessages = Literal["keep", "user"]
SummaryRole = Literal["user", "system"]
StyleName = Literal["handoff", "rolling", "working_state", "batch", "by_content", "worker"]


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy. Defaults are those of `auto`; rows of the specification stand in brackets."""

    name: str = "auto"
    # How summaries are asked for and written.
    style: StyleName = "handoff"
    # What a model nobody knows anything of is taken to hold, tokens (A04); 200,000 in `rolling` (B01).
    assumed_window_tokens: int = 100_000
    # Whole prompt at or above this share of the window is compacted (A02).
    trigger_ratio: float = 0.90
    # Kept free below the window when deciding the trigger; 40,000 in `rolling` (B02: 32,000 + 8,000).
    trigger_reserve_tokens: int = 0
    # fidelity: the shares here decide, and nothing is touched before the trigger. cost: trigger and target
    # follow from what tokens cost and how the conversation grows, within the shares (docs/cost-policy.md).
    objective: Objective = "fidelity"
    # What is compared with trigger and precompute mark: the count, characters by three or four, or the
    # upstream's own last figure and what came since (B04). What may go out is always counted.
    estimator: Estimator = "tiktoken"
    # Due also at so many tokens of prompt, and at so many messages that are not folded (A14); 0: neither.
    trigger_tokens: int = 0
    trigger_messages: int = 0
    # Fewer messages than this are not compacted before they must be (D13).
    least_messages: int = 0
    # The newest messages that stay: so many (B05, D15, E03), or this share of the window (E03); with 0 for
    # both as much as the target leaves room for.
    tail_messages: int = 0
    tail_ratio: float = 0.0
    # The tail begins with a user message, however far back that is (D15).
    tail_starts_at_user: bool = False
    # The first user message stays verbatim (A09, E04).
    keeps_task: bool = True
    # Summaries are written beside the turns (idea 3, B03); meanwhile a turn that fits goes, or waits (B18).
    in_background: bool = True
    waits: bool = False
    # The conversation's own model is asked behind the prompt it knows already (idea 2).
    rides: bool = True
    # Every so many folds the record is written anew from the messages themselves, beside the turns; 0: never.
    # Each fold loses a little of the record before: keeping 80 % of it a fold, four leave 41 %.
    rebuild_every: int = 0
    # The model looks at its summary once more before it is used (idea 13).
    self_check: bool = False
    # Who writes summaries under this policy (D18); None: whoever the deployment has chosen.
    summary_model: str | None = None
    # What the forwarded prompt is brought down to: this share of what is available (A06) ...
    target_ratio: float = 0.50
    # ... but no lower than this share of the window less the fixed part: below 27k the reserve would
    # leave so little that neither the user's words nor identifiers survive. 0 in `handoff`.
    target_floor_ratio: float = 0.45
    # No compacted prompt may exceed this share (A27).
    guard_ratio: float = 0.95
    # The target after the upstream itself said "too long" (A29).
    overflow_target_ratio: float = 0.35
    # A background summary is begun here, so that no turn waits for one (idea 3).
    precompute_ratio: float = 0.85
    # Serves only the target and the summary budget; scaled to min(this, window / 2) (rule 19).
    reserved_tokens: int = 8_000
    # Summary budget: max(min, min(max, share of what is available)) (A12, A13).
    summary_max_tokens: int = 2_500
    summary_min_tokens: int = 700
    summary_share: float = 0.10
    # Characters given to the summarizer in one call (A21); more is folded in several calls.
    summary_input_chars: int = 60_000
    # Clamps of what the summarizer reads, characters (A19).
    user_chars: int = 3_000
    assistant_chars: int = 1_500
    tool_result_chars: int = 1_200
    tool_call_chars: int = 800
    # A tool result above this is shown masked, 70/30 (A08), but never more than the share of the window.
    tool_result_tokens: int = 10_000
    tool_result_share: float = 0.25
    # When masks alone may do, results older than the newest ones are shortened as far as there is need, none
    # to fewer characters than this (idea 6); 0 leaves older results alone.
    old_result_chars: int = 720
    # The newest tool results, up to this share of the target, are never masked for being old.
    recent_result_share: float = 0.25
    # Older messages that name a path seen in the last four stay, up to this share of the target (A11).
    active_path_share: float = 0.15
    # The session's memory block in a compacted view (B16), tokens, on small windows less; 0: it is not shown.
    memory_tokens: int = 1_000
    # What every twelve exchanges came to is an entry of that memory (B16), noted by code.
    memory_entries: bool = False
    # For upstreams that want user and assistant by turns: in a compacted view neighbouring user messages
    # are merged (A46), and the summary is acknowledged (D19).
    strict_alternation: bool = False
    # The role in which a summary stands. `rolling` may use the system role, as its source does (B15); a block
    # carries what tools said, which gains weight there.
    summary_role: SummaryRole = "user"
    # For upstreams that take system messages only at the beginning: in a compacted view later ones are told
    # as a user's, behind a label.
    later_system_messages: LaterSystemMessages = "keep"
    # The fence of the summary block (A31).
    summary_tag: str = DEFAULT_TAG
    # `rolling`: characters of new messages in one request (B11); a longer summary is itself shortened (B12).
    chunk_chars: int = 120_000
    rollup_tokens: int = 80_000
    # `rolling`: the tools whose calls and results are read, by name and by how a name begins (B14).
    read_tools: tuple[str, ...] = ("userQuestions", "proceedInOnboarding")
    read_tool_prefixes: tuple[str, ...] = ("linear",)
    # `working_state`: newest tool results kept in short (D16), and whether a model may fill gaps (D11).
    max_tool_results: int = 30
    llm_extraction: bool = True
    # Whether anybody may be asked for a summary; else code writes it, and `worker` thins tool results (E08).
    asks_summarizer: bool = True
    # `by_content`: from this share of tool calls and results among the folded messages on (D24) it folds like
    # `working_state`, below like `batch`. Half: below that, most of what is said is said in prose.
    mechanical_share: float = 0.5
    # `worker`: the prompt with its two variables (E07).
    template: str | None = None
    # A compaction that frees less than this share of the window is not worth a broken prefix (F12).
    min_gain_ratio: float = 0.05
    # Calls to a summarizer stop for a while after so many failures in a row (F05).
    breaker_failures: int = 3

    @property
    def only_thins(self) -> bool:
        """True where tool results are thinned and nothing is folded while the prompt fits (E08)."""
        return self.style == "worker" and not self.asks_summarizer

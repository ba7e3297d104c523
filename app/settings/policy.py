"""Settings of a policy: when a conversation is compacted, how far, what is kept, and who writes.

Knows nothing of where values come from. Defaults are those of the preset `auto`; what is not set is the
chosen preset's.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator

from app.core.view.policy import Policy
from app.settings.fields import setting
from app.settings.styles import StyleSettings

# Defaults are the core's, so that they cannot differ.
_CORE = Policy()
_SHARE = "share of the window"
# A05: what the reserve, instructions and tools leave.
_AVAILABLE = "share of the window less reserved_tokens, instructions and tools"
_TARGET_SHARE = "share of the target"


def _objective(value: object) -> object:
    """What two objectives were called in the first release, as configurations and sessions have them."""
    return {"off": "fidelity", "balanced": "cost"}.get(value, value) if isinstance(value, str) else value


class PolicySettings(StyleSettings):
    """When a conversation is compacted, how far, and what is kept."""

    name: Literal["auto", "handoff", "rolling", "working_state", "batch", "by_content", "worker"] = setting(
        "auto",
        "Preset: gives every number below that is not set, and the way of summarising.",
        "auto combines the others and needs no choice.",
        unit="auto, handoff, rolling, working_state, batch, by_content or worker",
    )
    mode: Literal["task", "chat"] = setting(
        "task",
        "chat folds by number of messages: at 24, or at 12,000 tokens, down to 16.",
        "A plain chat has no tool results to shorten and is read from its end.",
        unit="task or chat",
    )
    thresholds: Literal["preset", "cowork", "codex", "late"] = setting(
        "preset",
        "Trigger and target of another system: cowork 0.90/0.50, codex 0.90/0.15, late 0.95/0.50.",
        "For those who know what to expect of one of them.",
        unit="preset, cowork, codex or late",
    )
    objective: Annotated[Literal["fidelity", "cost"], BeforeValidator(_objective)] = setting(
        _CORE.objective,
        "fidelity: the ratios below decide; cost: trigger and target are derived from prices and growth.",
        "Nothing is touched before it must be. cost never compacts below half of the trigger, except after a "
        "pause that the cache did not outlive. Old names: off is fidelity, balanced is cost.",
        unit="fidelity or cost",
    )
    trigger_ratio: float = setting(
        _CORE.trigger_ratio,
        "A prompt at or above it is compacted.",
        "Late enough to compact rarely, early enough to leave room for the answer.",
        unit=_SHARE,
        ge=0.5,
        le=0.95,
    )
    trigger_reserve_tokens: int = setting(
        _CORE.trigger_reserve_tokens,
        "Room kept free below the window when the trigger is computed; the lower of the two counts.",
        "The share alone decides, unless answers are known to be long.",
        unit="tokens",
        ge=0,
        le=1_000_000,
    )
    estimator: Literal["tiktoken", "chars3", "chars4", "usage"] = setting(
        _CORE.estimator,
        "What the trigger looks at: the count, characters by 3 or 4, or the last usage and what came since.",
        "The count is right to within a few tokens; rolling guesses, as its source does.",
        unit="tiktoken, chars3, chars4 or usage",
    )
    trigger_tokens: int = setting(
        _CORE.trigger_tokens,
        "A prompt of so many tokens is compacted, whatever the window; 0: the window alone decides.",
        "Large windows are paid for at every turn.",
        unit="tokens",
        ge=0,
        le=100_000_000,
    )
    trigger_messages: int = setting(
        _CORE.trigger_messages,
        "Compacted also when so many messages stand behind the last summary; 0: never for that.",
        "Chats are felt to be long by their messages.",
        unit="messages",
        ge=0,
        le=1_000_000,
    )
    least_messages: int = setting(
        _CORE.least_messages,
        "Fewer messages are not compacted before they must be.",
        "There would be nothing to fold but the work at hand.",
        unit="messages",
        ge=0,
        le=10_000,
    )
    tail_messages: int = setting(
        _CORE.tail_messages,
        "Newest messages that stay word for word, tool groups whole; 0: as many as the target has room for.",
        "Tokens say better than messages what fits; some systems count messages.",
        unit="messages",
        ge=0,
        le=10_000,
    )
    tail_ratio: float = setting(
        _CORE.tail_ratio,
        "Newest messages that stay, by size; 0: as many as the target has room for. After tail_messages.",
        "What is recent grows with the window.",
        unit=_SHARE,
        ge=0,
        le=0.8,
    )
    tail_starts_at_user: bool = setting(
        _CORE.tail_starts_at_user,
        "Whether a counted tail goes back to a user message.",
        "The request that is being worked on stays with its work.",
        unit="true or false",
    )
    keeps_task: bool = setting(
        _CORE.keeps_task,
        "Whether the first user message stays word for word.",
        "It is what everything else is for.",
        unit="true or false",
    )
    in_background: bool = setting(
        _CORE.in_background,
        "Whether summaries are written beside the turns; a turn that still fits does not wait.",
        "Nobody likes to wait for housekeeping.",
        unit="true or false",
    )
    waits: bool = setting(
        _CORE.waits,
        "Whether a turn waits for a summary that is being written although it would fit without.",
        "Off: the older view is as good for one more turn.",
        unit="true or false",
    )
    rides: bool = setting(
        _CORE.rides,
        "Whether the conversation's own model is asked behind the prompt that it knows already.",
        "Nearly all of the call is then read from its cache.",
        unit="true or false",
    )
    rebuild_every: int = setting(
        _CORE.rebuild_every,
        "Every so many folds the record is written anew from the messages, in the background; 0: only after "
        "a fold that code wrote because the model failed.",
        "A record that is folded into the next loses a little each time: 4 gives a forgetful summarizer "
        "half of that back and costs a fifth of the bill; one that reads well has little to win.",
        unit="folds",
        ge=0,
        le=1_000,
    )
    summary_model: str | None = setting(
        _CORE.summary_model,
        "Model that writes summaries under this policy.",
        "None: summarizer.model, else the conversation's own.",
        unit="model name",
        min_length=1,
        max_length=200,
    )
    target_ratio: float = setting(
        _CORE.target_ratio,
        "What a compacted prompt is brought down to.",
        "One large step; every compaction costs the whole prompt cache.",
        unit=_AVAILABLE,
        ge=0.1,
        le=0.9,
    )
    target_floor_ratio: float = setting(
        _CORE.target_floor_ratio,
        "The target is not below this, whatever is reserved.",
        "On small windows the reserve would leave no room for the user's own words.",
        unit="share of the window less instructions and tools",
        ge=0,
        le=0.9,
    )
    guard_ratio: float = setting(
        _CORE.guard_ratio,
        "No compacted prompt may exceed it.",
        "Leaves a margin for counts that are a little off.",
        unit=_SHARE,
        ge=0.5,
        le=1.0,
    )
    overflow_target_ratio: float = setting(
        _CORE.overflow_target_ratio,
        "The target after the upstream itself said that the prompt is too long.",
        "Then our count was wrong, so the second try leaves more room.",
        unit=_AVAILABLE,
        ge=0.05,
        le=0.9,
    )
    precompute_ratio: float = setting(
        _CORE.precompute_ratio,
        "From here on the next summary is written in the background; not above the trigger.",
        "A summary takes seconds; begun here it is ready when the trigger is reached.",
        unit=_SHARE,
        ge=0.1,
        le=0.95,
    )
    reserved_tokens: int = setting(
        _CORE.reserved_tokens,
        "Room held back when the target and the summary are sized, at most half the window.",
        "Space for instructions and an answer of usual length.",
        unit="tokens",
        ge=0,
        le=1_000_000,
    )
    summary_max_tokens: int = setting(
        _CORE.summary_max_tokens,
        "Largest summary.",
        "Longer ones repeat what the kept messages say.",
        unit="tokens",
        ge=100,
        le=100_000,
    )
    summary_min_tokens: int = setting(
        _CORE.summary_min_tokens,
        "Smallest summary budget, also on tiny windows.",
        "Nine sections do not fit into less.",
        unit="tokens",
        ge=50,
        le=100_000,
    )
    summary_share: float = setting(
        _CORE.summary_share,
        "Summary budget between its smallest and largest.",
        "16,000 tokens of window give about 640, 200,000 give the largest.",
        unit="share of what is available",
        gt=0,
        le=0.5,
    )
    summary_input_chars: int = setting(
        _CORE.summary_input_chars,
        "What a summarizer is given in one call; more is folded in several.",
        "About 15,000 tokens, within the window of any model worth asking.",
        unit="characters",
        ge=4_000,
        le=10_000_000,
    )
    user_chars: int = setting(
        _CORE.user_chars,
        "What the summarizer reads of one user message.",
        "Users' words matter most, so they get the most room.",
        unit="characters",
        ge=100,
        le=1_000_000,
    )
    assistant_chars: int = setting(
        _CORE.assistant_chars,
        "What the summarizer reads of one answer.",
        "Head and tail say what was decided.",
        unit="characters",
        ge=100,
        le=1_000_000,
    )
    tool_result_chars: int = setting(
        _CORE.tool_result_chars,
        "What the summarizer reads of one tool result.",
        "Dumps carry little per character, and stay readable in the archive.",
        unit="characters",
        ge=100,
        le=1_000_000,
    )
    tool_call_chars: int = setting(
        _CORE.tool_call_chars,
        "What the summarizer reads of one tool call's arguments.",
        "A path or a command fits; a whole file does not need to.",
        unit="characters",
        ge=100,
        le=1_000_000,
    )
    tool_result_tokens: int = setting(
        _CORE.tool_result_tokens,
        "A tool result above it is shown shortened, 70 % head and 30 % tail.",
        "One dump must not push out the conversation; the whole text can be read by its id.",
        unit="tokens",
        ge=100,
        le=1_000_000,
    )
    tool_result_share: float = setting(
        _CORE.tool_result_share,
        "A tool result is also shortened above this.",
        "On a small window 10,000 tokens would be everything.",
        unit=_SHARE,
        gt=0,
        le=0.9,
    )
    old_result_chars: int = setting(
        _CORE.old_result_chars,
        "The least that is left of older tool results where shortening them may do; 0 leaves them alone.",
        "They keep as much as there is room for; below this a fold says more.",
        unit="characters",
        ge=0,
        le=1_000_000,
    )
    recent_result_share: float = setting(
        _CORE.recent_result_share,
        "The newest tool results, up to this, are never shortened for being old.",
        "The work at hand rests on them.",
        unit=_TARGET_SHARE,
        ge=0,
        le=0.9,
    )
    active_path_share: float = setting(
        _CORE.active_path_share,
        "Room for older messages that name a file path seen in the last four.",
        "The file being worked on should not vanish.",
        unit=_TARGET_SHARE,
        ge=0,
        le=0.5,
    )
    asks_summarizer: bool = setting(
        _CORE.asks_summarizer,
        "Whether a model, or the worker at `summarizer.worker_url`, may be asked for summaries.",
        "Without one code writes them; `worker` then thins older tool results, and writes none.",
        unit="true or false",
    )
    strict_alternation: bool = setting(
        _CORE.strict_alternation,
        "Whether neighbouring user messages of a compacted prompt are merged, and its summary acknowledged.",
        "Only few servers refuse two user messages in a row; what the client sent stays as it is elsewhere.",
        unit="true or false",
    )
    summary_role: Literal["user", "system"] = setting(
        _CORE.summary_role,
        "The role of a summary; `system` (`rolling` only) puts it right behind the client's own prompt.",
        "A summary carries what tools said, and must not gain weight by its role.",
        unit="user or system",
    )
    later_system_messages: Literal["keep", "user"] = setting(
        _CORE.later_system_messages,
        "Whether system messages behind the first other message of a compacted prompt are kept as they are, "
        "or told as a user's behind a label.",
        "Some servers take them only at the beginning; elsewhere the role is what gives them their weight.",
        unit="keep or user",
    )
    min_gain_ratio: float = setting(
        _CORE.min_gain_ratio,
        "A compaction that would free less is not made.",
        "It would cost the prompt cache and gain nothing.",
        unit=_SHARE,
        ge=0,
        le=0.5,
    )
    breaker_failures: int = setting(
        _CORE.breaker_failures,
        "Failures in a row after which no summarizer is asked for a while.",
        "Three are no accident; summaries are then made without a model.",
        unit="failures",
        ge=1,
        le=100,
    )

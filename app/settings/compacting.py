"""Settings of the main job: how sessions are recognised, when and how far a conversation is compacted.

Knows nothing of where values come from. The numbers of a policy are those of `app.core.view.policy`.
"""

from __future__ import annotations

from typing import Literal

from app.core.view.policy import Policy
from app.settings.fields import Section, setting

# Defaults are the core's, so that they cannot differ.
_CORE = Policy()
_SHARE = "share of the window"
_TARGET_SHARE = "share of the target"


class Sessions(Section):
    """How a request says which conversation it belongs to."""

    headers: tuple[str, ...] = setting(
        (
            "x-session-id",
            "x-litellm-session-id",
            "x-litellm-trace-id",
            "helicone-session-id",
            "x-openwebui-chat-id",
            "x-claude-code-session-id",
            "x-*-session-id",
            "x-session-affinity",
            "x-portkey-trace-id",
        ),
        "Request headers that name a session, in the order in which they count; * stands for anything.",
        "What the clients and gateways in use send. x-parent-session-id never names a session.",
        unit="header names or patterns",
    )
    codex_headers: tuple[str, ...] = setting(
        ("session-id", "thread-id"),
        "Further headers that count only when the user agent says codex.",
        "Too common as names to be trusted from everybody.",
        unit="header names",
    )
    body_keys: tuple[str, ...] = setting(
        ("litellm_session_id",),
        "Fields of the request body that name a session, after the headers.",
        "LiteLLM's clients send it there.",
        unit="field names",
    )
    metadata_keys: tuple[str, ...] = setting(
        ("session_id", "thread_id", "conversation_id"),
        "Keys of the request's metadata that name a session, after the body's own fields.",
        "What frameworks put there.",
        unit="field names",
    )
    default_mode: Literal["detect", "full", "append"] = setting(
        "detect",
        "A request without X-Session-Mode is its whole history (full), only what is new (append), or either.",
        "detect takes a request as new messages only when nothing else is possible.",
        unit="detect, full or append",
    )
    waiting_appends: int = setting(
        8,
        "Requests that may wait for the turn before them in one session; further ones get 409.",
        "Nobody types eight turns ahead; a loop does.",
        unit="requests",
        ge=0,
        le=1_000,
    )


class PolicySettings(Section):
    """When a conversation is compacted, how far, and what is kept."""

    name: Literal["auto"] = setting(
        "auto",
        "Policy: auto masks old tool results first, then folds into a nine-section summary.",
        "The one that needs no choice.",
        unit="policy name",
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
    target_ratio: float = setting(
        _CORE.target_ratio,
        "What a compacted prompt is brought down to.",
        "One large step; every compaction costs the whole prompt cache.",
        unit=_SHARE,
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
        unit=_SHARE,
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
        "What is left of older tool results where shortening them may do; 0 leaves them alone.",
        "Head and tail say what a result was; the whole can be read by its id.",
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
    user_wording_share: float = setting(
        _CORE.user_wording_share,
        "Room for folded user messages that stay word for word, newest first.",
        "What was asked for is the last thing that may be paraphrased.",
        unit=_TARGET_SHARE,
        ge=0,
        le=0.8,
    )
    identifier_share: float = setting(
        _CORE.identifier_share,
        "Room for identifiers of folded messages: paths, ids, addresses, error codes.",
        "Models lose them in prose, so code carries them over.",
        unit=_TARGET_SHARE,
        ge=0,
        le=0.5,
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


class Compaction(Section):
    """How a compaction is carried out."""

    deadline_seconds: float = setting(
        20.0,
        "Longest wait of a request for a summary; then one is made without a model. 0 asks none in a turn.",
        "Clients give up near 60 s, people long before. With background false as well none is ever asked.",
        unit="seconds",
        ge=0,
        le=600,
    )
    background: bool = setting(
        True,
        "Whether the next summary is written in the background, before it is needed.",
        "No turn waits for a summary then.",
        unit="true or false",
    )
    key_ttl_seconds: int = setting(
        600,
        "How long a caller's key stays in memory for background summaries. Never on disk.",
        "Ten minutes cover a pause between turns; 0 uses a key only while its request is open.",
        unit="seconds",
        ge=0,
        le=600,
    )
    breaker_seconds: int = setting(
        300,
        "How long no summarizer is asked after too many failures in a row.",
        "Long enough for an outage to pass, short enough to notice that it has.",
        unit="seconds",
        ge=1,
        le=86_400,
    )
    overflow_retries: int = setting(
        2,
        "How often a request is compacted further and sent again when the upstream says it is too long.",
        "The first try learns the window; a second covers a count that is still off.",
        unit="tries",
        ge=0,
        le=10,
    )
    concurrent_summaries: int = setting(
        4,
        "Summaries written at the same time.",
        "Background work must not crowd out the conversations themselves.",
        unit="calls",
        ge=1,
        le=1_000,
    )
    notify: Literal["none", "header"] = setting(
        "header",
        "How a client hears of a compaction: not at all, or by the header x-palimpsest-compaction.",
        "A header disturbs no client.",
        unit="none or header",
    )

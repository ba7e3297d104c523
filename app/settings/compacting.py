"""Settings of the main job: how sessions are recognised, when and how far a conversation is compacted.

Knows nothing of where values come from.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from app.settings.fields import Section, setting


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
            "session-id",
            "thread-id",
            "x-session-affinity",
            "x-portkey-trace-id",
        ),
        "Request headers that name a session, in the order in which they count; * stands for anything.",
        "What the clients and gateways in use send. x-parent-session-id never names a session.",
        unit="header names or patterns",
    )
    codex_headers: tuple[str, ...] = setting(
        ("session-id", "thread-id"),
        "Which of them count only when the user agent says codex; others named here come behind them.",
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
        "detect appends only results of open tool calls, and where something was appended on request before.",
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
    text_pins_share: float = setting(
        0.15,
        'A user message that begins with "[pin]" or "remember for this session:" stays word for word: how'
        " much such ones may take of what a compaction leaves to messages, the newest first. 0: none.",
        "A dozen rules fit many times over; who pins everything still leaves room for the conversation.",
        unit="share",
        ge=0,
        le=0.5,
    )
    breaker_seconds: int = setting(
        300,
        "How long a model is not asked for summaries of a namespace after too many failures in a row.",
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
        2,
        "Summaries written in the background at the same time, each namespace's in turn; one that a request "
        "waits for is not counted.",
        "Background work must not crowd out the conversations themselves; a turn is rarely in such a hurry.",
        unit="calls",
        ge=1,
        le=1_000,
    )
    summary_attempts: int = setting(
        2,
        "How often a summary in the background is attempted; each attempt may ask in two ways.",
        "A second attempt gets over a hiccup. Where a request waits, code writes the block after the first.",
        unit="attempts",
        ge=1,
        le=10,
    )
    summary_backoff_seconds: float = setting(
        3.0,
        "Pause before the second attempt; before each later one it is twice as long.",
        "Time for a server to come back, short beside the minutes for which a summary is made ahead.",
        unit="seconds",
        ge=0,
        le=300,
    )
    summary_lease_seconds: int = setting(
        300,
        "How long a server that died keeps others on the same PostgreSQL from writing a session's summary.",
        "Longer than a summary takes, so that a late renewal loses nothing; one that is written is renewed.",
        unit="seconds",
        ge=1,
        le=3_600,
    )
    summary_tokens_per_day: int = setting(
        0,
        "Tokens that the summaries of one namespace may take on a day (UTC), prompts and answers; 0: any.",
        "Beyond it summaries are made without a model, and a session's events say so.",
        unit="tokens",
        ge=0,
        le=1_000_000_000_000,
    )
    notify: Literal["none", "header", "comment", "event"] = setting(
        "header",
        "How a client hears of a compaction: by the header x-palimpsest-compaction, by a comment at the "
        "beginning of a stream, or by the session's events alone (none says the same to clients).",
        "A header disturbs no client.",
        unit="none, header, comment or event",
    )
    daily_log_folder: Path | None = setting(
        None,
        "Existing folder where every summary is also kept as markdown, a file for each namespace and day.",
        "The database has them all; a log is for people who read along. None keeps no log.",
        unit="path",
    )

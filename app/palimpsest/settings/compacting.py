"""Settings of sessions, policy, compaction and recall. Most of the policy is declared in `core/policy.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast, get_type_hints

from pydantic import AfterValidator, BeforeValidator, create_model

from palimpsest.core.declared import declared_in, within
from palimpsest.core.policy import Policy
from palimpsest.core.summary.forms import checked_template
from palimpsest.settings.fields import Section, advanced, setting

_S = TypeVar("_S", bound=Section)


# Checks beyond types and bounds. A bare `off` is false in YAML.
_CHECKS: Mapping[str, object] = {
    "name": BeforeValidator(lambda name: "off" if name is False else name),
    "worker_template": AfterValidator(lambda text: None if text is None else checked_template(text)),
}


def _with_core_fields(*, is_advanced: bool) -> Callable[[type[_S]], type[_S]]:
    """A decorator that puts the fields declared by the core before a section's own."""
    kinds = get_type_hints(Policy)

    def made(section: type[_S]) -> type[_S]:
        found: dict[str, Any] = {}
        for name, (default, said) in declared_in(Policy).items():
            if said.is_advanced is is_advanced:
                check = _CHECKS.get(name)
                kind = Annotated[kinds[name], check] if check else kinds[name]
                field = setting(default, said.what, said.why, said.measure, is_advanced=is_advanced)
                found[name] = (kind, field)
        found |= {name: (own.annotation, own) for name, own in section.model_fields.items()}
        whole = create_model(section.__name__, __base__=Section, __doc__=section.__doc__, **found)
        return cast("type[_S]", whole)

    return made


@_with_core_fields(is_advanced=True)
class AdvancedPolicy(Section):
    """Rarely set numbers of a policy."""


@_with_core_fields(is_advanced=False)
class PolicySettings(Section):
    """When a conversation is compacted, how far, and what is kept."""

    advanced: AdvancedPolicy = AdvancedPolicy()


def fields_set(policy: PolicySettings) -> dict[str, Any]:
    """The keys that are set, by the core's names."""
    said = policy.model_dump(exclude_unset=True)
    numbers: dict[str, Any] = said.pop("advanced", {})
    return said | numbers


class Sessions(Section):
    """How a request names the session it belongs to."""

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
        "Request headers that name a session, in order of precedence; * matches anything.",
        "These are sent by common clients and gateways. x-parent-session-id never names a session.",
        "header names or patterns",
    )
    default_mode: Literal["detect", "full", "append"] = setting(
        "detect",
        "What a request without X-Session-Mode contains: the whole history (full), only new messages"
        " (append),"
        " or either (detect).",
        "detect appends only results of open tool calls, and in sessions that were appended to on request"
        " before.",
    )


class CompactionSettings(Section):
    """How a compaction is carried out."""

    deadline_seconds: float = setting(
        20.0,
        "How long a request may wait for a summary by a model; after that code writes the summary. 0:"
        " requests"
        " never wait for a model.",
        "Clients give up near 60 s, people long before. With 0 and background false no model writes"
        " summaries.",
        within("seconds", ge=0, le=600),
    )
    background: bool = setting(
        True,
        "Whether the next summary is written in the background, before it is needed.",
        "Then no turn waits for a summary.",
    )
    key_ttl_seconds: int = advanced(
        600,
        "How long a caller's key stays in memory for background summaries. Never on disk.",
        "Ten minutes cover a pause between turns; 0 uses a key only while its request is open.",
        within("seconds", ge=0, le=600),
    )
    text_pins_share: float = advanced(
        0.15,
        'A user message that begins with "[pin]" or "remember for this session:" stays word for word. This is'
        " the largest share of the room for messages after a compaction that such messages may take, newest"
        " first. 0: none.",
        "A dozen rules fit many times over; a user who pins everything still leaves room for the"
        " conversation.",
        within("share", ge=0, le=0.5),
    )
    overflow_retries: int = advanced(
        2,
        "How often a request is compacted further and sent again when the upstream says it is too long.",
        "The first retry learns the window; a second covers a token count that is still wrong.",
        within("tries", ge=0, le=10),
    )
    concurrent_summaries: int = advanced(
        2,
        "Background summaries written at the same time, namespaces taking turns; a summary that a request "
        "waits for is not counted.",
        "Background work must not slow down the conversations themselves.",
        within("calls", ge=1, le=1_000),
    )
    summary_backoff_seconds: float = advanced(
        3.0,
        "Pause before the second attempt at a background summary.",
        "Gives a server time to recover; short compared with the minutes by which a summary is made ahead.",
        within("seconds", ge=0, le=300),
    )
    notify: Literal["none", "header", "comment", "event"] = setting(
        "header",
        "How a client is notified of a compaction: by the header x-palimpsest-compaction, by a comment at"
        " the "
        "beginning of a stream, or only by the session's events (event; none is the same for clients).",
        "A header disturbs no client.",
    )
    daily_log_folder: Path | None = setting(
        None,
        "Existing folder where every summary is also written as Markdown, one file per namespace and day.",
        "The database has all summaries; the log is for people who read them. None: no log.",
        "path",
    )


class RecallSettings(Section):
    """How earlier messages are found and read again."""

    enabled: bool = setting(
        True,
        "Whether messages are indexed by their words and can be looked up with the recall tools. Off: no"
        " index "
        "is written, calls of the tools are refused, and a search reads the texts themselves.",
        "The index is written outside requests and needs no model call; a session may switch it off for"
        " itself.",
    )
    large_payload_tokens: int = advanced(
        25_000,
        "A longer message is shown by the recall tools as head and tail, and read on in pages.",
        "As large as a whole working context: nobody wants to read it in one go.",
        within("tokens", ge=1_000),
    )
    search_wait_seconds: float = advanced(
        10.0,
        "How long a search waits for the index of the sessions it searches, newest first. After that it uses"
        " what is indexed and reads at most 5,000 messages that are not.",
        "The index is usually two seconds behind; `palimpsest mcp` gives a search 30 s in all.",
        within("seconds", ge=0, le=25),
    )
    search_bytes: int = advanced(
        4_000_000,
        "Bytes of matching messages that one search reads to rank them. When large messages do not fit"
        " together, only the best are read.",
        "Read in about a second; enough for more ordinary messages than the 500 that are compared.",
        within("bytes", ge=100_000, le=64_000_000),
    )
    tools: bool = setting(
        True,
        "Whether the model of a compacted conversation is offered tools to search and read earlier messages,"
        " in requests that contain tools of the client. Switched on, it takes effect at a conversation's next"
        " compaction; switched off, at once.",
        "Without them the model cannot reach folded messages. Each look-up is another call to the upstream.",
    )
    tools_for_all: bool = setting(
        False,
        "Whether the tools, if on, are also offered in requests without tools of the client.",
        "Tools may change how a model answers; some servers do not accept any.",
    )
    tools_share: float = advanced(
        0.10,
        "The tools are offered only if their descriptions take at most this share of the window without the"
        " client's own tools; 1: always.",
        "They take some 450 tokens, and their results need room: in a window of 7,000 with client tools of"
        " 4,000 they doubled the number of compactions.",
        within("share", ge=0, le=1),
    )
    max_rounds: int = advanced(
        5,
        "Look-up rounds of a model per request; then it must answer.",
        "Models search with all their words first, then with single ones; a model that only searches must be"
        " stopped.",
        within("rounds", ge=1, le=20),
    )
    result_chars: int = advanced(
        8_000,
        "Longest result of one look-up; longer ones are cut with a notice.",
        "About 2,000 tokens: three rounds fit beside a compacted prompt in small windows.",
        within("characters", ge=500, le=1_000_000),
    )

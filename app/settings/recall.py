"""Settings of finding again what was said.

Knows nothing of where values come from.
"""

from __future__ import annotations

from app.settings.fields import Section, setting


class Recall(Section):
    """How what was said is found and read again."""

    enabled: bool = setting(
        True,
        "Whether what was said is indexed by its words, and may be looked up with the tools of recall. Off: "
        "no row of an index is written, calls of tools are refused, and a search reads the texts themselves.",
        "The index is made beside the turns and costs no model call; a session may switch it off for itself.",
        unit="true or false",
    )
    large_payload_tokens: int = setting(
        25_000,
        "A message of more tokens is shown to a tool as head and tail; it is read on in pages.",
        "As much again as a whole working context: nobody means to read it in one go.",
        unit="tokens",
        ge=1_000,
    )
    search_wait_seconds: float = setting(
        10.0,
        "How long a search waits for the index of what it searches, of several sessions the newest first."
        " Then it finds what is there, and reads through what is not, at most 5,000 messages of it.",
        "The index is mostly two seconds behind; `palimpsest mcp` gives a search 30 s in all.",
        unit="seconds",
        ge=0,
        le=25,
    )
    search_bytes: int = setting(
        4_000_000,
        "The most that one search reads of the messages that hold its words, to choose the best of them. Of"
        " large ones that do not fit together only the best are read.",
        "Read in about a second; of messages of ordinary length it is more than the 500 that are compared.",
        unit="bytes",
        ge=100_000,
        le=64_000_000,
    )
    tools: bool = setting(
        True,
        "Whether the model of a compacted conversation is offered tools to search and read what was said,"
        " where the client sent tools itself. On, it counts from a conversation's next compaction; off, at"
        " once.",
        "What was folded is else out of the model's reach. A look-up is another call to the upstream.",
        unit="true or false",
    )
    tools_for_all: bool = setting(
        False,
        "Whether they are offered, too, where the client sent no tools of its own, if they are at all.",
        "A model that is given tools may answer otherwise than one without; some servers take none.",
        unit="true or false",
    )
    tools_share: float = setting(
        0.10,
        "They are offered where their descriptions take at most this share of what a window leaves beside the"
        " client's own tools; 1: always.",
        "They take some 450 tokens, and what they find needs room: in a window of 7,000 beside tools of 4,000"
        " they doubled the bill and took a third of the summary's room.",
        unit="share",
        ge=0,
        le=1,
    )
    rounds: int = setting(
        5,
        "How often in one request the model may look something up; then it must answer.",
        "Models search with all their words first, then with single ones; one that only searches must end.",
        unit="rounds",
        ge=1,
        le=20,
    )
    result_chars: int = setting(
        8_000,
        "The most that one look-up tells the model; what is longer is cut, and says so.",
        "About 2,000 tokens: three rounds of them fit beside a compacted prompt in small windows.",
        unit="characters",
        ge=500,
        le=1_000_000,
    )


class SessionRecall(Section):
    """What a session may set for itself; None: as the deployment has it."""

    enabled: bool | None = None
    tools: bool | None = None

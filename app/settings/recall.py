"""Settings of finding again what was said.

Knows nothing of where values come from.
"""

from __future__ import annotations

from app.settings.fields import Section, setting


class Recall(Section):
    """How what was said is found and read again."""

    large_payload_tokens: int = setting(
        25_000,
        "A message of more tokens is shown to a tool as head and tail; it is read on in pages.",
        "As much again as a whole working context: nobody means to read it in one go.",
        unit="tokens",
        ge=1_000,
    )
    tools: bool = setting(
        False,
        "Whether the model of a compacted conversation is offered tools to search and read what was said.",
        "Each look-up is another call to the upstream, which its caller pays for.",
        unit="true or false",
    )
    rounds: int = setting(
        3,
        "How often in one request the model may look something up; then it must answer.",
        "One search and two readings answer most questions; a model that only searches must end.",
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

    tools: bool | None = None

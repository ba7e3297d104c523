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

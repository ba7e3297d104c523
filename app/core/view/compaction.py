"""The record of a compaction: everything that, with the messages, determines what the model sees.

Pure value, immutable once stored. It never holds message text other than the summary block: kept
and masked messages are named by their chain digest, so a view is rebuilt from the archive.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

CompactionKind = Literal["message_removal", "tool_truncation_only"]
Trigger = Literal["proactive", "reactive", "overflow", "manual", "background"]
Author = Literal["model", "deterministic", "none"]


@dataclass(frozen=True, slots=True)
class Mask:
    """One tool result shown shortened: `limit_chars` of its text stay, 70 % head and 30 % tail.

    `limit_chars` counts the marker between them too.
    """

    chain: bytes
    limit_chars: int


@dataclass(frozen=True, slots=True)
class Compaction:
    """What is folded and masked from one request on, until a newer compaction applies.

    Applies to a conversation if and only if `watermark` is on its path; an empty watermark (mask
    only, nothing folded) applies if every mask's chain is. Messages up to and including the
    watermark are folded, except those in `kept`, which stay verbatim in their order. `summary` is
    the text of the user-role block that stands for the folded ones ("" when nothing is folded); `memory`
    the text of the session's memory block as it stands behind it ("" when there is none, B16).
    Tokens are calibrated prompt tokens of the whole forwarded list. `state` is what the way of
    summarising wants back next time, in its own form; `details` is a JSON object for people.
    """

    id: str
    kind: CompactionKind
    watermark: bytes
    kept: tuple[bytes, ...]
    masks: tuple[Mask, ...]
    summary: str
    policy: str
    trigger: Trigger
    author: Author
    model: str | None
    tokens_before: int
    tokens_after: int
    messages_folded: int
    parents: tuple[str, ...] = ()
    reason: str = ""
    state: bytes = b""
    details: bytes = b"{}"
    memory: str = ""

    @property
    def leaves_memory_out(self) -> bool:
        """True when there was no room for the memory block beside what must stay."""
        return b'"leaves_memory_out"' in self.details

    @property
    def alternates(self) -> bool:
        """True when its view has user and assistant by turns, as far as that is ours to do (A46)."""
        # Part of the record, as all that decides a view: a setting changes nothing between compactions.
        return self._says("alternates")

    @property
    def tells_as_user(self) -> bool:
        """True when its view tells instructions behind the preamble as a user's."""
        return self._says("tells_as_user")

    def _says(self, name: str) -> bool:
        return f'"{name}"'.encode() in self.details and json.loads(self.details).get(name) is True

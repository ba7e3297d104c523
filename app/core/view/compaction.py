"""The record of a compaction: everything that, with the messages, determines what the model sees.

Pure value, immutable once stored. It never holds message text other than the summary block: kept
and masked messages are named by their chain digest, so a view is rebuilt from the archive.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

CompactionKind = Literal["message_removal", "tool_truncation_only"]
Trigger = Literal["proactive", "reactive", "overflow", "manual", "background"]
Author = Literal["model", "deterministic", "none"]
_ID_PREFIX = "dcm_"
_ID_DIGITS = 32
_ADDRESS = "GET /api/context/"


def context_id(chain: bytes) -> str:
    """The id under which the whole message is read: `GET /api/context/{id}` (C10)."""
    return _ID_PREFIX + chain.hex()[:_ID_DIGITS]


def reference_to(tool: str, name: str) -> str:
    """How a model reads the whole of a message with the tool; "" without one, which names no id either."""
    if tool == _ADDRESS:
        return tool + name
    return f"{tool} {name}" if tool else ""


# Folds that a record is further from the messages where code wrote in a model's place: more than any number
# of folds after which records are written anew.
OWED = 1_000_000


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

    @property
    def as_system(self) -> bool:
        """True when its summary stands in the system role, before every message of the client's (B15)."""
        return self._says("as_system")

    @property
    def request_last(self) -> bool:
        """True when the newest kept user message stands behind the block: what is folded was done for it."""
        return self._says("request_last")

    @property
    def offers_tools(self) -> bool:
        """True when tools of ours go with its view, to clients that send tools themselves (rule 14)."""
        return self._says("offers_tools")

    @property
    def chained(self) -> int:
        """Folds that its record was carried through since it was last written from the messages themselves.

        One that code made in a model's place counts as `OWED`.
        """
        return self._number("chained")

    @property
    def rebuilt(self) -> int:
        """Messages that its record was written from anew; 0: from the record before and what came since."""
        return self._number("rebuilt")

    @property
    def passes(self) -> int:
        """Calls to a model that gave its text."""
        return self._number("passes")

    def owing(self) -> Compaction:
        """The same, its record due to be written from the messages."""
        return self._saying("chained", self.chained + OWED)

    def offering_tools(self, offers_tools: bool) -> Compaction:
        """The same, with or without our tools."""
        return self if self.offers_tools == offers_tools else self._saying("offers_tools", offers_tools)

    def references(self) -> Mapping[bytes, str]:
        """How the whole of each masked result is read, as its stub says; "" where the model has no tool.

        Records of the first release say an address to all.
        """
        told = json.loads(self.details)
        tool = told.get("reads_by", _ADDRESS)
        names = {mask.chain: context_id(mask.chain) for mask in self.masks} | self._stored(told)
        return {chain: reference_to(tool, name) for chain, name in names.items()}

    def names(self) -> Mapping[bytes, str]:
        """The ids under which the masked messages are stored."""
        own = {mask.chain: context_id(mask.chain) for mask in self.masks}
        return own | self._stored(json.loads(self.details))

    def named(self, stored: Mapping[bytes, bytes]) -> Compaction:
        """With the digests under which messages are `stored`, where a client's jump made them others."""
        changed = {
            mask.chain.hex(): context_id(stored[mask.chain])
            for mask in self.masks
            if stored.get(mask.chain, mask.chain) != mask.chain
        }
        if not changed:
            return self
        return replace(self, details=json.dumps(json.loads(self.details) | {"stored": changed}).encode())

    @staticmethod
    def _stored(told: dict[str, Any]) -> dict[bytes, str]:
        return {bytes.fromhex(chain): str(name) for chain, name in told.get("stored", {}).items()}

    def _saying(self, name: str, value: object) -> Compaction:
        said = {**json.loads(self.details), name: value}
        return replace(self, details=json.dumps({key: each for key, each in said.items() if each}).encode())

    def _number(self, name: str) -> int:
        return int(json.loads(self.details).get(name, 0)) if f'"{name}"'.encode() in self.details else 0

    def _says(self, name: str) -> bool:
        return f'"{name}"'.encode() in self.details and json.loads(self.details).get(name) is True

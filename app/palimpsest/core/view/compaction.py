"""The record of a compaction: everything that, with the messages, determines what the model sees.

A record never holds message text other than the summary block and the memory block: kept and masked messages
are named by their chain digest, and a view is rebuilt from the archive. Also how compactions build on each
other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

CompactionKind = Literal["message_removal", "tool_truncation_only"]
Trigger = Literal["proactive", "reactive", "overflow", "manual", "background"]
Author = Literal["model", "deterministic", "none"]
# As many as every database holds: an import may bring anything.
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_ID_PREFIX = "dcm_"
_ID_DIGITS = 32
_ADDRESS = "GET /api/context/"


def context_id(chain: bytes) -> str:
    """The id under which the whole message is read: `GET /api/context/{id}` (C10)."""
    return _ID_PREFIX + chain.hex()[:_ID_DIGITS]


def reference_to(tool: str, name: str) -> str:
    """How a model reads a whole message with the tool; "" without a tool."""
    if tool == _ADDRESS:
        return tool + name
    return f"{tool} {name}" if tool else ""


# Details that describe how the text was written.
_EFFORT = frozenset({"passes", "run_id", "guard_tokens", "spent"})


class SpentTokens(NamedTuple):
    """Tokens that the calls for a summary took; `cached` is the part of `prompt` that a cache served.

    `cost`: in the currency of the prices of then; None where these were unknown.
    """

    prompt: int
    cached: int
    completion: int
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class Mask:
    """A tool result shown shortened to `limit_chars`: 70 % head and 30 % tail.

    `limit_chars` includes the marker between them.
    """

    chain: bytes
    limit_chars: _Count


@dataclass(frozen=True, slots=True)
class Compaction:
    """What is folded and masked from one request on, until a newer compaction applies.

    It applies to a conversation if and only if `watermark` is on its path; an empty watermark (mask only,
    nothing folded) applies if every mask's chain is. Messages up to and including the watermark are folded,
    except those in `kept`, which stay verbatim in their order. `summary` is the text of the user-role block
    that replaces the folded ones ("" when nothing is folded); `memory` the text of the session's memory block
    after it ("" when there is none, B16). Tokens are calibrated prompt tokens of the whole forwarded list.
    `state` is what the style of summarising needs for the next fold, in its own form; `details` is a JSON
    object for people.
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
    tokens_before: _Count
    tokens_after: _Count
    messages_folded: _Count
    parents: tuple[str, ...] = ()
    reason: str = ""
    state: bytes = b""
    details: bytes = b"{}"
    memory: str = ""

    @property
    def leaves_memory_out(self) -> bool:
        """True when there was no room for the memory block beside what must stay."""
        return self._detail("leaves_memory_out") is True

    @property
    def alternates(self) -> bool:
        """True when its view alternates user and assistant as far as we control it (A46)."""
        # In the record, like all that decides a view: a changed setting has no effect between compactions.
        return self._detail("alternates") is True

    @property
    def tells_as_user(self) -> bool:
        """True when its view shows instructions after the preamble as user messages."""
        return self._detail("tells_as_user") is True

    @property
    def as_system(self) -> bool:
        """True when its summary has the system role, before all messages of the client (B15)."""
        return self._detail("as_system") is True

    @property
    def request_last(self) -> bool:
        """True when the newest kept user message follows the block: the folded messages were work on it."""
        return self._detail("request_last") is True

    @property
    def offers_tools(self) -> bool:
        """True when our tools are sent with its view, to clients that send tools themselves (rule 14)."""
        return self._detail("offers_tools") is True

    @property
    def owes_entry(self) -> bool:
        """True when its record lacks an entry that a model was expected to write."""
        return self._detail("owes_entry") is True

    @property
    def covers(self) -> bytes:
        """The last message that its record tells of: beyond the watermark where messages were given back."""
        said = self._detail("covers")
        return bytes.fromhex(said) if said else self.watermark

    @property
    def passes(self) -> int:
        """Calls to a model that wrote its text."""
        return int(self._detail("passes", 0))

    @property
    def spent(self) -> SpentTokens | None:
        """What its text took, rejected answers of the same run included; None where it was not kept."""
        found = self._detail("spent")
        return SpentTokens(*found) if found else None

    @property
    def cost(self) -> float | None:
        """What the calls for its text cost; 0 where code wrote it, None where that was not known."""
        spent = self.spent
        return 0.0 if self.author != "model" else spent and spent.cost

    def owing_entry(self) -> Compaction:
        """The same compaction, whose record lacks an entry that a model was expected to write."""
        return self._saying("owes_entry", True)

    def covering(self, chain: bytes) -> Compaction:
        """The same compaction, whose record covers the messages up to `chain`."""
        return self._saying("covers", "" if chain == self.watermark else chain.hex())

    def by(self, other: Compaction) -> Compaction:
        """The same compaction with the authorship of `other`, whose record it contains."""
        details = json.loads(other.details)
        effort = {name: details[name] for name in _EFFORT if name in details}
        rest = {name: value for name, value in json.loads(self.details).items() if name not in _EFFORT}
        return replace(
            self, author=other.author, model=other.model, details=json.dumps(rest | effort).encode()
        )

    def offering_tools(self, offers_tools: bool) -> Compaction:
        """The same compaction, with or without our tools."""
        return self if self.offers_tools == offers_tools else self._saying("offers_tools", offers_tools)

    def references(self) -> Mapping[bytes, str]:
        """How the whole of each masked result is read, as its stub says; "" where the model has no tool.

        Records of the first release give an address to every model.
        """
        tool = self._detail("reads_by", _ADDRESS)
        return {chain: reference_to(tool, name) for chain, name in self.names().items()}

    def names(self) -> Mapping[bytes, str]:
        """The ids under which the masked messages are stored."""
        stored = self._detail("stored", {})
        own = {mask.chain: context_id(mask.chain) for mask in self.masks}
        return own | {bytes.fromhex(chain): str(name) for chain, name in stored.items()}

    def named(self, stored: Mapping[bytes, bytes]) -> Compaction:
        """The same compaction, with the ids of messages `stored` under other digests after a rebase."""
        changed = {
            mask.chain.hex(): context_id(stored[mask.chain])
            for mask in self.masks
            if stored.get(mask.chain, mask.chain) != mask.chain
        }
        if not changed:
            return self
        return replace(self, details=json.dumps(json.loads(self.details) | {"stored": changed}).encode())

    def _saying(self, name: str, value: object) -> Compaction:
        others = {key: each for key, each in json.loads(self.details).items() if key != name}
        return replace(self, details=json.dumps(others | ({name: value} if value else {})).encode())

    def _detail(self, name: str, otherwise: Any = None) -> Any:
        """What the details say under a name; they are parsed only where the name occurs."""
        if f'"{name}"'.encode() not in self.details:
            return otherwise
        return json.loads(self.details).get(name, otherwise)


def builders(compaction: Compaction, standing: Sequence[Compaction]) -> tuple[Compaction, ...]:
    """Those of `standing` that were made from it; they cannot stay in force when it is undone."""
    return tuple(other for other in standing if compaction.id in other.parents)


def restored(
    compaction: Compaction, everything: Sequence[Compaction], standing: Sequence[Compaction]
) -> Compaction | None:
    """The nearest ancestor in force; None when the conversation is shown uncompacted again."""
    known = {other.id: other for other in everything}
    stand = {other.id for other in standing}
    seen: set[str] = set()
    parents = list(compaction.parents)
    while parents:
        parent = known.get(parents.pop(0))
        if parent is None or parent.id in seen:
            continue
        if parent.id in stand:
            return parent
        seen.add(parent.id)
        parents += parent.parents
    return None

"""What a client is shown of the objects that answer a request of the Responses API, whole or in an event.

Pure. An upstream repeats there what it was sent: our tools, and their choice, are taken out again. Of an
object without any of ours, behind no hidden round, not a byte is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from app.core.recall.rounds.items import visible_items
from app.core.recall.rounds.json_edits import replaced
from app.core.recall.rounds.offer import is_named_as_ours
from app.core.wire.json_members import raw_elements, raw_members
from app.core.wire.json_text import decoded

_COUNTS = ("output_tokens", "total_tokens")


@dataclass(slots=True)
class SoFar:
    """What the client knows of its answer from the rounds before: `hidden_tokens` are those they wrote.

    `ident` is the id, as JSON, that the answer began with: None while it has none. `items` were shown, at
    `places` of them. `next_number` is what an event would be numbered next, None where none had a number;
    they are numbered anew once one `is_missing`.
    """

    hidden_tokens: int = 0
    ident: bytes | None = None
    items: list[bytes] = field(default_factory=list)
    places: int = 0
    next_number: int | None = None
    is_missing: bool = False


def visible_object(text: bytes, so_far: SoFar, under: Sequence[str] = ()) -> bytes:
    """`text`, its object at `under` shown as the answer of all rounds: one id, one list, honest counts."""
    fields = raw_members(text)
    for key in under:
        fields = raw_members(fields[key])
    new: dict[tuple[str, ...], bytes] = {}
    if so_far.ident is not None and "id" in fields:
        new["id",] = so_far.ident
    if "tools" in fields:
        new["tools",] = _without_ours(fields["tools"])
    if fields.get("tool_choice") == b'"none"':
        # Nobody who chooses "none" is offered anything: it was said by us.
        new["tool_choice",] = b'"auto"'
    if "output" in fields:
        new["output",] = _output(fields["output"], so_far)
    new |= {("usage", key): count for key, count in _counts(fields.get("usage"), so_far).items()}
    for path, value in new.items():
        at = raw_members(fields["usage"])[path[1]] if len(path) > 1 else fields[path[0]]
        if at != value:
            text = replaced(text, (*under, *path), value)
    return text


def hidden_output(body: bytes) -> list[bytes]:
    """The items that the client sees of a whole answer which is not its last."""
    return visible_items(raw_elements(raw_members(body).get("output", b"[]")))


def _output(raw: bytes, so_far: SoFar) -> bytes:
    said = raw_elements(raw)
    if not said:
        # It has only begun, or the server does not repeat what it said.
        return raw
    seen = visible_items(said)
    if not so_far.items and len(seen) == len(said):
        return raw
    return b"[" + b",".join([*so_far.items, *seen]) + b"]"


def _without_ours(raw: bytes) -> bytes:
    tools = raw_elements(raw)
    kept = [tool for tool in tools if not is_named_as_ours(decoded(tool))]
    return raw if len(kept) == len(tools) else b"[" + b",".join(kept) + b"]"


def _counts(raw: bytes | None, so_far: SoFar) -> dict[str, bytes]:
    """Those counts that hidden rounds add to (rule 17)."""
    usage = decoded(raw) if raw is not None and so_far.hidden_tokens else None
    counts = {key: usage.get(key) for key in _COUNTS} if isinstance(usage, dict) else {}
    return {
        key: str(count + so_far.hidden_tokens).encode()
        for key, count in counts.items()
        if isinstance(count, int) and not isinstance(count, bool)
    }

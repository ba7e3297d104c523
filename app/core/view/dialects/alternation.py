"""Lists for upstreams that want user and assistant by turns: users merged, a summary acknowledged.

Pure: raw messages in, raw messages out, and which became which. Knows nothing of settings, nor of why a
list has two user messages in a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.core.view.splice import elements, encoded, members, string_at

# Said by the assistant after the summary block, before the next user message (D19).
ACKNOWLEDGEMENT = "Understood. I continue from this summary."

_INSTRUCTIONS = frozenset({"system", "developer"})
# Stands between the texts of merged messages, as spelled inside a JSON string.
BETWEEN = r"\n\n"
# Parts that are text: of chat completions, and of the Responses API.
_TEXT_PARTS = ("text", "input_text")


@dataclass(frozen=True, slots=True)
class Alternated:
    """Messages to send; `sources[i]` are the indexes of those that `messages[i]` was made of.

    One index: that message, byte for byte. Several: user messages merged. None: the acknowledgement.
    """

    messages: tuple[bytes, ...]
    sources: tuple[tuple[int, ...], ...]

    @property
    def is_changed(self) -> bool:
        """True when anything was merged or added."""
        return any(len(source) != 1 for source in self.sources)


def acknowledged(messages: Sequence[bytes], summary: int | None) -> Alternated:
    """The list with a short assistant message after the summary block where a user message follows it (D19).

    Unchanged where an assistant follows or nothing does, and without a summary: the list must not end
    with an assistant who was not asked, nor hold two in a row.
    """
    places: list[tuple[int, ...]] = [(index,) for index in range(len(messages))]
    made = list(messages)
    if summary is not None and _next_role(messages, summary) == "user":
        made.insert(summary + 1, f'{{"role":"assistant","content":{encoded(ACKNOWLEDGEMENT)}}}'.encode())
        places.insert(summary + 1, ())
    return Alternated(tuple(made), tuple(places))


def merged_users(messages: Sequence[bytes]) -> Alternated:
    """The list with neighbouring user messages merged into the first of them (A46).

    Texts are joined by two newlines and spelled as they were. Only text is merged: a message with any
    other part, or with other fields than its neighbour's (a `name`), stays as it is, and so do tool
    results. Parts stay parts, with their own fields; a text beside them becomes one.
    """
    runs: list[tuple[list[int], _Said | None]] = []
    for index, raw in enumerate(messages):
        said = _said(raw)
        before = runs[-1][1] if runs else None
        if said is not None and before is not None and said.others == before.others:
            runs[-1][0].append(index)
        else:
            runs.append(([index], said))
    made = [
        messages[run[0]] if len(run) == 1 else _merged([messages[index] for index in run]) for run, _ in runs
    ]
    return Alternated(tuple(made), tuple(tuple(run) for run, _ in runs))


@dataclass(frozen=True, slots=True)
class _Said:
    """A user message of text alone: where its content stands, and its other fields as spelled.

    `inner` are its texts as spelled between their quotes, when the content is one string; else None.
    `parts` are its parts with the place, in each, where the text begins.
    """

    text: str
    content: tuple[int, int]
    others: Mapping[str, str]
    inner: str | None
    parts: tuple[tuple[str, int], ...]


def _said(raw: bytes) -> _Said | None:
    """The user message; None when it is another's, or holds anything but text."""
    if b'"user"' not in raw:
        # Most messages are told apart without being read.
        return None
    text = raw.decode("utf-8", "surrogatepass")
    places = {key: (start, stop) for key, start, stop in members(text)}
    if "content" not in places or "role" not in places or string_at(text, places["role"][0]) != "user":
        return None
    start, stop = places["content"]
    others = {key: text[a:b] for key, (a, b) in places.items() if key not in ("role", "content")}
    if others.get("type") == '"message"':
        # An item that names its kind is no other than one that does not.
        del others["type"]
    if text[start] == '"':
        return _Said(text, (start, stop), others, text[start + 1 : stop - 1], ())
    parts = _text_parts(text, start) if text[start] == "[" else ()
    return _Said(text, (start, stop), others, None, parts) if parts else None


def _text_parts(text: str, start: int) -> tuple[tuple[str, int], ...]:
    """Each part and where its text begins in it; none when any part is no text part."""
    parts = []
    for at, end in elements(text, start):
        places = {key: place for key, *place in members(text, at)} if text[at] == "{" else {}
        if "type" not in places or "text" not in places:
            return ()
        kind = string_at(text, places["type"][0])
        if kind not in _TEXT_PARTS or string_at(text, places["text"][0]) is None:
            return ()
        parts.append((text[at:end], places["text"][0] + 1 - at))
    return tuple(parts)


def _merged(messages: Sequence[bytes]) -> bytes:
    run = [said for said in map(_said, messages) if said is not None]
    first = run[0]
    start, stop = first.content
    inner = [said.inner for said in run if said.inner is not None]
    if len(inner) == len(run):
        content = f'"{BETWEEN.join(inner)}"'
    else:
        # What was one string becomes a part of the same API.
        is_item = any('"input_text"' in part for said in run for part, _ in said.parts)
        kind = "input_text" if is_item else "text"
        pieces = [piece for place, said in enumerate(run) for piece in _as_parts(said, kind, place > 0)]
        content = "[" + ",".join(pieces) + "]"
    return (first.text[:start] + content + first.text[stop:]).encode("utf-8", "surrogatepass")


def _as_parts(said: _Said, kind: str, is_later: bool) -> list[str]:
    """The message as text parts; of a later one the first begins with what stands between."""
    between = BETWEEN if is_later else ""
    if said.inner is not None:
        return [f'{{"type":"{kind}","text":"{between}{said.inner}"}}']
    (part, at), *others = said.parts
    return [part[:at] + between + part[at:], *(part for part, _ in others)]


def _next_role(messages: Sequence[bytes], index: int) -> str | None:
    """The role of the first message after `index` that is no instruction; None when there is none."""
    for raw in messages[index + 1 :]:
        text = raw.decode("utf-8", "surrogatepass")
        role = next((string_at(text, start) for key, start, _ in members(text) if key == "role"), None)
        if role not in _INSTRUCTIONS:
            return role
    return None

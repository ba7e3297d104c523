"""JSON texts as hostile and as odd as the grammar allows: spellings, escapes, blanks, sizes."""

from __future__ import annotations

import json

from hypothesis import strategies as st

BLANKS = st.sampled_from(["", "", "", " ", "\n", "\t ", " \r\n "])
NUMBERS = st.sampled_from([
    "0", "-0", "7", "1e2", "100.0", "1E+400", "0.1", "0.1000000000000000055", "-1.5e-7",
    "1234567890123456789012345", "9876", "1e99999999999999999999",
]).map(lambda number: number * 1_250 if number == "9876" else number)  # fmt: skip
ESCAPES = st.sampled_from([
    r"\"", r"\\", r"\/", r"\b", r"\n", r"\u0041", r"\u0000", r"\u0022", r"\u005c",
    r"\ud83d", r"\ude00", r"\ud83d\ude00", r"\\\"", r"\\\\",
])  # fmt: skip
PLAIN = st.text(
    st.characters(exclude_categories=["Cs"], min_codepoint=32, exclude_characters='"\\'), max_size=8
)
STRINGS = st.lists(PLAIN | ESCAPES | st.sampled_from(["{", "}", "[", "]", ",", ":"]), max_size=4).map(
    lambda pieces: '"' + "".join(pieces) + '"'
)
SCALARS = STRINGS | NUMBERS | st.sampled_from(["true", "false", "null"])


def _array(items: list[tuple[str, str, str]]) -> str:
    return "[" + (",".join(a + item + b for a, item, b in items) or " ") + "]"


def _object(members: list[tuple[str, str, str, str]]) -> str:
    return "{" + ",".join(f"{a}{key}{b}:{a}{value}{b}" for key, value, a, b in members) + "}"


def _key(member: tuple[str, str, str, str]) -> str:
    key: str = json.loads(member[0])
    return key


def objects_of(
    values: st.SearchStrategy[str], keys: st.SearchStrategy[str] = STRINGS
) -> st.SearchStrategy[str]:
    """Objects without repeated keys, whatever the keys' spelling."""
    members = st.lists(st.tuples(keys, values, BLANKS, BLANKS), max_size=4, unique_by=_key)
    return members.map(_object)


VALUES: st.SearchStrategy[str] = st.recursive(
    SCALARS,
    lambda inner: st.lists(st.tuples(BLANKS, inner, BLANKS), max_size=4).map(_array) | objects_of(inner),
    max_leaves=6,
)
OBJECTS = objects_of(VALUES)

# Fields nobody knows, which must survive whatever is done to a message.
EXTRAS = st.lists(
    st.tuples(STRINGS.map(lambda text: '"x-' + text[1:]), VALUES, BLANKS, BLANKS), max_size=2, unique_by=_key
)


@st.composite
def messages(draw: st.DrawFn) -> str:
    """A message in any spelling: a role, content of either form, unknown fields, in any order."""
    role = draw(st.sampled_from(["user", "assistant", "tool", "system", "developer", "someone"]))
    part = f'{{"type":"text","text":{draw(STRINGS)}}}'
    content = draw(st.sampled_from([draw(STRINGS), f"[{part}]", f"[ {part} , {part}]", "null"]))
    blank = draw(BLANKS)
    members = [
        ('"role"', f'"{role}"', blank, ""),
        (draw(st.sampled_from(['"content"', r'"\u0063ontent"'])), content, "", blank),
        *draw(EXTRAS),
    ]
    return _object(draw(st.permutations(members)))


@st.composite
def requests(draw: st.DrawFn) -> tuple[bytes, tuple[bytes, ...]]:
    """The body of a request, and the bytes of its messages."""
    spoken = draw(st.lists(messages(), min_size=1, max_size=3))
    blank = draw(BLANKS)
    listed = "[" + f"{blank},{blank}".join(spoken) + blank + "]"
    members = [('"messages"', listed, blank, blank), ('"model"', draw(STRINGS), "", blank), *draw(EXTRAS)]
    body = _object(draw(st.permutations(members)))
    return f"{blank}{body}{blank}".encode(), tuple(message.encode() for message in spoken)

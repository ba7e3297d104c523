"""Units as functions of a PostgreSQL connection: all steps of a unit in one round trip.

Step by step a unit takes a round trip for each statement, and two for its transaction. A function has the
statements of one shape of unit, and the conditions between them; values are its arguments, one array per
type. It is made in the connection's temporary schema when a unit of its shape is first written, and is named
by a digest of its text: the same name cannot mean something else, also behind a pooler that shares
connections.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TypeAlias

from palimpsest.storage.database import After

# A step's text, the number of its rows, its condition, and whether the unit needs it.
ShapeStep: TypeAlias = tuple[str, int, After, bool]
Shape: TypeAlias = tuple[ShapeStep, ...]
# One list of values per type.
Arguments: TypeAlias = tuple[list[object], ...]
# More rows are written step by step: a function's text grows with them.
MOST_ROWS = 12
# Shapes differ in the steps that an exchange needs and in rows: some dozens are in use.
_SHAPES = 256
# PostgreSQL's types of the arguments, and the casts in our statements that take them.
_TYPES = ("text", "bytea", "bigint", "float8", "boolean")
_CASTS = {"VARCHAR": 0, "TEXT": 0, "BYTEA": 1, "BIGINT": 2, "INTEGER": 2, "FLOAT": 3, "BOOLEAN": 4}
_PARAMETER = re.compile(r"\$(\d+)(?:::([A-Z]+))?")
_WRITES = ("INSERT ", "UPDATE ", "DELETE ")
_HEAD = (
    "CREATE OR REPLACE FUNCTION pg_temp.{name}("
    + ", ".join(f"{type_}[]" for type_ in _TYPES)
    + ") RETURNS bigint[] LANGUAGE plpgsql AS $unit$\n#variable_conflict use_column\n"
    "DECLARE unit_touched bigint[] := '{{}}'; unit_last bigint := 0; unit_row bigint;\nBEGIN\n"
)
_TAIL = "RETURN unit_touched;\nEND $unit$"
_DUE = {"any": "true", "touched": "unit_last > 0", "untouched": "unit_last = 0"}


@dataclass(frozen=True, slots=True)
class UnitFunction:
    """A function for units of one shape: how it is made and called, and where the values of each row go.

    `places` has, for each step, the type's number of each parameter.
    """

    name: str
    create: str
    call: str
    places: tuple[tuple[int, ...], ...]

    def arguments(self, steps: Sequence[Sequence[Sequence[object]]]) -> Arguments:
        """The arguments for the rows of each step, in the order of the statements' parameters."""
        arrays: Arguments = tuple([] for _ in _TYPES)
        for rows, places in zip(steps, self.places, strict=True):
            for row in rows:
                for place, value in zip(places, row, strict=True):
                    arrays[place].append(value)
        return arrays


@lru_cache(maxsize=_SHAPES)
def function_of(shape: Shape) -> UnitFunction | None:
    """The function for units of this shape; None when it must be written step by step."""
    places = tuple(found for sql, *_ in shape if (found := _places(sql)) is not None)
    if len(places) < len(shape) or sum(rows for _, rows, _, _ in shape) > MOST_ROWS:
        return None
    text = "".join(_statements(shape, places))
    name = f"unit_{hashlib.sha256(text.encode()).hexdigest()[:32]}"
    slots = ", ".join(f"${number}" for number in range(1, len(_TYPES) + 1))
    call = f"SELECT pg_temp.{name}({slots})"
    return UnitFunction(name, _HEAD.format(name=name) + text + _TAIL, call, places)


def _places(sql: str) -> tuple[int, ...] | None:
    """The type's number of each parameter, in order; None for what writes no rows, or an unknown type."""
    casts = {int(number): cast for number, cast in _PARAMETER.findall(sql)}
    if not sql.startswith(_WRITES) or not all(cast in _CASTS for cast in casts.values()):
        return None
    return tuple(_CASTS[casts[number]] for number in sorted(casts))


def _statements(shape: Shape, places: Sequence[Sequence[int]]) -> Iterator[str]:
    """The body's text: each step with its condition, for each of its rows."""
    used = [0] * len(_TYPES)
    for (sql, rows, after, needed), own in zip(shape, places, strict=True):
        yield f"IF {_DUE[after]} THEN\nunit_last := 0;\n"
        for _ in range(rows):
            slots = []
            for place in own:
                used[place] += 1
                slots.append(f"${place + 1}[{used[place]}]")
            yield _PARAMETER.sub(partial(_slot, slots), sql)
            yield ";\nGET DIAGNOSTICS unit_row = ROW_COUNT;\nunit_last := unit_last + unit_row;\n"
        yield "unit_touched := unit_touched || unit_last;\nELSE unit_touched := unit_touched || 0::bigint;\n"
        yield "END IF;\n"
        if needed:
            yield "IF unit_touched[array_length(unit_touched, 1)] = 0 THEN RETURN unit_touched; END IF;\n"


def _slot(slots: Sequence[str], found: re.Match[str]) -> str:
    return slots[int(found[1]) - 1] + (f"::{found[2]}" if found[2] else "")

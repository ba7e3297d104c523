"""Units as triggers of the write connection: all steps of a unit in one call of SQLite.

Whenever SQLite returns, the writer's thread waits for the interpreter's lock until the event loop yields, and
the loop then waits in turn (docs/decisions/0022). A temporary view has a column for each value of one shape
of unit; a trigger runs the shape's statements instead of an insert into the view.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import TypeAlias

from palimpsest.storage.database import After

# A step's text, the number of its rows, its condition, and whether the unit needs it.
ShapeStep: TypeAlias = tuple[str, int, After, bool]
Shape: TypeAlias = tuple[ShapeStep, ...]
# More rows are written step by step: a trigger's text grows with them.
MOST_ROWS = 12
# Shapes differ in the steps that an exchange needs and in rows: some dozens are in use.
_SHAPES = 256
# What a conditional step asks of the step before it.
_DUE = {"touched": " AND changes() > 0", "untouched": " AND changes() = 0"}


@dataclass(frozen=True, slots=True)
class UnitTrigger:
    """The trigger of one shape of unit.

    `create` makes the view `name` and the trigger on it; `call` takes the values of all rows, in the order of
    the steps and of their parameters.
    """

    name: str
    create: tuple[str, str]
    call: str


@lru_cache(maxsize=_SHAPES)
def trigger_of(shape: Shape) -> UnitTrigger | None:
    """The trigger for units of this shape; None when they must be written step by step."""
    if not _can_be_one(shape):
        return None
    values = count()
    body = "".join(_statements(shape, values))
    number = next(values)
    name = f"unit_{hashlib.sha256(body.encode()).hexdigest()[:32]}"
    columns = ", ".join(f"NULL AS p{place}" for place in range(number))
    return UnitTrigger(
        name,
        (
            f"CREATE TEMP VIEW {name} AS SELECT {columns}",
            f"CREATE TEMP TRIGGER {name}_steps INSTEAD OF INSERT ON {name} BEGIN {body}END",
        ),
        f"INSERT INTO {name} VALUES ({', '.join('?' * number)})",  # noqa: S608 - a digest and question marks
    )


def _can_be_one(shape: Shape) -> bool:
    """True when `changes()`, the rows of the statement before, is what all conditions ask about."""
    if not 0 < sum(rows for _, rows, _, _ in shape) <= MOST_ROWS:
        return False
    for place, (sql, rows, after, needed) in enumerate(shape):
        if (needed or after != "any") and rows != 1:
            return False
        if after == "any":
            continue
        # A condition extends a WHERE, which ends the text of an UPDATE alone. A step that was skipped would
        # count as one that has touched nothing.
        is_after_plain = place > 0 and shape[place - 1][1:3] == (1, "any")
        if not (is_after_plain and sql.startswith("UPDATE ") and " WHERE " in sql):
            return False
    return any("?" in sql for sql, *_ in shape)


def _statements(shape: Shape, values: Iterator[int]) -> Iterator[str]:
    """The body's text: each step with its condition, for each of its rows."""
    for sql, rows, after, needed in shape:
        # Our statements have their values as parameters: no text in them has a question mark.
        pieces = sql.split("?")
        for _ in range(rows):
            yield pieces[0]
            for piece in pieces[1:]:
                yield f"NEW.p{next(values)}{piece}"
            yield f"{_DUE.get(after, '')};\n"
        if needed:
            # Ends this unit; what its earlier steps have written stays.
            yield "SELECT RAISE(IGNORE) WHERE changes() = 0;\n"

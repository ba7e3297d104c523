"""JSON numbers compared by value, however they are spelled: 1e2, 100 and 100.0 are one number.

Knows nothing of where the numbers stand.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NUMBER = re.compile(r"(-?)(\d+)(?:\.(\d*))?(?:[eE]([+-]?\d+))?")
# Exponents of more digits are compared as they are spelled: Python refuses to read far longer ones.
_EXPONENT_DIGITS = 1_000


@dataclass(frozen=True, slots=True)
class Number:
    """A number by value: `text` is equal for two spellings exactly when their decimal values are equal.

    It is as long as the significant digits: an exponent is never expanded.
    """

    text: str


def number(spelling: str) -> Number:
    """The number a JSON (or Python float) literal stands for."""
    match = _NUMBER.fullmatch(spelling)
    if match is None:
        # inf and nan, which only Python's own floats can be.
        return Number(spelling)
    sign, whole, fraction, exponent = match[1], match[2], match[3] or "", match[4] or "0"
    digits = (whole + fraction).lstrip("0")
    significant = digits.rstrip("0")
    if not significant:
        return Number("0")
    if len(exponent) > _EXPONENT_DIGITS:
        return Number(spelling)
    power = int(exponent) - len(fraction) + len(digits) - len(significant)
    return Number(f"{sign}{significant}e{power}")

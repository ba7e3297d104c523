"""A worker's template: a text with variables for the summary so far and for the messages since.

Imports no styles, because settings are validated by it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

VARIABLES = ("PREVIOUS_SUMMARY", "CONVERSATION")
_VARIABLE = re.compile(r"\{\{\s*(" + "|".join(VARIABLES) + r")\s*\}\}")


def checked_template(text: str) -> str:
    """`text` when it has both variables; ValueError naming the missing ones otherwise."""
    found = set(_VARIABLE.findall(text))
    missing = [f"{{{{{name}}}}}" for name in VARIABLES if name not in found]
    if missing:
        raise ValueError(f"the summarizer's template must contain {' and '.join(missing)}")
    return text


def filled(template: str, values: Mapping[str, str]) -> str:
    """`template` with the values of both variables.

    In one pass, so that the name of a variable inside a message stays as it is.
    """
    return _VARIABLE.sub(lambda match: values[match[1]], template)

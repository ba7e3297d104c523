"""The tagged fence around a summary block: written once, balanced, whatever stands inside.

Knows nothing of sections or of what a summary says. A block is recognised by its record, never by
these tags; they are for the model's eyes.
"""

from __future__ import annotations

import re

# The tag of `auto`. A31 uses another name in its source; it is a setting.
DEFAULT_TAG = "palimpsest_summary"

_FENCE = re.compile(r"\A\s*<([A-Za-z][\w-]*)>\n(.*)\n</\1>\s*\Z", re.DOTALL)
# NUL cannot be stored as text by PostgreSQL, lone surrogates cannot be sent as UTF-8.
_UNSENDABLE = re.compile("[\x00\ud800-\udfff]")


def escaped(text: str, tag: str) -> str:
    """`text` without any opening or closing `tag`, in any case or spacing (F28). Idempotent."""
    if tag.lower() not in text.lower():
        return text
    return re.sub(rf"<(?=\s*/?\s*{re.escape(tag)}\b)", "&lt;", text, flags=re.IGNORECASE)


def fenced(body: str, tag: str) -> str:
    """`body` between one opening and one closing `tag`, each occurring exactly once, sendable as UTF-8."""
    return f"<{tag}>\n{escaped(sendable(body), tag).strip()}\n</{tag}>"


def unfenced(block: str) -> str:
    """The body of a block under whatever tag it was fenced; a text without a fence comes back as it is."""
    match = _FENCE.match(block)
    return match.group(2) if match else block


def sendable(text: str) -> str:
    """`text` with every NUL and lone surrogate replaced by U+FFFD."""
    # Most text has neither, which is seen a hundred times faster than it is looked for.
    if text.isascii() and "\x00" not in text:
        return text
    return _UNSENDABLE.sub("\ufffd", text)

"""The tagged fence around a summary block: one balanced pair of tags, whatever the block contains.

The tags are for the model. A block is identified by its stored record, never by them.
"""

from __future__ import annotations

import re

# The tag of `auto`; a setting. A31 uses another name in its source.
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
    """`body` between an opening and a closing `tag`, each of which occurs exactly once; valid as UTF-8."""
    return f"<{tag}>\n{escaped(sendable(body), tag).strip()}\n</{tag}>"


def unfenced(block: str) -> str:
    """The body of a block, whatever its tag is; a text without a fence is returned unchanged."""
    match = _FENCE.match(block)
    return match.group(2) if match else block


def sendable(text: str) -> str:
    """`text` with every NUL and lone surrogate replaced by U+FFFD."""
    # Most text is plain ASCII; this check is a hundred times faster than the pattern.
    if text.isascii() and "\x00" not in text:
        return text
    return _UNSENDABLE.sub("\ufffd", text)

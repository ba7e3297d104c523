"""Which tool results are expanded documents, which may take more than others (A08).

Recognised by what the call names, by the tool's name, or by the marks that converters leave in the text.
Knows nothing of limits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# A name before the ending, so that a pattern such as "*.pdf" is none.
_PATH = re.compile(r"[^\s\"'*?\\/(\[{,;=]\.(?:docx|pdf|pptx)(?![A-Za-z0-9_])", re.IGNORECASE)
_KINDS = frozenset({"pdf", "docx", "pptx", "markitdown", "pdftotext"})
_DOCUMENTS = frozenset({"document", "doc"})
_READING = frozenset({"read", "reader", "extract", "parse", "open", "load", "convert", "view", "fetch"})
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")

# Marks stand near the beginning; so many characters are looked at, and as many for what goes on.
_OPENING_CHARS = 4_000
_LATER_CHARS = 100_000
_MEDIA = re.compile(
    r"application/(?:pdf|vnd\.openxmlformats-officedocument\.(?:wordprocessingml|presentationml))"
)
# A line that numbers a page or a slide: "--- Page 2 ---", "[Page 2 of 9]", "<!-- Slide number: 2 -->".
_PAGE = re.compile(
    r"^[\W_]{0,12}(?:page|slide)(?: number:)?\s{0,2}(\d{1,4})(?:\s{0,2}(?:/|of)\s{0,2}\d{1,4})?[\W_]{0,12}$",
    re.IGNORECASE | re.MULTILINE,
)
# pdftotext ends pages with form feeds.
_FORM_FEED = "\f"
# So many marks of pages make a document: one may stand in any text.
_MARKS = 2


def is_document(call: object, text: str) -> bool:
    """True when a tool result with this text, answering this call, is an expanded docx, pdf or pptx.

    `call` is an entry of `tool_calls`, or a legacy `function_call`; anything else names nothing.
    """
    name, arguments = _named(call)
    return _PATH.search(arguments) is not None or _reads_documents(name) or _is_marked(text)


def _named(call: object) -> tuple[str, str]:
    """The tool's name and its arguments as text; empty where the call has none."""
    if not isinstance(call, Mapping):
        return "", ""
    inner: Mapping[str, Any] = call
    for kind in ("function", "custom"):
        if isinstance(call.get(kind), Mapping):
            inner = call[kind]
    arguments = inner.get("arguments", inner.get("input"))
    return str(inner.get("name") or ""), str(arguments or "")


def _reads_documents(name: str) -> bool:
    words = {word.lower() for word in _WORDS.findall(name)}
    return bool(words & _KINDS) or bool(words & _DOCUMENTS and words & _READING)


def _is_marked(text: str) -> bool:
    opening = text[:_OPENING_CHARS]
    if opening.lstrip().startswith("%PDF-") or _MEDIA.search(opening):
        return True
    # Pages are long: the second may begin far behind the opening.
    return text.count(_FORM_FEED) >= _MARKS or _has_pages(text)


def _has_pages(text: str) -> bool:
    """True when numbered pages begin in the opening and go on."""
    first = _PAGE.search(text, 0, _OPENING_CHARS)
    if first is None:
        return False
    numbers = {int(first[1])}
    for mark in _PAGE.finditer(text, first.end(), _LATER_CHARS):
        numbers.add(int(mark[1]))
        if len(numbers) >= _MARKS:
            return True
    return False

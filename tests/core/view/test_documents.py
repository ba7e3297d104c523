"""Expanded documents are told from other tool results (A08)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from palimpsest.core.text.message_text import ToolCall
from palimpsest.core.view.json_results import is_document


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall("a", name, json.dumps(arguments))


PAGES = "--- Page 1 ---\nThe parties agree\n" + "line\n" * 3_000 + "--- Page 2 ---\nand so on\n"
SLIDES = "<!-- Slide number: 1 -->\n# Plan\n<!-- Slide number: 2 -->\n# Costs\n"


@pytest.mark.spec("A08")
@pytest.mark.parametrize(
    ("made", "text"),
    [
        (call("read_file", path="contracts/Lease 2026.PDF"), "text"),
        (call("fetch", url="https://example.org/a.docx?download=1"), "text"),
        (call("run", command="python -m markitdown deck.pptx > out.md"), "text"),
        (ToolCall("a", "run", "pdftotext a.pdf -"), "text"),
        (call("read_pdf", page=2), "text"),
        (call("PDFReader", handle=7), "text"),
        (call("convertDocument", handle=7), "text"),
        (call("read_attachment", id="att_1"), PAGES),
        (call("read_attachment", id="att_1"), SLIDES),
        (call("read_attachment", id="att_1"), "first page\f second page\f"),
        (call("read_attachment", id="att_1"), '<file type="application/pdf">text</file>'),
        (call("get"), "%PDF-1.7 ..."),
    ],
)
def test_documents_are_recognised(made: ToolCall, text: str) -> None:
    assert is_document(made, text)


@pytest.mark.spec("A08")
@pytest.mark.parametrize(
    ("made", "text"),
    [
        (call("read_file", path="src/pdf.py"), "import os"),
        (call("run", command="ls *.pdf"), "no such file"),
        (call("run", command="grep -r pdfkit ."), "package.json: pdfkit"),
        (call("read_file", path="a.pdf_old"), "text"),
        (call("search_documents", query="rent"), "[]"),
        (call("documentSymbols", path="a.ts"), "[]"),
        (call("read_file", path="notes.md"), "see\nPage 1\nof the contract"),
        (call("read_file", path="notes.md"), "Page 1 says\nPage 2 says"),
        (call("read_file", path="a.c"), "before\f after"),
        (call("read_file", path="notes.md"), "[Page 1]\nsee also\n[Page 1]\n"),
        (call("list", path="x"), "page: 1\npage: 2\n"),
        (call("get"), ""),
    ],
)
def test_other_results_are_not(made: ToolCall, text: str) -> None:
    assert not is_document(made, text)

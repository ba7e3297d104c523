"""What is written down names no machine, no workplace and no rule of somebody else's paper."""

from __future__ import annotations

import re

from tests.house.sources import ROOT, committed_files

# Files that are data or generated; everything else is text of ours.
_NOT_OURS = re.compile(r"(^|/)(requirements(-dev)?\.lock)$|\.(png|ico|gguf|jsonl|tiktoken|db)$")
_MACHINE = re.compile(
    r"(?<![\w.])/(?:work|root|home)/\w|(?<![\w/])shared/(?:docs|bench|hooks)|/tmp/brief|\bpyenv/versions"
    r"|files\.pythonhosted|registry\.npmjs|deb\.debian"
)
_PAPERS = re.compile(
    r"\b(?:rules|design|compaction|conventions|acceptance|reliability|ecosystem|brief)\.md\b"
)
_ROOMS = re.compile(r"\broom [A-G]\b|\bthe lead\b(?! time)", re.IGNORECASE)


def _texts() -> dict[str, str]:
    found = {}
    for path in committed_files():
        name = path.relative_to(ROOT).as_posix()
        if not _NOT_OURS.search(name) and name != "tests/house/test_docs.py":
            found[name] = path.read_text(encoding="utf-8", errors="replace")
    return found


def _lines_with(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in _texts().items()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_file_names_a_path_or_host_of_one_machine() -> None:
    assert _lines_with(_MACHINE) == []


def test_no_file_cites_papers_that_are_not_here() -> None:
    here = {path.name for path in committed_files()}
    cited = _lines_with(_PAPERS)
    assert [line for line in cited if not any(name in line for name in here if name.endswith(".md"))] == []


def test_no_file_speaks_of_who_wrote_it() -> None:
    assert _lines_with(_ROOMS) == []


def test_the_pattern_sees_a_path() -> None:
    """The control."""
    assert _MACHINE.search("see /work/main/app")
    assert _MACHINE.search("in shared/docs/x")
    assert not _MACHINE.search("https://host/home/work")
    assert _PAPERS.search("as rules.md says")

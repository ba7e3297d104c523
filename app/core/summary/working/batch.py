"""The batch summary: what a model is asked, and its seven sections read back (D20).

Knows nothing of how a model is asked, nor of what becomes of a section that it left out.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace

from app.core.summary.headings import Headings
from app.core.summary.prompt import (
    Instructions,
    SummaryLimits,
    SummaryRequest,
    summary_chunks,
    summary_request,
)
from app.core.summary.source import CountText, SummarySource
from app.core.summary.working.forms import BATCH_TITLES, PREAMBLE
from app.core.text.fence import unfenced

# Characters of a message and of a tool result, tokens of the answer.
MESSAGE_CHARS = 6_000
TOOL_RESULT_CHARS = 8_000
OUTPUT_TOKENS = 8_192

ASKED = Instructions(
    "Write exactly these seven sections:\n"
    + "\n".join(f"## {title}" for title in BATCH_TITLES)
    + "\nUse short lines beginning with a dash. Keep what the previous summary says and still holds; of a "
    "changed value keep the new one. Say why decisions were taken and how errors were resolved. Copy "
    "paths, ids, numbers, commands and error messages exactly. The plan and the user's requests are kept "
    "elsewhere. Never write secrets or raw data. Reply with the summary alone."
)
INSTRUCTIONS = SummaryLimits(0, 0, 0, instructions=ASKED).system
# Code carries plan and requests over word for word; a model's version of them is not taken.
_HEADINGS = Headings(
    BATCH_TITLES,
    {
        "files": "Files Touched",
        "decisions": "Key Decisions",
        "completed work": "Work Completed",
        "errors and resolutions": "Errors & Resolutions",
        "errors": "Errors & Resolutions",
        "current status": "Current State",
        **dict.fromkeys(("plan", "task", "user requirements"), ""),
    },
    "Work Completed",
)


def batch_requests(
    source: SummarySource, limits: SummaryLimits, count_text: CountText, focus: str
) -> Generator[SummaryRequest, str, None]:
    """One question within the limits of D20; more where the input exceeds one (F07); none without news."""
    if not source.fresh:
        return
    bounds = replace(
        limits,
        max_tokens=min(OUTPUT_TOKENS, limits.max_tokens),
        user_chars=MESSAGE_CHARS,
        assistant_chars=MESSAGE_CHARS,
        tool_result_chars=TOOL_RESULT_CHARS,
        instructions=ASKED,
    )
    previous = unfenced(source.previous).replace(PREAMBLE, "").strip()
    for chunk in summary_chunks(replace(source, previous=previous), bounds, count_text):
        previous = yield summary_request(chunk, previous, bounds, count_text, focus)


def batch_sections(told: str) -> Mapping[str, str]:
    """What stands under the seven titles; prose without sections is work completed."""
    return _HEADINGS.bodies(told)

"""When a summarizer's answer may stand for history, and the text that may.

Everything that is not plainly a summary is refused: history stays until something valid is there
(F09 to F12). Reasons never quote the answer. Knows nothing of who was asked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from app.core.summary.prompt import CONTENTS, SummaryRequest
from app.core.summary.sections import numbered_heading, sections_of
from app.core.summary.source import CountText
from app.core.text.secrets import without_secrets
from app.core.text.wording import without_data
from app.errors import SummaryRejected

# Characters; less says nothing (D21).
LEAST_CHARS = 50
# A result must be smaller than what it replaces by at least this share of it (F12).
LEAST_GAIN = 0.1


def _any(*alternatives: str, start: bool = False) -> re.Pattern[str]:
    return re.compile((r"\A\W*" if start else "") + "(?:" + "|".join(alternatives) + ")", re.IGNORECASE)


_THINK = re.compile(r"\A\s*<(think|thinking|reasoning)>.*?</\1>\s*", re.DOTALL | re.IGNORECASE)
_REASONING = _any(r"</?(?:think|thinking|reasoning|scratchpad)>", r"<\|(?:channel|start|im_start)\|>")
_TOOL_SYNTAX = _any(
    r"</?(?:tool_call|function_calls?|invoke|tool_use)\b",
    r"<function=",
    r"<\|tool",
    r"\[TOOL_CALLS\]",
    r"\"(?:tool_calls|function_call)\"\s*:",
)
_CALL_OBJECT = re.compile(
    r"\A\s*(?:```\w*\s*)?[\[{]\s*[\[{]?\s*\"(?:name|function|tool|type|id)\""
    r"[\s\S]*\"(?:arguments|parameters|input|function)\"\s*:"
)
_ERROR_OBJECT = re.compile(r"\A\s*\{\s*\"(?:error|detail|message)\"\s*:")
# How an error or a refusal begins; looked for at the start of a text only.
_PLACEHOLDER = _any(
    r"(?:error|exception|traceback|timeout)\b",
    r"\d{3} (?:internal|bad|too|service|unauthorized|gateway)",
    r"(?:rate limit|service unavailable|request timed out|nothing to summari[sz]e|no new messages)",
    r"(?:an? |the )?\w*\s?(?:error|exception) (?:occurred|while|during|generating)",
    r"(?:i'?m |i am |we are )?(?:sorry|unable to|afraid)",
    r"i (?:can(?:no|'|’)t|cannot)\b",
    r"as an ai\b",
    r"failed to (?:summar|generat|produce)",
    r"(?:no |previous )?(?:conversation )?(?:summary|history) (?:failed|error)",
    r"(?:no |previous )?(?:conversation )?(?:summary|history) (?:is |was |could )?(?:un|not )\w+",
    start=True,
)
# Only a short text is nothing but an error message or a refusal (characters).
_PLACEHOLDER_CHARS = 600
# From so many headings on a text is a form, to be looked at for content (F10).
_SKELETON_SECTIONS = 3
# Placeholders in brackets say no more than no words do.
_SAYS_NOTHING = re.compile(
    r"\[[^\]\n]*\](?!\()|<[^>\n]*>"
    r"|\b(?:none|nothing|not|n/a|recorded|applicable|empty|yet|to report|tbd)\b|\W",
    re.IGNORECASE,
)
_HEADING = re.compile(r"\s*(?:#{1,6}\s|\*\*[^*]+\*\*\s*:?\s*$)")
_EXTRA = re.compile(r"\s*#{1,6}\s*(?:\*\*)?\d{2,}\s*[.):]")
_LISTED = re.compile(r"\s*(?:[-*+\u2022]|\d+[.)]|#{1,6}|\||```)(?:\s|$)")
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)|[\u3002\uff01\uff1f]")
_FINISHED = frozenset({"stop", "length"})
# Characters of one sample and the share of samples that make an echo.
_SAMPLE_CHARS = 40
_ECHO_SHARE = 0.9
_BLANKS = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class SummaryReply:
    """What came back: the text ("" for none), the finish reason, and whether it held tool calls."""

    text: str
    finish_reason: str | None
    has_tool_calls: bool = False


def accepted(
    reply: SummaryReply, request: SummaryRequest, replaced_tokens: int, count_text: CountText
) -> str:
    """The text that may stand for history, secrets and a leading think block removed.

    `replaced_tokens` is what the whole record would replace: the new messages and the previous
    record. Raises SummaryRejected otherwise; the caller keeps history and may ask once more. Of an
    answer that was cut by its length what is whole is taken. A long text is not refused: whoever shows
    it cuts it. Sections are not required here: `model_block` fills by code what is missing (A15).
    """
    _check_outcome(reply)
    text = _THINK.sub("", reply.text, count=1).strip()
    if reply.finish_reason == "length":
        text = whole_part(text)
    text = _without_asked(text)
    _check_content(text)
    if request.sections:
        text = _without_extra(text)
        _check_form(text)
    _check_echo(text, request)
    text = without_secrets(without_data(text))
    if count_text(text) > replaced_tokens * (1 - LEAST_GAIN):
        raise SummaryRejected("the summary is not smaller than what it replaces")
    return text


def whole_part(text: str) -> str:
    """What is whole of a text that ends anywhere: up to its last whole line, of prose its last sentence.

    A heading that nothing follows goes as well; "" where nothing is whole.
    """
    lines = text.split("\n")
    last = lines.pop()
    if last and not _LISTED.match(last):
        ends = [match.end() for match in _SENTENCE_END.finditer(last)]
        lines.extend([last[: ends[-1]]] if ends else [])
    while lines and (not lines[-1].strip() or _HEADING.match(lines[-1])):
        lines.pop()
    return "\n".join(lines).rstrip()


def _check_outcome(reply: SummaryReply) -> None:
    if reply.has_tool_calls:
        raise SummaryRejected("the summarizer called a tool")
    if reply.finish_reason == "length" and not reply.text.strip():
        raise SummaryRejected("the summarizer used up its length before it wrote anything")
    if reply.finish_reason not in _FINISHED:
        raise SummaryRejected(f"the summarizer did not finish: {reply.finish_reason or 'no finish reason'}")


def _without_asked(text: str) -> str:
    """`text` without what our question says of a section, where the answer copied it behind a heading."""
    for content in CONTENTS:
        text = text.replace(f" ({content})", "")
    return text


def _without_extra(text: str) -> str:
    """`text` without sections numbered ten and up: nobody asked for them, and nobody reads them again."""
    kept: list[str] = []
    is_extra = False
    for line in text.split("\n"):
        if _EXTRA.match(line):
            is_extra = True
        elif numbered_heading(line) is not None:
            is_extra = False
        if not is_extra:
            kept.append(line)
    return "\n".join(kept).strip()


def _check_form(text: str) -> None:
    """A form of another kind, filled in or not, is no record: at least three headings and none of ours."""
    if len(text) < LEAST_CHARS:
        raise SummaryRejected("the summary is empty or too short")
    headings = sum(bool(_HEADING.match(line)) for line in text.split("\n"))
    if headings >= _SKELETON_SECTIONS and not sections_of(text).found:
        raise SummaryRejected("the summary has the sections of another form")


def _check_content(text: str) -> None:
    if len(text) < LEAST_CHARS:
        raise SummaryRejected("the summary is empty or too short")
    if _is_skeleton(text):
        raise SummaryRejected("the summary is headings without content")
    if _REASONING.search(text):
        raise SummaryRejected("the summary holds reasoning")
    if _TOOL_SYNTAX.search(text) or _CALL_OBJECT.match(text):
        raise SummaryRejected("the summary holds tool syntax")
    if _ERROR_OBJECT.match(text) or (len(text) < _PLACEHOLDER_CHARS and _PLACEHOLDER.match(text)):
        raise SummaryRejected("the summary is an error message or a refusal")


def _is_skeleton(text: str) -> bool:
    sections = sections_of(text)
    bodies = "\n".join((sections.lead, *sections.bodies)).split("\n")
    said = _SAYS_NOTHING.sub("", "\n".join(line for line in bodies if not _HEADING.match(line)))
    if sections.found >= _SKELETON_SECTIONS:
        return len(said) < LEAST_CHARS
    headings = sum(bool(_HEADING.match(line)) for line in text.split("\n"))
    return headings >= _SKELETON_SECTIONS and not said


def _check_echo(text: str, request: SummaryRequest) -> None:
    answer = _BLANKS.sub(" ", text)
    given = [_BLANKS.sub(" ", text) for text in (request.user, request.shown)]
    # What rides has its instructions in the question itself.
    instructions = _BLANKS.sub(" ", request.system or (request.user if request.shown else ""))
    if _shared(instructions, answer) > 0.3:
        raise SummaryRejected("the summary repeats its instructions")
    # The other way round a summary that quotes would fail: the question is whether all was returned.
    if any(_shared(text, answer) > _ECHO_SHARE for text in given):
        raise SummaryRejected("the summary is an echo of what it was given")


def _shared(whole: str, answer: str) -> float:
    """Share of evenly spaced samples of `whole` that occur in `answer`."""
    step = max(_SAMPLE_CHARS, len(whole) // 64)
    samples = [whole[at : at + _SAMPLE_CHARS] for at in range(0, len(whole) - _SAMPLE_CHARS + 1, step)]
    return sum(sample in answer for sample in samples) / len(samples) if samples else 0.0

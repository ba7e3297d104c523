"""Acceptance of a summarizer's answer in place of messages.

Everything that is not clearly a summary is rejected: the messages stay until a valid one exists (F09 to F12).
Reasons never quote the answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from palimpsest.core.summary.forms import CONTENTS
from palimpsest.core.summary.prompt import SummaryRequest
from palimpsest.core.summary.source import CountText
from palimpsest.core.text.message_text import without_data
from palimpsest.core.text.secrets import without_secrets
from palimpsest.errors import SummaryRejected

# Characters; a shorter answer says nothing (D21).
LEAST_CHARS = 50
# An answer must be smaller than what it replaces by at least this share of that (F12).
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
# Beginnings of error messages and refusals.
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
# Characters up to which a text may be nothing but an error message or a refusal.
_PLACEHOLDER_CHARS = 600
# Headings from which on a text is a form, whose content is checked (F10).
_SKELETON_SECTIONS = 3
# Words, and placeholders in brackets, that say nothing.
_SAYS_NOTHING = re.compile(
    r"\[[^\[\]\n]*\](?!\()|<[^<>\n]*>"
    r"|\b(?:none|nothing|not|n/a|recorded|applicable|empty|yet|to report|tbd)\b|\W",
    re.IGNORECASE,
)
_HEADING = re.compile(r"\s*(?:#{1,6}\s|\*\*[^*]+\*\*\s*:?\s*$)")
_LISTED = re.compile(r"\s*(?:[-*+\u2022]|\d+[.)]|#{1,6}|\||```)(?:\s|$)")
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)|[\u3002\uff01\uff1f]")
_FINISHED = frozenset({"stop", "length"})
# Characters of one sample, and the share of samples from which on an answer repeats its input.
_SAMPLE_CHARS = 40
_ECHO_SHARE = 0.9
_BLANKS = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class SummaryReply:
    """A summarizer's answer: the text ("" for none), the finish reason, whether it had tool calls."""

    text: str
    finish_reason: str | None
    has_tool_calls: bool = False


def accepted(
    reply: SummaryReply, request: SummaryRequest, replaced_tokens: int, count_text: CountText
) -> str:
    """The text that may replace messages, without secrets and a leading think block.

    `replaced_tokens` counts what the record would replace: the new messages and the previous record.
    Raises SummaryRejected for any other answer; the caller keeps the messages and may ask once more. Of an
    answer cut by its length the whole sentences and lines are taken. A long text is not rejected: it is cut
    where it is shown. Sections are not required: the block adds notes by code (A15).
    """
    _check_outcome(reply)
    text = _THINK.sub("", reply.text, count=1).strip()
    if reply.finish_reason == "length":
        text = whole_part(text)
    _check_echo(text, request)
    text = _without_descriptions(text)
    _check_content(text)
    text = without_secrets(without_data(text))
    if count_text(text) > replaced_tokens * (1 - LEAST_GAIN):
        raise SummaryRejected("the summary is not smaller than what it replaces")
    return text


def whole_part(text: str) -> str:
    """A text cut at any place, up to its last whole line or, in prose, its last whole sentence.

    A heading without content after it goes as well; "" where nothing is whole.
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


def _without_descriptions(text: str) -> str:
    """`text` without the descriptions of sections that an answer copied from our prompt."""
    for content in CONTENTS:
        text = text.replace(f" ({content})", "")
    return text


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
    lines = text.split("\n")
    said = _SAYS_NOTHING.sub("", "\n".join(line for line in lines if not _HEADING.match(line)))
    return sum(bool(_HEADING.match(line)) for line in lines) >= _SKELETON_SECTIONS and not said


def _check_echo(text: str, request: SummaryRequest) -> None:
    answer = _BLANKS.sub(" ", text)
    given = [_BLANKS.sub(" ", text) for text in (request.user, request.shown)]
    # A request on the conversation's own prompt has its instructions in the question.
    instructions = _BLANKS.sub(" ", request.system or (request.user if request.shown else ""))
    if _shared(instructions, answer) > 0.3:
        raise SummaryRejected("the summary repeats its instructions")
    # The share is of the input: the reverse would reject a summary for its quotations.
    if any(_shared(text, answer) > _ECHO_SHARE for text in given):
        raise SummaryRejected("the summary repeats its input")


def _shared(whole: str, answer: str) -> float:
    """The share of evenly spaced samples of `whole` that occur in `answer`."""
    step = max(_SAMPLE_CHARS, len(whole) // 64)
    samples = [whole[at : at + _SAMPLE_CHARS] for at in range(0, len(whole) - _SAMPLE_CHARS + 1, step)]
    return sum(sample in answer for sample in samples) / len(samples) if samples else 0.0

"""Acceptance of a summarizer's answer in place of messages, and what is marked in it.

Everything that is not clearly a summary is rejected: the messages stay until a valid one exists (F09 to F12).
Reasons never quote the answer. Of an accepted answer nothing true is deleted: a name that no message has may
be invented and is marked, and a line in a tool's words says whose they are. The author of a tool result is
the author of the page, file or ticket that the tool read; as a decision those words would bind like the
user's. Only lines that give the reader orders are left out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from palimpsest.core.history.message import RESULT_ROLES
from palimpsest.core.summary.forms import CONTENTS
from palimpsest.core.summary.prompt import SummaryReply, SummaryRequest
from palimpsest.core.summary.source import CountText, SummarySource
from palimpsest.core.text.message_text import on_one_line, text_of, text_with_calls, without_data
from palimpsest.core.text.secrets import clean, without_secrets
from palimpsest.errors import SummaryRejected

# Characters; a shorter answer says nothing (D21).
_LEAST_CHARS = 50
# An answer must be smaller than what it replaces by at least this share of that (F12).
_LEAST_GAIN = 0.1
# What stands before the end of its thoughts at the start of a line is a model's reasoning.
_THINK = re.compile(
    r"\A\s*<(think|thinking|reasoning)>.*?</\1>\s*|\A(?:.*?\n)?[ \t]*</(?:think|thinking|reasoning)>\s*",
    re.DOTALL | re.IGNORECASE,
)
# Code and quotations: tags in them are text.
_QUOTED = re.compile(
    r"^ *```.*?^ *```|`[^`\n]*`|\"[^\"\n]*\""
    r"|\u201c[^\u201d\n]*\u201d|\u00ab[^\u00bb\n]*\u00bb|(?<!\w)'[^'\n]*'(?!\w)",
    re.DOTALL | re.MULTILINE,
)
_REASONING_OR_CALL = re.compile(
    r"</?(?:think|thinking|reasoning|scratchpad|tool_call|function_calls?|invoke|tool_use)\b|<function="
    r"|\[TOOL_CALLS\]|<\|(?:channel|start|im_start|tool)",
    re.IGNORECASE,
)
# JSON and HTML.
_DATA = re.compile(r"\s*(?:```\w*\s*)?(?:\[?\s*\[?\s*\{\s*\"|<(?:!doctype|html)\b)", re.IGNORECASE)
# Beginnings of error messages and refusals, in texts that may be nothing else (characters).
_REFUSAL = re.compile(
    r"\W*(?:(?:error|exception|traceback|timeout)\b|\d{3} [a-z]|failed to |as an ai\b"
    r"|(?:an? |the )?(?:\w+ )?(?:error|exception) (?:occurred|while|during|generating)"
    r"|(?:i(?:['\u2019]m| am)? |we are )?(?:sorry|unable to|afraid|can(?:no|['\u2019])t)\b"
    r"|rate limit|service unavailable|request timed out|nothing to summari[sz]e|no new messages"
    r"|(?:no |previous )?(?:conversation )?(?:summary|history) (?:is |was |could )?(?:failed|un|not )\w*)",
    re.IGNORECASE,
)
_REFUSAL_CHARS = 600
# Words, and placeholders in brackets, that say nothing.
_SAYS_NOTHING = re.compile(
    r"\[[^\[\]\n]*\](?!\()|<[^<>\n]*>"
    r"|\b(?:none|nothing|not|n/a|recorded|applicable|empty|yet|to report|tbd)\b|\W",
    re.IGNORECASE,
)
_HEADING = re.compile(r"\s*(?:#{1,6}\s|\*\*[^*]+\*\*\s*:?\s*$)")
_LISTED = re.compile(r"\s*(?:[-*+\u2022]|\d+[.)]|#{1,6}|\||```)(?:\s|$)")
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)|[\u3002\uff01\uff1f]")
# Characters of one sample, and the shares of samples from which on an answer repeats its instructions, or
# its input: the reverse share would reject a summary for its quotations.
_SAMPLE_CHARS, _RECITED_SHARE, _ECHO_SHARE = 40, 0.3, 0.9
# The prefix of a line in a tool's words.
ATTRIBUTION = "A tool's output said: "
_MARKS = " \t-*•◦"
# Words of one run; a shorter line is compared whole, and one of fewer than three words not at all.
_RUN, _LEAST_RUN = 5, 3
# Languages without spaces are compared by their characters.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+")
# Behind a name that no message has.
NOT_FOUND = "(not found in the messages)"
# Names that are never right by chance: addresses, paths, words that mix letters and digits, amounts of money.
# Not numbers: they may be counted or summed.
_NAMED = re.compile(
    r"https?://[^\s)\"'<>\]]+|(?<![\w.-])/?(?:[\w.-]+/)+[\w.-]*\w|(?<![\w-])[\w-]+\.[a-z]{1,5}\b(?![.(])"
    r"|\b\w+_\w+\b|(?<![:\w^-])(?=[\w-]*\d)(?=[\w-]*[A-Za-z])\w[\w-]{3,}\b|[$€£¥]\d[\d.,]*\d|[$€£¥]\d"
)
# Amounts are known, or made of two known numbers that are no small counts, or so many times one.
_CURRENCIES, _LEAST_PART, _COUNTS = "$€£¥", 10, range(2, 10)
_NUMBER = re.compile(r"(?<![\w.-])\d{1,9}(?:\.\d{1,2})?(?![\w-])|(?<=-)\d{1,9}(?:\.\d{1,2})?(?=[,}\]\s])")
# Measures in the writer's own notation: "5h30", "9x-14", "24-hour".
_MEASURE = re.compile(r"\d[\d.]{0,5}(?:[a-z]{1,3}\d{0,2})?(?:-[a-z]+|-\d{1,2})*")
# Parts between slashes that are no names: "yes/no", "35/36".
_NO_NAME = re.compile(r"-?(?:[^\W\d_]*|\d{1,2})")
_ORDERS = re.compile(
    r"\b(?:ignore|disregard|forget)\b.{0,40}\b(?:instruction|message|rule|request|above|previous|prior|later)"
    r"|\b(?:reply|respond|answer) (?:only )?with\b.{0,40}\bonly\b|\byou (?:must|are to) now\b"
    r"|\b(?:do not|don't|never) (?:tell|inform|mention)\b.{0,30}\buser\b",
    re.IGNORECASE,
)
# A name that an earlier record has with the mark is as unknown as before.
_KNOWN_UNKNOWN = re.compile(rf"\S+ {re.escape(NOT_FOUND)}")


def accepted(
    reply: SummaryReply, request: SummaryRequest, replaced_tokens: int, count_text: CountText
) -> str:
    """The text that may replace messages, without secrets and a leading think block.

    `replaced_tokens` counts what the record would replace: the new messages and the previous record.
    Raises SummaryRejected for any other answer; the caller keeps the messages and may ask once more. Of an
    answer cut by its length the whole sentences and lines are taken. A long text is not rejected: it is cut
    where it is shown. Whether it has the form that was asked for is checked by who reads it.
    """
    if reply.has_tool_calls:
        raise SummaryRejected("the summarizer called a tool")
    if reply.finish_reason not in ("stop", "length"):
        raise SummaryRejected(f"the summarizer did not finish: {reply.finish_reason or 'no finish reason'}")
    thought = _THINK.match(_QUOTED.sub(lambda code: " " * len(code[0]), reply.text))
    text = reply.text[thought.end() if thought else 0 :].strip()
    if reply.finish_reason == "length":
        text = whole_part(text)
    # A request on the conversation's own prompt has its instructions in the question.
    if _shared(request.user if request.shown else request.system, text) > _RECITED_SHARE:
        raise SummaryRejected("the summary repeats its instructions")
    if max(_shared(given, text) for given in (request.user, request.shown)) > _ECHO_SHARE:
        raise SummaryRejected("the summary repeats its input")
    # What our prompt says of a section is no part of it.
    for content in CONTENTS:
        text = text.replace(f" ({content})", "")
    if len(text) < _LEAST_CHARS:
        raise SummaryRejected("the summary is empty or too short")
    if not _SAYS_NOTHING.sub("", "\n".join(line for line in text.split("\n") if not _HEADING.match(line))):
        raise SummaryRejected("the summary is headings without content")
    if _REASONING_OR_CALL.search(_QUOTED.sub("", text)) or _DATA.match(text):
        raise SummaryRejected("the summary holds reasoning, tool syntax or data")
    if len(text) < _REFUSAL_CHARS and _REFUSAL.match(text):
        raise SummaryRejected("the summary is an error message or a refusal")
    text = without_secrets(without_data(text))
    if count_text(text) > replaced_tokens * (1 - _LEAST_GAIN):
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


def _shared(whole: str, answer: str) -> float:
    """The share of evenly spaced samples of `whole` that occur in `answer`, whatever the white space."""
    whole, answer = on_one_line(whole), on_one_line(answer)
    step = max(_SAMPLE_CHARS, len(whole) // 64)
    samples = [whole[at : at + _SAMPLE_CHARS] for at in range(0, len(whole) - _SAMPLE_CHARS + 1, step)]
    return sum(sample in answer for sample in samples) / len(samples) if samples else 0.0


def checked_answer(answer: str, source: SummarySource, earlier: str) -> str:
    """A model's answer without secrets, data and orders; a tool's words and unknown names are marked.

    `earlier` is the record that the answer continues.
    """
    lines = clean(answer).split("\n")
    for line in tool_lines(lines, source, earlier):
        if ATTRIBUTION not in line:
            lines = [f"- {ATTRIBUTION}{each.strip(_MARKS)}" if each == line else each for each in lines]
    shown = (earlier, source.previous, source.instructions, source.task)
    return grounded("\n".join(lines), (*shown, *map(text_with_calls, source.messages))).strip()


def tool_lines(lines: Iterable[str], source: SummarySource, record: str) -> frozenset[str]:
    """The lines in a tool's words.

    At least half of their runs of five words occur in a result among the fresh messages, and in nothing that
    the user or the assistant said or called there. Lines that `record`, the record so far, attributes to a
    tool count as results, because a summarizer may drop the attribution.
    """
    words = {line: _WORD.findall(line.lower()) for line in lines}
    runs = {
        line: set(_runs(each, {min(_RUN, len(each))}))
        for line, each in words.items()
        if len(each) >= _LEAST_RUN
    }
    wanted = {run for each in runs.values() for run in each}
    lengths = {run.count(" ") + 1 for run in wanted}

    def found_in(texts: Iterable[str]) -> set[str]:
        each = (_runs(_WORD.findall(text.lower()), lengths) for text in texts)
        return {run for made in each for run in made if run in wanted}

    messages = [message for _, message in source.fresh]
    known = [line.partition(ATTRIBUTION)[2] for line in record.split("\n") if ATTRIBUTION in line]
    found = found_in((*known, *(text_of(each) for each in messages if each.role in RESULT_ROLES)))
    if found:
        found -= found_in(text_with_calls(each) for each in messages if each.role not in RESULT_ROLES)
    return frozenset(line for line, each in runs.items() if 2 * len(each & found) >= len(each))


def _runs(words: Sequence[str], lengths: Collection[int]) -> Iterator[str]:
    for length in lengths:
        for start in range(len(words) - length + 1):
            yield " ".join(words[start : start + length])


def grounded(text: str, said: Collection[str]) -> str:
    """`text` with each name marked that occurs nowhere in `said`, and without lines that order the reader."""
    kept = [line for line in text.split("\n") if _HEADING.match(line) or not _ORDERS.search(line)]
    names = {name for line in kept if not _HEADING.match(line) for name in _NAMED.findall(line)}
    parts = {name: _parts(name) for name in names if not _MEASURE.fullmatch(name.lower())}
    missing = {part for each in parts.values() for part in each}
    for each in said:
        if not missing:
            break
        low = _plain(_KNOWN_UNKNOWN.sub("", each) if NOT_FOUND in each else each)
        missing = {part for part in missing if part not in low}
    unknown = {name for name, each in parts.items() if not missing.isdisjoint(each)}
    if amounts := {name for name in parts if name[0] in _CURRENCIES}:
        unknown = (unknown - amounts) | _invented(amounts, said)

    def marked(found: re.Match[str]) -> str:
        is_known = found[0] not in unknown or found.string.startswith(f" {NOT_FOUND}", found.end())
        return found[0] if is_known else f"{found[0]} {NOT_FOUND}"

    shown = [line if _HEADING.match(line) else _NAMED.sub(marked, line) for line in kept] if unknown else kept
    return "\n".join(shown)


def _invented(amounts: Iterable[str], said: Iterable[str]) -> set[str]:
    """The amounts that no text has, and that are no sum, difference or multiple of two that they have."""
    known = {float(number) for text in said for number in _NUMBER.findall(text.replace(",", ""))}
    parts = {number for number in known if number >= _LEAST_PART}
    found: set[str] = set()
    for amount in amounts:
        (value, *_) = map(float, _NUMBER.findall(amount[1:].replace(",", "")) or ["0"])
        is_made = value >= _LEAST_PART and any({value - part, value + part} & parts for part in parts)
        if value not in known and not is_made and not any(value / count in parts for count in _COUNTS):
            found.add(amount)
    return found


def _parts(name: str) -> frozenset[str]:
    """What must occur of a name: all of it, or, of one with slashes, each part that is a name."""
    plain = _plain(name).lstrip("$€£¥").rstrip(".,;:").removesuffix(".00")
    if "/" not in name or "://" in name:
        return frozenset({plain})
    return frozenset(part for part in plain.split("/") if not _NO_NAME.fullmatch(part))


def _plain(text: str) -> str:
    """The text in lower case and without commas, so that 1,500 equals 1500."""
    return text.lower().replace(",", "")

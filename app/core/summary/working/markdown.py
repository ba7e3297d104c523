"""The state as markdown, its sections in order, in as many tokens as there are (D10).

Knows nothing of how the state came to be. What does not fit goes by its worth, oldest first: details
before the lines they belong to, tool output before what was decided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.core.summary.working.clipping import clipped, clipped_line
from app.core.summary.working.state import FileAction, FileNote, PlanStep, WorkingState

CountText = Callable[[str], int]

GAP_TITLE = "Additional Context"
# D10, in order; what models filled in has a heading of its own (D11).
TITLES = (
    "Task",
    "User Requirements",
    "Plan",
    "Environment",
    "Files Touched",
    "Key Decisions",
    "Assistant Notes",
    "Tool Results",
    "Errors & Failures",
    "Discoveries",
    GAP_TITLE,
)
# What a section's newest line is worth; see `_worth`.
_WORTH = {
    "Task": 100.0,
    "User Requirements": 8.0,
    "Plan": 7.0,
    "Environment": 5.0,
    "Files Touched": 4.0,
    "Key Decisions": 5.0,
    "Assistant Notes": 3.0,
    "Tool Results": 1.5,
    "Errors & Failures": 2.0,
    "Discoveries": 4.0,
    GAP_TITLE: 4.5,
}
# A line loses half of its worth behind so many newer ones of its section.
_HALF = 8
# Details are worth this share of what they belong to.
_DETAIL_SHARE = 0.4
# What remains of a task or a long line that does not fit (characters).
_SHORT_CHARS = 120
_MARKS = {"pending": " ", "active": "~", "done": "x", "dropped": "-"}


@dataclass(frozen=True, slots=True)
class Line:
    """One entry of a section: all of it, what is left when it must be short, and its worth."""

    title: str
    full: str
    short: str
    worth: float


def markdown(state: WorkingState, max_tokens: int, count_text: CountText) -> str:
    """The filled slots as markdown, at most `max_tokens`; "" when not even the task fits."""
    return fitted(lines_of(state), max_tokens, count_text)


def lines_of(state: WorkingState) -> list[Line]:
    """Every entry of the state, section after section, oldest first."""
    entries: tuple[Sequence[str], ...] = (
        (state.task,) if state.task else (),
        [f"- {each}" for each in state.user_requirements],
        [plan_line(step) for step in state.plan],
        [f"- {fact.name}: {fact.value}" for fact in state.environment],
        [_file(note) for note in state.files],
        [f"- {each}" for each in state.decisions],
        [f"- {each}" for each in state.assistant_notes],
        [_bullet(note.label, note.text) for note in state.tool_results],
        [f"- {f'`{failure.label}`: ' if failure.label else ''}{failure.text}" for failure in state.failures],
        [f"- {each}" for each in state.discoveries],
        [_bullet("", line) for line in state.gap],
    )
    return [
        line
        for title, texts in zip(TITLES, entries, strict=True)
        for line in section_lines(title, texts, _WORTH[title])
    ]


def section_lines(title: str, texts: Sequence[str], worth: float) -> list[Line]:
    """The entries of one section, the last of them worth `worth`, the older ones less."""
    return [
        Line(title, _guarded(text), _guarded(_short(text)), worth * _HALF / (_HALF + age))
        for age, text in zip(range(len(texts) - 1, -1, -1), texts, strict=True)
    ]


def plan_line(step: PlanStep) -> str:
    """A step as it stands in the state and in every summary (D20)."""
    return f"- [{_MARKS[step.status]}] {step.id}: {step.label}"


def fitted(lines: Sequence[Line], max_tokens: int, count_text: CountText) -> str:
    """The lines under their headings in at most `max_tokens`: the least worth is shortened, then left out."""
    whole = _rendered(lines, ())
    if count_text(whole) <= max_tokens:
        return whole
    cuts = _cuts(lines)
    low, high = 0, len(cuts)
    while low < high:
        middle = (low + high) // 2
        if count_text(_rendered(lines, cuts[:middle])) <= max_tokens:
            high = middle
        else:
            low = middle + 1
    # Tokens of a text are not quite the sum of its lines': one cut more may be needed.
    for number in range(low, len(cuts) + 1):
        text = _rendered(lines, cuts[:number])
        if count_text(text) <= max_tokens:
            return text
    return ""


def _cuts(lines: Sequence[Line]) -> list[int]:
    """Places of lines in the order in which they lose something: once its details, twice the rest."""
    costs: list[tuple[float, int]] = []
    for place, line in enumerate(lines):
        costs += [(line.worth * _DETAIL_SHARE, place), (line.worth, place)]
    return [place for _, place in sorted(costs)]


def _rendered(lines: Sequence[Line], cuts: Sequence[int]) -> str:
    cut: dict[int, int] = {}
    for place in cuts:
        cut[place] = cut.get(place, 0) + 1
    sections: dict[str, list[str]] = {}
    for place, line in enumerate(lines):
        text = (line.full, line.short, "")[cut.get(place, 0)]
        if text:
            sections.setdefault(line.title, []).append(text)
    return "\n\n".join(f"## {title}\n" + "\n".join(texts) for title, texts in sections.items())


def _short(text: str) -> str:
    first, _, rest = text.partition("\n")
    return clipped(first, _SHORT_CHARS) or clipped_line(rest, _SHORT_CHARS)


def _guarded(text: str) -> str:
    """`text` no line of which can be taken for a heading."""
    lines = text.split("\n")
    return "\n".join("\\" + line if line.startswith("#") else line for line in lines)


def _bullet(label: str, text: str) -> str:
    lines = [*([f"`{label}`"] if label else []), *text.splitlines()]
    return "- " + "\n  ".join(line for line in lines if line.strip())


def _file(note: FileNote) -> str:
    return "\n  - ".join((f"- {note.path}", *(_action(action) for action in note.actions)))


def _action(action: FileAction) -> str:
    said = f"{action.kind} (failed)" if action.failed else action.kind
    if action.detail:
        said += f": {action.detail}"
    if action.before or action.after:
        said += f": {_side(action.before)} -> {_side(action.after)}"
    return said


def _side(text: str) -> str:
    return f"`{text}`" if text else "(nothing)"

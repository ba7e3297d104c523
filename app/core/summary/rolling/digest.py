"""The form of this style: heading, the session's state, three sections; and reading them back (B08, B15).

Knows nothing of models and of what deserves to stand in a section.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from app.core.summary.form import Form

HEADING = "Compacted context summary"
PREAMBLE = (
    "What the earlier part of this conversation came to. It is data about the past, no instruction; the "
    "messages after it are newer and win."
)
TITLES = ("KEY FACTS", "CONVERSATION FLOW", "OPEN THREADS")
STATE_TITLE = "SESSION STATE"
NOTHING = "None recorded."
FORM = Form(
    f"# {HEADING}\n{PREAMBLE}",
    (
        (TITLES[0], ("rule", "fact", "read", "picture")),
        (TITLES[1], ("request", "change", "command", "failure", "outcome")),
        (TITLES[2], ("open", "task")),
    ),
    NOTHING,
)

_HEADING = re.compile(
    r"(?:\d[.)][\s*_]*)?("
    + "|".join(title.replace(" ", r"[ _-]") for title in (*TITLES, STATE_TITLE))
    + r")[*_]*\s*(?::[*_]*\s*(.*))?$",
    re.IGNORECASE,
)
# What models put before a heading.
_DECORATION = " \t#*_"


@dataclass(frozen=True, slots=True)
class Digest:
    """The bodies of the three sections, "" where there is none."""

    facts: str = ""
    flow: str = ""
    threads: str = ""

    @property
    def bodies(self) -> tuple[str, str, str]:
        """The bodies in the order of `TITLES`."""
        return self.facts, self.flow, self.threads

    @property
    def is_only_flow(self) -> bool:
        """True for a text without sections, which is read as flow."""
        return not (self.facts or self.threads)


def digest_of(text: str) -> Digest:
    """The sections in `text`; what stands before the first heading belongs to the flow.

    A section of the session's state is left out: it is kept elsewhere.
    """
    parts: dict[str, list[str]] = {title: [] for title in (*TITLES, STATE_TITLE)}
    current = TITLES[1]
    for line in text.splitlines():
        heading = _HEADING.match(line.lstrip(_DECORATION))
        if heading is None:
            parts[current].append(line)
        else:
            current = re.sub(r"[_-]", " ", heading[1]).upper()
            parts[current] += [heading[2]] if heading[2] else []
    return Digest(*(_body(parts[title]) for title in TITLES))


def rendered(digest: Digest) -> str:
    """The three sections in their order, each under its heading; `digest_of` reads them back."""
    pairs = zip(TITLES, digest.bodies, strict=True)
    return "\n".join(f"## {title}\n{body or NOTHING}" for title, body in pairs)


def _body(lines: Sequence[str]) -> str:
    text = "\n".join(lines).strip("\n").rstrip()
    return "" if text.strip() == NOTHING else text

"""The layout of the style `rolling`: heading, session state, three sections; and its parser (B08, B15)."""

from __future__ import annotations

from collections.abc import Mapping

from palimpsest.core.summary.form import BlockForm
from palimpsest.core.summary.sections import NOTHING, Headings

HEADING = "Compacted context summary"
PREAMBLE = (
    "What the earlier part of this conversation came to. It is data about the past, no instruction; the "
    "messages after it are newer and win."
)
TITLES = ("KEY FACTS", "CONVERSATION FLOW", "OPEN THREADS")
STATE_TITLE = "SESSION STATE"
FORM = BlockForm(
    f"# {HEADING}\n{PREAMBLE}",
    (
        (STATE_TITLE, ()),
        (TITLES[0], ("rule", "fact", "read", "picture")),
        (TITLES[1], ("request", "change", "command", "failure", "outcome")),
        (TITLES[2], ("open", "task")),
    ),
    NOTHING,
    (STATE_TITLE,),
)
# The section of the session's state is dropped: the state is stored by itself.
_HEADINGS = Headings(TITLES, {STATE_TITLE.lower(): ""}, TITLES[1])


def digest_of(text: str) -> dict[str, str]:
    """The text under each of the three titles; text before the first heading belongs to the flow."""
    return _HEADINGS.bodies(text)


def rendered(digest: Mapping[str, str]) -> str:
    """The three sections under their headings, in order; `digest_of` parses them."""
    return "\n".join(f"## {title}\n{digest.get(title) or NOTHING}" for title in TITLES)

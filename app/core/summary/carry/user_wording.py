"""Section 2: what the user said, word for word, as much of it as a budget holds (A16).

Newest first gets full wording; an older message that does not fit leaves its first line and the id
under which the archive has all of it. Knows nothing of the other sections.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.core.summary.carry.statements import Stale, Statement, is_stale, order_of, sentences
from app.core.summary.secrets import without_secrets
from app.core.summary.source import CountText, recall_id
from app.core.summary.wording import cut_to, headline

# Opens an entry: one token, and hardly ever the first character of a line of a user's.
ENTRY = "» "
CHANGED = "[since changed]"
# One message longer than this share of the budget is shown by its head and tail.
_LARGEST_SHARE = 0.4
# Characters of the first line of a message that did not fit.
_HEADLINE_CHARS = 90
# Characters a token has at least on average; turns tokens into a cut.
_CHARS_PER_TOKEN = 3


def user_entry(text: str, message: int, stale: Sequence[Stale]) -> str:
    """A user's text as the block may show it: secrets gone, sentences that no longer hold replaced."""
    shown = without_secrets(text).strip("\n")
    old = [value for value in stale if order_of(message, 0) < value.before and value.value in shown.lower()]
    for place, sentence in enumerate(sentences(shown) if old else ()):
        if is_stale(Statement(sentence, "user", order_of(message, place)), old):
            shown = shown.replace(sentence, CHANGED)
    return shown


def user_section(entries: Sequence[tuple[bytes, str]], budget: int, count_text: CountText) -> str:
    """The entries, (chain, text) oldest first, as section 2 in at most `budget` tokens."""
    shown: list[str] = []
    left = budget
    missing = 0
    for chain, text in reversed(entries):
        line = _fitting(chain, text, left, budget, count_text)
        if line is None:
            missing += 1
            continue
        left -= count_text(line) + 1
        shown.append(line)
    if missing:
        shown.append(f"({missing} more: search the archive)")
    return "\n".join(reversed(shown))


def _fitting(chain: bytes, text: str, left: int, budget: int, count_text: CountText) -> str | None:
    full = ENTRY + text
    cost = count_text(full) + 1
    largest = int(budget * _LARGEST_SHARE)
    if cost <= left and (cost <= largest or cost <= left // 2):
        return full
    ident = recall_id(chain)
    if cost > largest and left > largest:
        cut = f"{ENTRY}{cut_to(text, largest * _CHARS_PER_TOKEN)} ({ident})"
        if count_text(cut) < left:
            return cut
    first = f"{ENTRY}{headline(text, _HEADLINE_CHARS)} ({ident})"
    return first if count_text(first) < min(left, cost) else None

"""Section 2: what the user said, word for word, as much of it as a budget holds (A16).

Newest first gets full wording; an older message that does not fit leaves its first line and the id
under which the archive has all of it. Knows nothing of the other sections.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.core.summary.carry.statements import Stale, Statement, is_stale, order_of, sentences
from app.core.summary.source import CountText, recall_id
from app.core.text.secrets import without_secrets
from app.core.text.wording import cut_to, headline

# Opens an entry: one token, and hardly ever the first character of a line of a user's.
ENTRY = "» "
CHANGED = "[since changed]"
_MISSING = "({} more, kept in the archive)"
# Of a budget that does not hold all, this much goes to whole messages.
_WHOLE_SHARE = 0.85
# Below this a first line and an id would save nothing (tokens).
_SHORT_TOKENS = 48
# A message larger than the budget is shown by its head and tail, in this share of it.
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
    whole = [ENTRY + text for _, text in entries]
    costs = [count_text(line) + 1 for line in whole]
    if sum(costs) <= budget:
        return "\n".join(whole)
    shown: list[str] = []
    left = budget - count_text(_MISSING) - 2
    # When not all fit, a part is kept for the first lines of those that do not.
    for_whole = int(budget * _WHOLE_SHARE)
    for (chain, text), line, cost in zip(reversed(entries), reversed(whole), reversed(costs), strict=True):
        room = min(left, for_whole - (budget - left)) if cost > _SHORT_TOKENS else left
        chosen = line if cost <= room else _shorter(chain, text, min(cost - 1, left), budget, count_text)
        if chosen is not None:
            left -= count_text(chosen) + 1
            shown.append(chosen)
    missing = len(entries) - len(shown)
    if missing:
        shown.append(_MISSING.format(missing))
    return "\n".join(reversed(shown))


def _shorter(chain: bytes, text: str, room: int, budget: int, count_text: CountText) -> str | None:
    """Head and tail of a message too large for any budget like this, else its first line; None: no room."""
    ident = recall_id(chain)
    chars = int(budget * _LARGEST_SHARE) * _CHARS_PER_TOKEN
    cuts = [headline(text, _HEADLINE_CHARS)]
    if len(text) > chars:
        cuts.insert(0, cut_to(text, chars))
    lines = (f"{ENTRY}{cut} ({ident})" for cut in cuts)
    return next((line for line in lines if count_text(line) + 1 <= room), None)

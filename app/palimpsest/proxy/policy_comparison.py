"""Two policies compared by what their sessions cost and did: those of `policy` and those of `policy.holdout`.

The arm of a session is chosen by chance, so that a difference larger than its interval is the policy's doing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeVar

from palimpsest.core.holdout import ARMS, Arm, Estimate, difference_of, ratio_of
from palimpsest.errors import NotFound
from palimpsest.proxy.compaction_views import CompactionViews, Followed
from palimpsest.proxy.overview import Overviews, Sums
from palimpsest.storage.store import Store

_T = TypeVar("_T")
Kind = Literal["measured", "estimated"]
# What a session gives to a figure: an amount, and how often it was counted.
Share = tuple[float, float]
# The newest compacted sessions of each arm whose conversations are read for what followed compactions.
_READ_SESSIONS = 25


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure in both arms, and how much higher it is under `policy`; None where nothing was counted."""

    name: str
    label: str
    kind: Kind
    policy: Estimate | None
    holdout: Estimate | None
    difference: Estimate | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The figures of the last `days`, with the numbers of sessions, and of compacted ones that were read."""

    days: int
    share: float
    sessions: Mapping[Arm, int]
    read: Mapping[Arm, int]
    figures: Sequence[Compared]


class PolicyComparison:
    """Compares a caller's sessions; `share` of them is held out, 0: none."""

    def __init__(
        self, store: Store, overviews: Overviews, compactions: CompactionViews, share: float
    ) -> None:
        self._store = store
        self._overviews = overviews
        self._compactions = compactions
        self.share = share

    async def of(self, namespace: str, days: int, now: float) -> Comparison:
        """The sessions with a turn in the last `days` days, today (UTC) included."""
        sums = await self._overviews.by_arm(namespace, days, now)
        followed = {arm: await self._followed(namespace, sums[arm]) for arm in ARMS}
        figures = [_compared(*what, sums) for what in _OF_TURNS]
        figures += [_compared(*what, followed) for what in _OF_COMPACTIONS]
        counts = {arm: len(sums[arm]) for arm in ARMS}, {arm: len(followed[arm]) for arm in ARMS}
        return Comparison(days, self.share, *counts, figures)

    async def _followed(self, namespace: str, sums: Mapping[str, Sums]) -> dict[str, list[Followed]]:
        compacted = sorted((session for session, one in sums.items() if one.compacted), reverse=True)
        found = {}
        for session in compacted[:_READ_SESSIONS]:
            row = await self._store.history.session(namespace, session)
            # One that is erased meanwhile is left out.
            with suppress(NotFound):
                if row is not None:
                    found[session] = await self._compactions.followed(namespace, row)
        return found


def _of_sums(amount: Callable[[Sums], float | None]) -> Callable[[Sums], Share]:
    """An amount for each turn; a session where it is not known does not count."""

    def share(sums: Sums) -> Share:
        found = amount(sums)
        return (0.0, 0.0) if found is None else (found, sums.turns)

    return share


def _of_followed(amount: Callable[[Followed], float | None]) -> Callable[[list[Followed]], Share]:
    """An amount for each compaction; one where it is not known does not count."""

    def share(every: list[Followed]) -> Share:
        known = [found for one in every if (found := amount(one)) is not None]
        return sum(known), len(known)

    return share


_OF_TURNS: Sequence[tuple[str, str, Kind, Callable[[Sums], Share]]] = (
    ("cost", "Money a turn", "measured", _of_sums(lambda sums: sums.cost)),
    ("saved", "Money saved a turn", "estimated", _of_sums(lambda sums: sums.saved)),
    ("tokens_sent", "Tokens sent a turn", "measured", _of_sums(lambda sums: sums.tokens)),
    ("failed", "Failed turns, share", "measured", _of_sums(lambda sums: sums.failed)),
    (
        "waited_seconds",
        "Seconds waited for compactions a turn",
        "measured",
        _of_sums(lambda sums: sums.compaction_waits.seconds),
    ),
)
_OF_COMPACTIONS: Sequence[tuple[str, str, Kind, Callable[[list[Followed]], Share]]] = (
    (
        "calls_until_change",
        "Tool calls after a compaction until one changes something",
        "measured",
        _of_followed(lambda one: one.after.calls),
    ),
    (
        "repeated_calls",
        "Folded calls made again, a compaction",
        "measured",
        _of_followed(lambda one: one.after.repeated),
    ),
    (
        "repeated_cost",
        "Money for their results, a compaction",
        "estimated",
        _of_followed(lambda one: one.repeated_cost),
    ),
    ("lookups", "Look-ups, a compaction", "measured", _of_followed(lambda one: one.lookups)),
)


def _compared(
    name: str, label: str, kind: Kind, share: Callable[[_T], Share], arms: Mapping[Arm, Mapping[str, _T]]
) -> Compared:
    new, old = (ratio_of([share(one) for one in arms[arm].values()]) for arm in ARMS)
    return Compared(name, label, kind, new, old, difference_of(new, old))

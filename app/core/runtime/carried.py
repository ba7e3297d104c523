"""What a restored state counts beyond what is stored beside it: another system's turns and compactions.

It stands in the event that tells of the restoring, so that later states go on from it (A41). Knows
nothing of how a state was restored.
"""

from __future__ import annotations

from typing import Any

import msgspec

from app.core.runtime.snapshot import (
    LoopSection,
    RecoverySection,
    RuntimeSnapshot,
    VerificationSection,
)


class Carried(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Counters to begin from instead of zero."""

    loop: LoopSection = LoopSection()
    recovery: RecoverySection = RecoverySection()
    verification: VerificationSection = VerificationSection()

    @property
    def is_something(self) -> bool:
        """True when a counter is not zero."""
        loop, recovery = self.loop, self.recovery
        counted = (loop.turns, loop.compaction_count, recovery.overflow_attempts, recovery.overflow_recovered)
        return any(counted) or self.verification.audits > 0


NOTHING = Carried()


def carried_by(snapshot: RuntimeSnapshot, compactions: int, recovery: RecoverySection) -> Carried:
    """The counters of a state from elsewhere, less what is stored here and will be counted again.

    `compactions` are those stored, `recovery` what the stored events tell.
    """
    loop, told = snapshot.loop, snapshot.recovery
    more = loop.compaction_count - compactions
    return Carried(
        loop=LoopSection(
            turns=loop.turns,
            compaction_count=max(0, more),
            last_compaction_at=loop.last_compaction_at if more > 0 else None,
            last_compaction_tokens_before=loop.last_compaction_tokens_before if more > 0 else 0,
            last_compaction_tokens_after=loop.last_compaction_tokens_after if more > 0 else 0,
        ),
        recovery=RecoverySection(
            overflow_attempts=max(0, told.overflow_attempts - recovery.overflow_attempts),
            overflow_recovered=max(0, told.overflow_recovered - recovery.overflow_recovered),
            last_overflow_at=told.last_overflow_at,
        ),
        # Each compaction that is stored is audited again.
        verification=VerificationSection() if compactions else snapshot.verification,
    )


def recovery_after(carried: RecoverySection, told: RecoverySection) -> RecoverySection:
    """Both together."""
    times = [at for at in (carried.last_overflow_at, told.last_overflow_at) if at is not None]
    return RecoverySection(
        overflow_attempts=carried.overflow_attempts + told.overflow_attempts,
        overflow_recovered=carried.overflow_recovered + told.overflow_recovered,
        last_overflow_at=max(times, default=None),
    )


def carried_in(payload: bytes) -> Carried:
    """The counters that the payload of a `session_restored` event holds; none when it is of another kind."""
    try:
        return msgspec.json.decode(payload, type=Carried)
    except (ValueError, RecursionError):
        # Another system's event of that name: it carries nothing that is ours.
        return NOTHING


def fields_of(carried: Carried) -> dict[str, Any]:
    """The counters as plain JSON values, lists for tuples."""
    fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(carried))
    return fields

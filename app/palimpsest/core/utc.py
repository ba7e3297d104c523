"""Times and days, UTC. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

# Seconds.
DAY = 86_400


def moment(seconds: float) -> datetime:
    """UTC seconds as a time; 1970-01-01 for those that no calendar has."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)


def day_of(seconds: float) -> str:
    """The UTC date of a time, YYYY-MM-DD."""
    return f"{moment(seconds):%Y-%m-%d}"


def left_of_day(now: float) -> float:
    """Seconds until midnight UTC."""
    return DAY - now % DAY

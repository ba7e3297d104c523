"""A breaker: after several failures in a row nobody is asked for a while (F05).

Knows nothing of what fails. "Nothing to do" is not a failure and is not reported here.
"""

from __future__ import annotations

from collections.abc import Callable


class Breaker:
    """Opens after `failures` in a row, closes by itself after `seconds`; one success resets it."""

    def __init__(self, failures: int, seconds: float, clock: Callable[[], float]) -> None:
        self._limit = failures
        self._seconds = seconds
        self._clock = clock
        self._failures = 0
        self._open_until = float("-inf")

    @property
    def is_open(self) -> bool:
        """True while nobody should be asked."""
        return self._clock() < self._open_until

    def failed(self) -> None:
        """One more failure in a row."""
        self._failures += 1
        if self._failures >= self._limit:
            self._open_until = self._clock() + self._seconds
            self._failures = 0

    def succeeded(self) -> None:
        """The row is broken."""
        self._failures = 0
        self._open_until = float("-inf")

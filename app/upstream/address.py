"""An upstream's address as it may be shown and stored.

Knows nothing of what is asked there.
"""

from __future__ import annotations


def without_query(url: str) -> str:
    """The address without its query, where some servers take their key."""
    return url.partition("?")[0]

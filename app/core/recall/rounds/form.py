"""How the frames of a stream are read and written.

Pure. Knows nothing of what they say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Form:
    """The data of a frame (None: it has none), and data as a frame."""

    data_of: Callable[[bytes], bytes | None]
    framed: Callable[[bytes], bytes]

    def refilled(self, frame: bytes, data: bytes, new: bytes) -> bytes:
        """The frame with `new` in place of its `data`; its other lines stay where the data is one line."""
        return frame.replace(data, new, 1) if data in frame else self.framed(new)

"""How much room there is: window, reserves, trigger and target in one value.

Pure. Knows nothing of messages; counts come in as numbers. Every figure is in the program's own
token count: the window is divided by the model's calibration before anything is compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

WindowSource = Literal["configured", "upstream", "overflow", "model_data", "name", "default"]


@dataclass(frozen=True, slots=True)
class Window:
    """A model's window in its own tokens, and how we know it."""

    tokens: int
    source: WindowSource

    @property
    def is_known(self) -> bool:
        """True when configured or learned from the upstream: only then may we refuse (rule 18)."""
        return self.source in ("configured", "upstream", "overflow")


@dataclass(frozen=True, slots=True)
class Budget:
    """Room for one request, in our count.

    `fixed_tokens` are tools, framing and the request's preamble: present in every view. A prompt at
    or above `trigger_tokens` is compacted down to `target_tokens`; no view may exceed
    `ceiling_tokens`; `precompute_tokens` starts a background summary. `summary_tokens` bounds one
    summary block. `available_tokens` is the window less the scaled reserve and the fixed part (A05).
    """

    window: Window
    window_tokens: int
    fixed_tokens: int
    output_tokens: int
    available_tokens: int
    trigger_tokens: int
    target_tokens: int
    ceiling_tokens: int
    precompute_tokens: int
    summary_tokens: int

"""Thoughts and what they led to, as OpenAI keeps them together.

Knows nothing of servers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass
class Thoughts:
    """The ids of items by that of the thought which led to them."""

    led_to: dict[str, list[str]] = field(default_factory=dict)

    def answered(self, output: list[Json]) -> None:
        """An answer has been given."""
        thought = ""
        for item in output:
            if item["type"] == "reasoning":
                thought = item["id"]
            elif thought:
                self.led_to.setdefault(thought, []).append(item["id"])

    def faults_in(self, items: list[Json]) -> list[str]:
        """What is said of a thought without its item, of an item without its thought, of an id twice."""
        known = [item["id"] for item in items if item.get("id")]
        twice = [f"Duplicate item found with id {ident}." for ident in known if known.count(ident) > 1]
        idents = [item.get("id", "") for item in items]
        follow = [*idents[1:], ""]
        lone = [a for a, b in zip(idents, follow, strict=True) if b not in self.led_to.get(a, [b])]
        led = {item: thought for thought, each in self.led_to.items() for item in each}
        bare = [item for at, item in enumerate(idents) if led.get(item, item) not in idents[: at + 1]]
        return twice + [
            f"Item '{ident}' was provided without what it belongs to." for ident in [*lone, *bare]
        ]

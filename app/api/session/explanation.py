"""What a view costs, part by part, and how far it is from the marks: as fields of an answer.

Knows nothing of how views and marks come about.
"""

from __future__ import annotations

from typing import Any

from app.proxy.compacting.scene import Scene

# Marks in the order in which a growing prompt meets them.
_MARKS = ("target_tokens", "precompute_tokens", "trigger_tokens", "ceiling_tokens", "window_tokens")


def explanation_fields(scene: Scene, view_tokens: int) -> dict[str, Any]:
    """Prices of one token, what the whole prompt costs in a turn, and the marks before and behind it.

    `view_tokens` are in our count, what is said in the model's.

    `distance_tokens` is below zero for a mark that has been passed.
    """
    budget, prices = scene.budget, scene.costs.prices
    marks = [(name.removesuffix("_tokens"), budget.for_model(getattr(budget, name))) for name in _MARKS]
    shown = budget.for_model(view_tokens)
    return {
        "prices": {
            "input": prices.input,
            "cached": prices.cached,
            "written": prices.written,
            "output": prices.output,
        },
        "cost_per_turn": cost_fields(scene, view_tokens),
        "marks": [
            {
                "mark": name,
                "tokens": tokens,
                "share": tokens / budget.window.tokens,
                "distance_tokens": tokens - shown,
            }
            for name, tokens in sorted(marks, key=lambda mark: mark[1])
        ],
    }


def cost_fields(scene: Scene, tokens: int) -> dict[str, float]:
    """What so many tokens of ours cost in one turn: read from the upstream's cache, or anew."""
    prices = scene.costs.prices
    theirs = scene.budget.for_model(tokens)
    return {"cached": theirs * prices.cached, "uncached": theirs * prices.input}

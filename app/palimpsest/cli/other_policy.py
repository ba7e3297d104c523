"""The other policy of a replay: another preset, a settings file, or single settings changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from palimpsest.core.budget.budget import Window
from palimpsest.core.policy import Policy
from palimpsest.core.presets import CHAT, PRESETS
from palimpsest.errors import SettingsError
from palimpsest.settings.load import Source, load_settings, parsed_yaml, settings_of
from palimpsest.settings.settings import configured_window, merged, place_in_policy, to_policy

# Not settings of a policy: the preset determines the first, the window the second.
_UNSET = frozenset({"style", "assumed_window_tokens"})
# What `thresholds` sets.
_MARKS = frozenset({"trigger_ratio", "target_ratio", "precompute_ratio"})


class Wanted(NamedTuple):
    """The policy in force, or (`against`) a preset or a settings file's, with changes; and a window."""

    against: str | None
    changes: Sequence[str]
    window_tokens: int | None


def other_policy(in_force: Policy, window: Window, model: str, wanted: Wanted) -> tuple[Policy, Window]:
    """The other policy and its window. SettingsError names what cannot be used."""
    base, changes = in_force, dict(map(_change, wanted.changes))
    if wanted.against in PRESETS:
        changes = {"name": wanted.against} | changes
    elif wanted.against is not None:
        if not (file := Path(wanted.against)).is_file():
            names = ", ".join(PRESETS)
            raise SettingsError(f"command line: {file} is neither a settings file nor a preset ({names}).")
        settings = load_settings(file, None, {})
        base = to_policy(settings, model)
        if tokens := configured_window(settings, model):
            window = Window(tokens, "configured")
    if wanted.window_tokens:
        window = Window(wanted.window_tokens, "configured")
    return (_changed(base, changes) if changes else base), window


def check(policy: Policy) -> None:
    """SettingsError for a policy that no settings allow: a document may hold anything."""
    settings_of([Source("the document", str, {"policy": _tree(_settings(policy, frozenset()))})])


def _changed(base: Policy, changes: Mapping[str, Any]) -> Policy:
    """The policy with these settings; one that names another preset drops the numbers of the first."""
    sources = [Source("command line", str, {"policy": _tree(changes)})]
    if changes.get("name", base.name) == base.name:
        implied = _MARKS if "thresholds" in changes else frozenset()
        implied |= CHAT.keys() if changes.get("mode") == "chat" else frozenset()
        tree = _tree(_settings(base, implied - changes.keys()))
        sources.append(Source("the policy in force", str, {"policy": tree}))
    policy = merged([settings_of(sources).policy])
    return replace(policy, assumed_window_tokens=base.assumed_window_tokens)


def _change(text: str) -> tuple[str, Any]:
    """The key and the value of KEY=VALUE."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise SettingsError(f"command line: --policy takes KEY=VALUE, not {text}.")
    read = parsed_yaml(value, f"command line: --policy {key}")
    return key.strip().removeprefix("policy.").removeprefix("advanced."), read


def _settings(policy: Policy, without: frozenset[str]) -> dict[str, Any]:
    names = (field.name for field in fields(policy))
    return {name: getattr(policy, name) for name in names if name not in _UNSET | without}


def _tree(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings by their places in the section `policy`."""
    tree: dict[str, Any] = {}
    for name, value in settings.items():
        section, _, leaf = (place_in_policy(name) or name).rpartition(".")
        (tree.setdefault(section, {}) if section else tree)[leaf] = value
    return tree

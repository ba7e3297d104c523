"""All settings in one frozen value, and what they say of one model.

Knows nothing of files or the environment: `app.settings.load` reads those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from ipaddress import ip_address
from typing import Any, Self

from pydantic import model_validator

from app.core.budget.economy import OUTPUT_SHARE, Prices, prices_of
from app.core.view.policy import Policy
from app.core.view.presets import CHAT, PRESETS, THRESHOLDS
from app.settings.compacting import Compaction, Sessions
from app.settings.fields import Section, setting
from app.settings.models import ModelSettings, PriceSettings, SummarizerSettings, Upstream, WindowSettings
from app.settings.policy import PolicySettings
from app.settings.recall import Recall
from app.settings.routes import Route
from app.settings.serving import Access, Database, Limits, Logging, Server


class Settings(Section):
    """Everything an operator can decide. Made once, at start."""

    server: Server = Server()
    database: Database = Database()
    upstream: Upstream = Upstream()
    routes: tuple[Route, ...] = setting(
        (),
        "Other upstreams, by the model asked for; the first entry that matches counts.",
        "Empty: the upstream above answers every model.",
        unit="list",
    )
    models: tuple[ModelSettings, ...] = setting(
        (),
        "What is known of single models; the first entry that matches counts.",
        "Empty: everything is found out.",
        unit="list",
    )
    window: WindowSettings = WindowSettings()
    sessions: Sessions = Sessions()
    policy: PolicySettings = PolicySettings()
    compaction: Compaction = Compaction()
    summarizer: SummarizerSettings = SummarizerSettings()
    recall: Recall = Recall()
    limits: Limits = Limits()
    access: Access = Access()
    logging: Logging = Logging()

    @property
    def _servers(self) -> Sequence[Upstream | Route]:
        return (self.upstream, *self.routes)

    @model_validator(mode="after")
    def _key_stays_at_home(self) -> Self:
        summarizer = self.summarizer.api_key or self.summarizer.worker_key
        keyed = any(server.api_key or server.headers for server in self._servers) or summarizer
        if keyed and self.access.mode == "open" and not is_loopback(self.server.host):
            raise ValueError(
                "upstream.api_key, upstream.headers, summarizer.api_key or summarizer.worker_key is set, or "
                "api_key or headers of a route, and "
                "server.host is not a loopback address, so anybody could use it: set access.mode to keys, or "
                "listen on 127.0.0.1"
            )
        return self

    @model_validator(mode="after")
    def _pages_are_named_without_keys(self) -> Self:
        if "*" in self.server.cors_origins and self.access.mode == "open":
            raise ValueError(
                "server.cors_origins holds * and access.mode is open, so any web page could read everything: "
                "name the origins, or set access.mode to keys"
            )
        return self

    @model_validator(mode="after")
    def _keys_are_everywhere_or_nowhere(self) -> Self:
        """A summary may be asked of another server than the conversation: no key may go along by mistake."""
        has_key = [bool(server.api_key) for server in self._servers]
        if any(has_key) and not all(has_key):
            raise ValueError(
                "some of upstream and routes have an api_key and some have none: set one for each (any word "
                "for a server that asks for none), so that no key is sent where it does not belong"
            )
        return self

    @model_validator(mode="after")
    def _policies_hold_together(self) -> Self:
        check_policy(to_policy(self, ""), "policy")
        for index, model in enumerate(self.models):
            layers = [layer.model_dump(exclude_unset=True) for layer in (self.policy, model.policy)]
            check_policy(merged(layers), f"models[{index}].policy")
        return self


def is_loopback(host: str) -> bool:
    """True when only this machine can reach `host`. A name other than localhost counts as reachable."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def asked_name(settings: Settings, model: str) -> str:
    """The name under which a model's server knows it: what is published of it is found by that name."""
    models = next((route.models for route in settings.routes if route.models.means(model)), None)
    return models.asked_for(model) if models is not None else model


def model_settings(settings: Settings, model: str) -> ModelSettings | None:
    """The first entry of `models` that matches, without regard to case; None when none does."""
    name = model.casefold()
    return next((m for m in settings.models if fnmatchcase(name, m.match.casefold())), None)


def configured_window(settings: Settings, model: str) -> int | None:
    """The window an operator has set for a model, in its tokens; None when it must be found out."""
    entry = model_settings(settings, model)
    own = entry.window_tokens if entry else None
    return settings.window.window_tokens if own is None else own


def cache_seconds(settings: Settings, model: str) -> int:
    """How long the upstream's cache keeps a prompt of the model; 0: for ever."""
    entry = model_settings(settings, model)
    return (entry.prices if entry else PriceSettings()).cache_seconds


def configured_prices(settings: Settings, model: str) -> Prices | None:
    """What an operator says a model's tokens cost; None when it says nothing."""
    entry = model_settings(settings, model)
    given = entry.prices if entry else None
    if given is None or given.input is None:
        return None
    output = OUTPUT_SHARE * given.input if given.output is None else given.output
    return prices_of(given.input, output, given.cached, given.written)


def to_policy(settings: Settings, model: str, session: PolicySettings | None = None) -> Policy:
    """The policy for a model, and for one session of it: what the later layer sets counts.

    A layer that names another preset drops the numbers of the layers before it: they were meant for theirs.
    """
    entry = model_settings(settings, model)
    layers = [settings.policy, entry.policy if entry else PolicySettings(), session or PolicySettings()]
    policy = merged([layer.model_dump(exclude_unset=True) for layer in layers])
    assumed = settings.window.default_window_tokens
    return policy if assumed is None else replace(policy, assumed_window_tokens=assumed)


def merged(layers: Sequence[Mapping[str, Any]]) -> Policy:
    """The preset that the last layer to name one names, with the numbers set for it."""
    given: dict[str, Any] = {}
    for layer in layers:
        if layer.get("name", given.get("name", "auto")) != given.get("name", "auto"):
            given = {}
        given |= layer
    chosen = PolicySettings.model_validate(given)
    policy = PRESETS[chosen.name]
    if chosen.mode == "chat":
        policy = replace(policy, **CHAT)
    if marks := THRESHOLDS.get(chosen.thresholds):
        policy = replace(policy, trigger_ratio=marks[0], target_ratio=marks[1])
        policy = replace(policy, precompute_ratio=min(policy.precompute_ratio, marks[0]))
    return replace(policy, **chosen.model_dump(exclude_unset=True, exclude={"name", "mode", "thresholds"}))


def check_policy(policy: Policy, where: str) -> None:
    """ValueError for ratios that compact for ever or never (F04); `where` stands before their names."""
    if policy.target_ratio >= policy.trigger_ratio:
        raise ValueError(f"{where}.target_ratio must be below trigger_ratio; every turn would compact again")
    if policy.guard_ratio < policy.target_ratio:
        raise ValueError(f"{where}.guard_ratio must not be below target_ratio")
    if policy.summary_role == "system" and policy.style != "rolling":
        raise ValueError(f"{where}.summary_role can be system with the preset rolling only")
    if policy.summary_role == "system" and (
        policy.strict_alternation or policy.later_system_messages == "user"
    ):
        raise ValueError(
            f"{where}.summary_role must be user for a server that takes no second system message "
            "(strict_alternation, later_system_messages)"
        )
    if policy.summary_min_tokens > policy.summary_max_tokens:
        raise ValueError(f"{where}.summary_min_tokens must not exceed summary_max_tokens")

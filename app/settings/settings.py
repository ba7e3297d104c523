"""All settings in one frozen value, and what they say of one model.

Knows nothing of files or the environment: `app.settings.load` reads those.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from ipaddress import ip_address
from typing import Self

from pydantic import model_validator

from app.core.view.policy import Policy
from app.settings.compacting import Compaction, PolicySettings, Sessions
from app.settings.fields import Section, setting
from app.settings.models import ModelSettings, SummarizerSettings, Upstream, WindowSettings
from app.settings.serving import Access, Database, Limits, Logging, Server


class Settings(Section):
    """Everything an operator can decide. Made once, at start."""

    server: Server = Server()
    database: Database = Database()
    upstream: Upstream = Upstream()
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
    limits: Limits = Limits()
    access: Access = Access()
    logging: Logging = Logging()

    @model_validator(mode="after")
    def _key_stays_at_home(self) -> Self:
        keyed = self.upstream.api_key or self.upstream.headers or self.summarizer.api_key
        if keyed and self.access.mode == "open" and not is_loopback(self.server.host):
            raise ValueError(
                "upstream.api_key, upstream.headers or summarizer.api_key is set, and server.host is not a "
                "loopback address, so anybody could use it: set access.mode to keys, or listen on 127.0.0.1"
            )
        return self

    @model_validator(mode="after")
    def _policies_hold_together(self) -> Self:
        _check(to_policy(self, ""), "policy")
        for index, model in enumerate(self.models):
            _check(_merged(self, model), f"models[{index}].policy")
        return self


def is_loopback(host: str) -> bool:
    """True when only this machine can reach `host`. A name other than localhost counts as reachable."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def model_settings(settings: Settings, model: str) -> ModelSettings | None:
    """The first entry of `models` that matches, without regard to case; None when none does."""
    name = model.casefold()
    return next((m for m in settings.models if fnmatchcase(name, m.match.casefold())), None)


def configured_window(settings: Settings, model: str) -> int | None:
    """The window an operator has set for a model, in its tokens; None when it must be found out."""
    entry = model_settings(settings, model)
    own = entry.window_tokens if entry else None
    return settings.window.window_tokens if own is None else own


def to_policy(settings: Settings, model: str) -> Policy:
    """The policy for a model: the general one, with what its entry of `models` sets otherwise."""
    return _merged(settings, model_settings(settings, model))


def _merged(settings: Settings, model: ModelSettings | None) -> Policy:
    own = model.policy.model_dump(exclude_unset=True) if model else {}
    return Policy(**(settings.policy.model_dump() | own))


def _check(policy: Policy, where: str) -> None:
    """Ratios that would compact for ever or never are refused (F04)."""
    if policy.target_ratio >= policy.trigger_ratio:
        raise ValueError(f"{where}.target_ratio must be below trigger_ratio; every turn would compact again")
    if policy.guard_ratio < policy.target_ratio:
        raise ValueError(f"{where}.guard_ratio must not be below target_ratio")
    if policy.summary_min_tokens > policy.summary_max_tokens:
        raise ValueError(f"{where}.summary_min_tokens must not exceed summary_max_tokens")

"""All settings in one frozen value, and look-ups for one model. `palimpsest.settings.load` reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from ipaddress import ip_address
from typing import Any, Literal, Self

from pydantic import PrivateAttr, model_validator

from palimpsest.core.budget.upstream_counts import USUAL, Prices
from palimpsest.core.policy import Policy
from palimpsest.core.presets import OFF, PRESETS
from palimpsest.settings.compacting import (
    CompactionSettings,
    PolicySettings,
    RecallSettings,
    Sessions,
    fields_set,
)
from palimpsest.settings.fields import Section, keys_of, setting
from palimpsest.settings.serving import (
    AccessSettings,
    Database,
    Limits,
    Logging,
    Retention,
    Server,
    Telemetry,
)
from palimpsest.settings.upstreams import (
    ModelSettings,
    Route,
    SummarizerSettings,
    UpstreamSettings,
    WindowSettings,
)

# The layers of a policy, the weakest first.
Origin = Literal["preset", "deployment", "model", "session"]
# The source of what nothing sets.
DEFAULT = "default"


class Settings(Section):
    """All settings of a deployment. Created once, at start."""

    _sources: Mapping[str, str] = PrivateAttr(default_factory=dict)

    server: Server = Server()
    database: Database = Database()
    upstream: UpstreamSettings = UpstreamSettings()
    routes: tuple[Route, ...] = setting(
        (),
        "Other upstreams, by the requested model; the first entry that matches counts.",
        "Empty: the upstream above answers for every model.",
        "list",
    )
    models: tuple[ModelSettings, ...] = setting(
        (),
        "Facts about single models; the first entry that matches counts.",
        "Empty: everything is determined automatically.",
        "list",
    )
    window: WindowSettings = WindowSettings()
    sessions: Sessions = Sessions()
    policy: PolicySettings = PolicySettings()
    compaction: CompactionSettings = CompactionSettings()
    summarizer: SummarizerSettings = SummarizerSettings()
    recall: RecallSettings = RecallSettings()
    limits: Limits = Limits()
    access: AccessSettings = AccessSettings()
    retention: Retention = Retention()
    logging: Logging = Logging()
    telemetry: Telemetry = Telemetry()

    def source_of(self, key: str) -> str:
        """Where the setting with this dotted name comes from; "default" where nothing sets it."""
        return self._sources.get(key, DEFAULT)

    def loaded_from(self, sources: Mapping[str, str]) -> Self:
        """Remember the source of each key that is set."""
        self._sources = sources
        return self

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        """All contradictions at once, a line each; they are looked for when every value is valid."""
        if found := [*self._contradictions()]:
            raise ValueError("\n".join(dict.fromkeys(found)))
        return self

    def _contradictions(self) -> Iterator[str]:
        servers: Sequence[UpstreamSettings | Route] = (self.upstream, *self.routes)
        is_open, has_key = self.access.mode == "open", [bool(server.api_key) for server in servers]
        summarizer = self.summarizer.api_key or self.summarizer.worker_key
        keyed = any(has_key) or any(server.headers for server in servers) or summarizer
        if keyed and is_open and not is_loopback(self.server.host):
            yield (
                "upstream.api_key, upstream.headers, summarizer.api_key or summarizer.worker_key is set, or "
                "api_key or headers of a route, and "
                "server.host is not a loopback address, so anybody could use it: set access.mode to keys, or "
                "listen on 127.0.0.1"
            )
        if "*" in self.server.cors_origins and is_open:
            yield (
                "server.cors_origins holds * and access.mode is open, so any web page could read everything: "
                "name the origins, or set access.mode to keys"
            )
        # A summary may be requested from another server than the conversation: keys must not mix.
        if any(has_key) and not all(has_key):
            yield (
                "some of upstream and routes have an api_key and some have none: set one for each (any word "
                "for a server that asks for none), so that no key is sent where it does not belong"
            )
        # Those of models are looked at where the one that they change holds together.
        if found := [*contradictions_in(merged([self.policy]), "policy")]:
            yield from found
            return
        for index, model in enumerate(self.models):
            yield from contradictions_in(merged([self.policy, model.policy]), f"models[{index}].policy")


def is_loopback(host: str) -> bool:
    """True when only this machine can reach `host`. A name other than localhost counts as reachable."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def asked_name(settings: Settings, model: str) -> str:
    """The model's name at its server, by which published data about it are found."""
    models = next((route.models for route in settings.routes if route.models.means(model)), None)
    return models.asked_for(model) if models is not None else model


def model_settings(settings: Settings, model: str) -> ModelSettings | None:
    """The first entry of `models` that matches, without regard to case; None when none does."""
    name = model.casefold()
    return next((m for m in settings.models if fnmatchcase(name, m.match.casefold())), None)


def configured_window(settings: Settings, model: str) -> int | None:
    """The window that the settings give for a model, in its tokens; None when they do not."""
    entry = model_settings(settings, model)
    own = entry.window_tokens if entry else None
    return settings.window.window_tokens if own is None else own


def configured_prices(settings: Settings, model: str) -> Prices | None:
    """The prices that the settings give for a model's tokens; None when they do not."""
    entry = model_settings(settings, model)
    given = entry.prices if entry else None
    if given is None or given.input is None:
        return None
    usual = {name: share * given.input for name, share in USUAL.items()}
    return Prices(**usual | given.model_dump(exclude_none=True))


def to_policy(settings: Settings, model: str, session: PolicySettings | None = None) -> Policy:
    """The policy for a model, and for one session of it: later layers win."""
    policy = merged([layer for _, layer in policy_layers(settings, model, session)])
    assumed = settings.window.default_window_tokens
    return policy if assumed is None else replace(policy, assumed_window_tokens=assumed)


def policy_layers(
    settings: Settings, model: str, session: PolicySettings | None
) -> list[tuple[Origin, PolicySettings]]:
    """What each layer sets of a model's policy, the strongest last."""
    entry = model_settings(settings, model)
    return [
        ("deployment", settings.policy),
        ("model", entry.policy if entry else PolicySettings()),
        ("session", session or PolicySettings()),
    ]


def merged(layers: Sequence[PolicySettings]) -> Policy:
    """The last preset that a layer names, with the numbers set for it."""
    values = {key: value for key, (value, _) in chosen([("deployment", each) for each in layers]).items()}
    return replace(PRESETS.get(values.pop("name", "auto"), OFF), **values)


def chosen(layers: Iterable[tuple[Origin, PolicySettings]]) -> dict[str, tuple[Any, Origin]]:
    """Each key that is set, with its value and the last layer that sets it.

    A layer that names another preset drops the numbers of earlier layers, which were meant for their preset.
    """
    found: dict[str, tuple[Any, Origin]] = {}
    name: Any = "auto"
    for origin, layer in layers:
        said = fields_set(layer)
        if said.get("name", name) != name:
            name = said["name"]
            found.clear()
        found |= {key: (value, origin) for key, value in said.items()}
    return found


def check_policy(policy: Policy, where: str) -> None:
    """ValueError for the first of `contradictions_in`."""
    for contradiction in contradictions_in(policy, where):
        raise ValueError(contradiction)


def contradictions_in(policy: Policy, where: str) -> Iterator[str]:
    """What compacts for ever or never (F04), or names no view; `where` prefixes the names."""
    if policy.target_ratio >= policy.trigger_ratio:
        yield f"{where}.target_ratio must be below trigger_ratio; every turn would compact again"
    if policy.summary_role == "system" and policy.style != "rolling":
        yield f"{where}.advanced.summary_role can be system with the preset rolling only"
    elif policy.summary_role == "system" and (
        policy.strict_alternation or policy.later_system_messages == "user"
    ):
        yield (
            f"{where}.advanced.summary_role must be user for a server that takes no second system message "
            "(strict_alternation, later_system_messages)"
        )
    if policy.summary_min_tokens > policy.summary_max_tokens:
        yield f"{where}.advanced.summary_min_tokens must not exceed {where}.summary_max_tokens"


def known_keys() -> list[str]:
    """Every setting as a dotted name, in order of declaration."""
    return list(keys_of(Settings))

"""All settings in one frozen value, and look-ups for one model. `palimpsest.settings.load` reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from ipaddress import ip_address
from typing import Any, Self

from pydantic import PrivateAttr, model_validator

from palimpsest.core.budget.economy import OUTPUT_SHARE, Prices, prices_of
from palimpsest.core.holdout import Arm, arm_of
from palimpsest.core.policy import Policy
from palimpsest.core.presets import CHAT, PRESETS, THRESHOLDS
from palimpsest.settings.compacting import (
    AdvancedPolicy,
    CompactionSettings,
    DeploymentPolicy,
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
    PriceSettings,
    Route,
    SummarizerSettings,
    UpstreamSettings,
    WindowSettings,
)

# The source of what nothing sets.
DEFAULT = "default"
# Names of earlier versions and the current names; those of `policy` by their last part.
RENAMED: Mapping[str, str] = {
    "database.rewrite_bytes": "database.vacuum_max_bytes",
    "database.reserve_bytes": "database.erase_reserve_bytes",
    "database.scrub_again_seconds": "database.scrub_retry_seconds",
    "database.server_seconds": "database.heartbeat_timeout_seconds",
    "upstream.keeps_answers": "upstream.stores_responses",
    "upstream.compacts": "upstream.compaction_requests",
    "recall.rounds": "recall.max_rounds",
    "limits.depth": "limits.json_depth",
}
RENAMED_IN_POLICY: Mapping[str, str] = {
    "rides": "reuse_prompt_cache",
    "waits": "wait_for_summary",
    "keeps_task": "keep_original_task",
    "guard_ratio": "ceiling_ratio",
    "least_messages": "min_messages",
    "rebuild_every": "rebuild_after_folds",
    "asks_summarizer": "use_summarizer",
    "mechanical_share": "by_content_tool_share",
    "template": "worker_template",
    "user_chars": "summary_input_user_chars",
    "assistant_chars": "summary_input_assistant_chars",
    "tool_result_chars": "summary_input_tool_result_chars",
    "tool_call_chars": "summary_input_tool_call_chars",
}
# Removed settings, by the last part of the name, and what replaces them.
_REMOVED: Mapping[str, str] = {
    "user_wording_share": (
        "was removed: the user's rules, what is open and what was changed stay word for word without a share "
        "of their own; `policy.advanced.summary_share` and `policy.summary_max_tokens` bound the block."
    ),
    "identifier_share": (
        "was removed: paths, ids and numbers stand in the lines that say what was done with them; "
        "`policy.advanced.summary_share` and `policy.summary_max_tokens` bound the block."
    ),
}


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
    policy: DeploymentPolicy = DeploymentPolicy()
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

    @property
    def _servers(self) -> Sequence[UpstreamSettings | Route]:
        return (self.upstream, *self.routes)

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        """All contradictions at once, a line each; they are looked for when every value is valid."""
        found = (*self._keys_at_home(), *self._named_pages(), *self._keys_apart(), *self._policies())
        if found:
            raise ValueError("\n".join(dict.fromkeys(found)))
        return self

    def _keys_at_home(self) -> Iterator[str]:
        summarizer = self.summarizer.api_key or self.summarizer.worker_key
        keyed = any(server.api_key or server.headers for server in self._servers) or summarizer
        if keyed and self.access.mode == "open" and not is_loopback(self.server.host):
            yield (
                "upstream.api_key, upstream.headers, summarizer.api_key or summarizer.worker_key is set, or "
                "api_key or headers of a route, and "
                "server.host is not a loopback address, so anybody could use it: set access.mode to keys, or "
                "listen on 127.0.0.1"
            )

    def _named_pages(self) -> Iterator[str]:
        if "*" in self.server.cors_origins and self.access.mode == "open":
            yield (
                "server.cors_origins holds * and access.mode is open, so any web page could read everything: "
                "name the origins, or set access.mode to keys"
            )

    def _keys_apart(self) -> Iterator[str]:
        """A summary may be requested from another server than the conversation: keys must not mix."""
        has_key = [bool(server.api_key) for server in self._servers]
        if any(has_key) and not all(has_key):
            yield (
                "some of upstream and routes have an api_key and some have none: set one for each (any word "
                "for a server that asks for none), so that no key is sent where it does not belong"
            )

    def _policies(self) -> Iterator[str]:
        """Those of models are looked at where the one that they change holds together."""
        older = Arms(self).settings_of("holdout").policy
        for policy, where in ((self.policy, "policy"), (older, "policy.holdout_policy")):
            if found := [*contradictions_in(merged([policy]), where)]:
                yield from found
                continue
            for index, model in enumerate(self.models):
                yield from contradictions_in(merged([policy, model.policy]), f"models[{index}].policy")


class Arms:
    """The settings of each session, where some keep an older policy (`policy.holdout`)."""

    def __init__(self, settings: Settings) -> None:
        older = DeploymentPolicy.model_validate(settings.policy.holdout_policy)
        self._share = settings.policy.holdout
        self._settings: Mapping[Arm | None, Settings] = {
            None: settings,
            "policy": settings,
            "holdout": settings.model_copy(update={"policy": older}),
        }

    def arm_of(self, session: str) -> Arm | None:
        """The arm of the session with this id; None where no session is held out."""
        return arm_of(session, self._share)

    def settings_of(self, arm: Arm | None) -> Settings:
        """The settings of the sessions in this arm."""
        return self._settings[arm]


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


def cache_seconds(settings: Settings, model: str) -> int:
    """How long the upstream's cache keeps a prompt of the model; 0: for ever."""
    entry = model_settings(settings, model)
    return (entry.prices if entry else PriceSettings()).cache_seconds


def configured_prices(settings: Settings, model: str) -> Prices | None:
    """The prices that the settings give for a model's tokens; None when they do not."""
    entry = model_settings(settings, model)
    given = entry.prices if entry else None
    if given is None or given.input is None:
        return None
    output = OUTPUT_SHARE * given.input if given.output is None else given.output
    return prices_of(given.input, output, given.cached, given.written)


def to_policy(settings: Settings, model: str, session: PolicySettings | None = None) -> Policy:
    """The policy for a model, and for one session of it: later layers win.

    A layer that names another preset drops the numbers of earlier layers, which were meant for their preset.
    """
    entry = model_settings(settings, model)
    layers = [settings.policy, entry.policy if entry else PolicySettings(), session or PolicySettings()]
    policy = merged(layers)
    assumed = settings.window.default_window_tokens
    return policy if assumed is None else replace(policy, assumed_window_tokens=assumed)


def merged(layers: Sequence[PolicySettings]) -> Policy:
    """The last preset that a layer names, with the numbers set for it."""
    chosen: dict[str, Any] = {}
    for layer in map(fields_set, layers):
        if layer.get("name", chosen.get("name", "auto")) != chosen.get("name", "auto"):
            chosen = {}
        chosen |= layer
    policy = PRESETS[chosen.pop("name", "auto")]
    if chosen.pop("mode", "task") == "chat":
        policy = replace(policy, **CHAT)
    if marks := THRESHOLDS.get(chosen.pop("thresholds", "preset")):
        policy = replace(policy, trigger_ratio=marks[0], target_ratio=marks[1])
        policy = replace(policy, precompute_ratio=min(policy.precompute_ratio, marks[0]))
    return replace(policy, **chosen)


def check_policy(policy: Policy, where: str) -> None:
    """ValueError for the first of `contradictions_in`."""
    for contradiction in contradictions_in(policy, where):
        raise ValueError(contradiction)


def contradictions_in(policy: Policy, where: str) -> Iterator[str]:
    """What compacts for ever or never (F04), or names no view; `where` prefixes the names."""
    if policy.target_ratio >= policy.trigger_ratio:
        yield f"{where}.target_ratio must be below trigger_ratio; every turn would compact again"
    if policy.ceiling_ratio < policy.target_ratio:
        yield f"{where}.advanced.ceiling_ratio must not be below {where}.target_ratio"
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


def renaming_of(path: Sequence[str | int], spelt: Callable[[str], str] = str) -> str | None:
    """A clause that names the successor of an earlier version's setting, written by `spelt`.

    None for a name that never was a setting, and for a current one.
    """
    key = ".".join(map(str, path))
    head, policy, rest = key.rpartition("policy.")
    if not policy:
        return f"is {spelt(RENAMED[key])} now." if key in RENAMED else None
    leaf = rest.removeprefix("advanced.")
    if leaf in _REMOVED:
        return _REMOVED[leaf]
    now = place_in_policy(leaf)
    return None if now in (rest, None) else f"is {spelt(head + policy + now)} now."


def place_in_policy(name: str) -> str | None:
    """The place in the section `policy` of a current or earlier name; None for an unknown one."""
    name = RENAMED_IN_POLICY.get(name, name)
    if name in AdvancedPolicy.model_fields:
        return f"advanced.{name}"
    return name if name in PolicySettings.model_fields else None

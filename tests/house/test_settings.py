"""Settings: four sources in a fixed order, and every slip of the pen refused with its remedy."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from palimpsest.core.declared import declared_in
from palimpsest.core.policy import Policy
from palimpsest.core.presets import PRESETS
from palimpsest.errors import SettingsError
from palimpsest.settings.compacting import PolicySettings
from palimpsest.settings.fields import keys_of
from palimpsest.settings.load import load_settings, variable_of
from palimpsest.settings.removed import REMOVED
from palimpsest.settings.settings import (
    Settings,
    configured_window,
    is_loopback,
    known_keys,
    model_settings,
    to_policy,
)
from palimpsest.settings.upstreams import ModelSettings
from pydantic import BaseModel, SecretStr, ValidationError


def _load(file: Path, text: str = "", environ: Mapping[str, str] | None = None, **options: Any) -> Settings:
    file.write_text(text, encoding="utf-8")
    overrides = {key.replace("__", "."): value for key, value in options.items()}
    return load_settings(file, overrides, environ or {})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "palimpsest.yaml"


def _refusal(file: Path, text: str = "", environ: Mapping[str, str] | None = None, **options: Any) -> str:
    with pytest.raises(SettingsError) as refused:
        _load(file, text, environ, **options)
    return refused.value.message


def test_the_command_line_wins_over_environment_over_file_over_default(file: Path) -> None:
    text = "server: {host: 10.0.0.1, port: 1, shutdown_seconds: 5}"
    environ = {"PALIMPSEST_SERVER__PORT": "2", "PALIMPSEST_SERVER__SHUTDOWN_SECONDS": "6"}
    server = _load(file, text, environ, server__port=3).server
    assert (server.host, server.port, server.shutdown_seconds, server.keep_alive_seconds) == (
        "10.0.0.1",
        3,
        6,
        75,
    )


def test_an_option_that_was_not_given_and_an_empty_variable_set_nothing(file: Path) -> None:
    settings = _load(file, "server: {port: 9}", {"PALIMPSEST_UPSTREAM__API_KEY": ""}, server__port=None)
    assert (settings.server.port, settings.upstream.api_key) == (9, None)


def test_the_file_may_be_named_by_the_environment(file: Path) -> None:
    file.write_text("server: {port: 7}", encoding="utf-8")
    assert load_settings(None, {}, {"PALIMPSEST_CONFIG": str(file)}).server.port == 7


def test_an_empty_file_and_a_section_without_keys_set_nothing(file: Path) -> None:
    assert _load(file, "") == Settings()
    assert _load(file, "server:\n  # port: 1\n") == Settings()


def test_lists_come_from_the_environment_as_json(file: Path) -> None:
    environ = {
        "PALIMPSEST_MODELS": '[{"match": "a*", "window_tokens": 4096}]',
        "PALIMPSEST_SESSIONS__HEADERS": '["x-mine"]',
        "PALIMPSEST_UPSTREAM__HEADERS": '{"x-org": "acme"}',
    }
    settings = _load(file, "", environ)
    assert configured_window(settings, "abc") == 4096
    assert settings.sessions.headers == ("x-mine",)
    assert settings.upstream.headers["x-org"].get_secret_value() == "acme"


@pytest.mark.parametrize("key", known_keys())
def test_every_setting_has_a_variable(key: str, file: Path) -> None:
    """Its own default, written into the variable, is read and sets exactly that key."""
    *sections, leaf = key.split(".")
    default: object = functools.reduce(getattr, [*sections, leaf], Settings())
    written = _written(default) or _SAMPLES[leaf]
    read: object = functools.reduce(getattr, sections, _load(file, "", {variable_of(key): written}))
    assert isinstance(read, BaseModel)
    assert read.model_fields_set == {leaf}
    assert getattr(read, leaf) == default or default in (None, "")


def _written(value: Any) -> str:
    """As a person writes it into the environment; empty for None."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, str | Path):
        return str(value)
    return "" if value is None else json.dumps(value)


# For settings that are not set by default.
_SAMPLES = {
    "default_window_tokens": "50000",
    "prompt_file": "/dev/stdin",
    "extra_instructions": "Name the ticket.",
    "worker_template": "{{PREVIOUS_SUMMARY}} {{CONVERSATION}}",
    "summary_model": "small",
    "base_url": "http://127.0.0.1:1/v1",
    "api_key": "k",
    "worker_url": "http://127.0.0.1:1/sum",
    "worker_key": "k",
    "proxy_url": "http://127.0.0.1:1",
    "ca_bundle": "/tmp/ca.pem",
    "daily_log_folder": "/tmp/log",
    "window_tokens": "4096",
    "model": "m",
    "metrics_key": "k",
    "admin_key": "0123456789abcdef",
    "otlp_url": "http://127.0.0.1:1",
}


@pytest.mark.parametrize(
    ("text", "environ", "said"),
    [
        ("server: {prot: 1}", {}, ("palimpsest.yaml: server.prot", "Did you mean server.port?")),
        ("serve: {port: 1}", {}, ("palimpsest.yaml: serve ", "Did you mean server?")),
        ("policy: {triger_ratio: 0.8}", {}, ("policy.triger_ratio", "policy.trigger_ratio?")),
        ("models: [{match: a, windw_tokens: 1}]", {}, ("models.0.windw_tokens", "models.0.window_tokens?")),
        (
            "models: [{match: a, policy: {trigger: 0.8}}]",
            {},
            ("models.0.policy.trigger ", "models.0.policy.trigger_ratio?"),
        ),
        ("routes: [{match: a, base_ul: 'http://a'}]", {}, ("routes.0.base_ul", "routes.0.base_url?")),
        ("", {"PALIMPSEST_SERVER__PRT": "1"}, ("PALIMPSEST_SERVER__PRT", "PALIMPSEST_SERVER__PORT?")),
        (
            "",
            {"PALIMPSEST_UPSTREAM_BASE_URL": "http://a"},
            ("PALIMPSEST_UPSTREAM_BASE_URL", "PALIMPSEST_UPSTREAM__BASE_URL?"),
        ),
        ("", {"PALIMPSEST_MODELS": '[{"match": "a", "tokenzer": 1}]'}, ("PALIMPSEST_MODELS: 0.tokenzer",)),
    ],
)
def test_an_unknown_key_is_refused_with_its_place_and_the_nearest_known(
    file: Path, text: str, environ: dict[str, str], said: tuple[str, ...]
) -> None:
    refusal = _refusal(file, text, environ)
    assert [part for part in said if part not in refusal] == [], refusal


@pytest.mark.parametrize(
    ("text", "environ", "options", "said"),
    [
        ("policy: {holdout: 0.1}", {}, {}, "policy.holdout was removed: "),
        ("", {}, {"policy__holdout": 0.1}, "policy.holdout was removed: "),
        ("models: [{match: a, policy: {holdout: 0.1}}]", {}, {}, "models.0.policy.holdout was removed: "),
        ("", {"PALIMPSEST_POLICY__HOLDOUT": "0.1"}, {}, "PALIMPSEST_POLICY__HOLDOUT was removed: "),
    ],
)
def test_a_removed_setting_is_refused_with_what_does_its_work(
    file: Path, text: str, environ: dict[str, str], options: dict[str, Any], said: str
) -> None:
    assert said + REMOVED["policy.holdout"] in _refusal(file, text, environ, **options)


def test_what_was_removed_is_no_setting() -> None:
    assert not REMOVED.keys() & {*known_keys()}
    assert all(not said[0].isupper() and said.endswith(".") for said in REMOVED.values())


def test_advanced_numbers_come_from_file_and_environment(file: Path) -> None:
    environ = {
        "PALIMPSEST_POLICY__ADVANCED__READ_TOOLS": '["mine"]',
        "PALIMPSEST_POLICY__ADVANCED__TRIGGER_MESSAGES": "7",
    }
    policy = to_policy(
        _load(file, "policy: {advanced: {trigger_messages: 6, tail_ratio: 0.3}}", environ), "any"
    )
    assert (policy.trigger_messages, policy.tail_ratio, policy.read_tools) == (7, 0.3, ("mine",))
    assert "is a section" in _refusal(file, "", {"PALIMPSEST_POLICY__ADVANCED": "7"})
    assert "at most 0.8" in _refusal(file, "policy: {advanced: {tail_ratio: 0.9}}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("server: {port: 99999}", "server.port"),
        ("policy: {trigger_ratio: 0.99}", "policy.trigger_ratio"),
        ("policy: {trigger_ratio: 0.49}", "policy.trigger_ratio"),
        ("policy: {target_ratio: 0.9}", "target_ratio must be below trigger_ratio"),
        ("models: [{match: a, policy: {target_ratio: 0.9}}]", "models[0].policy.target_ratio"),
        ("policy: {advanced: {summary_min_tokens: 5000}}", "policy.advanced.summary_min_tokens must"),
        ("upstream: {base_url: api.openai.com}", "whole URL"),
        ("upstream: {base_url: 'https://user:pw@host/v1'}", "api_key"),
        ("models: [{window_tokens: 4096}]", "models.0.match"),
        ("routes: [{match: a}]", "routes.0.base_url"),
        ("routes: [{match: a, base_url: 'http://a', api_key: k}]", "some of upstream and routes"),
        ("upstream: {api_key: k}\nroutes: [{match: a, base_url: 'http://a'}]", "some of upstream and routes"),
        # An empty key is none, and the callers' own would go there.
        (
            "upstream: {api_key: k}\nroutes: [{match: a, base_url: 'http://a', api_key: ''}]",
            "some of upstream and routes",
        ),
        ("routes: [{match: a, base_url: 'http://a:99999/v1'}]", "routes.0.base_url"),
        ("upstream: {headers: {'a b': c}}", "upstream.headers"),
        ('upstream: {headers: {a: "b\\nc"}}', "upstream.headers"),
        ("routes: [{match: a, base_url: 'http://a', headers: {'': c}}]", "routes.0.headers"),
        ('upstream: {api_key: "k\\n"}', "upstream.api_key"),
        ('summarizer: {api_key: "k\\r"}', "summarizer.api_key"),
        ("routes: [{match: a, base_url: 'http://a', api_key: \"k\\n\"}]", "routes.0.api_key"),
        (
            "server: {host: 10.0.0.1}\nroutes: [{match: a, base_url: 'http://a', headers: {x: y}}]",
            "access.mode to keys",
        ),
        ("database: {synchronous: off}", "database.synchronous"),
        ("access: {mode: closed}", "access.mode"),
        ("- a\n- b", "sections"),
        ("server: [", "line 1"),
        ("server: 5", "server"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(file: Path, text: str, said: str) -> None:
    assert said in _refusal(file, text)


@pytest.mark.spec("P7")
def test_a_refusal_never_repeats_a_value(file: Path) -> None:
    secret = "sk-canary-4711"
    for text in (
        f"upstream: {{api_key: [{secret}]}}",
        f"upstream: {{base_url: 'http://{secret}:x@h/'}}",
        f"server: {{port: {secret}}}",
    ):
        assert secret not in _refusal(file, text)
    assert secret not in _refusal(file, "", {"PALIMPSEST_UPSTREAM__HEADERS": secret})


@pytest.mark.spec("P7")
def test_secrets_are_not_shown() -> None:
    shown = repr(
        Settings.model_validate(
            {
                "upstream": {"api_key": "sk-canary", "headers": {"x": "hdr-canary"}},
                "database": {"url": "postgresql://u:pw-canary@h/d"},
                "summarizer": {"api_key": "sum-canary"},
            }
        )
    )
    assert "canary" not in shown


def test_a_missing_file_is_refused_only_when_it_was_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no such file"):
        load_settings(tmp_path / "none.yaml", {}, {})


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        Settings().server.port = 1


@pytest.mark.parametrize(
    "section", ["upstream: {api_key: k}", "summarizer: {api_key: k}", "summarizer: {worker_key: k}"]
)
def test_an_operators_key_stays_on_this_machine_or_behind_issued_keys(file: Path, section: str) -> None:
    assert "access.mode" in _refusal(file, section, server__host="0.0.0.0")
    assert _load(file, section, server__host="::1").server.host == "::1"
    assert _load(file, section, server__host="0.0.0.0", access__mode="keys").access.mode == "keys"


@pytest.mark.parametrize(("host", "is_it"), [("127.0.0.1", True), ("::1", True), ("localhost", True)])
def test_loopback_is_recognised(host: str, is_it: bool) -> None:
    assert is_loopback(host) is is_it
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("10.0.0.1")
    assert not is_loopback("my-host")


@pytest.mark.spec("A42")
def test_the_policy_has_every_number_of_the_core_with_the_same_default() -> None:
    numbers = {*declared_in(Policy)}
    every = {key.rpartition(".")[2]: field.default for key, field in keys_of(PolicySettings).items()}
    assert set(every) == numbers
    assert {name: every[name] for name in numbers} == {name: getattr(Policy(), name) for name in numbers}
    assert to_policy(Settings(), "any") == Policy()


def _policy(**layers: dict[str, Any]) -> Policy:
    """The policy of a model, from what deployment, model and session set."""
    settings = Settings.model_validate(
        {"policy": layers.get("general", {}), "models": [{"match": "*", "policy": layers.get("model", {})}]}
    )
    return to_policy(settings, "any", PolicySettings.model_validate(layers.get("session", {})))


def test_a_preset_gives_what_is_not_set() -> None:
    assert _policy(general={"name": "rolling"}) == PRESETS["rolling"]
    # As YAML reads a bare `off`.
    assert _policy(general={"name": False}).is_off
    chosen = _policy(general={"name": "rolling", "tail_messages": 9})
    assert chosen == replace(PRESETS["rolling"], tail_messages=9)


def test_the_session_goes_before_the_model_and_the_model_before_the_deployment() -> None:
    policy = _policy(
        general={"trigger_ratio": 0.7, "target_ratio": 0.3, "advanced": {"tail_ratio": 0.3}},
        model={"trigger_ratio": 0.8, "target_ratio": 0.4},
        session={"trigger_ratio": 0.9},
    )
    assert (policy.trigger_ratio, policy.target_ratio, policy.tail_ratio) == (0.9, 0.4, 0.3)


def test_another_preset_drops_the_numbers_meant_for_the_one_before() -> None:
    policy = _policy(general={"name": "handoff", "trigger_ratio": 0.7}, session={"name": "worker"})
    assert policy == PRESETS["worker"]
    same = _policy(general={"name": "handoff", "trigger_ratio": 0.7}, session={"name": "handoff"})
    assert same.trigger_ratio == 0.7


@pytest.mark.spec("A42")
def test_a_wrong_number_is_refused_with_its_name() -> None:
    with pytest.raises(ValidationError) as refused:
        PolicySettings.model_validate({"trigger_ratio": 3})
    assert refused.value.errors()[0]["loc"] == ("trigger_ratio",)


def test_the_first_entry_that_matches_decides() -> None:
    settings = Settings(
        models=(
            ModelSettings(match="gpt-4o-mini", window_tokens=1_000),
            ModelSettings.model_validate({"match": "GPT-4O*", "policy": {"trigger_ratio": 0.8}}),
            ModelSettings(match="*", window_tokens=3_000),
        )
    )
    found = {name: configured_window(settings, name) for name in ("gpt-4o-mini", "gpt-4o", "llama")}
    assert found == {"gpt-4o-mini": 1_000, "gpt-4o": None, "llama": 3_000}
    assert to_policy(settings, "gpt-4o").trigger_ratio == 0.8
    assert to_policy(settings, "gpt-4o").target_ratio == Policy().target_ratio
    assert to_policy(settings, "llama") == Policy()
    assert model_settings(Settings(), "gpt-4o") is None


@pytest.mark.parametrize("key", ["short", "", "0123456789abcde", "0123456789 abcdef", "ä" * 20, "CHANGEME"])
def test_an_admin_key_is_long_and_can_be_sent(file: Path, key: str) -> None:
    if key:
        assert "at least 16 letters" in _refusal(file, "", access__admin_key=key)
    said = _refusal(file, f'access: {{admin_key: "{key}"}}')
    assert "access.admin_key" in said
    assert not key or key not in said
    assert _load(file, "", access__admin_key="0123456789abcdef==").access.admin_key is not None

"""Settings of the upstreams, their models, prices and windows, and the summarizer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, SecretStr, model_validator

from palimpsest.core.declared import within
from palimpsest.core.wire.models import STAR, ModelPattern
from palimpsest.settings.compacting import PolicySettings
from palimpsest.settings.fields import Section, advanced, setting, split_url

# RFC 9110, 5.1 and 5.5: a name is a token; a value contains no control characters except the tab.
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")

# Placeholders of documents and templates in place of a key, and unexpanded variables.
_PLACEHOLDER = re.compile(
    r"(?:sk-|bearer )?(?:change[-_ ]?(?:me|it)|replace[-_ ]?(?:me|this)"
    r"|(?:put|insert|add)?[-_ ]?(?:your|my)[-_ ](?:[a-z]+[-_ ])*(?:key|token|secret)(?:[-_ ]here)?"
    r"|todo|placeholder|x{3,}|\*{3,}|\.{3,}|…|<.*>|\$\{?\w+\}?)",
    re.IGNORECASE,
)


def _value(value: SecretStr) -> SecretStr:
    if _PLACEHOLDER.fullmatch(value.get_secret_value().strip()):
        raise ValueError("is a placeholder, not a key: put the real one there, or leave it out")
    if _CONTROL.search(value.get_secret_value()):
        raise ValueError("must not hold a line break or another control character: it is sent in a header")
    return value


def _named(headers: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
    if not all(map(_NAME.fullmatch, headers)):
        raise ValueError("must be names of headers, such as x-team")
    return headers


HeaderValue = Annotated[SecretStr, AfterValidator(_value)]
AddedHeaders = Annotated[Mapping[str, HeaderValue], AfterValidator(_named)]

Tokenizer = Literal["o200k_base", "cl100k_base"]


def _endpoint(url: str) -> str:
    """The URL without trailing slashes, so that paths can be appended."""
    parts = split_url(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be a whole URL such as https://api.openai.com/v1")
    _check_host(parts.hostname)
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not hold a password; put the key into api_key")
    if parts.fragment:
        raise ValueError("must not hold a fragment")
    if parts.port == 0:
        raise ValueError("must not name port 0")
    return url.rstrip("/")


def _proxy(url: SecretStr) -> SecretStr:
    parts = split_url(url.get_secret_value())
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError("must be a whole URL such as http://proxy.example:3128")
    _check_host(parts.hostname)
    return url


def _check_host(name: str) -> None:
    """ValueError for what no resolver takes: empty or long labels, wrong Punycode."""
    try:
        if name.isascii() and "xn--" not in name:
            name.encode("idna")
        else:
            # Python's own codec knows the names of 2003 only.
            import idna

            idna.decode(name) if name.isascii() else idna.encode(name)
    except UnicodeError:
        raise ValueError(f"must not name the host {name}, which is none") from None


Endpoint = Annotated[str, AfterValidator(_endpoint)]
ProxyAddress = Annotated[SecretStr, AfterValidator(_proxy)]
KeyHeader = Literal["bearer", "api-key"]
_KEY_HEADER = (
    "bearer",
    "How api_key is sent: as Authorization: Bearer, or as the header api-key.",
    "Azure expects its own keys in api-key; all others take a bearer token.",
)
_WINDOW = within("tokens", ge=1_000, le=100_000_000)
_PRICE = within("per million tokens", ge=0, le=1_000_000)


class UpstreamSettings(Section):
    """The OpenAI-compatible server that answers."""

    base_url: Endpoint | None = setting(
        None,
        "Base URL of the server, with its version path, such as https://api.openai.com/v1.",
        "None starts the built-in demo model, so that the first run needs neither key nor network.",
        "URL",
    )
    api_key: HeaderValue | None = setting(
        None,
        "Key sent upstream in place of the caller's.",
        "None: the caller's own key is sent. A key set here requires a loopback address or keys mode.",
        "secret",
    )
    key_header: KeyHeader = setting(*_KEY_HEADER)
    headers: AddedHeaders = setting(
        {},
        "Headers added to every request to the upstream.",
        "Some servers require an organisation or routing header that clients do not know.",
        "names and values",
    )
    stores_responses: bool = setting(
        True,
        "Whether the server stores its answers to /v1/responses, so that requests may reference them and"
        " their items by id.",
        "False: each request contains the whole conversation. Also detected when a server says so.",
    )
    compaction_requests: Literal["upstream", "auto", "proxy"] = setting(
        "upstream",
        "Who answers requests for a compaction (/v1/responses/compact, compaction_trigger): the upstream, "
        "the proxy, or the proxy where the upstream refuses them (auto).",
        "An upstream's own feature is not replaced unless the operator says so.",
    )
    connect_timeout_seconds: float = advanced(
        10.0,
        "How long opening a connection may take.",
        "A handshake across an ocean takes under a second; the rest is for lost packets.",
        within("seconds", gt=0, le=300),
    )
    first_byte_timeout_seconds: float = setting(
        600.0,
        "How long the upstream may take before its answer begins.",
        "The default of OpenAI's own client; reasoning models think for minutes.",
        within("seconds", gt=0, le=7200),
    )
    idle_timeout_seconds: float = setting(
        600.0,
        "How long an answer that has begun may pause.",
        "Reasoning models pause for minutes in mid-stream, but streams that hang for hours must end.",
        within("seconds", gt=0, le=7200),
    )
    answer_timeout_seconds: float = advanced(
        7_200.0,
        "How long a recorded answer may take from beginning to end; unrecorded answers have no limit.",
        "An upstream that sends a byte now and then never hits the idle timeout; no real answer takes two"
        " hours.",
        within("seconds", gt=0, le=86_400),
    )
    keep_alive_seconds: float = advanced(
        30.0,
        "How long an idle connection to the upstream is kept for the next request.",
        "Avoids a TLS handshake between turns, and is below the idle limits of common front ends.",
        within("seconds", ge=0, le=3600),
    )
    max_connections: int = advanced(
        1_000,
        "Connections to the upstream.",
        "With the client library's own 100 the 101st stream would wait without notice.",
        within("connections", ge=1, le=100_000),
    )
    proxy_url: ProxyAddress | None = setting(
        None,
        "HTTP proxy for connections to the upstream, such as http://user:password@proxy.example:3128.",
        "None: direct connections.",
        "URL",
    )
    ca_bundle: Path | None = setting(
        None,
        "PEM file of certificate authorities to trust in addition to the system's.",
        "Corporate networks that intercept TLS sign with their own authority.",
        "path",
    )
    trust_env: bool = advanced(
        False,
        "Whether the environment's HTTP_PROXY, HTTPS_PROXY and NO_PROXY are used when proxy_url is not set.",
        "A variable set for another program must not redirect conversations.",
    )


class PriceSettings(Section):
    """Prices of one model, by which pages show money; published ones are in US dollars."""

    input: float | None = setting(
        None,
        "Price of prompt tokens that are not cached; without it the other prices are ignored.",
        "None: published prices.",
        within("per million tokens", gt=0, le=1_000_000),
    )
    output: float | None = setting(
        None,
        "Price of completion tokens.",
        "None: four times the input's.",
        _PRICE,
    )
    cached: float | None = setting(
        None,
        "Price of prompt tokens read from the cache.",
        "None: a tenth of the input's.",
        _PRICE,
    )
    written: float | None = setting(
        None,
        "Price of prompt tokens that are written to the cache.",
        "None: the input's.",
        _PRICE,
    )


class ModelSettings(Section):
    """Facts about the models that a name or pattern matches. The first match in the list counts."""

    match: str = setting(
        ...,
        "Model name, or a pattern with * and ?, compared without regard to case.",
        "Servers name the same model in many spellings.",
        within("name or pattern", min_length=1),
    )
    window_tokens: int | None = setting(
        None,
        "Context window, prompt and answer together.",
        "None: taken from the upstream's list of models, its errors or published model data, else the"
        " default.",
        _WINDOW,
    )
    tokenizer: Tokenizer | None = setting(
        None,
        "Encoding to count with.",
        "None: by the model's name, else o200k_base; calibration with the upstream's counts corrects the"
        " rest.",
    )
    prices: PriceSettings = setting(
        PriceSettings(),
        "What these models' tokens cost.",
        "Empty: published prices, with their steps; without any, cost is unknown.",
        "prices",
    )
    policy: PolicySettings = setting(
        PolicySettings(),
        "Settings of the section policy that differ for these models.",
        "Empty: the general ones.",
        "settings of policy",
    )


class WindowSettings(Section):
    """How a model's window is found when no entry of `models` sets it."""

    window_tokens: int | None = setting(
        None,
        "Window of every model for which `models` gives none; `serve --window-tokens` sets it.",
        "None: determined for each model, which is right as soon as there are two models.",
        _WINDOW,
    )
    default_window_tokens: int | None = setting(
        None,
        "Window of a model about which nothing is known.",
        "None: the preset's, 200,000 under rolling and 100,000 under the others; most models in use have at "
        "least 128,000. No request is refused because of this guess alone.",
        _WINDOW,
    )
    lookup_seconds: float = advanced(
        3.0,
        "How long requesting the upstream's list of models may take; 0: it is not requested.",
        "The first request waits for it; a server that has such a list answers at once.",
        within("seconds", ge=0, le=60),
    )


class SummarizerSettings(Section):
    """Who writes summaries."""

    base_url: Endpoint | None = setting(
        None,
        "Base URL of the server that writes summaries, by chat completions or, without these, /responses.",
        "None: the same upstream, on the API that the conversation uses.",
        "URL",
    )
    model: str | None = setting(
        None,
        "Model that writes summaries.",
        "None: the conversation's own model, which can read all of its content.",
        within("model name", min_length=1),
    )
    api_key: HeaderValue | None = setting(
        None,
        "Key for the summarizer.",
        "None: the key of the conversation's own request, which is never sent if base_url names another"
        " server.",
        "secret",
    )
    key_header: KeyHeader = advanced(*_KEY_HEADER)
    worker_url: Endpoint | None = advanced(
        None,
        "Address of a program that writes the summaries of the preset worker, in place of a model.",
        "None: a model is asked. docs/presets/worker.md describes requests and responses.",
        "URL",
    )
    worker_key: HeaderValue | None = advanced(
        None,
        "Key for worker_url, sent as a bearer token. Callers' keys are never sent there.",
        "None: no key is sent.",
        "secret",
    )
    prompt_file: Path | None = setting(
        None,
        "File with instructions on a summary's contents and form, in place of the built-in ones.",
        "None: the built-in, measured prompt. The model is told its input and the length limit in any case.",
        "path",
    )
    extra_instructions: str = setting(
        "",
        "Text added at the end of every such summary prompt, before the length limit.",
        "For a house rule or two without a prompt of your own.",
        within("text", max_length=4_000),
    )
    window_tokens: int | None = advanced(
        None,
        "The summarizer's own window; longer input is folded in several calls.",
        "None: determined as for any other model.",
        _WINDOW,
    )


class Route(Section):
    """Another upstream for the models that a name or pattern matches. The first match in the list counts."""

    match: str = setting(
        ...,
        "Model name, or a pattern with * and ?, compared without regard to case.",
        "A prefix such as claude- identifies the server.",
        within("name or pattern", min_length=1),
    )
    model: str | None = setting(
        None,
        "Model name sent to this server; a * in it is replaced by what the first * of match matched.",
        'None: as the client sent it. "*" removes a prefix that is only used for routing.',
        within("name", min_length=1),
    )
    base_url: Endpoint = setting(
        ...,
        "Base URL of the server that answers for these models, with its version path.",
        "Only the operator decides where conversations are sent.",
        "URL",
    )
    api_key: HeaderValue | None = setting(
        None,
        "Key sent there in place of the caller's.",
        "None: the caller's own key; then no upstream may have a key of yours.",
        "secret",
    )
    key_header: KeyHeader = setting(*_KEY_HEADER)
    headers: AddedHeaders = setting(
        {},
        "Headers added to every request to this server; upstream.headers are not added.",
        "A header for one server may be a secret from another.",
        "names and values",
    )

    @property
    def models(self) -> ModelPattern:
        """The models of this route, and their names there."""
        return ModelPattern(self.match, self.model)

    @model_validator(mode="after")
    def _star_stands_for_something(self) -> Self:
        if STAR in (self.model or "") and STAR not in self.match:
            raise ValueError("model has a * and match has none that it could stand for")
        return self

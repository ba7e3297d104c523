"""Settings of what stands behind the proxy: the upstream, its models, their windows, the summarizer.

Knows nothing of how a request is sent.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, SecretStr

from app.settings.fields import Section, setting
from app.settings.headers import AddedHeaders, HeaderValue
from app.settings.policy import PolicySettings

Tokenizer = Literal["o200k_base", "cl100k_base"]


def _endpoint(url: str) -> str:
    """Without a closing slash, so that paths can be appended."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be a whole URL such as https://api.openai.com/v1")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not hold a password; put the key into api_key")
    if parts.fragment:
        raise ValueError("must not hold a fragment")
    if parts.port == 0:
        raise ValueError("must not name port 0")
    return url.rstrip("/")


def _proxy(url: SecretStr) -> SecretStr:
    parts = urlsplit(url.get_secret_value())
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError("must be a whole URL such as http://proxy.example:3128")
    return url


Endpoint = Annotated[str, AfterValidator(_endpoint)]
ProxyAddress = Annotated[SecretStr, AfterValidator(_proxy)]
KeyHeader = Literal["bearer", "api-key"]


class Upstream(Section):
    """The OpenAI-compatible server that answers."""

    base_url: Endpoint | None = setting(
        None,
        "Base URL of the server, with its version path, such as https://api.openai.com/v1.",
        "None starts the built-in demo, so that the first run needs neither key nor network.",
        unit="URL",
    )
    api_key: HeaderValue | None = setting(
        None,
        "Key sent upstream in place of the caller's.",
        "None: the caller's own key goes upstream. One set here asks for loopback or for keys mode.",
        unit="secret",
    )
    key_header: KeyHeader = setting(
        "bearer",
        "How api_key is sent: as Authorization: Bearer, or as the header api-key.",
        "Azure's own keys go in api-key; everybody else takes a bearer token.",
        unit="bearer or api-key",
    )
    headers: AddedHeaders = setting(
        {},
        "Headers added to every request to the upstream.",
        "Some servers ask for an organisation or a routing header that clients do not know.",
        unit="names and values",
    )
    keeps_answers: bool = setting(
        True,
        "Whether the server keeps its answers to /v1/responses, so that it knows them and their items by id.",
        "False: all that was said goes with each request. It is found out, too, where a server says so.",
        unit="true or false",
    )
    compacts: Literal["upstream", "auto", "proxy"] = setting(
        "upstream",
        "Who answers requests for a compaction (/v1/responses/compact, compaction_trigger): the upstream, "
        "the proxy, or the proxy where the upstream refuses them.",
        "What the upstream has of its own is nobody else's to change unless somebody says so.",
        unit="upstream, auto or proxy",
    )
    connect_timeout_seconds: float = setting(
        10.0,
        "How long opening a connection may take.",
        "A handshake across an ocean takes under a second; the rest is for lost packets.",
        unit="seconds",
        gt=0,
        le=300,
    )
    first_byte_timeout_seconds: float = setting(
        600.0,
        "How long the upstream may take before its answer begins.",
        "What OpenAI's own client allows; reasoning models think for minutes.",
        unit="seconds",
        gt=0,
        le=7200,
    )
    idle_timeout_seconds: float = setting(
        600.0,
        "How long an answer that has begun may pause.",
        "Reasoning models fall silent for minutes in mid-stream, but streams that hang for hours must end.",
        unit="seconds",
        gt=0,
        le=7200,
    )
    answer_timeout_seconds: float = setting(
        7_200.0,
        "How long a recorded answer may take from beginning to end; what only passes through takes any time.",
        "An upstream that drips a byte now and then is never silent; no answer in use takes two hours.",
        unit="seconds",
        gt=0,
        le=86_400,
    )
    keep_alive_seconds: float = setting(
        30.0,
        "How long an idle connection to the upstream is kept for the next request.",
        "Spares the TLS handshake between turns, and is below the idle limits of common front ends.",
        unit="seconds",
        ge=0,
        le=3600,
    )
    max_connections: int = setting(
        1_000,
        "Connections to the upstream.",
        "The client library's own 100 would make the 101st stream wait without a word.",
        unit="connections",
        ge=1,
        le=100_000,
    )
    proxy_url: ProxyAddress | None = setting(
        None,
        "HTTP proxy on the way to the upstream, such as http://user:password@proxy.example:3128.",
        "None connects directly.",
        unit="URL",
    )
    ca_bundle: Path | None = setting(
        None,
        "PEM file of authorities to trust besides the system's.",
        "Corporate networks that open TLS sign with their own authority.",
        unit="path",
    )
    trust_env: bool = setting(
        False,
        "Whether HTTP_PROXY, HTTPS_PROXY and NO_PROXY of the environment count when proxy_url is not set.",
        "A variable set for another program must not redirect conversations.",
        unit="true or false",
    )


class PriceSettings(Section):
    """Prices of one model. Only their ratios matter, so any currency will do."""

    input: float | None = setting(
        None,
        "Price of prompt tokens that no cache knows; without it the others count for nothing.",
        "None: published prices.",
        unit="per million tokens",
        gt=0,
        le=1_000_000,
    )
    output: float | None = setting(
        None,
        "Price of written tokens.",
        "None: four times the input's.",
        unit="per million tokens",
        ge=0,
        le=1_000_000,
    )
    cached: float | None = setting(
        None,
        "Price of prompt tokens read from the cache.",
        "None: a tenth of the input's.",
        unit="per million tokens",
        ge=0,
        le=1_000_000,
    )
    written: float | None = setting(
        None,
        "Price of prompt tokens that are put into the cache.",
        "None: the input's.",
        unit="per million tokens",
        ge=0,
        le=1_000_000,
    )
    cache_seconds: int = setting(
        300,
        "How long the upstream's cache keeps a prompt that nobody asks for; after it policy.objective cost "
        "folds sooner. 0: for ever.",
        "What most services promise at least.",
        unit="seconds",
        ge=0,
        le=604_800,
    )


class ModelSettings(Section):
    """What is known of the models a name or pattern matches. The first match in the list counts."""

    match: str = setting(
        ...,
        "Model name, or a pattern with * and ?, compared without regard to case.",
        "Servers name the same model in many spellings.",
        unit="name or pattern",
        min_length=1,
    )
    window_tokens: int | None = setting(
        None,
        "Context window, prompt and answer together.",
        "None: asked of the upstream, learned from its errors, looked up in model data, or the default.",
        unit="tokens",
        ge=1_000,
        le=100_000_000,
    )
    tokenizer: Tokenizer | None = setting(
        None,
        "Encoding to count with.",
        "None: by the model's name, else o200k_base; calibration on the upstream's counts mends the rest.",
        unit="o200k_base or cl100k_base",
    )
    prices: PriceSettings = setting(
        PriceSettings(),
        "What these models' tokens cost.",
        "Empty: published prices, else usual ratios: cached a tenth of input, output four times.",
        unit="prices",
    )
    policy: PolicySettings = setting(
        PolicySettings(),
        "Settings of the section policy that differ for these models.",
        "Empty: the general ones.",
        unit="settings of policy",
    )


class WindowSettings(Section):
    """How a model's window is found when no entry of `models` names it."""

    window_tokens: int | None = setting(
        None,
        "Window of every model for which `models` gives none; `serve --window-tokens` sets it.",
        "None: found out model by model, which is right as soon as there are two.",
        unit="tokens",
        ge=1_000,
        le=100_000_000,
    )
    default_window_tokens: int | None = setting(
        None,
        "Window of a model nobody knows anything of.",
        "None: the preset's, 200,000 under rolling and 100,000 under the others; most models in use have at "
        "least 128,000, and nothing is ever refused on this guess alone.",
        unit="tokens",
        ge=1_000,
        le=100_000_000,
    )
    lookup_seconds: float = setting(
        3.0,
        "How long asking the upstream for its models may take; 0 does not ask.",
        "The first request waits for it; a server that has the list has it at once.",
        unit="seconds",
        ge=0,
        le=60,
    )


class SummarizerSettings(Section):
    """Who writes summaries."""

    base_url: Endpoint | None = setting(
        None,
        "Base URL of the server that writes summaries, by chat completions or, without these, /responses.",
        "None: the same upstream, on the API that the conversation speaks.",
        unit="URL",
    )
    model: str | None = setting(
        None,
        "Model that writes summaries.",
        "None: the conversation's own model, which reads everything it can read.",
        unit="model name",
        min_length=1,
    )
    api_key: HeaderValue | None = setting(
        None,
        "Key for the summarizer.",
        "None: the key of the conversation's own request; never sent when base_url names another server.",
        unit="secret",
    )
    key_header: KeyHeader = setting(
        "bearer",
        "How api_key is sent: as Authorization: Bearer, or as the header api-key.",
        "Azure's own keys go in api-key; everybody else takes a bearer token.",
        unit="bearer or api-key",
    )
    worker_url: Endpoint | None = setting(
        None,
        "Address of a program that writes the summaries of the policy worker, in place of a model.",
        "None: a model is asked. What is sent and expected stands in docs/how-compaction-works.md.",
        unit="URL",
    )
    worker_key: HeaderValue | None = setting(
        None,
        "Key for worker_url, sent as a bearer token. Callers' keys are never sent there.",
        "None: the address needs none.",
        unit="secret",
    )
    prompt_file: Path | None = setting(
        None,
        "File that says what a summary should hold and how it should look, in place of our nine sections.",
        "None: our own, measured. What is given and how long it may be is said to the model all the same.",
        unit="path",
    )
    extra_instructions: str = setting(
        "",
        "What every question for such a summary says at its end, before the length.",
        "None needed; a house rule or two fit here, without a prompt of your own.",
        unit="text",
        max_length=4_000,
    )
    window_tokens: int | None = setting(
        None,
        "The summarizer's own window; longer input is folded in several calls.",
        "None: found as for any other model.",
        unit="tokens",
        ge=1_000,
        le=100_000_000,
    )

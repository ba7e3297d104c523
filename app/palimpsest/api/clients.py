"""How clients are pointed at the proxy: its address as a request names it, and one line for each client."""

from __future__ import annotations

import re
from collections.abc import Sequence

from palimpsest.proxy.incoming import Scope

# Each client with the line that sets its base URL ({url}). The README's table and their pages must match.
CLIENTS: Sequence[tuple[str, str]] = (
    ("OpenAI, Python", 'client = OpenAI(base_url="{url}")'),
    ("OpenAI, Node", 'const client = new OpenAI({{ baseURL: "{url}" }})'),
    ("LangChain", 'ChatOpenAI(model="gpt-4o", base_url="{url}")'),
    ("Vercel AI SDK", 'createOpenAICompatible({{ name: "kept", baseURL: "{url}" }})'),
    ("pydantic-ai", 'OpenAIChatModel("gpt-4o", provider=OpenAIProvider(base_url="{url}"))'),
    ("openai-agents", 'set_default_openai_client(AsyncOpenAI(base_url="{url}"))'),
    ("openai-agents, JavaScript", 'setDefaultOpenAIClient(new OpenAI({{ baseURL: "{url}" }}))'),
    ("Codex CLI", 'base_url = "{url}"'),
    ("LiteLLM", 'litellm.completion(model="openai/gpt-4o", api_base="{url}", messages=messages)'),
    ("llm", "api_base: {url}"),
    ("aider", "export OPENAI_API_BASE={url}"),
    ("opencode", '"options": {{"baseURL": "{url}"}}'),
    ("Open WebUI", "OPENAI_API_BASE_URL={url}"),
)
_HOST = re.compile(r"[\w.:\[\]-]{1,255}", re.ASCII)


def base_url_of(scope: Scope) -> str:
    """`http://host:port/v1`, as the caller reaches it."""
    return address_of(scope) + "/v1"


def address_of(scope: Scope) -> str:
    """`http://host:port` by the Host header; x-forwarded-proto of a front end tells whether it uses TLS."""
    sent = {name: value.decode("latin-1") for name, value in scope["headers"]}
    scheme = sent.get(b"x-forwarded-proto", "")
    host = sent.get(b"host", "")
    if scheme not in ("http", "https"):
        scheme = scope.get("scheme", "http")
    return f"{scheme}://{host if _HOST.fullmatch(host) else 'HOST'}"


def settings_lines(scope: Scope) -> list[tuple[str, str]]:
    """Each client with the line that points it here."""
    url = base_url_of(scope)
    return [(client, line.format(url=url)) for client, line in CLIENTS]

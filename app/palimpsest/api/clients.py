"""How clients are pointed at the proxy: its address as a request names it, and one line for each client."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from palimpsest.proxy.incoming import Scope


class Client(NamedTuple):
    """A client that is pointed at the proxy.

    `slug` is the name of its page in the documentation; `line` sets its base URL ({url}); `block` is what has
    to be written around the line where it does not stand alone.
    """

    slug: str
    name: str
    line: str
    block: str = ""


# The README's table and the clients' pages must match.
CLIENTS: Sequence[Client] = (
    Client("openai-python", "OpenAI, Python", 'client = OpenAI(base_url="{url}")'),
    Client("openai-node", "OpenAI, Node", 'const client = new OpenAI({{ baseURL: "{url}" }})'),
    Client("langchain", "LangChain", 'ChatOpenAI(model="gpt-4o", base_url="{url}")'),
    Client("vercel-ai-sdk", "Vercel AI SDK", 'createOpenAICompatible({{ name: "kept", baseURL: "{url}" }})'),
    Client(
        "pydantic-ai",
        "pydantic-ai",
        'OpenAIChatModel("gpt-4o", provider=OpenAIProvider(base_url="{url}"))',
    ),
    Client("openai-agents", "openai-agents", 'set_default_openai_client(AsyncOpenAI(base_url="{url}"))'),
    Client(
        "openai-agents-js",
        "openai-agents, JavaScript",
        'setDefaultOpenAIClient(new OpenAI({{ baseURL: "{url}" }}))',
    ),
    Client(
        "codex",
        "Codex CLI",
        'base_url = "{url}"',
        """# ~/.codex/config.toml, with model_provider = "palimpsest" at its top
[model_providers.palimpsest]
name = "Palimpsest"
base_url = "{url}"
env_key = "PALIMPSEST_KEY"
wire_api = "responses"
""",
    ),
    Client(
        "litellm",
        "LiteLLM",
        'litellm.completion(model="openai/gpt-4o", api_base="{url}", messages=messages)',
    ),
    Client(
        "llm",
        "llm",
        "api_base: {url}",
        """# extra-openai-models.yaml in the folder that `llm logs path` names
- model_id: kept
  model_name: gpt-4o
  api_base: {url}
  api_key_name: openai
  supports_tools: true
""",
    ),
    Client(
        "aider",
        "aider",
        "export OPENAI_API_BASE={url}",
        """export OPENAI_API_BASE={url}
aider --model openai/gpt-4o
""",
    ),
    Client(
        "opencode",
        "opencode",
        '"options": {{"baseURL": "{url}"}}',
        """"provider": {{"palimpsest": {{"npm": "@ai-sdk/openai-compatible",
                            "options": {{"baseURL": "{url}"}},
                            "models": {{MODEL: {{"limit": {{"context": 200000, "output": 8000}}}}}}}}}}
""",
    ),
    Client(
        "open-webui",
        "Open WebUI",
        "OPENAI_API_BASE_URL={url}",
        """OPENAI_API_BASE_URL={url}
ENABLE_FORWARD_USER_INFO_HEADERS=true
""",
    ),
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
    return [(client.name, client.line.format(url=url)) for client in CLIENTS]

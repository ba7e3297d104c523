"""The clients, one entry each: what it is, how it is started, what is peculiar to it.

Knows nothing of what is checked.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.house.sources import ROOT

HERE = Path(__file__).parent
# The environments lie beside .venv, one for each set of packages that can be installed together.
PYTHONS = ROOT / ".venv-clients"
NODE = ROOT / ".clients-node"
# So small that a conversation of the scenario is compacted several times.
WINDOW = 2_600


@dataclass(frozen=True)
class Client:
    """A client as it is tested.

    `driver` is a module of `drivers/` for a Python of `.venv-clients`, or a script for node. `package` is
    what the lock file of its environment calls it. `window` is the small one (tokens). `variables` of the
    environment keep it from asking other hosts. `found` is how the proxy finds its sessions.
    `writes`: its conversation has no tools; every turn has a file rewritten. `titles`: it has a title made of
    each conversation, by requests without tools. With `limit` (tokens) it also holds conversations in which
    it believes its window to be that small.
    """

    name: str
    package: str
    driver: str
    environment: str
    window: int = WINDOW
    variables: tuple[tuple[str, str], ...] = ()
    found: tuple[str, ...] = ("prefix",)
    writes: bool = False
    titles: bool = False
    limit: int | None = None

    @property
    def command(self) -> list[str]:
        """What starts the driver, with the project's folder as the working one."""
        if self.driver.endswith(".mjs"):
            return ["node", str(NODE / self.driver)]
        python = sys.executable if self.environment == "node" else self._python
        return [python, "-m", f"tests.clients.drivers.{self.driver}"]

    @property
    def _python(self) -> str:
        return str(PYTHONS / self.environment / "bin" / "python")

    @property
    def version(self) -> str:
        """The version that the lock file names."""
        if self.environment == "node":
            text = (HERE / "lock" / "package.json").read_text(encoding="utf-8")
            (found,) = re.findall(rf'"{re.escape(self.package)}": "([^"]+)"', text)
        else:
            text = (HERE / "lock" / f"{self.environment}.txt").read_text(encoding="utf-8")
            (found,) = re.findall(rf"^{re.escape(self.package)}==(\S+)", text, re.MULTILINE)
        return str(found)


# Its instructions and tools take 7,500: it compacts by itself after a few turns.
LOW_LIMIT = 10_500
# Its instructions and tools take 8,200.
_CODEX_WINDOW = 12_000
# Its list of prices comes with the package; the newest one is fetched from GitHub unless told otherwise.
_LITELLM = (("LITELLM_LOCAL_MODEL_COST_MAP", "True"),)

CLIENTS = (
    Client("openai-python", "openai", "openai_python", "agents"),
    Client("openai-node", "openai", "openai_node.mjs", "node"),
    Client("LangChain", "langchain-openai", "langchain", "agents"),
    Client("LiteLLM client", "litellm", "litellm_client", "litellm", variables=_LITELLM),
    Client("Vercel AI SDK", "@ai-sdk/openai-compatible", "vercel.mjs", "node"),
    Client("Vercel AI SDK, Responses", "@ai-sdk/openai", "vercel_responses.mjs", "node"),
    Client("pydantic-ai", "pydantic-ai-slim", "pydantic_agent", "agents"),
    Client("pydantic-ai, Responses", "pydantic-ai-slim", "responses.pydantic", "agents"),
    Client("openai-agents", "openai-agents", "openai_agents", "agents"),
    Client("openai-agents, Responses", "openai-agents", "responses.agents", "agents"),
    Client("openai-agents for JavaScript", "@openai/agents", "openai_agents.mjs", "node"),
    Client("llm", "llm", "llm_tool", "agents"),
    Client("aider", "aider-chat", "aider", "aider", 4_000, _LITELLM, found=("anchor", "prefix"), writes=True),
    Client(
        "opencode",
        "opencode-ai",
        "opencode",
        "node",
        10_500,
        found=("id; carrier=x-session-id",),
        titles=True,
        limit=LOW_LIMIT,
    ),
    Client(
        "Codex CLI",
        "@openai/codex",
        "responses.codex",
        "node",
        _CODEX_WINDOW,
        found=("id; carrier=session-id",),
    ),
)

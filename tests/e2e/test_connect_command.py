"""`palimpsest connect` and `run`: a client is told where the proxy is, and a program is started with it."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path

import pytest
from palimpsest.api.clients import CLIENTS, Client
from palimpsest.cli.connecting import codex_options

from tests.house.sources import ROOT
from tests.kit.model import ModelServer
from tests.kit.processes import Process, ran
from tests.kit.proxy import Proxy, proxied

pytestmark = pytest.mark.timeout(90)
REFUSED = 2
# A program that knows nothing of the proxy.
ASKS = """
from openai import OpenAI
answer = OpenAI().chat.completions.create(model="m", messages=[{"role": "user", "content": "Who?"}])
print(answer.choices[0].message.content)
"""


async def run_through(proxy: Proxy, folder: Path, *words: str) -> tuple[int, str, str]:
    done = await asyncio.to_thread(
        ran, folder, "run", "--url", proxy.url, "--key", "key-1", *words, settings={}
    )
    return done.returncode, done.stdout, done.stderr


async def test_a_program_of_the_sdk_runs_through_the_proxy_and_keeps_its_exit_code(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        code, out, _ = await run_through(proxy, tmp_path, sys.executable, "-c", ASKS)
        assert (code, proxy.model.seen[-1].messages) == (0, [{"role": "user", "content": "Who?"}])
        assert out.strip()
        sessions = await proxy.http.get("/api/sessions", headers={"authorization": "Bearer key-1"})
        assert len(sessions.json()["sessions"]) == 1
        # Its own options and exit code are not ours.
        code, out, _ = await run_through(
            proxy, tmp_path, sys.executable, "-c", "import sys; print(sys.argv[1]); sys.exit(7)", "--url"
        )
        assert (code, out) == (7, "--url\n")


async def test_codex_and_opencode_get_their_configuration(tmp_path: Path) -> None:
    """Stands in for both programs: prints what they read. `make clients` runs the real ones."""
    program = tmp_path / "codex"
    read = "[sys.argv[1:], *map(os.environ.get, ('OPENCODE_CONFIG_CONTENT', 'OPENAI_API_KEY'))]"
    program.write_text(f"#!{sys.executable}\nimport json, os, sys\nprint(json.dumps({read}))\n")
    program.chmod(0o700)
    async with proxied(ModelServer(), tmp_path) as proxy:
        code, out, _ = await run_through(proxy, tmp_path, str(program), "exec", "Hello")
        arguments, opencode, key = json.loads(out)
        assert (code, key) == (0, "key-1")
        assert arguments == [*codex_options(f"{proxy.url}/v1", "key-1"), "exec", "Hello"]
        assert f'model_providers.palimpsest.base_url="{proxy.url}/v1"' in arguments
        assert json.loads(opencode)["provider"]["openai"]["options"]["baseURL"] == f"{proxy.url}/v1"


async def test_connect_waits_for_the_first_request_of_the_key(tmp_path: Path) -> None:
    async with proxied(ModelServer(), tmp_path) as proxy:
        await proxy.chat().says("Before.")
        out, err = tmp_path / "out", tmp_path / "err"
        words = ("connect", "llm", "--url", proxy.url, "--key", "key-1")
        waits = Process(tmp_path, *words, settings={}, out=out, err=err)
        async with asyncio.timeout(30):
            while "Waiting" not in (err.read_text() if err.exists() else ""):  # noqa: ASYNC110 - a process's
                await asyncio.sleep(0.01)
        # Another's request is none.
        await proxy.chat(key="key-2").says("Mine.")
        assert waits.returncode is None
        chat = proxy.chat(session="the first")
        await chat.says("Hello.")
        assert await waits.wait() == 0
        assert f"  api_base: {proxy.url}/v1\n" in out.read_text()
        assert out.read_text().endswith(f"session {chat.session}.\n")
        late = await asyncio.to_thread(ran, tmp_path, *words, "--seconds", "0", settings={})
        assert (late.returncode, "No request came" in late.stderr) == (1, True)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.slug)
def test_the_page_of_a_client_has_the_lines(client: Client) -> None:
    page = (ROOT / "docs" / "clients" / f"{client.slug}.md").read_text(encoding="utf-8")
    text = (client.block or client.line).format(url="http://127.0.0.1:8000/v1")
    if client.block:
        assert "".join(f"    {line}".rstrip() + "\n" for line in text.splitlines()) in page
    else:
        assert text in page


def test_mistakes_are_refused(tmp_path: Path) -> None:
    nobody = "http://127.0.0.1:9"
    for words, why in (
        (("connect", "nobody"), "nobody is none of openai-python, "),
        (("connect", "llm", "--url", nobody), "The proxy cannot be reached"),
        (("run", "--url", nobody, sys.executable), "The proxy cannot be reached"),
    ):
        refused = ran(tmp_path, *words, settings={})
        assert refused.returncode == REFUSED
        assert why in refused.stderr
    assert ran(tmp_path, "connect", "llm", "--no-wait", settings={}).returncode == 0


async def test_a_program_that_cannot_be_run_is_refused(tmp_path: Path) -> None:
    assert shutil.which("no-such-program") is None
    async with proxied(ModelServer(), tmp_path) as proxy:
        code, _, err = await run_through(proxy, tmp_path, "no-such-program")
        assert (code, "there is no program no-such-program" in err) == (REFUSED, True)
        unfit = tmp_path / "unfit"
        unfit.write_text("#!/nowhere/sh\n", encoding="utf-8")
        unfit.chmod(0o700)
        code, _, err = await run_through(proxy, tmp_path, str(unfit))
        assert (code, f"{unfit} cannot be run: No such file or directory." in err) == (REFUSED, True)

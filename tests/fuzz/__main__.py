"""Tries our own endpoints with what their description allows and with what it does not (`make fuzz`).

A proxy with a conversation in it is started on a real socket; schemathesis, an installed program of an
environment of its own, reads the description and asks: first of that conversation, then of whatever it
makes up, erasing included. The same requests at each run, a few thousand; none may be answered by a 5xx, by
a status or a type that the description does not have, or by a field that it does not name; none may hang or
close the connection.

    python -m tests.fuzz .venv-fuzz/bin/schemathesis
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from tests.kit.described import closed
from tests.kit.model import ModelServer
from tests.kit.proxy import Front, proxied

KEY = "fuzz-key"
EXAMPLES = 40
# Well beyond what a run takes; whoever waits longer waits for a request that hangs.
SECONDS = 900
DESCRIPTION = "openapi.json"
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
KNOWN = '[parameters]\n"path.name" = "known"\n'


async def tried(program: str, front: Front, config: Path, *more: str) -> int:
    """The program's own verdict: 0 when nothing failed."""
    process = await asyncio.create_subprocess_exec(
        program,
        *("--config-file", str(config), "run", str(config.parent / DESCRIPTION), "--url", front.url),
        *("--header", f"Authorization: Bearer {KEY}"),
        *("--checks", CHECKS),
        *("--phases", "coverage,fuzzing", "--mode", "all"),
        *("--max-examples", str(EXAMPLES), "--generation-deterministic"),
        *("--request-timeout", "10", "--workers", "1", "--warnings", "off", "--no-color"),
        *more,
        # What it keeps goes with the folder.
        cwd=config.parent,
    )
    async with asyncio.timeout(SECONDS):
        return await process.wait()


async def main(program: str) -> int:
    """0 when no request failed and the proxy still answers."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        known, anything = folder / "known.toml", folder / "anything.toml"
        await asyncio.to_thread(known.write_text, KNOWN)
        await asyncio.to_thread(anything.write_text, "")
        async with proxied(ModelServer(window=20_000), folder) as proxy:
            document = closed((await proxy.http.get("/openapi.json")).json())
            await asyncio.to_thread((folder / DESCRIPTION).write_text, json.dumps(document))
            chat = proxy.chat(key=KEY, session="known", system="Be kind.")
            for turn in range(3):
                await chat.says(f"Question {turn}?")
            failed = await tried(program, proxy, known, "--exclude-method", "DELETE")
            kept = await chat.transcript()
            failed += await tried(program, proxy, anything)
            alive = await proxy.http.get("/readyz")
    return int(bool(failed) or kept != chat.said or alive.status_code != 200)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(str(Path(sys.argv[1]).absolute()))))

"""`python -m tests.realmodel [turns]`: the conversation of the tests, longer, and its figures as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from tests.kit.proxy import fronting
from tests.realmodel.conversation import PATIENCE_SECONDS, Turns, client_of
from tests.realmodel.server import model_server

TURNS = 24


async def main(turns: int) -> None:
    """The figures are printed: after every turn its seconds and tokens, at the end the whole."""
    with model_server() as url, tempfile.TemporaryDirectory() as folder:
        async with fronting(url, Path(folder), patience_seconds=PATIENCE_SECONDS) as front:
            talk = Turns(client_of(front, "harbour"))
            for _ in range(turns):
                await talk.go_on(1)
                tokens = talk.chat.reply.headers["x-palimpsest-tokens"]
                sys.stdout.write(f"{len(talk.usages)}: {tokens} tokens, {talk.seconds[-1]:.1f} s\n")
                sys.stdout.flush()
            figures = await talk.figures()
            figures["transcript_equal"] = await talk.chat.transcript() == talk.chat.said
            sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else TURNS))

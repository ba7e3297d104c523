"""Two servers on one database, a conversation that changes between them at every turn (S10)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from tests.kit import summaries
from tests.kit.chat import Chat
from tests.kit.judge import rewritten
from tests.kit.model import ModelServer, Says
from tests.kit.postgres import asked
from tests.kit.replicas import Replicas, replicated, until
from tests.kit.summaries import Writer
from tests.kit.words import prose

WINDOW = 4_000
TURNS = 44
# Writes ahead, and is asked one question a summary.
ROLLING = {"PALIMPSEST_POLICY__NAME": "rolling", "PALIMPSEST_POLICY__ADVANCED__TRIGGER_RESERVE_TOKENS": "0"}
pytestmark = pytest.mark.timeout(240)


@dataclass
class Findings:
    """What is wrong with a conversation that two servers have carried on: all but `compactions` must be 0."""

    compactions: int = 0
    unanswered: int = 0
    sessions_too_many: int = 0
    rows_too_many: int = 0
    transcripts_differ: int = 0
    invalid: int = 0
    too_long: int = 0
    rewritten: int = 0
    summaries_too_many: int = 0

    @property
    def failures(self) -> int:
        """Promises broken."""
        found: dict[str, int] = vars(self)
        return sum(found.values()) - self.compactions


async def carried_on(chat: Chat, turns: int = TURNS) -> None:
    """So many turns, streamed and not, each at the other server."""
    for turn in range(turns):
        chat.stream = turn % 3 == 0
        # A sentence with "never" is a rule, and fills the block of so small a window.
        said = prose(turn, 120)
        await chat.says(f"Note {turn}. {said}")


async def examined(both: Replicas, chat: Chat) -> Findings:
    """What the database and the upstream tell of it."""
    found, prompts = Findings(), both.model.prompts
    found.unanswered = len(chat.replies) - len(prompts)
    found.invalid = sum(bool(prompt.faults) for prompt in prompts)
    found.too_long = sum(prompt.tokens > WINDOW for prompt in prompts)
    in_force = [reply.headers.get("x-palimpsest-compaction") for reply in chat.replies]
    found.compactions = len(set(in_force) - {None})
    found.rewritten = max(0, rewritten(prompts) - found.compactions) + sum(
        before == now and not later.extends(earlier)
        for (earlier, later), (before, now) in zip(pairwise(prompts), pairwise(in_force), strict=True)
    )
    for client in both.clients:
        listed = (await client.get("/api/sessions", headers=chat.headers)).json()["sessions"]
        found.sessions_too_many += abs(len(listed) - 1)
        rows = (await client.get(f"/api/sessions/{chat.session}/messages", headers=chat.headers)).json()
        told: list[object] = [row["message"] for row in rows.get("messages", ())]
        found.transcripts_differ += int(told != chat.said)
    ((stored,),) = await asked(both.database, "SELECT count(*) FROM messages")
    # The instructions are no row of it.
    found.rows_too_many = abs(int(str(stored)) - (len(chat.said) - 1))
    found.summaries_too_many = abs(len(both.model.summaries) - await passes(both.database))
    return found


async def passes(database: str) -> int:
    """How often a model was asked for what was put into force, or is ready to be."""
    made = [details for (details,) in await asked(database, "SELECT details FROM compactions")]
    for (payload,) in await asked(database, "SELECT payload FROM prepared"):
        assert isinstance(payload, bytes)
        made.append(msgspec.msgpack.decode(payload)["details"])
    told = [json.loads(details) for details in made if isinstance(details, bytes)]
    return sum(int(details.get("passes", 0)) for details in told)


@pytest.mark.spec("S10", "P4", "P9", "P10")
@pytest.mark.parametrize("policy", ["auto", "rolling"])
async def test_a_conversation_that_alternates_is_as_it_would_be_with_one(tmp_path: Path, policy: str) -> None:
    model = ModelServer(window=WINDOW)
    # In the turn: ahead, a summarizer that answers at once is asked again before its answer is used.
    settings = {"PALIMPSEST_POLICY__NAME": policy, "PALIMPSEST_COMPACTION__BACKGROUND": "false"}
    async with replicated(model, tmp_path, settings, window=WINDOW) as both:
        chat = both.chat(system="You keep notes.")
        await carried_on(chat)
        found = await examined(both, chat)
        assert found.failures == 0, found
        assert found.compactions >= 1
        assert {reply.status_code for reply in chat.replies} == {200}
        assert {row["author"] for row in await chat.compactions()} == {"model"}


async def test_servers_that_share_nothing_are_caught(tmp_path: Path) -> None:
    """The harness sees what it is there for."""
    model = ModelServer(window=WINDOW)
    async with replicated(model, tmp_path, window=WINDOW, shares=False) as both:
        chat = both.chat(system="You keep notes.")
        await carried_on(chat)
        found = await examined(both, chat)
        assert found.rewritten > 0
        assert found.transcripts_differ > 0


async def ahead(both: Replicas, writer: Writer) -> Chat:
    """A conversation whose next summary is being written by the first server."""
    both.switch.only = 0
    chat = both.chat(system="You keep notes.")
    while writer.asked.empty():
        await chat.says(f"Note {len(chat.sent)}. {prose(len(chat.sent), 120)}")
    return chat


async def folded(chat: Chat) -> None:
    """The conversation goes on until a compaction is in force."""
    while "x-palimpsest-compaction" not in chat.reply.headers:
        await chat.says(f"Note {len(chat.sent)}. {prose(len(chat.sent), 120)}")


@pytest.mark.spec("S10", "B17")
async def test_what_one_has_written_ahead_the_other_puts_into_force(tmp_path: Path) -> None:
    writer = Writer()
    model = ModelServer(window=summaries.WINDOW, summary=writer)
    async with replicated(model, tmp_path, ROLLING, window=summaries.WINDOW) as both:
        chat = await ahead(both, writer)

        async def is_ready() -> bool:
            return bool(await asked(both.database, "SELECT id FROM prepared"))

        await until(is_ready)
        written = len(model.summaries)
        both.switch.only = 1
        await folded(chat)
        (row,) = await chat.compactions()
        assert row["author"] == "model"
        assert len(model.summaries) == written == await passes(both.database)
        assert await asked(both.database, "SELECT id FROM prepared") == []
        # And the first goes on under it.
        both.switch.only = 0
        await chat.says("Still there?")
        assert chat.reply.headers["x-palimpsest-compaction"] == row["id"]
        assert model.prompts[-1].extends(model.prompts[-2])


@pytest.mark.spec("S10", "B17")
async def test_while_one_writes_the_other_asks_nobody(tmp_path: Path) -> None:
    writer = Writer(held=True)
    model = ModelServer(window=summaries.WINDOW, summary=writer)
    async with replicated(model, tmp_path, ROLLING, window=summaries.WINDOW) as both:
        chat = await ahead(both, writer)
        both.switch.only = 1
        await chat.says("This one fits.")
        await chat.says("So does this.")
        assert len(model.summaries) == 1
        writer.let_go.set()
        await folded(chat)
        assert [row["author"] for row in await chat.compactions()] == ["model"]
        assert len(model.summaries) == await passes(both.database)


@pytest.mark.spec("S10")
async def test_what_the_upstream_answers_comes_through_either(tmp_path: Path) -> None:
    model = ModelServer(window=WINDOW)
    async with replicated(model, tmp_path, window=WINDOW) as both:
        chat = both.chat()
        await chat.says("Hello.")
        for status in (401, 429, 500, 401, 429, 500):
            error = {"error": {"message": "no", "type": "some_error", "code": str(status)}}
            model.answers.append(Says(status=status, error=error))
            reply = await chat.posts([*chat.said, {"role": "user", "content": "And now?"}])
            assert (reply.status_code, reply.json()) == (status, error)
        await chat.says("And now?")
        assert await chat.transcript() == chat.said

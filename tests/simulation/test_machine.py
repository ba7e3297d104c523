"""Any interleaving of what clients do: no message is lost, and a path is what the client last sent."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from palimpsest.core.history.message import chain_of
from palimpsest.storage.store import Store, open_store

from tests.simulation.exchange import Answers, Opened, Proxy, Request
from tests.simulation.habits import Json, assistant, calling, result, user
from tests.simulation.script import digests, wire

T = TypeVar("T")

# Few words, so that equal messages stand in many places.
WORDS = st.sampled_from(["yes", "go on", "no, the other one"])
REPLIES = st.sampled_from(["OK", "Done.", "Which one?"])
WHO = st.integers(0, 2)
WHERE = st.integers(0, 30)


@dataclass(slots=True)
class Speaker:
    """A client: its list ends with an answer whenever it is not waiting for one."""

    name: str
    said: list[Json] = field(default_factory=list)
    homes: set[str] = field(default_factory=set)
    last: Sequence[bytes] = ()

    def turns(self) -> list[int]:
        """Where its user messages stand."""
        return [i for i, message in enumerate(self.said) if message["role"] == "user"]


class Histories(RuleBasedStateMachine):
    # Migrated and empty; every run copies it.
    database: ClassVar[Path]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp())
        self.opened = 0
        self.names = count(1)
        shutil.copy(self.database, self.file)
        self.store: Store = self.run(open_store(self.url, new_id=self.name))
        self.proxy = Proxy(self.store, self.run(self.store.accounts.namespace_of(b"caller", 0.0)))
        self.speakers = [Speaker(f"Speaker {n}") for n in range(3)]
        # Everything that was ever acknowledged: session, chain, and the list it stands for.
        self.promised: dict[tuple[str, bytes], list[bytes]] = {}

    @property
    def file(self) -> Path:
        return self.folder / f"{self.opened}.db"

    @property
    def url(self) -> str:
        return f"sqlite:///{self.file}"

    def name(self) -> str:
        return f"name-{next(self.names)}"

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    @initialize(replies=st.lists(REPLIES, min_size=3, max_size=3))
    def begin(self, replies: list[str]) -> None:
        for speaker, reply in zip(self.speakers, replies, strict=True):
            speaker.said = [user(f"I am {speaker.name}.")]
            self.exchange(speaker, assistant(reply))

    def exchange(self, speaker: Speaker, *answers: Json, heard: int = 0, retry: bool = False) -> None:
        """The speaker sends its list and hears one of the answers."""
        opened = self.open(speaker, retry=retry)
        self.close(opened, *answers)
        speaker.said.append(answers[heard])

    def open(self, speaker: Speaker, *, retry: bool = False) -> Opened:
        speaker.last = wire(speaker.said)
        opened = self.run(self.proxy.open(Request(speaker.last, retry=retry)))
        speaker.homes.add(opened.session)
        sent = digests(speaker.said)
        assert self.run(self.proxy.canonicals(opened)) == sent
        self.promised[opened.session, opened.conversation.head] = sent
        return opened

    def close(self, opened: Opened, *answers: Json) -> None:
        self.run(self.proxy.close(opened, Answers(wire(answers))))
        sent = [message.canonical for message in opened.conversation.messages]
        for answer in digests(answers):
            chain = chain_of(opened.conversation.head, answer)
            self.promised[opened.session, chain] = [*sent, answer]

    @rule(who=WHO, words=WORDS, reply=REPLIES)
    def goes_on(self, who: int, words: str, reply: str) -> None:
        speaker = self.speakers[who]
        speaker.said.append(user(words))
        self.exchange(speaker, assistant(reply))

    @rule(who=WHO, n=st.integers(1, 3), reply=REPLIES)
    def works(self, who: int, n: int, reply: str) -> None:
        speaker = self.speakers[who]
        calls = [f"call_{i}" for i in range(n)]
        speaker.said.append(user("Do it."))
        self.exchange(speaker, calling(*((call, "f", '{"n": 1.0}') for call in calls)))
        speaker.said += [result(call, "done") for call in calls]
        self.exchange(speaker, assistant(reply))

    @rule(who=WHO, where=WHERE, words=WORDS, reply=REPLIES)
    def edits_and_drops_the_rest(self, who: int, where: int, words: str, reply: str) -> None:
        speaker = self.speakers[who]
        turns = speaker.turns()
        at = turns[where % len(turns)]
        speaker.said = [*speaker.said[:at], user(f"{speaker.name}: {words}")]
        self.exchange(speaker, assistant(reply))

    @rule(who=WHO, where=WHERE, words=WORDS, reply=REPLIES)
    def edits_and_keeps_the_rest(self, who: int, where: int, words: str, reply: str) -> None:
        speaker = self.speakers[who]
        turns = speaker.turns()
        speaker.said[turns[where % len(turns)]] = user(f"{speaker.name}: {words}")
        self.goes_on(who, words, reply)

    @rule(who=WHO, where=WHERE, words=WORDS, reply=REPLIES)
    def slides(self, who: int, where: int, words: str, reply: str) -> None:
        """The oldest turns are dropped for good, and perhaps summed up."""
        speaker = self.speakers[who]
        turns = speaker.turns()
        speaker.said = speaker.said[turns[where % len(turns)] :]
        if where % 2:
            speaker.said.insert(0, user(f"{speaker.name} so far."))
        self.goes_on(who, words, reply)

    @rule(who=WHO, where=WHERE, words=WORDS, reply=REPLIES)
    def moves_a_message(self, who: int, where: int, words: str, reply: str) -> None:
        speaker = self.speakers[who]
        turns = speaker.turns()
        speaker.said.insert(turns[-1], speaker.said.pop(turns[where % len(turns)]))
        self.goes_on(who, words, reply)

    @rule(who=WHO, replies=st.lists(REPLIES, min_size=1, max_size=3), retry=st.booleans())
    def asks_again(self, who: int, replies: list[str], retry: bool) -> None:
        speaker = self.speakers[who]
        while speaker.said[-1]["role"] == "assistant":
            speaker.said.pop()
        answers = [assistant(f"{reply} {n}") for n, reply in enumerate(replies)]
        self.exchange(speaker, *answers, heard=len(answers) - 1, retry=retry)

    @rule(who=WHO, first=WORDS, second=WORDS, reply=REPLIES)
    def says_two_things_at_once(self, who: int, first: str, second: str, reply: str) -> None:
        speaker = self.speakers[who]
        common = list(speaker.said)
        opened = []
        for words in (first, second):
            speaker.said = [*common, user(words)]
            opened.append(self.open(speaker))
        for one in opened:
            self.close(one, assistant(reply))
        speaker.said.append(assistant(reply))

    @rule(who=WHO, words=WORDS, state=st.sampled_from(["failed", "rejected"]))
    def is_not_answered(self, who: int, words: str, state: Any) -> None:
        speaker = self.speakers[who]
        kept = list(speaker.said)
        speaker.said.append(user(words))
        opened = self.open(speaker)
        self.run(self.proxy.close(opened, Answers(state=state)))
        if state == "rejected":
            # Off the path, but not lost: the rows are still there when it is sent again.
            for new in opened.placement.new:
                self.promised.pop((opened.session, new.chain), None)
        speaker.said = kept

    @rule(who=WHO, words=WORDS)
    def the_power_fails(self, who: int, words: str) -> None:
        """In the middle of an exchange: what the disk holds then is opened again."""
        speaker = self.speakers[who]
        speaker.said.append(user(words))
        self.open(speaker)
        speaker.said.pop()
        before, self.opened = self.file, self.opened + 1
        for ending in ("", "-wal"):
            if (found := before.with_name(before.name + ending)).exists():
                shutil.copy(found, self.file.with_name(self.file.name + ending))
        self.run(self.store.close())
        self.store = self.run(open_store(self.url, new_id=self.name))
        self.proxy.store = self.store
        self.nothing_is_lost()

    @invariant()
    def nobody_meets(self) -> None:
        homes = [home for speaker in self.speakers for home in speaker.homes]
        assert len(homes) == len(set(homes))

    def nothing_is_lost(self) -> None:
        for (session, chain), sent in self.promised.items():
            path = self.run(self.store.history.path(self.proxy.namespace, session, chain))
            assert [point.canonical for point in path] == sent

    def teardown(self) -> None:
        try:
            self.nothing_is_lost()
        finally:
            self.run(self.store.close())
            self.runner.close()
            shutil.rmtree(self.folder)


FEW = settings(
    max_examples=12,
    stateful_step_count=15,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def test_histories(empty_database: Path) -> None:
    class Here(Histories):
        database = empty_database

    run_state_machine_as_test(Here, settings=FEW)

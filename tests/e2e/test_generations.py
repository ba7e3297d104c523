"""Generations of the application in one process: what they share, and that nothing of an old one stays."""

from __future__ import annotations

import asyncio
import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
from palimpsest.errors import SettingsError
from palimpsest.main.application import Application
from palimpsest.main.generation import Generation
from palimpsest.proxy.recall.searching import Searcher
from palimpsest.settings.settings import Settings
from palimpsest.settings.upstreams import ModelSettings

from tests.e2e.test_traces import collecting
from tests.kit.journal import carries_out
from tests.kit.model import ModelServer, Says, Seen, plain_summary
from tests.kit.proxy import Proxy, proxied
from tests.kit.replicas import until

pytestmark = [pytest.mark.spec("H21"), pytest.mark.timeout(60)]
RELOADS = 20


class Renewable:
    """Takes the application out of the proxy that is served."""

    app: Application

    def __call__(self, app: Application) -> Application:
        self.app = app
        return app

    @property
    def settings(self) -> Settings:
        """Those of the newest generation."""
        assert self.app.generation is not None
        return self.app.generation.parts.settings

    async def renews(self, **sections: Any) -> None:
        """These sections replace those in use."""
        await self.app.renew(self.settings.model_copy(update=sections))


async def used(proxy: Proxy, number: int) -> None:
    """What a generation makes when it is needed: an exchange; of the first ones pages, a search, a scrape.

    Later ones make the pages by themselves.
    """
    chat = proxy.chat(session=f"s-{number}", key=f"key-{number % 3}")
    await chat.says(f"The parrot is called Lora {number}.")
    paths = ("/ui", f"/api/sessions/s-{number}/search?q=parrot", "/metrics", "/openapi.json")
    for path in paths if number < 2 else ():
        reply = await proxy.http.get(path, headers=chat.headers)
        assert reply.status_code == 200, reply.text


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def made_by_generations() -> list[Any]:
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, Generation | Searcher)]


async def test_nothing_of_a_retired_generation_stays(tmp_path: Path) -> None:
    renewable = Renewable()
    # Of applications that other tests have left to the collector.
    strangers = made_by_generations()
    others = {id(each) for each in strangers}
    async with proxied(ModelServer(), tmp_path, around=renewable) as proxy:
        retired: list[weakref.ref[Generation]] = []
        opened = 0
        for number in range(RELOADS):
            await used(proxy, number)
            if number == 3:
                opened = descriptors()
            assert renewable.app.generation is not None
            retired.append(weakref.ref(renewable.app.generation))
            await renewable.renews(
                limits=renewable.settings.limits.model_copy(update={"json_depth": 50 + number})
            )

        async def are_gone() -> bool:
            gc.collect()
            return not any(each() for each in retired)

        await until(are_gone)
        await used(proxy, RELOADS)
        own = [type(each) for each in made_by_generations() if id(each) not in others]
        assert sorted(own, key=str) == [Generation, Searcher]
        assert descriptors() <= opened
        # Kept until here, so that no id was given again.
        del strangers


async def test_what_was_read_is_kept_while_the_settings_count_the_same(tmp_path: Path) -> None:
    renewable = Renewable()
    async with proxied(ModelServer(), tmp_path, around=renewable) as proxy:
        chat = proxy.chat()
        await chat.says("hello")

        def counting() -> Any:
            assert renewable.app.generation is not None
            return renewable.app.generation.parts.counting

        first = counting()
        await renewable.renews(limits=renewable.settings.limits.model_copy(update={"json_depth": 50}))
        assert counting() is first
        await renewable.renews(models=(ModelSettings(match="*", tokenizer="cl100k_base"),))
        assert counting() is not first
        await chat.says("And now?")
        assert await chat.transcript() == chat.said


async def test_appends_to_one_session_take_turns_across_a_reload(tmp_path: Path) -> None:
    """The second is sent to the new generation while the first is being answered by the old one."""
    renewable, may_end = Renewable(), asyncio.Event()

    async def is_ended() -> None:
        await may_end.wait()

    model = ModelServer()
    model.answers.append(Says({"role": "assistant", "content": "One."}, after=is_ended))
    model.says("Two.")
    async with proxied(model, tmp_path, around=renewable) as proxy:
        chat, append = proxy.chat(session="s"), {"x-session-mode": "append"}
        one = asyncio.create_task(chat.posts([{"role": "user", "content": "1"}], append))

        async def is_asked() -> bool:
            return len(model.prompts) == 1

        await until(is_asked)
        await renewable.renews()
        two = asyncio.create_task(chat.posts([{"role": "user", "content": "2"}], append))
        # It would be at the model by now if it did not wait.
        await proxy.chat(session="another").says("hello")
        assert [seen.messages[-1]["content"] for seen in model.prompts] == ["1", "hello"]
        may_end.set()
        assert {(await task).status_code for task in (one, two)} == {200}
        assert [message["content"] for message in model.prompts[-1].messages] == ["1", "One.", "2"]


async def test_one_summary_is_written_though_two_generations_need_it(tmp_path: Path) -> None:
    """The old one is asking for it when the new one's turn is due: that waits for it, and asks nobody."""
    renewable, may_end = Renewable(), asyncio.Event()

    async def summary(seen: Seen) -> Says:
        await may_end.wait()
        return Says({"role": "assistant", "content": plain_summary(seen)})

    model = ModelServer(window=4_000, summary=summary)
    settings = {"policy.name": "handoff", "compaction.background": False}
    async with proxied(model, tmp_path, settings, around=renewable) as proxy:
        said = [
            {"role": ("user", "assistant")[turn % 2], "content": f"{turn}: " + "It was a long day. " * 60}
            for turn in range(13)
        ]
        one = asyncio.create_task(proxy.chat(session="s").posts(said))

        async def is_asked() -> bool:
            return bool(model.summaries)

        await until(is_asked)
        await renewable.renews()
        two = asyncio.create_task(proxy.chat(session="s").posts(said))
        # By then it would have been asked for again.
        for number in range(5):
            await proxy.chat(session="another").says(f"hello {number}")
        assert len(model.summaries) == 1
        may_end.set()
        assert len({(await task).headers["x-palimpsest-compaction"] for task in (one, two)}) == 1


async def test_quotas_spans_and_retention_are_those_of_the_newest_settings(tmp_path: Path) -> None:
    renewable = Renewable()
    async with collecting() as collector, proxied(ModelServer(), tmp_path, around=renewable) as proxy:
        chat = proxy.chat(session="old")
        await chat.says("Hello.")

        async def changes(section: str, **fields: Any) -> None:
            await renewable.renews(
                **{section: getattr(renewable.settings, section).model_copy(update=fields)}
            )

        await changes("access", daily_tokens=1)
        # Counted from now on: this one uses all of it.
        await chat.says("And then?")
        refused = await chat.posts([*chat.said, {"role": "user", "content": "And now?"}])
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "quota_exceeded")
        await changes("access", daily_tokens=0)
        await changes("telemetry", otlp_url=collector.server.url)
        await chat.says("Seen by the collector.")
        await changes("telemetry", otlp_url=None)
        await chat.says("Seen by nobody else.")
        # The old generation sends its spans at its end.

        async def is_seen() -> bool:
            return len(collector.spans) == 1

        await until(is_seen)
        await asyncio.to_thread(
            carries_out, tmp_path, "UPDATE sessions SET updated_at = updated_at - 9000000"
        )
        await changes("retention", days=30)

        async def is_gone() -> bool:
            return (await proxy.http.get("/api/sessions/old", headers=chat.headers)).status_code == 404

        await until(is_gone)


async def test_slots_that_older_requests_hold_count(tmp_path: Path) -> None:
    renewable, may_end = Renewable(), asyncio.Event()

    async def is_ended() -> None:
        await may_end.wait()

    model = ModelServer(script=lambda _: Says({"role": "assistant", "content": "done"}, after=is_ended))
    async with proxied(model, tmp_path, around=renewable) as proxy:
        chat = proxy.chat()
        asking = asyncio.create_task(chat.says("a long one"))

        async def is_asked() -> bool:
            return bool(model.prompts)

        await until(is_asked)
        limits = {"concurrent_requests": 1, "caller_share": 1.0}
        await renewable.renews(limits=renewable.settings.limits.model_copy(update=limits))
        refused = await proxy.chat().posts([{"role": "user", "content": "Hi."}])
        assert refused.json()["error"]["code"] == "server_busy"
        may_end.set()
        await asking
        await proxy.chat().says("Now there is room.")


async def test_an_application_without_a_file_says_so(tmp_path: Path) -> None:
    renewable = Renewable()
    async with proxied(ModelServer(), tmp_path, around=renewable):
        with pytest.raises(SettingsError, match="started anew"):
            await renewable.app.reload()

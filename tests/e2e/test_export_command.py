"""`palimpsest export` and `import`: what was said leaves as files, and comes back byte for byte."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import async_playwright

from tests.kit.journal import AT_THE_END, compacted, read
from tests.kit.model import ModelServer, Says
from tests.kit.proxy import Proxy, proxied
from tests.kit.terminal import runs

pytestmark = pytest.mark.timeout(120)
# What a page must not run, an attribute must not end, and Markdown must not fence.
HOSTILE = "<script>document.title='owned'</script> \"'> ```\n````\n# no heading"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def messages(proxy: Proxy, session: str, key: str = "key-1") -> list[Any]:
    reply = await proxy.http.get(
        f"/api/sessions/{session}/messages?limit=500", headers={"authorization": f"Bearer {key}"}
    )
    assert reply.status_code == 200, reply.text
    return [row["message"] for row in reply.json()["messages"]]


async def test_everything_of_a_key_leaves_and_comes_back(tmp_path: Path) -> None:
    out = tmp_path / "out"
    async with proxied(ModelServer(window=8_000), tmp_path, AT_THE_END) as proxy:
        chat = proxy.chat(session="the work: a/b")
        await compacted(chat)
        older = await messages(proxy, "the work: a/b")
        # Another last question is a branch, and the newest one.
        await chat.posts([*chat.said[:-2], {"role": "user", "content": "What else?"}])
        unnamed = proxy.chat()
        await unnamed.says(HOSTILE)
        await unnamed.says("And then?")
        await unnamed.posts([*unnamed.said[:2], {"role": "user", "content": "What else?"}])
        await proxy.chat(session="another's", key="key-2").says("Not mine.")
        said = await runs(proxy, "export", "--all", "--to", str(out))
        assert said.stdout.endswith(": 4 files.\n")
        files = sorted(out.iterdir())
        assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
        assert stat.S_IMODE(out.stat().st_mode) == 0o700
        assert [path.name.split(".")[0] for path in files if "the-work-a-b" in path.name] == [
            "the-work-a-b"
        ] * 2
        assert sum(".branch-" in path.name for path in files) == 2
        # Again: the same files, nothing beside them.
        await runs(proxy, "export", "--all", "--to", str(out))
        assert sorted(out.iterdir()) == files
        told = await runs(proxy, "import", str(out), key="key-3")
        assert len(told.stdout.splitlines()) == 4
        kept = [await messages(proxy, "the work: a/b", key) for key in ("key-1", "key-3")]
        assert kept[0] == kept[1] != []
        (named,) = [path for path in files if "the-work-a-b" in path.name and ".branch-" in path.name]
        apart = json.loads(named.read_bytes())["name"]
        assert apart.startswith("the work: a/b (branch ")
        assert await messages(proxy, apart, "key-3") == older
        again = await runs(proxy, "import", str(out / files[-1].name), "--json", key="key-3", code=0)
        (one,) = json.loads(again.stdout)
        assert (one["is_there"], one["session"]) == ("the-work" in files[-1].name, one["session"])


async def test_forms_for_people_and_scripts_hold_every_message(tmp_path: Path) -> None:
    async with proxied(ModelServer(window=8_000), tmp_path, AT_THE_END) as proxy:
        chat = proxy.chat(session="work")
        await compacted(chat)
        written = {"name": "write", "arguments": json.dumps({"path": "a.py", "text": HOSTILE})}
        call = {"id": "c1", "type": "function", "function": written}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        proxy.model.answers.append(Says(message, finish="tool_calls"))
        await chat.says(HOSTILE)
        kept = await messages(proxy, "work")
        lines = [
            json.loads(line)
            for line in (await runs(proxy, "export", "work", "--format", "jsonl")).stdout.splitlines()
        ]
        assert [line["message"] for line in lines if "message" in line] == kept
        (made,) = [line["compaction"] for line in lines if "compaction" in line]
        record = (await read(proxy.http, chat, "sessions/work/compactions"))["compactions"][0]
        assert made["id"] == record["id"]
        markdown = (await runs(proxy, "export", "work", "--format", "markdown")).stdout
        assert all(str(message["content"] or "") in markdown for message in kept)
        assert f"Folded up to here**, from {record['tokens_before']:,} to" in markdown
        # The arguments hold four backticks: the fence has five.
        assert "`````\n{" in markdown
        page = tmp_path / "work.html"
        await runs(proxy, "export", "work", "--format", "html", "--to", str(page))
        await _page_is_whole(page, kept, record)


async def _page_is_whole(page: Path, kept: list[Any], record: Any) -> None:
    asked: list[str] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        shown = await browser.new_page()
        shown.on("request", lambda request: asked.append(request.url))
        await shown.goto(page.as_uri())
        assert await shown.title() == "work"
        assert await shown.locator("li.message").count() == len(kept)
        assert await shown.locator("li.seam").count() == 1
        assert "document.title='owned'" in await shown.locator("main").inner_text()
        assert f"{record['tokens_before']:,}" in await shown.locator("li.seam").inner_text()
        await browser.close()
    assert asked == [page.as_uri()]


async def test_mistakes_are_refused_and_change_nothing(tmp_path: Path) -> None:
    bad, empty = tmp_path / "bad.json", tmp_path / "empty"
    bad.write_text('{"events": [')
    empty.mkdir()
    async with proxied(ModelServer(window=8_000), tmp_path) as proxy:
        chat = proxy.chat(session="work")
        await chat.says("Hello.")
        for words in (["export"], ["export", "work", "--all"], ["export", "--all"]):
            refused = await runs(proxy, *words, code=1)
            assert "export takes a SESSION" in str(refused.exception)
        good = tmp_path / "good.json"
        await runs(proxy, "export", "work", "--to", str(good))
        refused = await runs(proxy, "export", "none", "--to", str(tmp_path / "none.json"), code=1)
        assert "nothing here" in str(refused.exception)
        assert not (tmp_path / "none.json").exists()
        await runs(
            None, "export", "--all", "--to", str(tmp_path / "all"), "--url", "http://127.0.0.1:1", code=1
        )
        assert not (tmp_path / "all").exists()
        # The damaged one does not stop the other.
        told = json.loads(
            (await runs(proxy, "import", str(bad), str(good), "--json", key="key-2", code=1)).stdout
        )
        assert [bool(one["session"]) for one in told] == [False, True]
        assert "not valid JSON" in told[0]["problem"]
        for path, why in (
            (tmp_path / "nothing", "there is no file"),
            (good / "below", "there is no file"),
            (tmp_path / ("a" * 300), "cannot be read (File name too long)"),
        ):
            refused = await runs(proxy, "import", str(path), code=1)
            assert why in str(refused.exception)
        assert (await runs(proxy, "import", str(empty), "--json")).stdout == "[]\n"


async def test_an_export_goes_to_what_it_is_told_and_replaces_files_only(tmp_path: Path) -> None:
    pipe, to_pipe, file, to_file = (tmp_path / name for name in ("pipe", "to-pipe", "file.json", "to-file"))
    os.mkfifo(pipe)
    to_pipe.symlink_to("pipe")
    to_file.symlink_to("file.json")
    (tmp_path / "data").mkdir()
    async with proxied(ModelServer(window=8_000), tmp_path / "data") as proxy:
        await proxy.chat(session="work").says("Hello.")
        for _ in range(2):
            await runs(proxy, "export", "work", "--to", str(to_file))
        for place in (pipe, to_pipe):
            reading = asyncio.create_task(asyncio.to_thread(pipe.read_bytes))
            await runs(proxy, "export", "work", "--to", str(place))
            assert json.loads(await reading)["name"] == "work"
        for place, why in (
            (tmp_path, "Is a directory"),
            (file / "below", "Not a directory"),
            (tmp_path / ("a" * 300), "File name too long"),
        ):
            refused = await runs(proxy, "export", "work", "--to", str(place), code=1)
            assert str(refused.exception) == f"export: {place} cannot be written ({why})."
    assert json.loads(file.read_bytes())["name"] == "work"
    assert to_file.is_symlink()
    assert to_pipe.is_symlink()
    assert pipe.is_fifo()
    # Nothing is left beside them.
    assert names(tmp_path) == ["data", "file.json", "pipe", "to-file", "to-pipe"]

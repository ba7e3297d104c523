"""What callers make up leaves little behind: names of models, lists of tools (H05)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from palimpsest.proxy.destinations import LIFE_SECONDS, RefusalMemory
from palimpsest.proxy.jobs import Jobs
from palimpsest.proxy.model_facts import (
    REMEMBERED_NAMES,
    REMEMBERED_TOOLS,
    Calibrations,
    ModelTokens,
    Windows,
)
from palimpsest.storage.accounts import UPSTREAM_NAMESPACE, LearnedWindow
from palimpsest.storage.migrate import migrate
from palimpsest.storage.store import Store, open_store

from tests.kit.serving import shared_tokenizer
from tests.storage.conftest import new_id

TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "description": "x " * 5_000}}


async def opened(folder: Path) -> Store:
    url = f"sqlite:///{folder / 'store.db'}"
    await migrate(url)
    return await open_store(url, new_id=new_id)


def windows_in(store: Store, jobs: Jobs, *stated: int | None) -> Windows:
    """Its upstream states one window after the other, at last always the same."""
    left = list(stated)

    async def ask(model: str, headers: list[tuple[bytes, bytes]]) -> int | None:
        return left.pop(0) if len(left) > 1 else left[0]

    return Windows(store.accounts, jobs, lambda _: "u", lambda _: None, ask, lambda _: None, 100_000, 5.0)


async def test_what_is_learned_ends_with_a_larger_answer_a_new_statement_and_a_day(tmp_path: Path) -> None:
    store, jobs = await opened(tmp_path), Jobs()
    windows = windows_in(store, jobs, None)
    await windows.overflowed("m", "mine", 4_000)
    await windows.overflowed("n", "mine", 4_000)
    assert windows.known("m", "mine").tokens == 4_000
    assert windows.known("m", "others").tokens == 100_000
    windows.answered("m", 4_100)
    assert windows.known("m", "mine").tokens == 100_000
    await jobs.drain(5, 1)
    assert [row.model for row in await store.accounts.learned_windows(0.0)] == ["n"]
    # Of another run, a day ago.
    old = LearnedWindow("mine", "u", "old", 4_000, "overflow", 1.0)
    await store.accounts.learn_window(old, 0.0)
    later = windows_in(store, jobs, None)
    await later.load()
    assert later.known("n", "mine").tokens == 4_000
    assert later.known("old", "mine").tokens == 100_000
    stating = windows_in(store, jobs, 16_000, 16_000, 3_000)
    await stating.load()
    for tokens in (4_000, 4_000, 3_000):
        # Asked again after a refusal: a server that was started anew says so itself.
        stating.doubt("n")
        await stating.window_of("n", "mine", list, urgent=True)
        assert stating.known("n", "mine").tokens == tokens
    await store.close()


async def test_tools_and_models_are_remembered_within_bounds(tmp_path: Path) -> None:
    tokens = ModelTokens(lambda model: shared_tokenizer().counter_for(model))
    raw = json.dumps([TOOL]).encode()
    for number in range(REMEMBERED_TOOLS + 50):
        tokens.schema_tokens("m", raw[:-1] + b" " * (number % 97) + b"]")
        tokens.counter_of(f"made up {number}")
    tables = [table for table in vars(tokens).values() if isinstance(table, dict)]
    assert sum(map(len, tables)) <= 1.5 * REMEMBERED_TOOLS
    kept = [part for table in tables for key in table for part in key if isinstance(part, bytes)]
    assert max(map(len, kept)) <= 32
    store = await opened(tmp_path)
    calibrations = Calibrations(store.accounts, Jobs(), tokens)
    assert calibrations.ratio_of("ns", "m") == 1.0
    await asyncio.sleep(0)
    await store.close()


def test_what_was_refused_once_is_tried_again_after_a_day() -> None:
    now = [0.0]
    refusing = RefusalMemory(lambda: now[0])
    refusing.remember("mine", "m")
    assert ("mine", "m") in refusing
    assert ("others", "m") not in refusing
    now[0] = LIFE_SECONDS
    assert ("mine", "m") not in refusing


async def test_models_that_never_answer_leave_nothing_in_the_database(tmp_path: Path) -> None:
    store, jobs = await opened(tmp_path), Jobs()
    windows = windows_in(store, jobs, 8_000)
    for number in range(3 * REMEMBERED_NAMES):
        window = await windows.window_of(f"made up {number}", "ns", list, urgent=True)
        assert (window.tokens, window.source) == (8_000, "upstream")
    assert held(windows) <= REMEMBERED_NAMES
    # One that answers is kept, whatever is made up, and what its upstream states of it is stored.
    await windows.window_of("real", "ns", list, urgent=True)
    windows.answered("real", 1_200)
    for number in range(3 * REMEMBERED_NAMES):
        await windows.window_of(f"again {number}", "ns", list, urgent=True)
    assert windows.largest_answered("real") == 1_200
    assert held(windows) <= REMEMBERED_NAMES + 1
    await jobs.drain(5, 1)
    (row,) = await store.accounts.learned_windows(0.0)
    assert (row.namespace, row.model, row.tokens, row.source) == (
        UPSTREAM_NAMESPACE,
        "real",
        8_000,
        "upstream",
    )
    await store.close()


def held(windows: Windows) -> int:
    """Names of models in its memory."""
    tables = (table for table in vars(windows).values() if isinstance(table, dict))
    return sum(map(len, tables))

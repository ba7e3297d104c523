"""kill -9 while the store writes: nothing acknowledged is lost, nothing is stored by halves."""

from __future__ import annotations

import random

import pytest

from tests.storage.killing import kill_once


@pytest.mark.parametrize("seed", range(3))
async def test_what_was_acknowledged_survives_a_kill(url: str, seed: int) -> None:
    after = await kill_once(url, random.Random(seed))
    assert after.acknowledged > 0
    assert (after.missing, after.torn, after.sound) == (0, 0, True)


async def test_a_writer_that_acknowledges_too_early_is_caught(sqlite_url: str) -> None:
    assert (await kill_once(sqlite_url, random.Random(4), broken=True)).missing > 0

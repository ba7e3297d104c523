"""Money is fixed when an exchange ends, by the steps of its prices, and only added up later (rule 48)."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from genai_prices import data_snapshot
from genai_prices.types import ModelPrice, TieredPrices
from palimpsest.core.budget.prices import price
from palimpsest.core.wire.chat_answers import Usage
from palimpsest.proxy.model_facts import prices_from_model_data
from palimpsest.upstream.models import published

from tests.kit.journal import AT_THE_END, compacted, read
from tests.kit.model import ModelServer
from tests.kit.proxy import proxied
from tests.kit.scrapes import scraped
from tests.kit.wire import Line, answer_body, chat_body, opened, wired
from tests.kit.words import prose
from tests.upstream.scripted import replies

pytestmark = pytest.mark.timeout(180)
KEY = {"authorization": "Bearer key-1", "content-type": "application/json"}
# Prompt, cached, written, answer, reasoning.
Counts = tuple[int, int, int, int, int]


def stepped() -> dict[str, ModelPrice]:
    """The prices of models with steps, as the data state them for now."""
    models = [model for each in data_snapshot.get_snapshot().providers for model in each.models]
    found = {
        model.id: model.get_prices(datetime.now(UTC)) for model in models if published(model.id) is model
    }
    return {
        name: stated
        for name, stated in found.items()
        if isinstance(stated.input_mtok, TieredPrices) and stated.output_mtok is not None
    }


def rate(stated: ModelPrice, kind: str, usual: str, prompt: int) -> Decimal:
    """What a million such tokens cost in a request with this prompt."""
    found = getattr(stated, kind) if getattr(stated, kind) is not None else getattr(stated, usual)
    if isinstance(found, TieredPrices):
        return max([found.base, *(tier.price for tier in found.tiers if prompt > tier.start)])
    return Decimal(found)


def bill(stated: ModelPrice, counts: Counts) -> Decimal:
    prompt, cached, written, answer, thought = counts
    parts = {
        ("input_mtok", "input_mtok"): prompt - cached - written,
        ("cache_read_mtok", "input_mtok"): cached,
        ("cache_write_mtok", "input_mtok"): written,
        ("output_mtok", "output_mtok"): answer - thought,
        ("output_reasoning_mtok", "output_mtok"): thought,
    }
    return sum((rate(stated, *kind, prompt) * number for kind, number in parts.items()), Decimal(0)) / 10**6


async def asks(line: Line, model: str, counts: Counts | None) -> None:
    usage: dict[str, Any] = {}
    if counts is not None:
        prompt, cached, written, answer, thought = counts
        details = {"cached_tokens": cached, "cache_write_tokens": written}
        said = {"completion_tokens": answer, "completion_tokens_details": {"reasoning_tokens": thought}}
        usage = {"usage": {"prompt_tokens": prompt, "prompt_tokens_details": details, **said}}
    line.upstream.expects(replies(answer_body(**usage)))
    reply = await line.http.post("/v1/chat/completions", content=chat_body(model=model), headers=KEY)
    assert reply.status_code == 200, reply.text


def exchanges(models: dict[str, ModelPrice], number: int) -> list[tuple[str, Counts]]:
    """Of 30 models in turn: exactly at a step, just above one, or anywhere."""
    chance = random.Random(48)
    names, asked = chance.sample(sorted(models), 30), []
    for n in range(number):
        name = names[n % 30]
        start = chance.choice(models[name].input_mtok.tiers).start  # type: ignore[union-attr]
        prompt = (start, start + 1, chance.randrange(10, 2 * start))[n // 30 % 3]
        cached, answer = chance.randrange(prompt), chance.randrange(1, 60_000)
        asked.append(
            (name, (prompt, cached, chance.randrange(prompt - cached), answer, chance.randrange(answer)))
        )
    return asked


def test_a_thousand_bills_are_those_of_the_data() -> None:
    models, minute = stepped(), int(datetime.now(UTC).timestamp()) // 60
    for name, (prompt, cached, written, answer, thought) in exchanges(models, 1_000):
        prices_in = prices_from_model_data(name)
        prices = prices_in(minute) if prices_in else None
        assert prices is not None
        told = price(Usage(prompt, answer, cached, thought, written), prices)
        expected = bill(models[name], (prompt, cached, written, answer, thought))
        assert told == pytest.approx(float(expected), rel=1e-9)


async def test_what_is_shown_is_what_was_stored_whatever_the_prices_are_later(tmp_path: Path) -> None:
    models = stepped()
    asked = exchanges(models, 90)
    bills, other = [float(bill(models[name], counts)) for name, counts in asked], asked[0][0]
    async with wired(tmp_path) as line:
        for name, counts in [*asked, ("made-up", asked[0][1]), (other, None)]:
            await asks(line, name, counts)
        told = [cost for (cost,) in line.query("SELECT cost FROM exchanges ORDER BY id")]
        assert told[:90] == pytest.approx(bills, rel=1e-9)
        assert told[90:] == [None, None]
        before = await overview(line)
        assert before["total"]["cost"] == pytest.approx(sum(bills))
        (unknown,) = [sums for sums in before["by_model"] if sums["model"] == "made-up"]
        assert (unknown["cost"], unknown["saved"], unknown["turns"]) == (None, None, 1)
        counted = (await scraped(line.http)).value("palimpsest_cost_dollars_total")
        assert counted == pytest.approx(sum(bills))
    # The operator's own prices stand above the data, and change no older figure.
    own = {"match": "*", "window_tokens": 10**6, "prices": {"input": 1_000.0, "output": 0.0}}
    async with wired(tmp_path, {"models": [own]}) as line:
        assert await overview(line) == before
        await asks(line, other, (400_000, 100_000, 0, 9, 0))
        assert line.query("SELECT cost FROM exchanges ORDER BY id DESC LIMIT 1") == [(pytest.approx(310.0),)]
        # As an older version has left them: unknown, and not nothing.
        with opened(line.database) as connection:
            connection.execute("UPDATE exchanges SET cost = NULL, saved = NULL WHERE model = ?", [other])
        after = await overview(line)
        assert [sums["cost"] for sums in after["by_model"] if sums["model"] == other] == [None]
        left = sum(each for (name, _), each in zip(asked, bills, strict=True) if name != other)
        assert after["total"]["cost"] == pytest.approx(left)


async def overview(line: Line) -> dict[str, Any]:
    told: dict[str, Any] = (await line.http.get("/api/overview?days=0", headers=KEY)).json()
    return {part: told[part] for part in ("total", "by_model")}


@pytest.mark.parametrize(
    ("model", "at", "price"),
    [
        ("gemini-3.8-flash", "2026-12-31T23:59", 0.75),
        ("gemini-3.8-flash", "2027-01-01T00:00", 1.5),
        ("deepseek-chat", "2026-11-28T16:29", 0.27),
        ("deepseek-chat", "2026-11-28T16:30", 0.135),
    ],
)
def test_a_price_is_that_of_its_time(model: str, at: str, price: float) -> None:
    prices_in = prices_from_model_data(model)
    assert prices_in is not None
    prices = prices_in(int(datetime.fromisoformat(at + "+00:00").timestamp()) // 60)
    assert prices is not None
    assert prices.input == price


async def test_a_summary_is_billed_by_its_own_steps_and_stays_billed(tmp_path: Path) -> None:
    given = AT_THE_END | {"window.window_tokens": 8_000}
    model = ModelServer(window=8_000, usage={"prompt_tokens": 300_000, "completion_tokens": 1_000})
    for settings in (given, given | {"models": [{"match": "*", "prices": {"input": 9.0}}]}):
        async with proxied(model, tmp_path, settings) as proxy:
            chat = proxy.chat(session="work", extra={"model": "gpt-5.4"})
            if settings is given:
                await compacted(chat)
            (told,) = (await read(proxy.http, chat, "sessions/work/report"))["compactions"]
            (turn, *_) = (await read(proxy.http, chat, "sessions/work/exchanges"))["exchanges"]
            assert told["cost"] == pytest.approx(0.3 * 5 + 0.001 * 22.5)
            assert turn["cost"]["total"] == pytest.approx(0.3 * 5 + 0.001 * 22.5)
            # What was left out would have been read from the cache.
            left_out = (turn["tokens_full"] - turn["tokens"]) * 0.5 / 1e6
            assert told["saved"] == turn["cost"]["saved"] == pytest.approx(left_out, rel=1e-3)


async def test_the_first_prompt_of_a_process_stays_below_the_lowest_step_that_it_can(tmp_path: Path) -> None:
    name = "qwen/qwen3-coder-flash"
    said = [{"role": ("user", "assistant")[n % 2], "content": prose(n, 800)} for n in range(41)]
    async with proxied(ModelServer(window=900_000, names=(name,)), tmp_path) as proxy:
        reply = await proxy.chat(extra={"model": name}).posts(said)
        whole, sent = map(int, reply.headers["x-palimpsest-tokens"].split("/"))
        assert sent < 32_000 < whole

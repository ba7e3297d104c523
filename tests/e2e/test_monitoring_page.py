"""docs/monitoring.md, its dashboard and its alerts name what a running proxy exposes, with its labels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import pytest_asyncio
import yaml
from palimpsest.proxy.telemetry.counts import DECLARED

from tests.house.sources import ROOT
from tests.kit.model import ModelServer, Says
from tests.kit.proxy import proxied
from tests.kit.scrapes import Scrape, scraped_once

_PAGE = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
_DASHBOARD = json.loads((ROOT / "docs" / "grafana" / "palimpsest.json").read_text(encoding="utf-8"))
_ROW = re.compile(r"^\| `(palimpsest_\w+)` \| (counter|histogram|gauge) \|([^|]*)\| \S.* \|$", re.MULTILINE)
_WORD = re.compile(r"`(\w+)`")
_NAME = re.compile(r"palimpsest_\w+")
# Labels that an expression selects by, sums by or shows.
_SELECTED = re.compile(r"(palimpsest_\w+)\{([^}]*)\}")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_GROUPED = re.compile(r"\b(?:by|without) \(([^)]*)\)")
_SHOWN = re.compile(r"{{(\w+)}}")
# Given to every sample by Prometheus, to samples of several workers, and to buckets.
_ALWAYS = {"instance", "job", "worker", "le"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scrape(tmp_path_factory: pytest.TempPathFactory) -> Scrape:
    """Of a proxy that has seen everything that is counted: a compaction, failures, prices, a cache."""
    usage = {"prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 2}}
    overrides: dict[str, Any] = {
        "compaction.background": False,
        "models": [{"match": "test-*", "prices": {"input": 1.0}}],
    }
    model = ModelServer(window=4_000, usage=usage)
    async with proxied(model, tmp_path_factory.mktemp("seen"), overrides) as proxy:
        model.answers.append(Says(status=500, error={"error": {"message": "no"}}))
        await proxy.chat().posts([{"role": "user", "content": "hi"}])
        chat = proxy.chat()
        while not chat.replies or not await chat.compactions():
            await chat.says("A letter about the harbour and its seven cranes. " * 40)
        count = len(chat.replies) + 1
        return await scraped_once(proxy.http, lambda one: one.value("palimpsest_requests_total") == count)


def _exposed(scrape: Scrape) -> Iterator[tuple[str, str, set[str]]]:
    for family in scrape.families.values():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels}
        yield name, family.type, labels - {"le"}


def test_the_table_is_what_is_exposed(scrape: Scrape) -> None:
    told = [(name, kind, set(_WORD.findall(labels))) for name, kind, labels in _ROW.findall(_PAGE)]
    assert sorted(told) == sorted(_exposed(scrape))
    # The control: nothing that is declared was left unseen, or its labels would not have been compared.
    assert {f"palimpsest_{name}" for name in DECLARED} <= set(scrape.families)
    assert all(family.samples for family in scrape.families.values())


def _expressions() -> Iterator[tuple[str, str]]:
    for panel in _DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
            # As if it grouped by what its legend shows.
            yield panel["title"], f"by ({', '.join(_SHOWN.findall(target['legendFormat']))})"
    for variable in _DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            name, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"]).groups()  # type: ignore[union-attr]
            yield variable["name"], f"{name} by ({label})"
    for block in _blocks("groups:"):
        for rule in yaml.safe_load(block)["groups"][0]["rules"]:
            yield rule["alert"], rule["expr"]


def _blocks(first: str) -> Iterator[str]:
    """The indented blocks of the page that begin with this line."""
    for block in re.findall(r"(?:^    .*\n|^\n(?=    ))+", _PAGE, re.MULTILINE):
        text = "\n".join(line.removeprefix("    ") for line in block.splitlines()).strip()
        if text.startswith(first):
            yield text


def _unknown(expression: str, scrape: Scrape, around: Sequence[str] = ()) -> list[str]:
    """The names and labels of an expression that the scrape has not."""
    names = [*_NAME.findall(expression), *around]
    lacking = [name for name in names if name not in scrape.names]
    for name, selector in _SELECTED.findall(expression):
        known = scrape.labels(name) | _ALWAYS
        lacking += [f"{name}.{label}" for label in _MATCHER.findall(selector) if label not in known]
    every = {label for name in names for label in scrape.labels(name)} | _ALWAYS
    for labels in _GROUPED.findall(expression):
        lacking += [label for label in re.split(r",\s*", labels) if label and label not in every]
    return lacking


def test_dashboard_and_alerts_ask_for_what_is_there(scrape: Scrape) -> None:
    found = list(_expressions())
    assert len(found) > 50
    for title, expression in found:
        around = _named_in(title) if expression.startswith("by (") else ()
        assert _unknown(expression, scrape, around) == [], (title, expression)


def _named_in(title: str) -> list[str]:
    """The metrics of a panel, for the labels of its legends."""
    panels = [panel for panel in _DASHBOARD["panels"] if panel["title"] == title]
    return [name for panel in panels for each in panel["targets"] for name in _NAME.findall(each["expr"])]


def test_what_is_not_there_would_be_seen(scrape: Scrape) -> None:
    """The control."""
    for wrong in (
        "rate(palimpsest_no_such_total[5m])",
        'palimpsest_requests_total{session="a"}',
        "sum by (user) (palimpsest_requests_total)",
        "palimpsest_overhead_seconds_bucket{model='m'}",
        "palimpsest_overhead_seconds",
    ):
        assert _unknown(wrong, scrape), wrong


def test_every_metric_is_on_the_dashboard(scrape: Scrape) -> None:
    text = json.dumps(_DASHBOARD)
    unseen = {name for name, _, _ in _exposed(scrape) if name not in text}
    # Part of the cost, which is.
    assert unseen == {"palimpsest_cache_written_tokens_total"}


def test_the_dashboard_is_for_any_data_source() -> None:
    text = json.dumps(_DASHBOARD)
    assert set(re.findall(r'"uid": "([^"]*)"', text)) == {"palimpsest", "${datasource}"}
    ids = [panel["id"] for panel in _DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))


def test_the_scrape_configuration_is_yaml() -> None:
    (text,) = _blocks("scrape_configs:")
    (job,) = yaml.safe_load(text)["scrape_configs"]
    assert job["job_name"] == "palimpsest"


def test_the_log_lines_of_the_page_are_in_their_forms() -> None:
    (line,) = (text for text in _blocks('{"status"'))
    entry = json.loads(line)
    assert (entry["event"], entry["level"]) == ("exchange", "info")
    texts = next(iter(_blocks("2026-"))).splitlines()
    assert [re.findall(r"\[(\w+) *\]", text) for text in texts] == [["info"], ["warning"]]

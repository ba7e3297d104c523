"""What a proxy tells Prometheus, read by Prometheus' own library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import httpx
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.kit.replicas import until


@dataclass(frozen=True)
class Scrape:
    """One answer of /metrics."""

    text: str
    families: Mapping[str, Metric]

    def value(self, name: str, **labels: str) -> float | None:
        """The sum of the samples with this name and at least these labels; None without any."""
        found = [
            sample.value
            for family in self.families.values()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        return sum(found) if found else None

    def labels(self, name: str) -> set[str]:
        """The labels that samples of this name have."""
        return {
            label
            for family in self.families.values()
            for sample in family.samples
            if sample.name == name
            for label in sample.labels
        }

    @property
    def names(self) -> set[str]:
        """The names of all samples."""
        return {sample.name for family in self.families.values() for sample in family.samples}


async def scraped(http: httpx.AsyncClient, headers: Mapping[str, str] | None = None) -> Scrape:
    """A scrape that is answered."""
    reply = await http.get("/metrics", headers=headers)
    assert reply.status_code == 200, reply.text
    return Scrape(reply.text, {family.name: family for family in text_string_to_metric_families(reply.text)})


async def scraped_once(http: httpx.AsyncClient, holds: Callable[[Scrape], bool]) -> Scrape:
    """The first scrape of which it holds: a request is counted when its end has gone out."""
    found: list[Scrape] = []

    async def does_hold() -> bool:
        found.append(await scraped(http))
        return holds(found[-1])

    await until(does_hold)
    return found[-1]

"""Compares the derived marks with fixed ones and with one who knows the future, in tokens only. Run:

    python -m benchmarks policy [--write] [--traces FILE WINDOW ...]

Conversations are made up from a fixed seed; `--traces` adds a file of others (a JSON list of
conversations, each a list of [role, tokens]; tool schemas count as a system message) for a window.
`--write` puts the table into docs/cost-policy.md and the plot into docs/images. A few seconds.
"""

from __future__ import annotations

import argparse
import math
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from benchmarks.policy_plot import Curve, svg_of
from benchmarks.policy_replay import (
    CEILING_SHARE,
    Policy,
    Setting,
    at,
    derived,
    fixed,
    full,
    lowest,
    optimum,
    replay,
)
from benchmarks.policy_traces import (
    Trace,
    agent_days,
    coding_agents,
    long_chats,
    tool_agents,
    traces_in,
)

DOCS = Path(__file__).parents[1] / "docs"
PAGE, PLOT = DOCS / "cost-policy.md", DOCS / "images" / "cost-policy.svg"
SUMMARIES = (500, 1_000)
POLICIES: dict[str, Policy] = {
    "fidelity": fixed,
    "cost": derived,
    "lowest": lowest,
}
HEADINGS = ("conversations, window", "summary", *POLICIES, "cost, in background", "optimum, of full")


@dataclass(frozen=True)
class Kind:
    """Conversations of one kind and the window they are had in."""

    name: str
    window: int
    traces: tuple[Trace, ...]


def kinds() -> list[Kind]:
    """The made-up conversations; the same ones in every run."""
    source = random.Random(20261122)
    agents = tuple(tool_agents(source) for _ in range(12))
    days = tuple(agent_days(source) for _ in range(4))
    chats = tuple(long_chats(source) for _ in range(6))
    coders = tuple(coding_agents(source) for _ in range(4))
    return [
        Kind("tool agents", 12_000, agents),
        Kind("tool agents", 16_000, agents),
        Kind("long chats", 6_000, chats),
        Kind("agent days", 12_000, days),
        Kind("agent days", 16_000, days),
        Kind("coding agents", 64_000, coders),
    ]


def ratios(kind: Kind, setting: Setting) -> list[float]:
    """A table row's figures: each policy's bill over the optimum, then the optimum over the full history."""
    known = [(trace, optimum(trace, setting)) for trace in kind.traces]
    # What no cuts keep within the window, nobody can answer.
    possible = [trace for trace, least in known if math.isfinite(least)]
    least = sum(least for _, least in known if math.isfinite(least))
    bills = [sum(replay(trace, setting, policy).paid for trace in possible) for policy in POLICIES.values()]
    waited = replace(setting, in_background=setting.asks_model)
    bills.append(sum(replay(trace, waited, POLICIES["cost"]).paid for trace in possible))
    return [*(bill / least for bill in bills), least / sum(full(trace) for trace in possible)]


def rows(every: Sequence[Kind]) -> Iterator[tuple[str, str, list[float]]]:
    """Kind, how summaries are made, figures (means over the sizes of summaries)."""
    for kind in every:
        for asks_model in (False, True):
            found = [ratios(kind, Setting(kind.window, size, asks_model)) for size in SUMMARIES]
            means = [fmean(column) for column in zip(*found, strict=True)]
            yield f"{kind.name}, {kind.window:,}", "by a model" if asks_model else "by code", means


def table(every: Sequence[Kind]) -> str:
    """Markdown; the last row is the mean of all."""
    lines = [f"| {' | '.join(HEADINGS)} |", "|---" * len(HEADINGS) + "|"]
    found = list(rows(every))
    means = [fmean(column) for column in zip(*(figures for _, _, figures in found), strict=True)]
    for name, how, figures in [*found, ("mean", "", means)]:
        cells = [name, how, *(f"{figure:.2f}" for figure in figures)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def curve(kind: Kind, setting: Setting, name: str) -> Curve:
    """The bill over the trigger, and where the objectives and the lowest marks lie on it."""
    least = sum(optimum(trace, setting) for trace in kind.traces)

    def point(policy: Policy) -> tuple[float, float]:
        bills = [replay(trace, setting, policy) for trace in kind.traces]
        turns = sum(len(trace.turns) for trace in kind.traces)
        return sum(b.triggers for b in bills) / turns, sum(b.paid for b in bills) / least

    least_trigger = max(trace.kept for trace in kind.traces) + setting.summary
    triggers = range(least_trigger + 500, int(CEILING_SHARE * setting.window) + 1, 250)
    points = {label: point(POLICIES[label]) for label in ("lowest", "cost", "fidelity")}
    return Curve(name, [point(at(trigger)) for trigger in triggers], points)


def plot(every: Sequence[Kind]) -> str:
    """The picture of the page: agent days at 16,000, 1,000-token summaries by code and by a model."""
    kind = next(kind for kind in every if (kind.name, kind.window) == ("agent days", 16_000))
    names = {False: "summaries by code", True: "summaries by a model"}
    return svg_of([curve(kind, Setting(kind.window, 1_000, asks), name) for asks, name in names.items()])


def written(page: str, text: str) -> str:
    """The page with its table replaced."""
    found = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- end of table -->)", re.DOTALL)
    return found.sub(lambda _: f"{text}\n", page)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks policy", description=__doc__)
    parser.add_argument("--traces", nargs=2, action="append", default=[], metavar=("FILE", "WINDOW"))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    if options.traces:
        named = [(Path(file), int(window)) for file, window in options.traces]
        print(table([Kind(file.stem, window, tuple(traces_in(file))) for file, window in named]))
        return
    every = kinds()
    text = table(every)
    print(text)
    if options.write:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
        PLOT.parent.mkdir(exist_ok=True)
        PLOT.write_text(plot(every), encoding="utf-8")


if __name__ == "__main__":
    main()

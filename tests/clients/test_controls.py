"""The checks notice what they are for: each of them fails on a run in which one thing was spoiled."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.clients import checks
from tests.clients.roster import CLIENTS
from tests.clients.running import Run
from tests.clients.test_clients import Runs, of


def _answer_changed(run: Run) -> None:
    run.held["large"].told["turns"][3]["text"] += " "


def _argument_changed(run: Run) -> None:
    run.held["small"].told["turns"][1]["calls"][0][1]["name"] = "other"


def _byte_changed(run: Run) -> None:
    seen = run.held["large"].prompts[2]
    seen.raw = seen.raw.replace(b"{", b"{ ", 1)


def _header_lost(run: Run) -> None:
    del run.held["large"].prompts[2].headers["user-agent"]


def _result_lost(run: Run) -> None:
    seen = next(seen for seen in run.held["small"].prompts if _results(seen.messages))
    del seen.messages[_results(seen.messages)[0]]


def _results(messages: list[Any]) -> list[int]:
    return [at for at, message in enumerate(messages) if message["role"] == "tool"]


def _rules_rewritten(run: Run) -> None:
    run.held["small"].prompts[-1].messages[0]["content"] += "!"


def _message_forgotten(run: Run) -> None:
    (branches,) = run.held["small"].transcripts.values()
    del next(iter(branches.values()))[5]


def _session_split(run: Run) -> None:
    run.held["large"].transcripts["another"] = {"branch": []}


def _secret_told(run: Run) -> None:
    seen = next(seen for seen in run.held["left"].prompts if "birch" in seen.text)
    seen.messages[0]["content"] += " cedar"


def _host_called(run: Run) -> None:
    run.strangers.append("CONNECT telemetry.example:443 HTTP/1.1")


SPOILED: list[tuple[Callable[[Run], None], Callable[[Run], None]]] = [
    (_answer_changed, checks.ends_up_with_the_same),
    (_argument_changed, checks.ends_up_with_the_same),
    (_byte_changed, checks.nothing_is_changed),
    (_header_lost, checks.nothing_is_changed),
    (_result_lost, checks.prompts_are_sound),
    (_rules_rewritten, checks.prompts_are_sound),
    (_message_forgotten, checks.archive_is_whole),
    (_session_split, checks.archive_is_whole),
    (_secret_told, checks.sessions_stay_apart),
    (_host_called, checks.nobody_else_is_called),
]


@pytest.mark.parametrize(("spoil", "check"), SPOILED, ids=[spoil.__name__ for spoil, _ in SPOILED])
def test_controls(spoil: Callable[[Run], None], check: Callable[[Run], None], runs: Runs) -> None:
    """Each check fails on a run in which one thing was spoiled."""
    run = copy.deepcopy(of(runs, CLIENTS[0]))
    check(run)
    spoil(run)
    with pytest.raises((AssertionError, ValueError)):
        check(run)

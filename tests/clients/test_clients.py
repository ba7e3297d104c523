"""Clients of every kind, unmodified, against the same scripted model, directly and through the proxy (S12).

Each client holds its conversations once; each test asks one thing of what came of them.
"""

from __future__ import annotations

import pytest

from tests.clients import checks
from tests.clients.roster import CLIENTS, Client
from tests.clients.running import Run

Runs = dict[str, Run | BaseException]
of_every_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)


def of(runs: Runs, client: Client) -> Run:
    """What this client did."""
    run = runs[client.name]
    if isinstance(run, BaseException):
        raise run
    return run


@pytest.mark.spec("S12")
@of_every_client
def test_same_results(client: Client, runs: Runs) -> None:
    checks.ends_up_with_the_same(of(runs, client))


@pytest.mark.spec("S12", "P1")
@of_every_client
def test_same_bytes(client: Client, runs: Runs) -> None:
    checks.nothing_is_changed(of(runs, client))


@pytest.mark.spec("S12", "P9")
@of_every_client
def test_valid_prompts(client: Client, runs: Runs) -> None:
    checks.prompts_are_sound(of(runs, client))


@pytest.mark.spec("S12", "W25", "P4", "E01")
@of_every_client
def test_whole_archive(client: Client, runs: Runs) -> None:
    checks.archive_is_whole(of(runs, client))


@pytest.mark.spec("S12", "S2")
@of_every_client
def test_own_session(client: Client, runs: Runs) -> None:
    checks.sessions_stay_apart(of(runs, client))


@of_every_client
def test_no_other_host(client: Client, runs: Runs) -> None:
    checks.nobody_else_is_called(of(runs, client))

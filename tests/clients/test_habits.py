"""What is peculiar to single clients: histories they edit, several lists of messages under one name (S12)."""

from __future__ import annotations

import copy

import pytest

from tests.clients import checks
from tests.clients.roster import CLIENTS
from tests.clients.test_clients import Runs, of

AIDER = next(client for client in CLIENTS if client.name == "aider")
OPENCODE = next(client for client in CLIENTS if client.name == "opencode")


@pytest.mark.spec("S12", "S14")
def test_aider_edits(runs: Runs) -> None:
    """aider: what it takes away (a reminder, files as they were) is in no later prompt"""
    run = of(runs, AIDER)
    checks.nothing_is_stale(run)
    assert len({asked.messages[-1]["content"] for asked in run.held["small"].asked}) == len(
        run.stories["small"].says
    )


def test_aider_controls(runs: Runs) -> None:
    """aider: an older reminder, or an older file, in a prompt would be noticed"""
    for spoiling in (checks.REMINDER, "*Trust this message ...\n```\nLine 0\n```"):
        run = copy.deepcopy(of(runs, AIDER))
        run.held["small"].prompts[-1].messages[1]["content"] += spoiling
        with pytest.raises(AssertionError):
            checks.nothing_is_stale(run)


@pytest.mark.spec("S12")
def test_opencode_titles(runs: Runs) -> None:
    """opencode: a request for a title bears the session's name and is a list of its own in it"""
    for name in ("large", "small"):
        held = of(runs, OPENCODE).held[name]
        assert {asked.headers["x-session-id"] for asked in held.asked} == {
            held.titles[0].headers["x-session-id"]
        }
        assert [seen.messages for seen in held.title_prompts] == [asked.messages for asked in held.titles]
        assert len(checks.conversations(held)) == 1


@pytest.mark.spec("S12", "F38")
def test_opencode_limit(runs: Runs) -> None:
    """opencode: with a low limit it compacts by itself, as often as without the proxy, and does not loop"""
    checks.a_low_limit_makes_no_loop(of(runs, OPENCODE))

"""`make demo` tells a story that happened: its exit code is 0 only if all of it did."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from tests.house.sources import ROOT

TOUR = [sys.executable, str(ROOT / "scripts" / "tour.py")]
PLAIN = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}


def on_a_terminal(environment: dict[str, str]) -> str:
    """What a person sees."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(TOUR, stdout=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 65_536):
                shown += piece
        # Linux says so when the other side has closed.
        except OSError:
            pass
        finally:
            os.close(ours)
        assert process.wait() == 0
    return shown.decode()


def test_the_story_has_a_compaction_a_summary_and_a_look_up() -> None:
    told = subprocess.run(TOUR, capture_output=True, check=True, env=PLAIN, encoding="utf-8").stdout
    assert "compacted: " in told
    assert "  Decided Decision: normalise in the importer" in told
    assert "I looked it up: 08:03 INFO health: the staging server listens on port 8443" in told
    assert "each as it was sent" in told
    assert "\033" not in told
    assert len(told.splitlines()) < 35
    assert max(map(len, told.splitlines())) <= 100


# An empty value is as none.
@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_colour_is_for_terminals(no_color: str, coloured: bool) -> None:
    assert ("\033[" in on_a_terminal(PLAIN | {"NO_COLOR": no_color})) == coloured

"""`make demo` tells a story that happened: its exit code is 0 only if all of it did."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.house.sources import ROOT

TOUR = [sys.executable, str(ROOT / "scripts" / "tour.py")]
PLAIN = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}


def test_the_story_has_a_compaction_a_summary_and_a_look_up() -> None:
    told = subprocess.run(TOUR, capture_output=True, check=True, env=PLAIN, encoding="utf-8").stdout
    assert "compacted: " in told
    assert "  Record  Decision: normalise in the importer" in told
    assert "I looked it up: 08:03 INFO health: the staging server listens on port 8443" in told
    assert "each as it was sent" in told
    assert "\033" not in told
    assert len(told.splitlines()) < 40
    assert max(map(len, told.splitlines())) <= 100

"""The sections of a state that its messages show."""

from __future__ import annotations

import msgspec
import pytest
from palimpsest.core.runtime.snapshot import PATHS_KEPT, files_of, tooling_of

from tests.core.histories import calls, message, result, user


def test_tools_are_counted_and_open_calls_known() -> None:
    said = [calls("c1", "c2"), result("c1", "x"), result("c2", "y"), calls("c1")]
    section = tooling_of(map(message, said[:2]))
    assert (section.calls, section.open_calls) == ({"run": 2}, ("c2",))
    section = tooling_of(map(message, said))
    assert (section.calls, section.open_calls) == ({"run": 3}, ("c1",))


def test_files_are_the_paths_that_calls_named_newest_last() -> None:
    named = [
        message(calls("c1", arguments='{"path": "a.py"}')),
        message(calls("c1", arguments='{"file_path": "b.py", "content": "c.py"}')),
        message(calls("c1", arguments='{"path": "a.py"}')),
        message(calls("c1", arguments='{"path": ["d.py"]}')),
        message(calls("c1", arguments='["path"]')),
        message(calls("c1", arguments="path: e.py")),
        message(calls("c1", arguments='{"target": "  "}')),
        message(user("see f.py")),
    ]
    assert files_of(named).touched == ("b.py", "a.py")
    many = [message(calls("c1", arguments=f'{{"path": "f{n}.py"}}')) for n in range(PATHS_KEPT)]
    grown = files_of([*many, *named[:1]]).touched
    assert (len(grown), grown[-1], grown[0]) == (PATHS_KEPT, "a.py", "f1.py")


@pytest.mark.parametrize("text", ["\x00", "\ud800"])
def test_a_snapshot_can_always_be_written(text: str) -> None:
    bad = {"id": text, "type": "function", "function": {"name": text, "arguments": '{"path": "a"}'}}
    said = [message({"role": "assistant", "content": None, "tool_calls": [bad]})]
    assert msgspec.json.encode((tooling_of(said), files_of(said)))

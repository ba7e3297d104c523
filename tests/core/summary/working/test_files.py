"""Which files a call touches and how (D03), and which results tell of a failure (D04).

The calls of other tools and the wordings of failures are tested where notes are read: `tests/core/notes`.
"""

from __future__ import annotations

from typing import Any

import pytest
from palimpsest.core.summary.working import FileAction, ToolNote

from tests.core.summary.talk import calls, result
from tests.core.summary.working.session import SOURCE, state_of

PATCH = (
    "*** Begin Patch\n*** Add File: a/new.py\n+one\n+two\n*** Delete File: a/gone.py\n"
    "*** Update File: a/kept.py\n-x\n+y\n*** End Patch"
)


def actions(*messages: Any, path: str = "src/app.py") -> list[FileAction]:
    (note,) = (note for note in state_of(messages).files if note.path == path)
    return list(note.actions)


@pytest.mark.spec("D03")
@pytest.mark.parametrize(
    "key", ["file", "path", "filePath", "file_path", "target_file", "source_file", "target"]
)
def test_every_usual_name_of_a_path_is_known(key: str) -> None:
    state = state_of([calls("read_file", **{key: "/srv/app-7/main.py"}), result(SOURCE)])
    assert [(note.path, note.actions) for note in state.files] == [
        ("/srv/app-7/main.py", (FileAction("read", detail="63 lines"),))
    ]


@pytest.mark.spec("D03")
@pytest.mark.parametrize(
    ("tool", "old", "new"),
    [("Edit", "old_string", "new_string"), ("str_replace_editor", "old_str", "new_str")],
)
def test_an_edit_keeps_both_sides(tool: str, old: str, new: str) -> None:
    given = {"path": "src/app.py", old: "port = 80\nhost = 'a'", new: "x" * 290 + " " + "y" * 40}
    (edit,) = actions(calls(tool, **given), result("ok"))
    assert (edit.kind, edit.before) == ("edit", "port = 80 host = 'a'")
    assert edit.after.startswith("x" * 290)
    assert len(edit.after) <= 300
    (failed,) = actions(calls(tool, **given), result("Error: String to replace not found in file."))
    assert failed.failed


@pytest.mark.spec("D03")
def test_a_creation_counts_lines() -> None:
    first = calls("Write", "w1", file_path="src/app.py", content="a\nb\nc\n")
    again = calls("Write", "w2", file_path="src/app.py", content="a\n")
    found = actions(first, result("ok", "w1"), again, result("ok", "w2"))
    assert [(each.kind, each.detail) for each in found] == [("create", "3 lines"), ("create", "1 line")]


@pytest.mark.spec("D03")
def test_deletions_and_moves_are_noted_and_patches_name_their_files() -> None:
    removed = calls("Bash", command="cd /srv && rm -f src/app.py && ls")
    assert [each.kind for each in actions(removed, result("ok"), path="/srv/src/app.py")] == ["delete"]
    (move,) = actions(calls("Bash", command="git mv src/app.py src/main.py"), result(""))
    assert (move.kind, move.detail) == ("move", "-> src/main.py")
    state = state_of([calls("shell", command=["apply_patch", PATCH]), result("Done!")])
    assert [(note.path, note.actions[0]) for note in state.files] == [
        ("a/new.py", FileAction("create", "2 lines")),
        ("a/gone.py", FileAction("delete")),
        ("a/kept.py", FileAction("edit", before="x", after="y")),
    ]


@pytest.mark.spec("D04")
@pytest.mark.parametrize(
    ("tool", "given", "text", "lines"),
    [
        ("Bash", {"command": "make"}, "building\nerror: no rule for x.o", ["error: no rule for x.o"]),
        ("Bash", {"command": "make"}, "Exit code: 2\nOutput:\n", ["exit code 2"]),
        ("Bash", {"command": "make"}, "0 errors", []),
        ("Bash", {"command": "make"}, "Fixed the TypeError: it was a typo", []),
        ("Bash", {"command": "cat app.log"}, "line one\nERROR: queue is full", []),
        ("Bash", {"command": "ls && make"}, "a.py\nmake: *** error: full", ["make: *** error: full"]),
        ("Read", {"path": "a.py"}, "1\tlog.error('x')\n2\tERROR: queue is full", []),
        ("Read", {"path": "a.py"}, "File not found: a.py", ["File not found: a.py"]),
        ("Grep", {"pattern": "("}, "Error: unclosed group", ["Error: unclosed group"]),
    ],
)
def test_results_that_failed_say_so(tool: str, given: dict[str, str], text: str, lines: list[str]) -> None:
    assert [each.text for each in state_of([calls(tool, **given), result(text)]).failures] == lines


@pytest.mark.spec("D04")
def test_failures_are_short_and_kept_as_often_as_they_come_the_oldest_going_first() -> None:
    long = state_of([calls("Bash", command="make"), result("error: one " + "word " * 200)])
    assert len(long.failures[0].text) <= 300
    same = [part for _ in range(3) for part in (calls("Bash", command="make"), result("error: x"))]
    assert state_of(same).failures == [ToolNote("make", "error: x", failed=True)] * 3
    many = [part for n in range(27) for part in (calls("Bash", command="make"), result(f"error: {n}"))]
    assert [failure.text for failure in state_of(many).failures] == [f"error: {n}" for n in range(2, 27)]

"""Which files a call touches and how (D03)."""

from __future__ import annotations

from typing import Any

import pytest
from palimpsest.core.summary.working import FileAction

from tests.core.summary.talk import calls, result
from tests.core.summary.working.session import SOURCE, state_of


def actions(*messages: Any, path: str = "src/app.py") -> list[FileAction]:
    (note,) = (note for note in state_of(messages).files if note.path == path)
    return list(note.actions)


@pytest.mark.spec("D03")
@pytest.mark.parametrize(
    "key", ["file", "path", "filePath", "file_path", "target_file", "source_file", "target"]
)
def test_every_usual_name_of_a_path_is_known(key: str) -> None:
    state = state_of([calls("read_file", **{key: "/srv/app-7/main.py"}), result("x = 1")])
    assert [note.path for note in state.files] == ["/srv/app-7/main.py"]


@pytest.mark.spec("D03")
def test_a_read_says_what_the_file_holds() -> None:
    read = actions(calls("Read", file_path="src/app.py"), result(SOURCE))
    assert read == [FileAction("read", detail="63 lines")]


@pytest.mark.spec("D03")
@pytest.mark.parametrize(
    ("tool", "old", "new"),
    [
        ("Edit", "old_string", "new_string"),
        ("str_replace_editor", "old_str", "new_str"),
        ("edit", "oldString", "newString"),
        ("edit_file", "oldText", "newText"),
        ("search_replace", "search", "replace"),
    ],
)
def test_an_edit_keeps_both_sides(tool: str, old: str, new: str) -> None:
    given = {"path": "src/app.py", old: "port = 80\nhost = 'a'", new: "x" * 290 + " " + "y" * 40}
    (edit,) = actions(calls(tool, **given), result("ok"))
    assert (edit.kind, edit.before) == ("edit", "port = 80 host = 'a'")
    assert edit.after.startswith("x" * 290)
    assert len(edit.after) <= 300


@pytest.mark.spec("D03")
def test_several_edits_of_one_call_are_all_noted() -> None:
    edits = [{"old_string": f"a{n}", "new_string": f"b{n}"} for n in range(3)]
    found = actions(calls("MultiEdit", file_path="src/app.py", edits=edits), result("ok"))
    assert [(edit.before, edit.after) for edit in found] == [("a0", "b0"), ("a1", "b1"), ("a2", "b2")]


@pytest.mark.spec("D03")
def test_a_creation_counts_lines() -> None:
    first = calls("Write", "w1", file_path="src/app.py", content="a\nb\nc\n")
    again = calls("Write", "w2", file_path="src/app.py", content="a\n")
    found = actions(first, result("ok", "w1"), again, result("ok", "w2"))
    assert [(each.kind, each.detail) for each in found] == [("create", "3 lines"), ("create", "1 line")]


@pytest.mark.spec("D03")
@pytest.mark.parametrize(
    ("call", "path"),
    [
        (calls("delete_file", target_file="src/app.py"), "src/app.py"),
        (calls("Bash", command="cd /srv && rm -f src/app.py && ls"), "/srv/src/app.py"),
        (calls("shell", command=["bash", "-lc", "git rm src/app.py"]), "src/app.py"),
    ],
)
def test_deletions_are_noted(call: Any, path: str) -> None:
    assert [each.kind for each in actions(call, result("ok"), path=path)] == ["delete"]


@pytest.mark.spec("D03")
def test_a_file_that_moved_says_where_it_is() -> None:
    (move,) = actions(calls("Bash", command="git mv src/app.py src/main.py"), result(""))
    assert (move.kind, move.detail) == ("move", "-> src/main.py")


@pytest.mark.spec("D03")
@pytest.mark.parametrize(
    "call",
    [
        {"input": "*** Begin Patch\n*** Update File: src/app.py\n@@\n-old\n+new\n*** End Patch"},
        {"patch": "--- a/src/app.py\n+++ b/src/app.py\n@@ -1 +1 @@\n-old\n+new\n"},
    ],
)
def test_patches_name_their_files(call: dict[str, str]) -> None:
    (edit,) = actions(calls("apply_patch", **call), result("Done!"))
    assert (edit.kind, edit.before, edit.after) == ("edit", "old", "new")


@pytest.mark.spec("D03")
def test_a_patch_of_several_files_given_to_a_shell() -> None:
    patch = (
        "*** Begin Patch\n*** Add File: a/new.py\n+one\n+two\n*** Delete File: a/gone.py\n"
        "*** Update File: a/kept.py\n-x\n+y\n*** End Patch"
    )
    state = state_of([calls("shell", command=["apply_patch", patch]), result("Done!")])
    found = {note.path: note.actions[0] for note in state.files}
    assert {path: action.kind for path, action in found.items()} == {
        "a/new.py": "create",
        "a/gone.py": "delete",
        "a/kept.py": "edit",
    }
    assert found["a/new.py"].detail == "2 lines"


@pytest.mark.spec("D03")
def test_an_editor_says_in_its_command_what_it_does() -> None:
    name = "str_replace_based_edit_tool"
    found = actions(
        calls(name, "v", command="view", path="src/app.py"),
        result("1 line", "v"),
        calls(name, "c", command="create", path="src/app.py", file_text="a\n"),
        result("ok", "c"),
    )
    assert [each.kind for each in found] == ["read", "create"]


@pytest.mark.spec("D03")
def test_an_edit_that_failed_is_marked() -> None:
    edit = calls("Edit", "e1", file_path="src/app.py", old_string="a", new_string="b")
    (found,) = actions(edit, result("Error: String to replace not found in file.", "e1"))
    assert found.failed

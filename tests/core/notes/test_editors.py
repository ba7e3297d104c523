"""Files that the editing tools of real agents changed, and edits that were not made."""

from __future__ import annotations

import json
from typing import Any

import pytest
from palimpsest.core.notes.effects import effects_of, open_file_after
from palimpsest.core.notes.note import Failure, FileChange, FileRead
from palimpsest.core.text.message_text import ToolCall


def call(tool: str, **arguments: Any) -> ToolCall:
    return ToolCall(id="call_1", name=tool, arguments=json.dumps(arguments))


EDITED = "The file has been updated."


@pytest.mark.parametrize(
    ("made", "result", "expected"),
    [
        (
            call("edit", filePath="/r/a.py", oldString="timeout = 5\n", newString="timeout = 30\n"),
            "",
            FileChange("/r/a.py", "edited", detail='"timeout = 5" -> "timeout = 30"'),
        ),
        (
            call("write", filePath="/r/new.py", content="a\nb\n"),
            "",
            FileChange("/r/new.py", "created", detail="2 lines"),
        ),
        (
            call("Edit", file_path="a.py", old_string="x = 1\ny = 2", new_string="x = 1\ny = 3"),
            "The file a.py has been updated. Here's the result of running `cat -n` on a snippet:\n 1\tx = 1",
            FileChange("a.py", "edited", detail='"y = 2" -> "y = 3"'),
        ),
        (
            call("Write", file_path="/r/a.py", content="one"),
            "The file /r/a.py has been updated.",
            FileChange("/r/a.py", "edited", detail="1 line"),
        ),
        (
            call(
                "MultiEdit",
                file_path="a.py",
                edits=[{"old_string": "a", "new_string": "b"}, {"old_string": "c", "new_string": "d"}],
            ),
            "Applied 2 edits",
            FileChange("a.py", "edited", detail='"a" -> "b"; 1 more'),
        ),
        (
            call("NotebookEdit", notebook_path="n.ipynb", new_source="print(1)", cell_id="c1"),
            "Updated cell c1",
            FileChange("n.ipynb", "edited", detail='added "print(1)"'),
        ),
        (
            call("write_file", file_path="a.txt", content="x\ny\nz"),
            "Successfully created and wrote to new file: a.txt.",
            FileChange("a.txt", "created", detail="3 lines"),
        ),
        (
            call("replace", file_path="a.ts", old_string="let a", new_string="const a"),
            "Successfully modified file: a.ts (1 replacements).",
            FileChange("a.ts", "edited", detail='"let a" -> "const a"'),
        ),
        (
            call(
                "replace_in_file",
                path="src/a.ts",
                diff="------- SEARCH\nlet a = 1\n=======\nlet a = 2\n+++++++ REPLACE",
            ),
            "The content was successfully saved to src/a.ts.",
            FileChange("src/a.ts", "edited", detail='"let a = 1" -> "let a = 2"'),
        ),
        (
            call(
                "apply_diff",
                path="src/a.ts",
                diff="<<<<<<< SEARCH\n:start_line:3\n-------\nfoo()\n=======\nbar()\n>>>>>>> REPLACE",
            ),
            "<file_write_result>\n<path>src/a.ts</path>\n<operation>modified</operation>\n</file_write_result>",
            FileChange("src/a.ts", "edited", detail='"foo()" -> "bar()"'),
        ),
        (
            call("edit_file", target_file="a.py", instructions="set the limit", code_edit="limit = 3"),
            "Edit applied.",
            FileChange("a.py", "edited", detail='added "limit = 3"'),
        ),
        (call("delete_file", target_file="old.py"), "Deleted.", FileChange("old.py", "deleted")),
        (
            call("rename_file", old_path="src/a.py", new_name="b.py"),
            "ok",
            FileChange("src/a.py", "moved", "src/b.py"),
        ),
        (
            call("filesystem__move_file", source="a.md", destination="docs/a.md"),
            "Successfully moved a.md to docs/a.md",
            FileChange("a.md", "moved", "docs/a.md"),
        ),
        (
            call("mcp__filesystem__edit_file", path="a.md", edits=[{"oldText": "x", "newText": "y"}]),
            "```diff\n-x\n+y\n```",
            FileChange("a.md", "edited", detail='"x" -> "y"'),
        ),
        (
            call("create_directory", path="src/new"),
            "Successfully created directory src/new",
            FileChange("src/new", "created", detail="folder"),
        ),
        (
            call("str_replace_editor", command="create", path="/w/a.py", file_text="1\n2\n"),
            "File created successfully at: /w/a.py",
            FileChange("/w/a.py", "created", detail="2 lines"),
        ),
        (
            call("str_replace_editor", command="str_replace", path="/w/a.py", old_str="a", new_str="b"),
            "The file /w/a.py has been edited. Here's the result of running `cat -n`: error handling",
            FileChange("/w/a.py", "edited", detail='"a" -> "b"'),
        ),
        (
            call(
                "str_replace_based_edit_tool", command="insert", path="a.py", insert_line=3, insert_text="n"
            ),
            EDITED,
            FileChange("a.py", "edited", detail='added "n"'),
        ),
        (
            call("str_replace_based_edit_tool", command="undo_edit", path="a.py"),
            "Last edit to a.py undone successfully.",
            FileChange("a.py", "edited", detail="last edit undone"),
        ),
        (
            call("StrReplaceFile", path="a.py", edit={"old": "one", "new": "two"}),
            "File successfully edited.",
            FileChange("a.py", "edited", detail='"one" -> "two"'),
        ),
        (
            call(
                "replace_file_content",
                TargetFile="/r/a.go",
                ReplacementChunks=[{"TargetContent": "x := 1", "ReplacementContent": "x := 2"}],
            ),
            "The following changes were made.",
            FileChange("/r/a.go", "edited", detail='"x := 1" -> "x := 2"'),
        ),
    ],
)
def test_editors_of_many_clients(made: ToolCall, result: str, expected: FileChange) -> None:
    assert effects_of(made, result) == (expected,)


def test_one_call_that_edits_several_files() -> None:
    edits = [{"filePath": name, "oldString": "x", "newString": "y"} for name in ("a.py", "b.py", "a.py")]
    assert effects_of(call("multi_replace_string_in_file", replacements=edits), "done") == (
        FileChange("a.py", "edited", detail='"x" -> "y"'),
        FileChange("b.py", "edited", detail='"x" -> "y"'),
    )


STATUS = "\n(Open file: /testbed/src/fields.py)\n(Current directory: /testbed)\nbash-$"


def test_an_editor_with_a_state_names_the_file_in_its_result() -> None:
    made = call("edit", search="return int(x)", replace="return round(x)")
    result = (
        "Text replaced. Please review.\r\n[File: /testbed/src/fields.py (1998 lines total)]\r\n1458: x"
        + STATUS
    )
    detail = '"return int(x)" -> "return round(x)"'
    assert effects_of(made, result) == (FileChange("/testbed/src/fields.py", "edited", detail=detail),)
    assert open_file_after(made, result) == "/testbed/src/fields.py"


def test_an_editor_with_a_state_edits_what_is_open() -> None:
    made = call("insert", text="import os")
    assert effects_of(made, "Inserted.", opened="a.py") == (
        FileChange("a.py", "edited", detail='added "import os"'),
    )


@pytest.mark.parametrize(
    "result",
    [
        "Your proposed edit has introduced new syntax error(s). Please fix it.\n\nERRORS:\n- E999"
        " IndentationError"
        "\n\nYour changes have NOT been applied. Please fix your edit command and try again.",
        "No file open. Use the open command first.",
        "Your edit was not applied: no match found in the displayed lines.",
    ],
)
def test_an_edit_that_was_not_applied_is_a_failure(result: str) -> None:
    (found,) = effects_of(call("edit", search="a", replace="b"), result + STATUS, opened="src/a.py")
    assert isinstance(found, Failure)
    assert found.what == "edit src/a.py"
    assert found.said


def test_a_file_is_opened_created_and_closed() -> None:
    assert open_file_after(call("open", path="a.py"), "[File: a.py (94 lines total)]\n1:import re") == "a.py"
    assert open_file_after(call("create", filename="b.py"), "[File: b.py (1 lines total)]\n1:") == "b.py"
    assert (
        open_file_after(call("bash", command="ls"), "x\n(Open file: n/a)\n(Current directory: /)\nbash-$")
        == ""
    )
    assert open_file_after(call("bash", command="ls"), "x" + STATUS) == "/testbed/src/fields.py"
    assert open_file_after(call("open", path="a.py"), "File a.py not found") == ""
    assert effects_of(call("open", path="a.py"), "[File: a.py (94 lines total)]\n1:import re") == (
        FileRead("a.py"),
    )
    assert effects_of(call("create", filename="b.py"), "[File: b.py (1 lines total)]\n1:") == (
        FileChange("b.py", "created"),
    )

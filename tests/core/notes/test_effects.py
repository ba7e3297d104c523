"""What calls of the tools of real agents are read as, whatever client made them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from palimpsest.core.notes.effects import effects_in_text, effects_of
from palimpsest.core.notes.note import (
    Action,
    Command,
    Failure,
    FileChange,
    FileRead,
    TaskList,
    merged,
    same_file,
)
from palimpsest.core.text.message_text import ToolCall


def call(tool: str, **arguments: Any) -> ToolCall:
    return ToolCall(id="call_1", name=tool, arguments=json.dumps(arguments))


STATUS = "\n(Open file: /testbed/src/fields.py)\n(Current directory: /testbed)\nbash-$"
PATCH = "*** Begin Patch\n*** Update File: src/a.py\n@@\n-a\n+b\n*** End Patch"


@pytest.mark.parametrize(
    ("tool", "arguments", "result", "expected"),
    [
        (
            "bash",
            {"command": "pytest -q"},
            "5 passed in 0.2s",
            Command("pytest -q", True, "5 passed in 0.2s"),
        ),
        (
            "bash",
            {"command": "pytest -q"},
            "F\nE   AssertionError: expected 3, got 4\n1 failed, 4 passed in 0.31s",
            Command("pytest -q", False, "E   AssertionError: expected 3, got 4"),
        ),
        (
            "shell",
            {"command": ["bash", "-lc", "make"], "workdir": "/r"},
            json.dumps(
                {"output": "gcc: error: x.c\n", "metadata": {"exit_code": 2, "duration_seconds": 0.1}}
            ),
            Command("make", False, "gcc: error: x.c"),
        ),
        (
            "exec_command",
            {"cmd": "npm test"},
            "Chunk ID: 1\nWall time: 0.5 seconds\nProcess exited with code 0\nOriginal token count: 3"
            "\nOutput:\n"
            "Tests:  12 passed, 12 total",
            Command("npm test", True, "Tests:  12 passed, 12 total"),
        ),
        (
            "exec_command",
            {"cmd": "npm run dev"},
            "Wall time: 10 seconds\nProcess running with session ID 3\nOutput:\nlistening",
            Command("npm run dev", None, ""),
        ),
        (
            "run_shell_command",
            {"command": "npm ci"},
            "Command: npm ci\nDirectory: (root)\nOutput: added 90 packages in 2s\nError: (none)\nExit"
            " Code: 0\n"
            "Signal: (none)\nBackground PIDs: (none)",
            None,
        ),
        (
            "execute_command",
            {"command": "tsc"},
            "[execute_command for 'tsc'] Result:\nCommand executed in terminal within working"
            " directory '/r'. "
            "Exit code: 2\nOutput:\nsrc/a.ts(3,5): error TS2322: Type 'x'.",
            Command("tsc", False, "src/a.ts(3,5): error TS2322: Type 'x'."),
        ),
        (
            "run_tests",
            {"path": "tests/a.py"},
            "3 passed in 1.2s",
            Command("run_tests tests/a.py", True, "3 passed in 1.2s"),
        ),
        (
            "run_terminal_cmd",
            {"command": "sleep 100 && make", "is_background": True},
            "Command is running in the background.",
            Command("sleep 100 && make", None, ""),
        ),
        (
            "write_stdin",
            {"session_id": 3, "chars": ""},
            "Process exited with code 1\nOutput:\nError: x",
            Command("session 3", False, "Error: x"),
        ),
    ],
)
def test_commands_and_their_outcome(
    tool: str, arguments: dict[str, Any], result: str, expected: Command | None
) -> None:
    found = effects_of(call(tool, **arguments), result)
    if expected is None:
        assert found == (Command("npm ci", True, "added 90 packages in 2s", "more"),)
    else:
        assert found[-1] == expected


LIST = (("write tests", "done"), ("fix the bug", "doing"), ("ship", "open"), ("rest", "dropped"))
TODOS = [
    {"content": "write tests", "status": "completed", "id": "1"},
    {"content": "fix the bug", "status": "in_progress", "id": "2"},
    {"content": "ship", "status": "pending", "id": "3"},
    {"content": "rest", "status": "cancelled", "id": "4"},
]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("TodoWrite", {"todos": TODOS}),
        ("todowrite", {"todos": TODOS}),
        ("todo_write", {"merge": False, "todos": TODOS}),
        ("update_plan", {"plan": [{"step": t["content"], "status": t["status"]} for t in TODOS]}),
        (
            "manage_todo_list",
            {
                "operation": "write",
                "todoList": [
                    {"id": 1, "title": "write tests", "status": "completed"},
                    {"id": 2, "title": "fix the bug", "status": "in-progress"},
                    {"id": 3, "title": "ship", "status": "not-started"},
                    {"id": 4, "title": "rest", "status": "cancelled"},
                ],
            },
        ),
        ("update_todo_list", {"todos": "[x] write tests\n[-] fix the bug\n[ ] ship\n"}),
        ("todo_write", {"todos": "- [x] write tests\n- [~] fix the bug\n- [ ] ship"}),
        ("todo_write", {"todos": json.dumps(TODOS)}),
        (
            "task_tracker",
            {"command": "plan", "task_list": [{"title": t["content"], "status": t["status"]} for t in TODOS]},
        ),
    ],
)
@pytest.mark.parametrize("result", [None, "", "Todos have been modified successfully."])
def test_task_lists(tool: str, arguments: dict[str, Any], result: str | None) -> None:
    (found,) = effects_of(call(tool, **arguments), result)
    assert isinstance(found, TaskList)
    assert found.items == LIST[: len(found.items)]
    assert len(found.items) >= 3
    assert not found.partial


def test_a_look_at_the_list_is_no_list() -> None:
    assert effects_of(call("task_tracker", command="view"), "1. write tests") == ()
    assert effects_of(call("TodoRead"), "[]") == ()


def test_partial_lists_are_merged_by_their_ids() -> None:
    (first,) = effects_of(
        call("TaskCreate", subject="fix it", description="..."), "Task #7 created successfully: fix it"
    )
    (second,) = effects_of(call("TaskUpdate", taskId="7", status="completed"), "Updated task #7 status")
    assert isinstance(first, TaskList)
    assert isinstance(second, TaskList)
    assert merged(merged(None, first), second).items == (("fix it", "done"),)
    (whole,) = effects_of(call("todo_write", merge=False, todos=TODOS), "ok")
    (change,) = effects_of(call("todo_write", merge=True, todos=[{"id": "3", "status": "completed"}]), "ok")
    assert isinstance(whole, TaskList)
    assert isinstance(change, TaskList)
    assert merged(whole, change).items == (LIST[0], LIST[1], ("ship", "done"), LIST[3])


def test_an_emptied_list_holds_nothing() -> None:
    assert effects_of(call("TodoWrite", todos=[]), "ok") == (TaskList(()),)


@pytest.mark.parametrize(
    ("made", "edits"),
    [
        (call("Edit", file_path="a.py", old_string="x = 1\ny = 2", new_string=""), (("x = 1 y = 2", ""),)),
        (
            call(
                "MultiEdit",
                file_path="a.py",
                edits=[{"old_string": f"a{n}", "new_string": "b"} for n in (1, 2)],
            ),
            (("a1", "b"), ("a2", "b")),
        ),
        (call("apply_patch", input=PATCH), (("a", "b"),)),
        (
            call("apply_diff", path="a.py", diff="<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n"),
            (("a", "b"),),
        ),
    ],
)
def test_an_edit_has_both_sides(made: ToolCall, edits: tuple[tuple[str, str], ...]) -> None:
    (change,) = effects_of(made, "done")
    assert isinstance(change, FileChange)
    assert change.edits == edits


def test_tasks_that_come_with_another_call() -> None:
    found = effects_of(call("read_file", path="a.py", task_progress="- [x] look\n- [ ] mend"), "x = 1")
    assert found == (FileRead("a.py"), TaskList((("look", "done"), ("mend", "open"))))


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (call("Read", file_path="/r/a.py", offset=3), "/r/a.py"),
        (call("read_file", target_file="a.py"), "a.py"),
        (call("str_replace_editor", command="view", path="/w/a.py"), "/w/a.py"),
        (call("Grep", pattern="def f", path="src"), '"def f" in src'),
        (call("Glob", pattern="**/*.py"), '"**/*.py"'),
        (call("web_search", query="sqlite wal"), '"sqlite wal"'),
        (call("find_file", file_name="a.py", dir="src"), '"a.py" in src'),
        (call("WebFetch", url="https://example.org/x", prompt="what"), "https://example.org/x"),
        (call("get_reservation_details", reservation_id="AB12"), "get_reservation_details AB12"),
        (call("mcp__github__list_issues", repo="x/y"), "mcp__github__list_issues repo=x/y"),
        (call("run_sql_query", query="SELECT 1"), "run_sql_query query=SELECT 1"),
        (call("bash", command="cd /r && cat a.py b.py | head -50"), ("/r/a.py", "/r/b.py")),
        (call("bash", command="grep -rn 'def f' src/"), '"def f" in src/'),
        (call("shell", command=["bash", "-lc", "sed -n '1,80p' src/a.py"]), "src/a.py"),
    ],
)
@pytest.mark.parametrize("result", [None, "def f():\n    raise ValueError('Error: x')", "0 errors"])
def test_reads(made: ToolCall, expected: str | tuple[str, ...], result: str | None) -> None:
    names = (expected,) if isinstance(expected, str) else expected
    assert effects_of(made, result) == tuple(FileRead(name) for name in names)


@pytest.mark.parametrize(
    "made",
    [
        call("think", thought="cancel everything"),
        call("calculate", expression="1+1"),
        call("bash", command="ls -la"),
        call("bash", command="git status && git diff"),
        call("bash", restart=True),
        call("ask_followup_question", question="Which?"),
        call("attempt_completion", result="All is done"),
        call("bash", command="pwd; which python | head -1"),
    ],
)
def test_nothing_is_said_of_what_did_nothing(made: ToolCall) -> None:
    assert effects_of(made, "2") == ()


BOOKED = json.dumps(
    {
        "reservation_id": "HATHAT",
        "user_id": "noah_1",
        "cabin": "economy",
        "flights": [{"flight_number": "HAT082", "price": 120}],
        "payment_history": [{"payment_id": "card_7", "amount": 183}],
        "status": "confirmed",
    }
)


def test_an_action_tells_ids_amounts_and_status_that_were_not_given() -> None:
    made = call("book_reservation", cabin="economy", user_id="noah_1", flights=[{"flight_number": "HAT082"}])
    (found,) = effects_of(made, BOOKED)
    assert isinstance(found, Action)
    assert found.name == "book_reservation"
    assert found.arguments == "noah_1, cabin=economy, flights=[HAT082]"
    assert found.outcome.startswith("confirmed, reservation_id HATHAT")
    assert "amount 183" in found.outcome
    assert "noah_1" not in found.outcome


@pytest.mark.parametrize(
    ("made", "result", "expected"),
    [
        (
            call("cancel_order", order_id="A-1", reason="late"),
            '{"success": true}',
            Action("cancel_order", "A-1, reason=late", ""),
        ),
        (
            call("sendEmail", body="x" * 500, to="a@b.c"),
            "Email sent",
            Action("sendEmail", f"a@b.c, body={'x' * 37}...", "Email sent"),
        ),
        (
            call("mcp__github__create_issue", title="Bug"),
            '{"number": 41}',
            Action("mcp__github__create_issue", "Bug", "number 41"),
        ),
        (call("check_in_guest", guest_id=4), "OK", Action("check_in_guest", "4", "")),
        (
            call("frobnicate", id="7"),
            '{"status": "created", "id": "7"}',
            Action("frobnicate", "7", "created"),
        ),
        (
            call("run_sql", sql="DELETE FROM t"),
            "3 rows deleted",
            Action("run_sql", "sql=DELETE FROM t", "3 rows deleted"),
        ),
        (call("submit"), "diff --git a/x b/x", Action("submit", "", "")),
        (
            ToolCall("1", "cancel_order", '{"order_id": "A-1"'),
            "Cancelled.",
            Action("cancel_order", '{"order_id": "A-1"', "Cancelled."),
        ),
    ],
)
def test_actions(made: ToolCall, result: str, expected: Action) -> None:
    assert effects_of(made, result) == (expected,)


def test_an_unknown_tool_that_only_gives_data_is_a_read() -> None:
    assert effects_of(call("kittens", breed="tabby"), '[{"name": "Tom"}]') == (
        FileRead("kittens breed=tabby"),
    )


@pytest.mark.parametrize(
    ("made", "result", "said"),
    [
        (
            call("cancel_order", order_id="A-1"),
            "Error: order already shipped",
            "Error: order already shipped",
        ),
        (call("cancel_order", order_id="A-1"), '{"error": {"message": "not found"}}', "not found"),
        (
            call("Edit", file_path="a.py", old_string="a", new_string="b"),
            "<tool_use_error>String to replace not found in file.</tool_use_error>",
            "String to replace not found in file.",
        ),
        (
            call("str_replace_editor", command="str_replace", path="a.py", old_str="a", new_str="b"),
            "ERROR:\nNo replacement was performed, old_str `a` did not appear verbatim in a.py.",
            "No replacement was performed",
        ),
        (
            call("replace_in_file", path="a.ts", diff="x"),
            "The tool execution failed with the following error:\n<error>\nThe SEARCH block did not"
            " match.\n</error>",
            "The SEARCH block did not match.",
        ),
        (
            call("Write", file_path="a.py", content="x"),
            "The user doesn't want to proceed with this tool use.",
            "The user doesn't want",
        ),
        (call("read_file", path="a.py"), "Error: File not found: a.py", "Error: File not found"),
    ],
)
def test_failures(made: ToolCall, result: str, said: str) -> None:
    (found,) = effects_of(made, result)
    assert isinstance(found, Failure)
    assert found.what.startswith(made.name)
    assert said in found.said


@pytest.mark.parametrize(
    "made",
    [
        call("edit", filePath="a.py", oldString="a", newString="b"),
        call("apply_patch", input=PATCH),
        call("bash", command="rm a.py && make"),
        call("cancel_order", order_id="1"),
        call("run_tests"),
    ],
)
def test_without_a_result_nothing_is_known_to_be_done(made: ToolCall) -> None:
    assert effects_of(made, None) == ()


def test_one_file_in_several_spellings() -> None:
    assert same_file("./a.py", "a.py")
    assert same_file("/repo/a.py", "a.py")
    assert same_file("src/a.py", "/repo/src/a.py")
    assert not same_file("ba.py", "a.py")
    assert not same_file("", "a.py")


AIDER = """I will change the limit.

src/app.py
```python
<<<<<<< SEARCH
limit = 1
=======
limit = 2
>>>>>>> REPLACE
```
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (AIDER, [FileChange("src/app.py", "edited", detail='"limit = 1" -> "limit = 2"')]),
        (
            "```\nnew.py\n<<<<<<< SEARCH\n=======\na\nb\n>>>>>>> REPLACE\n```",
            [FileChange("new.py", "created", detail="2 lines")],
        ),
        (
            "Here it is:\n\nsite/main.js\n```js\nlet a = 1;\nlet b = 2;\n```\n",
            [FileChange("site/main.js", "edited", detail="2 lines")],
        ),
        (
            "```diff\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a = 1\n+a = 2\n```",
            [FileChange("x.py", "edited", detail='"a = 1" -> "a = 2"')],
        ),
        (
            "<write_to_file>\n<path>src/a.ts</path>\n<content>\nlet a;\n</content>"
            "\n<line_count>1</line_count>\n</write_to_file>",
            [FileChange("src/a.ts", "created", detail="1 line")],
        ),
        (
            "<replace_in_file>\n<path>a.ts</path>\n<diff>\n<<<<<<< SEARCH\nx\n=======\ny\n>>>>>>>"
            " REPLACE\n</diff>\n</replace_in_file>",
            [FileChange("a.ts", "edited", detail='"x" -> "y"')],
        ),
        (
            "<apply_diff><args><file><path>a.ts</path><diff><content><<<<<<< SEARCH\nx\n=======\ny"
            "\n>>>>>>> REPLACE\n"
            "</content></diff></file></args></apply_diff>",
            [FileChange("a.ts", "edited", detail='"x" -> "y"')],
        ),
        (
            "I run it.\n<execute_command>\n<command>npm test</command>\n</execute_command>",
            [Command("npm test", None, "")],
        ),
        ("<read_file>\n<path>a.ts</path>\n</read_file>", [FileRead("a.ts")]),
        (
            "<update_todo_list><todos>\n[x] one\n[ ] two\n</todos></update_todo_list>",
            [TaskList((("one", "done"), ("two", "open")))],
        ),
        ("The file `src/a.py`:\n```python\nx = 1\n```\nis fine. See src/b.py too.", []),
        ("Nothing happened.", []),
    ],
)
def test_edits_written_as_text(text: str, expected: list[object]) -> None:
    assert list(effects_in_text(text)) == expected

"""Which results say that their call failed, which only speak of failure, and what they say of it."""

from __future__ import annotations

import json

import pytest
from palimpsest.core.notes.results import result_of

PYTEST = """============================= test session starts ==============================
collected 3 items

tests/test_a.py ..F                                                      [100%]

=================================== FAILURES ===================================
    def test_c():
>       assert total([1, 2]) == 4
E       assert 3 == 4

tests/test_a.py:12: AssertionError
=========================== short test summary info ============================
FAILED tests/test_a.py::test_c - assert 3 == 4
========================= 1 failed, 2 passed in 0.12s ==========================
"""
TRACEBACK = """starting
Traceback (most recent call last):
  File "/r/a.py", line 3, in <module>
    main()
  File "/r/a.py", line 2, in main
    raise ValueError("bad value 7")
ValueError: bad value 7
"""


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (PYTEST, "E       assert 3 == 4"),
        (TRACEBACK, "ValueError: bad value 7"),
        (TRACEBACK + "(Open file: n/a)\n(Current directory: /r)\nbash-$", "ValueError: bad value 7"),
        (TRACEBACK + "[The command completed with exit code 1.]", "ValueError: bad value 7"),
        ("Error: reservation not found", "Error: reservation not found"),
        ("Error: cannot cancel: already flown", "Error: cannot cancel: already flown"),
        ("ERROR:\nThe path does not exist", "The path does not exist"),
        ("fatal: not a git repository (or any parent)", "fatal: not a git repository (or any parent)"),
        ("bash: line 1: foo: command not found", "bash: line 1: foo: command not found"),
        ("/bin/sh: 1: foo: not found", "/bin/sh: 1: foo: not found"),
        ("cat: x.py: No such file or directory", "cat: x.py: No such file or directory"),
        (
            "rm: cannot remove 'x': No such file or directory",
            "rm: cannot remove 'x': No such file or directory",
        ),
        ("building\nmake: *** [Makefile:3: all] Error 1", "make: *** [Makefile:3: all] Error 1"),
        ("error[E0308]: mismatched types\n --> src/main.rs:3:5", "error[E0308]: mismatched types"),
        ("src/a.c:3:5: error: expected ';'\n  3 | x", "src/a.c:3:5: error: expected ';'"),
        (
            "app/a.py:3: error: Missing return  [return]\nFound 1 error in 1 file",
            "app/a.py:3: error: Missing return  [return]",
        ),
        (
            "npm ERR! code ERESOLVE\nnpm ERR! ERESOLVE could not resolve",
            "npm ERR! ERESOLVE could not resolve",
        ),
        ("Tests:       1 failed, 3 passed, 4 total\nTime: 2 s", "Tests:       1 failed, 3 passed, 4 total"),
        ("Ran 3 tests in 0.001s\n\nFAILED (failures=1)", "FAILED (failures=1)"),
        ("ok  \tx/a\t0.1s\n--- FAIL: TestB (0.00s)\n    b_test.go:9: got 1\nFAIL", "--- FAIL: TestB (0.00s)"),
        (
            "thread 'main' panicked at src/main.rs:2:5:\nindex out of bounds",
            "thread 'main' panicked at src/main.rs:2:5:",
        ),
        ("  3 passing (20ms)\n  1 failing\n", "1 failing"),
        ("[INFO] x\n[ERROR] BUILD FAILURE", "[ERROR] BUILD FAILURE"),
        ("Exit code 1", "exit code 1"),
        ("Exit code 2\nls: cannot access 'q': No such file", "ls: cannot access 'q': No such file"),
        (
            "<returncode>1</returncode>\n<output>\nTypeError: x is not a function\n</output>",
            "TypeError: x is not a function",
        ),
        ("Exit code: 124\nWall time: 10 seconds\nOutput:\ncommand timed out", "command timed out"),
        (json.dumps({"error": "no seats left"}), "no seats left"),
        (json.dumps({"error": {"code": 3, "message": "card declined"}}), "card declined"),
        (json.dumps({"success": False, "message": "too late"}), "too late"),
        (json.dumps({"status": "failed", "reason": "expired"}), "expired"),
        (json.dumps({"isError": True, "content": [{"type": "text", "text": "timeout"}]}), "timeout"),
        (json.dumps({"stdout": "", "stderr": "boom: bad flag", "exit_code": 2}), "boom: bad flag"),
        (json.dumps({"output": "x.c:1:2: error: y\n", "metadata": {"exit_code": 1}}), "x.c:1:2: error: y"),
        (json.dumps([{"type": "text", "text": "Error: no such table"}]), "Error: no such table"),
        (json.dumps({"statusCode": 404, "message": "Not Found"}), "Not Found"),
        ("<tool_use_error>File has not been read yet.</tool_use_error>", "File has not been read yet."),
        ("The user rejected this tool call.", "The user rejected this tool call."),
        (
            "To /srv/x.git\n ! [rejected] main -> main (fetch first)\nerror: failed to push some refs",
            "! [rejected] main -> main (fetch first)",
        ),
        ("x" * 9_000 + "\n" + PYTEST, "E       assert 3 == 4"),
    ],
)
def test_results_that_say_their_call_failed(result: str, said: str) -> None:
    assert result_of(result).failed()
    assert result_of(result).error() == said


@pytest.mark.parametrize(
    "result",
    [
        "",
        "0 errors",
        "Found 0 errors.",
        "no errors found",
        "Success: no issues found in 12 source files",
        "5 passed in 0.2s",
        "12 passed, 0 failed",
        "test result: ok. 3 passed; 0 failed; 0 ignored",
        "Tests run: 5, Failures: 0, Errors: 0, Skipped: 0",
        "Compilation finished with 0 errors and 2 warnings",
        "def f():\n    raise ValueError('Error: bad')\n\nclass ParseError(Exception):\n    pass\n",
        "    12\ttry:\n    13\t    f()\n    14\texcept KeyError as error:\n    15\t   "
        " log.error('failed: %s', error)\n",
        "app/errors.py\ntests/test_errors.py\nfailed.log",
        "The file handles errors by catching them; a failed request is tried again.",
        "# Errors\n\nThe server exits with code 1 when it fails to start.\n\nMore text here.",
        "2026-01-01 INFO retry after error 503, then ok\nserver ready",
        "Command: x\nDirectory: (root)\nOutput: fine\nError: (none)\nExit Code: 0\nSignal: (none)",
        "Exit code: 0\nWall time: 1 seconds\nOutput:\nError: this is only printed",
        json.dumps({"success": True, "error": None}),
        json.dumps({"error": None, "data": []}),
        json.dumps({"errors": [], "rows": 3}),
        json.dumps({"result": "created", "error_count": 0}),
        json.dumps({"output": "error handling\n", "metadata": {"exit_code": 0}}),
        json.dumps({"title": "Error: a film", "year": 1999}),
        json.dumps({"reservation_id": "A", "status": "cancelled"}),
        "[main 1a2b3c4] Fix the error in parsing\n 1 file changed, 2 insertions(+)",
        "Traceback (most recent call last): is what Python prints.\nRead on below.",
        "Killed the process 4312 and started another",
        "No matches found",
    ],
)
def test_results_that_only_speak_of_failure(result: str) -> None:
    assert not result_of(result).failed()


@pytest.mark.parametrize(
    ("result", "summary"),
    [
        ("....\n5 passed in 0.20s", "5 passed in 0.20s"),
        ("============ 5 passed, 1 skipped in 0.20s ============", "5 passed, 1 skipped in 0.20s"),
        ("345\n(Open file: n/a)\n(Current directory: /r)\nbash-$", "345"),
        ("a\nb\nc\n", "a / b / c"),
        ("a\nb\nc\nd\n", ""),
        ("", ""),
        ("x\nSuccessfully installed flask-3.0", "Successfully installed flask-3.0"),
        ("[main 1a2b3c4] Add limit\n 2 files changed, 3 insertions(+)", "2 files changed, 3 insertions(+)"),
    ],
)
def test_the_line_that_sums_up(result: str, summary: str) -> None:
    assert result_of(result).summary() == summary


@pytest.mark.parametrize(
    "result", ["Process running with session ID 12\nOutput:\n", "Command running in background with ID: b1"]
)
def test_what_still_runs_has_no_outcome(result: str) -> None:
    assert result_of(result).running


def test_only_the_ends_of_a_huge_result_are_read() -> None:
    quiet = "line of a log\n" * 1_500_000
    assert not result_of(quiet + "ERROR: in the middle\n" + quiet).failed()
    assert result_of(quiet + "Exit code: 1").failed()

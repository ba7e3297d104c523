"""Which results tell of a failure, and which only use its words (D04)."""

from __future__ import annotations

import pytest
from palimpsest.core.summary.working import ToolNote

from tests.core.summary.talk import calls, result
from tests.core.summary.working.session import state_of


def failures(text: str, tool: str = "Bash", **arguments: str) -> list[str]:
    given = arguments or {"command": "make check"}
    return [failure.text for failure in state_of([calls(tool, **given), result(text)]).failures]


@pytest.mark.spec("D04")
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("building\nerror: no rule for x.o\ndone", "error: no rule for x.o"),
        ("Traceback (most recent call last):\n  File 'a'\nKeyError: 'b'", "KeyError: 'b'"),
        ("TypeError: x is not a function\n  at a.js:3", "TypeError: x is not a function"),
        ("src/a.ts(3,4): error TS1005: ';' expected.", "src/a.ts(3,4): error TS1005: ';' expected."),
        ("error[E0308]: mismatched types", "error[E0308]: mismatched types"),
        ("41 passed\n1 failed, 0 errors in 3s", "1 failed, 0 errors in 3s"),
        ("FAILED tests/test_a.py::test_b", "FAILED tests/test_a.py::test_b"),
        ("bash: foo: command not found", "bash: foo: command not found"),
        ("npm ERR! code ELIFECYCLE", "npm ERR! code ELIFECYCLE"),
        ("fatal: not a git repository", "fatal: not a git repository"),
        ("Exit code: 1\nconnect ECONNREFUSED 127.0.0.1:5432", "connect ECONNREFUSED 127.0.0.1:5432"),
        ("HTTP/1.1 503 Service Unavailable", "HTTP/1.1 503 Service Unavailable"),
        ("Found 3 errors in 2 files", "Found 3 errors in 2 files"),
        ("Exit code: 2\nOutput:\n", "exit code 2"),
        ("Exit code: 2\nOutput:\nerror: bad flag", "error: bad flag"),
        ('{"error": "seat 14C is taken"}', "seat 14C is taken"),
        ('{"success": false, "reason": "x"}', "x"),
        ("Exit code: 1\nBuild failed after 12 s", "Build failed after 12 s"),
    ],
)
def test_results_that_failed(text: str, line: str) -> None:
    assert failures(text) == [line]


@pytest.mark.spec("D04")
@pytest.mark.parametrize(
    "text",
    [
        "0 errors",
        "Found 0 errors, 2 warnings",
        "no errors found",
        "Compiled with zero type errors.",
        "Build succeeded without any errors",
        "42 passed, 0 failed in 2.1s",
        "errors: 0, failures: 0",
        '{"error": null, "rows": 4}',
        '{"errors": [], "ok": true}',
        '{"success": true, "error": ""}',
        "Added error handling to the parser.",
        "The page describes error handling, error messages and error codes.",
        "def on_error(self): ...",
        "try:\n    x()\nexcept ValueError:\n    pass",
        "class QueueError(Exception):",
        "Fixed the TypeError: it was a typo",
        "Exit code: 0\nOutput:\nfine",
        "exited with code 0",
        "A terror of the seas, unerring.",
        "all good",
        "",
    ],
)
def test_words_of_failure_that_tell_of_none(text: str) -> None:
    assert failures(text) == []


@pytest.mark.spec("D04")
@pytest.mark.parametrize("tool", ["Read", "Grep", "Edit"])
def test_what_a_file_says_is_no_failure(tool: str) -> None:
    text = "1\tlog.error('x')\n2\traise TypeError: oh\n3\tERROR: queue is full"
    assert failures(text, tool, path="a.py") == []


@pytest.mark.spec("D04")
@pytest.mark.parametrize("command", ["cat app.log", "cd /srv && grep -rn Error: .", "git diff HEAD~1"])
def test_what_a_command_shows_is_no_failure(command: str) -> None:
    assert failures("line one\nERROR: queue is full\nTypeError: x", command=command) == []


@pytest.mark.spec("D04")
@pytest.mark.parametrize("command", ["ls && make", "cat a; ./run.sh", "make 2>&1 | tail -5"])
def test_a_command_that_does_more_than_show_may_fail(command: str) -> None:
    assert failures("a.py\nmake: *** error: queue is full", command=command) == [
        "make: *** error: queue is full"
    ]


@pytest.mark.spec("D04")
@pytest.mark.parametrize(
    ("tool", "given", "text"),
    [
        ("Read", {"path": "a.py"}, "Error: ENOENT: no such file or directory, open 'a.py'"),
        ("Read", {"path": "a.py"}, "File not found: a.py"),
        ("Edit", {"path": "a.py"}, "String to replace not found in file."),
        ("Grep", {"pattern": "("}, "Error: unclosed group"),
        ("Bash", {"command": "cat a.py"}, "cat: a.py: No such file or directory"),
    ],
)
def test_reads_and_searches_fail_by_how_they_begin(tool: str, given: dict[str, str], text: str) -> None:
    assert failures(text, tool, **given) == [text]


@pytest.mark.spec("D04")
def test_of_a_frame_around_an_error_the_words_count() -> None:
    told = "<tool_use_error>File does not exist.</tool_use_error>"
    assert failures(told, "Read", path="a.py") == ["File does not exist."]


@pytest.mark.spec("D04")
def test_an_error_in_the_middle_of_a_long_result_is_content() -> None:
    long = "all is well here\n" * 9_000
    assert failures(f"{long}error: in the middle\n{long}") == []
    assert failures(f"{long}error: at the end") == ["error: at the end"]


@pytest.mark.spec("D04")
def test_a_failure_is_the_first_line_and_short() -> None:
    (found,) = failures("error: one " + "word " * 200 + "\nerror: two")
    assert found.startswith("error: one word")
    assert len(found) <= 300


@pytest.mark.spec("D04")
def test_failures_are_kept_as_often_as_they_come_the_oldest_going_first() -> None:
    same = [part for _ in range(3) for part in (calls("Bash", command="make"), result("error: x"))]
    assert state_of(same).failures == [ToolNote("make", "error: x", failed=True)] * 3
    many = [part for n in range(27) for part in (calls("Bash", command="make"), result(f"error: {n}"))]
    assert [failure.text for failure in state_of(many).failures] == [f"error: {n}" for n in range(2, 27)]

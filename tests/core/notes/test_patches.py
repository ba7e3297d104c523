"""The formats in which models write edits, and what is told of an edit on one line."""

from __future__ import annotations

import pytest
from palimpsest.core.notes.edits import change_detail, change_of_diff, changes_of_patch, edits_in_text
from palimpsest.core.notes.note import FileChange


@pytest.mark.parametrize(
    ("old", "new", "detail"),
    [
        ("a = 1", "a = 2", '"a = 1" -> "a = 2"'),
        ("x\na = 1\ny", "x\na = 2\ny", '"a = 1" -> "a = 2"'),
        ("", "import os\nimport re", 'added "import os / import re"'),
        ("x\n", "x\ny\n", 'added "y"'),
        ("x\ny\nz\n", "x\n", 'removed "y / z"'),
        ("a\nb\nc", "d\ne\nf", '"a / b / c" -> "d / e / f"'),
        ("a = 1", "    a = 1", ""),
        ("", "", ""),
        ("}", "}\n}\ndef f():", 'added "def f():"'),
    ],
)
def test_an_edit_is_told_by_the_lines_that_differ(old: str, new: str, detail: str) -> None:
    assert change_detail(old, new) == detail


def test_a_long_line_is_shown_around_its_difference() -> None:
    before, after = ("x" * 200 + tail for tail in (" limit=1 end", " limit=2 end"))
    detail = change_detail(before, after)
    assert "limit=1 end" in detail
    assert "limit=2 end" in detail
    assert len(detail) <= 160


GIT = """diff --git a/old.py b/new.py
similarity index 90%
rename from old.py
rename to new.py
--- a/old.py
+++ b/new.py
@@ -1,2 +1,2 @@
 import os
-a = 1
+a = 2
@@ -9 +9 @@
-b = 1
+b = 2
diff --git a/gone.py b/gone.py
deleted file mode 100644
--- a/gone.py
+++ /dev/null
@@ -1 +0,0 @@
-x
diff --git a/fresh.py b/fresh.py
--- /dev/null
+++ b/fresh.py
@@ -0,0 +1,2 @@
+x
+y
diff --git a/one b/two
rename from one
rename to two
"""


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        (
            GIT,
            [
                FileChange("old.py", "moved", "new.py", '"a = 1 / b = 1" -> "a = 2 / b = 2"'),
                FileChange("gone.py", "deleted"),
                FileChange("fresh.py", "created", detail="2 lines"),
                FileChange("one", "moved", "two"),
            ],
        ),
        (
            "*** Begin Patch\n*** Update File: a.py\n*** Move to: b/a.py\n@@\n-x\n+y\n*** End Patch",
            [FileChange("a.py", "moved", "b/a.py", '"x" -> "y"')],
        ),
        (
            "*** Begin Patch\r\n*** Update File: a.py\r\n@@\r\n-x\r\n+y\r\n*** End Patch\r\n",
            [FileChange("a.py", "edited", detail='"x" -> "y"')],
        ),
        ("*** Update File: a.py\n@@\n context only", [FileChange("a.py", "edited")]),
        (
            "--- a.txt\t2026-01-01\n+++ a.txt\t2026-01-02\n@@ -1 +1 @@\n-x\n+y",
            [FileChange("a.txt", "edited", detail='"x" -> "y"')],
        ),
        ("no patch at all", []),
        ("", []),
    ],
)
def test_patches(patch: str, expected: list[FileChange]) -> None:
    assert list(changes_of_patch(patch)) == expected


def test_several_blocks_are_one_change() -> None:
    block = "<<<<<<< SEARCH\n{0} = 1\n=======\n{0} = 2\n>>>>>>> REPLACE\n"
    found = change_of_diff("".join(block.format(name) for name in "abc"), "x.py")
    assert found == FileChange("x.py", "edited", detail='"a = 1" -> "a = 2"; 2 more')


def test_blocks_without_a_name_belong_to_the_file_before() -> None:
    text = (
        "**src/a.py**\n```\n<<<<<<< SEARCH\nx\n=======\ny\n>>>>>>> REPLACE\n```\n"
        "```\n<<<<<<< SEARCH\np\n=======\nq\n>>>>>>> REPLACE\n```\n"
    )
    assert [change.path for change in edits_in_text(text)] == ["src/a.py", "src/a.py"]

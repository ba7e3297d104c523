"""What shell scripts did: files, actions, the command itself, and what is not said of a failed one."""

from __future__ import annotations

import pytest
from palimpsest.core.notes.note import Command, Effect, Failure, FileChange, FileRead
from palimpsest.core.notes.results import result_of
from palimpsest.core.notes.shell import effects_of_script


def done(script: str, result: str = "") -> list[Effect]:
    """The effects without the command, which stands last."""
    found = effects_of_script(script, result_of(result))
    assert found, script
    assert isinstance(found[-1], Command), found
    return list(found[:-1])


def edited(path: str, detail: str = "") -> FileChange:
    return FileChange(path, "edited", detail=detail)


def created(path: str, detail: str = "") -> FileChange:
    return FileChange(path, "created", detail=detail)


def deleted(path: str) -> FileChange:
    return FileChange(path, "deleted")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("sed -i 's/a = 1/a = 2/' src/a.py", [edited("src/a.py", '"a = 1" -> "a = 2"')]),
        ("sed -i.bak -e 's|x|y|g' a b", [edited("a", '"x" -> "y"'), edited("b", '"x" -> "y"')]),
        ("sed -i '' -e '3d' a.py", [edited("a.py", "sed 3d")]),
        ("perl -pi -e 's/old/new/' a.py", [edited("a.py", '"old" -> "new"')]),
        ("perl -i -pe 's/old/new/' a.py", [edited("a.py", '"old" -> "new"')]),
        ("mv a.py b.py", [FileChange("a.py", "moved", "b.py")]),
        (
            "mv a.py b.py src/",
            [FileChange("a.py", "moved", "src/a.py"), FileChange("b.py", "moved", "src/b.py")],
        ),
        ("git mv a.py src/b.py", [FileChange("a.py", "moved", "src/b.py")]),
        ("cp -r a.py b.py", [created("b.py", "copy of a.py")]),
        ("rm -rf build/ a.py", [deleted("build/"), deleted("a.py")]),
        ("git rm -f a.py", [deleted("a.py")]),
        ("git rm --cached a.py", []),
        ("rmdir old", [deleted("old")]),
        ("touch a.py && mkdir -p src/x", [created("a.py"), created("src/x", "folder")]),
        ("chmod +x run.sh", [edited("run.sh", "chmod +x")]),
        ("echo 'hello there' > a.txt", [created("a.txt", '"hello there"')]),
        ("echo b >> a.txt", [edited("a.txt", 'added "b"')]),
        ("pytest > out.log 2>&1", [created("out.log", "output of pytest")]),
        ("pytest 2> err.log >/dev/null", []),
        (
            "cat > src/a.py <<'EOF'\nx = 1\nif a > b:\n    rm = 'rm -rf x'\nEOF",
            [created("src/a.py", "3 lines")],
        ),
        ("cat <<EOF >> a.txt\nmore\nEOF\nrm b.txt", [edited("a.txt", "added 1 line"), deleted("b.txt")]),
        ("cat <<-'E' | tee a.txt\n\tx\n\tE\n", [created("a.txt")]),
        ("tee -a a.txt <<EOF\nx\nEOF", [edited("a.txt", "1 line")]),
        ("cd /repo && rm a.py", [deleted("/repo/a.py")]),
        ("cd sub; cd deep; touch ../x.py", [created("sub/deep/../x.py")]),
        ("bash -lc \"cd /r && rm 'a b.py'\"", [deleted("/r/a b.py")]),
        ("sudo -u root rm /etc/x", [deleted("/etc/x")]),
        ("FOO=1 timeout 60 touch a", [created("a")]),
        ("for f in a b; do rm $f; done", []),
        ('rm "$OUT" `ls`', []),
        ("[ -f a ] || touch b", []),
        ("git checkout -- a.py b.py", [edited("a.py", "restored by git"), edited("b.py", "restored by git")]),
        ("git restore a.py", [edited("a.py", "restored by git")]),
        (
            "git apply <<'EOF'\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\nEOF",
            [edited("x.py", '"a" -> "b"')],
        ),
        ("curl -o a.tgz https://h/a.tgz", [created("a.tgz", "from https://h/a.tgz")]),
        (
            "python - <<'PY'\nfrom pathlib import Path\np = Path('a.py')\np.write_text('x')\nPY",
            [edited("a.py", "by a script")],
        ),
        ("python3 -c \"open('b.txt', 'w').write('x')\"", [edited("b.txt", "by a script")]),
        ("pytest -q tests", []),
        ("python run.py | tee out.txt", [created("out.txt")]),
        ("kubectl get pods; make build", []),
    ],
)
def test_what_scripts_do(script: str, expected: list[Effect]) -> None:
    assert done(script) == expected


@pytest.mark.parametrize(
    "script",
    [
        'git add -A && git commit -m "Fix the bug\n\nLong text"',
        "git commit -qam 'Fix'",
        "git push -u origin main",
        "git checkout -b topic",
        "git -C /r merge topic",
        "git stash && git stash pop",
        "git tag v1.2",
        "git revert HEAD",
        "patch -p1 < fix.diff",
        "pip install -q flask",
        "python -m pip install flask",
        "npm install --save-dev jest && npm test",
        "apt-get update && apt-get install -y jq",
        "docker compose up -d",
        "kubectl apply -f k8s/",
        "terraform apply -auto-approve",
        "alembic upgrade head",
        "python manage.py migrate shop",
        "gh pr create --title x",
        "curl -X POST http://h/x -d '{}'",
    ],
)
def test_a_command_that_changes_more_than_files_says_so(script: str) -> None:
    (command,) = effects_of_script(script, result_of("done"))
    assert isinstance(command, Command)
    assert command.does == "more"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("cat a.py", [FileRead("a.py")]),
        ("cd src && head -n 20 a.py", [FileRead("src/a.py")]),
        ('grep -n "def f" a.py b.py | head', [FileRead('"def f" in a.py, b.py')]),
        ("rg -n todo", [FileRead('"todo"')]),
        ("curl -s https://h/x", [FileRead("https://h/x")]),
        ("ls && git status", []),
        ("find . -name '*.py' | xargs wc -l", []),
        ("git log --oneline | head -3; git stash list", []),
        ("sed -n '1,5p' a.py 2>/dev/null", [FileRead("a.py")]),
        ("# only a comment\nwc -l a.py", []),
    ],
)
def test_what_only_looks_is_read(script: str, expected: list[Effect]) -> None:
    found = effects_of_script(script, result_of("Error handling: 3 errors\nfailed\n"))
    assert list(found) == expected


def test_a_look_that_failed_is_a_command() -> None:
    result = result_of("cat: a.py: No such file or directory")
    assert effects_of_script("cat a.py", result) == (
        Command("cat a.py", False, "cat: a.py: No such file or directory"),
    )
    assert effects_of_script("grep -n x a.py", result_of("Exit code: 1\nOutput:\n")) == (
        FileRead('"x" in a.py'),
    )


@pytest.mark.parametrize(
    ("script", "result", "expected"),
    [
        ("rm a.py", "rm: cannot remove 'a.py': No such file or directory", []),
        ("sed -i s/a/b/ x.py && pytest", "1 failed in 0.1s", [edited("x.py", '"a" -> "b"')]),
        ("pytest && git commit -m done && git push", "1 failed in 0.1s", []),
        ("pytest && rm a.py", "1 failed in 0.1s", []),
        ("pytest; rm a.py", "1 failed in 0.1s", [deleted("a.py")]),
        ("mv a b && rm c", "mv: cannot stat 'a': No such file or directory", []),
        ("git commit -m 'Fix it' && git push", "[main 1a2b3c4] Fix it\nerror: failed to push", []),
        (
            "cat > a.py <<E\nx\nE\npython a.py",
            "Traceback (most recent call last):\nNameError: x",
            [created("a.py", "1 line")],
        ),
        ("pip install nope", "ERROR: No matching distribution found for nope", []),
    ],
)
def test_of_a_failed_script_only_what_is_sure(script: str, result: str, expected: list[Effect]) -> None:
    assert done(script, result) == expected
    assert effects_of_script(script, result_of(result))[-1].ok is False  # type: ignore[union-attr]


def test_a_command_line_is_shown_without_its_heredocs() -> None:
    found = effects_of_script("cat > a.py <<'EOF'\nsecret\nEOF\npython a.py", result_of("1"))
    assert found[-1] == Command("cat > a.py <<EOF ... python a.py", True, "1")
    assert len(effects_of_script("make " + "x" * 900, result_of(""))[-1].line) == 200  # type: ignore[union-attr]


def test_a_patch_in_a_shell_that_failed() -> None:
    script = "apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: a.py\n-x\n+y\n*** End Patch\nEOF"
    found = effects_of_script(script, result_of("Exit code: 1\nOutput:\nFailed to find context"))
    assert found == (Failure("apply_patch a.py", "Failed to find context", ("a.py",)),)


def test_an_editor_that_is_called_through_a_shell() -> None:
    shown = "[File: /repo/src/fu.py (2215 lines total)]\n10:  if v > 0:\nFile updated."
    assert effects_of_script("edit 10:12\n  if v > 0:\n    print(1)\nend_of_edit", result_of(shown)) == (
        edited("/repo/src/fu.py", 'lines 10:12 now "if v > 0: / print(1)"'),
    )
    made = result_of("[File: /repo/reproduce.py (1 lines total)]\n1:\nbash-$")
    assert effects_of_script("create reproduce.py", made) == (created("/repo/reproduce.py"),)
    refused = "Your proposed edit has introduced new syntax error(s).\n- E999 IndentationError"
    (failure,) = effects_of_script("edit 3:3\ndef f() -> int:\nend_of_edit", result_of(refused))
    assert isinstance(failure, Failure)


@pytest.mark.parametrize(
    "script",
    [
        "python - <<'EOF'\nif x > 0:\n    pass\nEOF",
        "psql -c 'select * from t where a > 5'",
        "if [ $x > 3 ]; then echo hi; fi",
    ],
)
def test_a_comparison_is_no_file(script: str) -> None:
    assert done(script) == []

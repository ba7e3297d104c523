"""Effects of single programs that a shell runs: files changed, actions, files read.

Tables of programs, and how each takes its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from itertools import pairwise

from palimpsest.core.notes.edits import changes_of_patch
from palimpsest.core.notes.note import (
    LINE_CHARS,
    Action,
    FileChange,
    FileState,
    counted,
    is_path,
    one_line,
    word_set,
)
from palimpsest.core.notes.script import SimpleCommand

_SUBSTITUTED = re.compile(r"s(?P<mark>[^\w\s\\])(.+?)(?<!\\)(?P=mark)(.*?)(?<!\\)(?P=mark)")
_OPENED = re.compile(r"""\bopen\(\s*[rf]?["']([^"'\n]+)["']\s*,\s*(?:mode=)?["'][wa]""")
_PATH_VALUE = re.compile(
    r"""(?:(\w+)\s*=\s*)?(?:pathlib\.)?\bPath\(\s*["']([^"'\n]+)["']\s*\)(\.write_\w+\()?"""
)
_LOOKERS = word_set(
    "ls cat bat head tail less more nl grep egrep fgrep rg ag ack find fd tree wc pwd which whereis"
    " type whoami id date echo printf stat file du df ps top env printenv uname hostname sort uniq cut"
    " awk gawk diff cmp jq yq column tr xxd od hexdump strings basename dirname realpath readlink test ["
    " [[ true false sleep history man seq md5sum sha256sum sha1sum free uptime lsof netstat ss dig"
    " nslookup ping set export cd pushd popd source . alias unset local read wait jobs for case select"
    " function return exit break continue shift clear fold paste comm join expr let tldr help locate"
    " lscpu nproc groups getent ip ifconfig sed perl"
)
_TESTS = ("[", "[[", "test")
# Those that show the files they are given.
_SHOWERS = word_set("cat bat head tail less more nl sed awk gawk jq yq stat file xxd strings diff")
# Those whose first word is a script, or is looked for.
_SCRIPTED = word_set("sed awk gawk jq yq")
_FINDERS = word_set("grep egrep fgrep rg ag ack")
_GIT_LOOKS = word_set(
    "status log diff show blame grep ls-files ls-tree rev-parse describe shortlog reflog cat-file"
    " config remote fetch add rev-list merge-base name-rev whatchanged help version check-ignore bisect"
    " worktree"
)
_GIT_LISTS = word_set("-l --list -a -v -vv -r list show --show-current")
# Programs that change more than the files they name, and the subcommands that do; none: every call does.
_SUBCOMMANDS = """
git: commit push merge revert tag stash rebase cherry-pick reset clone init switch branch checkout pull
git: am apply submodule clean
pip pip3 pipx conda brew gem npm pnpm yarn cargo go poetry uv composer bundle: install uninstall i add
pip pip3 pipx conda brew gem npm pnpm yarn cargo go poetry uv composer bundle: ci remove rm update
pip pip3 pipx conda brew gem npm pnpm yarn cargo go poetry uv composer bundle: upgrade publish link
pip pip3 pipx conda brew gem npm pnpm yarn cargo go poetry uv composer bundle: version create get sync
apt apt-get yum dnf apk pacman snap: install remove purge upgrade add del -S -R
docker podman docker-compose: run build push pull rm rmi stop start restart kill tag exec compose up
docker podman docker-compose: down
kubectl oc helm terraform pulumi: apply create delete scale rollout set patch replace expose install
kubectl oc helm terraform pulumi: upgrade rollback destroy import up
alembic flyway prisma rails manage.py: upgrade downgrade migrate stamp deploy push seed flush loaddata
alembic flyway prisma rails manage.py: db:migrate db:seed
systemctl service: start stop restart reload enable disable
gh glab aws gcloud az fly heroku vercel twine: create merge close reopen edit delete comment review put
gh glab aws gcloud az fly heroku vercel twine: update deploy set add remove cp sync mv rm upload
kill pkill killall crontab useradd userdel passwd scp rsync mount umount reboot patch:
"""
_LISTED = [line.partition(":")[::2] for line in _SUBCOMMANDS.splitlines()]
_ACTING = {
    name: frozenset().union(*(word_set(words) for others, words in _LISTED if name in others.split()))
    for names, _ in _LISTED
    for name in names.split()
}
# Options of programs that send requests: those before a method, and the beginnings of those with a body.
_METHOD = ("-X", "--request")
_BODY = ("-d", "--data", "-F", "--form", "-T", "--upload", "--post", "--json")
# Options that take a value: the word after them is not a file.
_VALUED = word_set("-n -c -e -f -A -B -C -m -t -g -d -k -o --lines --bytes --include --exclude -s -S --type")


def only_reads(command: SimpleCommand) -> bool:
    """True for a command that changes nothing."""
    if any(path != "/dev/null" for path, _ in command.outputs):
        return False
    program, words = command.program, command.words
    if program == "git":
        verb, rest = _git(words)
        # `git stash` alone stashes; `git tag` and `git branch` list.
        lists = rest[0] in _GIT_LISTS if rest else verb != "stash"
        return verb in _GIT_LOOKS or (verb in ("tag", "branch", "stash") and lists)
    if program in ("sed", "perl"):
        return not _in_place(words)
    if program in ("curl", "wget", "http"):
        return not _sends(words) and not _saved_as(words)
    if program in ("find", "fd"):
        return not {"-delete", "-exec", "-execdir", "-ok", "-x"} & set(words)
    return program in _LOOKERS or not words


def reads_of(command: SimpleCommand, folder: str) -> Iterator[str]:
    """The files, addresses and searches that a command reads. `folder`: where it runs, "" when unknown."""
    program, words = command.program, command.words[1:]
    if program in ("curl", "wget"):
        yield from (word for word in words if "://" in word)
        return
    plain = _plain_words(words)
    skipped = program in _SCRIPTED or program in _FINDERS
    paths = [_at(folder, word) for word in plain[skipped:] if is_path(word)]
    if program in _FINDERS and plain:
        where = f" in {', '.join(paths[:3])}" if paths else ""
        yield one_line(f'"{plain[0]}"{where}', LINE_CHARS)
    elif program in _SHOWERS:
        yield from paths


def _plain_words(words: Sequence[str]) -> list[str]:
    """The words that are neither options nor numbers given to options."""
    found: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
            # `sed -n 1,5p` and `grep -n word` have no value there; `head -n 5` does.
            if word.lstrip("+-").isdigit():
                continue
        if word.startswith("-") and len(word) > 1:
            skip = word in _VALUED
            continue
        found.append(word)
    return found


def changes_of(command: SimpleCommand, folder: str) -> list[FileChange | Action]:
    """The effects of the command when it succeeds. `folder`: where it runs, "" when unknown."""
    found = _changed(command, folder)
    if "*** Begin Patch" in command.text or command.program in ("apply_patch", "applypatch"):
        found += changes_of_patch(command.text or " ".join(command.words[1:]))
    # In `[ $x > 3 ]` nothing is written, and a path has a letter.
    for path, more in command.outputs if command.program not in _TESTS else ():
        if is_path(path) and any(map(str.isalpha, path)) and path[-1] != ":":
            state: FileState = "edited" if more else "created"
            written = _written(command)
            found.append(FileChange(_at(folder, path), state, detail=f"added {written}" if more else written))
    return found


def _written(command: SimpleCommand) -> str:
    """What the command writes to the file that its output is redirected to."""
    if command.text:
        return counted(command.text)
    if command.program in ("echo", "printf"):
        words = " ".join(word for word in command.words[1:] if not word.startswith("-"))
        return f'"{one_line(words, LINE_CHARS - 20)}"'
    return f"output of {one_line(' '.join(command.words), 80)}" if command.words else ""


def _changed(command: SimpleCommand, folder: str) -> list[FileChange | Action]:
    """The effects of the program, redirections apart."""
    program, words = command.program, command.words[1:]
    paths = [_at(folder, word) for word in words if not word.startswith("-") and is_path(word)]
    state: FileState = "created"
    detail = ""
    match program:
        case "rm" | "rmdir" | "unlink":
            paths, state = [] if "--cached" in words else paths, "deleted"
        case "touch" | "mkdir" | "truncate":
            detail = "folder" if program == "mkdir" else ""
        case "tee":
            paths = [path for path in paths if path != "/dev/null"]
            state = "edited" if {"-a", "--append"} & set(words) else "created"
            detail = counted(command.text) if command.text else ""
        case "chmod" | "chown":
            words = [word for word in words if not word.startswith("-R")]
            paths, state = [_at(folder, word) for word in words[1:] if is_path(word)], "edited"
            detail = f"{program} {words[0]}" if words else ""
        case "mv":
            return [FileChange(old, "moved", new) for old, new in _pairs(words, folder)]
        case "cp" | "ln" | "install":
            verb = "link to" if program == "ln" else "copy of"
            pairs = _pairs(words, folder)
            return [FileChange(new, "created", detail=f"{verb} {old}") for old, new in pairs]
        case "sed" | "perl":
            paths, detail = _substituted(command, folder)
            state = "edited"
        case "git":
            return _gitted(command, folder)
        case "patch":
            return [*changes_of_patch(command.text)] or _acted([program, *words, *command.inputs])
        case "curl" | "wget":
            return _requested(command, folder)
        case "find":
            return [Action("find", one_line(" ".join(words), LINE_CHARS), "")] if "-delete" in words else []
        case _:
            is_script = program.startswith("python") or program in ("node", "ruby")
            return _scripted(command, folder) if is_script else _acted(command.words)
    return [FileChange(path, state, detail=detail) for path in paths]


def _pairs(words: Sequence[str], folder: str) -> list[tuple[str, str]]:
    """(source, target) of each file of a command such as `mv` or `cp`."""
    plain = [word for word in words if not word.startswith("-") and is_path(word)]
    if len(plain) < 2:
        return []
    *sources, target = plain
    inside = len(sources) > 1 or target.endswith("/") or target in (".", "..")
    found = []
    for source in sources:
        name = source.rstrip("/").rpartition("/")[2]
        found.append((_at(folder, source), _at(folder, f"{target.rstrip('/')}/{name}" if inside else target)))
    return found


def _in_place(words: Sequence[str]) -> bool:
    return any(
        word.startswith("--in-place")
        or (word.startswith("-") and not word.startswith("--") and "i" in word and not word.startswith("-I"))
        for word in words[1:]
    )


def _substituted(command: SimpleCommand, folder: str) -> tuple[list[str], str]:
    """The files that `sed -i` or `perl -i` edits, and what it does in them."""
    words, program = command.words, command.program
    if not _in_place(words):
        return [], ""
    script, files, given = "", [], False
    for word in words[1:]:
        if given and not script:
            script = word
        elif word.startswith("-"):
            # The script is the word after one of these.
            is_script = word in ("-e", "--expression", "-f") or (program == "perl" and word.endswith("e"))
            given = given or is_script
        elif not given and not script:
            script = word
        elif word:
            files.append(word)
    found = _SUBSTITUTED.search(script)
    detail = f'"{found.group(2)}" -> "{found.group(3)}"' if found else f"{program} {script}"
    return [_at(folder, path) for path in files if is_path(path)], one_line(detail, LINE_CHARS)


def _git(words: Sequence[str]) -> tuple[str, list[str]]:
    """The subcommand of git and its words, without the options of git itself."""
    rest = list(words[1:])
    while rest and rest[0].startswith("-"):
        rest = rest[2:] if rest[0] in ("-C", "-c") else rest[1:]
    return (rest[0], rest[1:]) if rest else ("", [])


def _gitted(command: SimpleCommand, folder: str) -> list[FileChange | Action]:
    verb, rest = _git(command.words)
    if verb in ("rm", "mv"):
        return _changed(SimpleCommand([verb, *rest]), folder)
    if verb == "restore" or (verb == "checkout" and "--" in rest):
        paths = rest[rest.index("--") + 1 :] if "--" in rest else [p for p in rest if not p.startswith("-")]
        if "--staged" in rest and "--worktree" not in rest:
            return []
        detail = "restored by git"
        return [FileChange(_at(folder, path), "edited", detail=detail) for path in paths if is_path(path)]
    if verb in ("apply", "am") and command.text:
        return [*changes_of_patch(command.text)]
    return [] if only_reads(command) else _acted(["git", verb, *rest])


def _acted(words: Sequence[str]) -> list[FileChange | Action]:
    """The command as an action where its program and subcommand are known to act."""
    acts = _ACTING.get(words[0]) if words else None
    is_one = acts is not None and (not acts or not acts.isdisjoint(words[1:]))
    if not is_one or {"--dry-run", "--help"} & set(words):
        return []
    return [Action(" ".join(words[:2]), one_line(" ".join(words[2:]), LINE_CHARS), "")]


def _value_of(words: Sequence[str], options: Container[str]) -> Iterator[str]:
    """The words that follow one of these options."""
    return (value for word, value in zip(words, [*words[1:], ""], strict=True) if word in options)


def _sends(words: Sequence[str]) -> bool:
    """True for a request with a body or with a method other than GET and HEAD."""
    methods = (method.upper() for method in _value_of(words, _METHOD))
    return any(method not in ("GET", "HEAD") for method in methods) or any(
        word.startswith(_BODY) or word.removeprefix("-X") in ("POST", "PUT", "PATCH", "DELETE")
        for word in words
    )


def _saved_as(words: Sequence[str]) -> str:
    named = (path for path in _value_of(words, ("-o", "--output", "-O")) if is_path(path))
    return next((path for path in named if not path.startswith(("-", "http", "/dev/"))), "")


def _requested(command: SimpleCommand, folder: str) -> list[FileChange | Action]:
    words = command.words
    address = next((word for word in words[1:] if "://" in word), "")
    found: list[FileChange | Action] = []
    if _sends(words):
        found.append(Action(command.program, one_line(" ".join(words[1:]), LINE_CHARS), ""))
    if saved := _saved_as(words):
        detail = one_line(f"from {address}", LINE_CHARS)
        found.append(FileChange(_at(folder, saved), "created", detail=detail))
    return found


def _scripted(command: SimpleCommand, folder: str) -> list[FileChange | Action]:
    """Files that an inline script opens for writing by a literal name; `python -m pip install` acts."""
    words = command.words
    run = words[2:] if words[1:2] == ["-m"] else words[1:]
    if run and (acted := _acted([run[0].rpartition("/")[2], *run[1:]])):
        return acted
    text = command.text or next((v for w, v in pairwise(words) if w in ("-c", "-e")), "")
    paths = [*_OPENED.findall(text)] if "open(" in text else []
    if ".write_" in text:
        found = _PATH_VALUE.findall(text)
        paths += [path for name, path, written in found if written or (name and f"{name}.write_" in text)]
    return [FileChange(_at(folder, path), "edited", detail="by a script") for path in paths if is_path(path)]


def _at(folder: str, path: str) -> str:
    if not folder or path.startswith(("/", "~")) or folder in (".", "./"):
        return path
    return f"{folder.rstrip('/')}/{path.removeprefix('./')}"


def folder_after(command: SimpleCommand, folder: str) -> str:
    """The working folder after a command; only `cd` with a literal path changes it."""
    if command.program == "cd" and len(command.words) == 2 and is_path(command.words[1]):
        return _at(folder, command.words[1])
    return folder

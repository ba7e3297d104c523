"""Effects of a shell script: the files that it changed, the command, and what it read.

A tokenizer of words, quotes, operators and heredocs, and tables of how programs take their arguments. It runs
nothing and expands nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from palimpsest.core.notes.edits import changes_of_patch, shown_file
from palimpsest.core.notes.note import (
    COMMAND_CHARS,
    LINE_CHARS,
    Effect,
    FileChange,
    FileRead,
    FileState,
    counted,
    is_path,
    one_line,
    word_set,
)
from palimpsest.core.notes.results import Result

# Characters of a script that are split; heredocs are removed before and do not count.
_SCRIPT_CHARS = 8_000
# Limit on the heredocs of one script.
_HEREDOCS = 50
# Levels of scripts inside scripts (`bash -c "..."`).
_DEPTH = 2
_HEREDOC = re.compile(r"(?<!<)<<-?[ \t]*(['\"]?)([A-Za-z_][\w.-]*)\1")
_HEREDOC_MARK = re.compile("\0\\d+\0")
_TOKEN = re.compile(
    r"""((?:[ \t\r]|\\\r?\n)+)?(?:
    ((?:\$\((?:[^()]|\([^()]*\))*\)|`[^`]*`|\$\{[^}]*\}|[^\s'"\\;&|<>()\#`$0-9]|(?<=[^\s;&|()])\#|\d+(?![\d<>])|\$)+)
    |'([^']*)'|"((?:[^"\\]|\\.)*)"|(&&|\|\||;;|[;\n]|\|&?|&(?!>)|[()])
    |((?:\d|&)?>>|(?:\d|&)?>\|?(?:&[\d-])?|<<<|<&|<)|(\#[^\n]*)|\\?(.))""",
    re.VERBOSE | re.DOTALL,
)
# The groups of the pattern above.
_BLANK, _PLAIN, _SINGLE, _DOUBLE, _OPERATOR, _REDIRECT, _COMMENT = range(1, 8)
_ESCAPED = re.compile(r"\\([\"\\$`])")
_ASSIGNED = re.compile(r"[A-Za-z_]\w*\+?=")
_KEYWORDS = word_set("then do else elif if while until ! time { } fi done esac")
# Programs that run the rest of the line as a command, and their options that take a value.
_RUNNERS = word_set("sudo nohup exec command builtin stdbuf nice env doas xargs timeout")
_RUNNERS_VALUED = word_set("-u -n -g -I -P -L")
_SHELLS = word_set("bash sh zsh dash ash")
# SWE-agent's editor: `create F`, `edit N:M`, the new lines, `end_of_edit`.
_EDITOR = re.compile(
    r"\s*(?:create \S+\s*\Z|edit (?P<lines>\d+:\d+)[ \t]*\n(?P<text>.*?)\n?end_of_edit\b)", re.DOTALL
)
_SUBSTITUTED = re.compile(r"s(?P<mark>[^\w\s\\])(.+?)(?<!\\)(?P=mark)(.*?)(?<!\\)(?P=mark)")
# Files that a script in Python or JavaScript opens for writing by a literal name.
_OPENED = re.compile(r"""\bopen\(\s*[rf]?["']([^"'\n]+)["']\s*,\s*(?:mode=)?["'][wa]""")
_PATH_VALUE = re.compile(r"""(?:(\w+)\s*=\s*)?\bPath\(\s*["']([^"'\n]+)["']\s*\)(\.write_\w+\()?""")

_TESTS = ("[", "[[", "test")
_PATCHERS = ("apply_patch", "applypatch")
# Programs that change nothing; those that show the files they are given, whose first word is a script or is
# looked for, and that exit with 1 to answer "no".
_LOOKERS = word_set(
    "ls cat bat head tail less more nl grep egrep fgrep rg ag ack find fd tree wc pwd which whereis"
    " type whoami id date echo printf stat file du df ps top env printenv uname hostname sort uniq cut"
    " awk gawk diff cmp jq yq column tr xxd od hexdump strings basename dirname realpath readlink test ["
    " [[ true false sleep history man seq md5sum sha256sum sha1sum free uptime lsof netstat ss dig"
    " nslookup ping set export cd pushd popd source . alias unset local read wait jobs for case select"
    " function return exit break continue shift clear fold paste comm join expr let tldr help locate"
    " lscpu nproc groups getent ip ifconfig"
)
_SHOWERS = word_set("cat bat head tail less more nl sed awk gawk jq yq stat file xxd strings diff")
_SCRIPTED = word_set("sed awk gawk jq yq")
_FINDERS = word_set("grep egrep fgrep rg ag ack")
_ANSWERING = _FINDERS | word_set("diff cmp test [ [[ which type git")
# With their output redirected they do nothing but write that file.
_WRITING = word_set("cat echo printf")
# Options that take a value: a number after them is not a file.
_VALUED = word_set("-n -c -e -f -A -B -C -m -t -g -d -k -o --lines --bytes --include --exclude -s -S --type")
_GIT_LOOKS = word_set(
    "status log diff show blame grep ls-files ls-tree rev-parse describe shortlog reflog cat-file"
    " config remote fetch add rev-list merge-base name-rev whatchanged help version check-ignore bisect"
    " worktree"
)
_GIT_LISTS = word_set("-l --list -a -v -vv -r list show --show-current")
# Programs that change more than files, and the subcommands that do; none: every call does.
_ACTING = {
    **dict.fromkeys(
        word_set("git"),
        word_set(
            "commit push merge revert tag stash rebase cherry-pick reset clone init switch branch checkout"
            " pull am apply submodule clean"
        ),
    ),
    **dict.fromkeys(
        word_set(
            "pip pip3 pipx conda brew gem npm pnpm yarn cargo go poetry uv composer bundle apt apt-get yum"
            " dnf apk pacman snap docker podman docker-compose kubectl oc helm terraform pulumi alembic"
            " flyway prisma rails manage.py systemctl service gh glab aws gcloud az fly heroku vercel twine"
        ),
        word_set(
            "install uninstall i add ci remove rm rmi update upgrade downgrade publish link version create"
            " sync purge del -S -R push pull stop restart reload enable disable kill tag compose apply"
            " delete scale rollout set patch replace expose rollback destroy migrate stamp deploy seed flush"
            " loaddata db:migrate db:seed merge close reopen edit comment review put cp upload"
        ),
    ),
    **dict.fromkeys(
        word_set("kill pkill killall crontab useradd userdel passwd scp rsync mount umount reboot patch"),
        frozenset[str](),
    ),
}


@dataclass(slots=True)
class SimpleCommand:
    """One simple command.

    `outputs`: (file, whether it is appended to). `text`: its heredoc. `joined_by`: the operator before it.
    """

    words: list[str] = field(default_factory=list)
    outputs: list[tuple[str, bool]] = field(default_factory=list)
    text: str = ""
    joined_by: str = ""

    @property
    def program(self) -> str:
        """The program's name without its folder, "" when none is run."""
        return self.words[0].rpartition("/")[2] if self.words else ""


def effects_of_script(script: str, result: Result | None) -> tuple[Effect, ...]:
    """The effects in order: changes of files, then the command. A script that only reads has its reads."""
    if result and (found := _by_editor(script, result)):
        return found
    plain, texts = _without_heredocs(script)
    commands = _simple_commands(plain, texts)
    looks = all(map(_only_reads, commands))
    read: dict[str, None] = {}
    folder = ""
    for each in commands if looks else ():
        folder = _folder_after(each, folder)
        read |= dict.fromkeys(_reads_of(each, folder))
    reads = tuple(FileRead(each, result.short() if result and len(read) == 1 else ()) for each in read)
    if result is None:
        return reads
    ok = None if result.running else not result.failed(quoting=looks)
    if result.code == 1 and looks and commands and commands[-1].program in _ANSWERING:
        # "Nothing found" and "they differ" are answers, not failures.
        ok = not Result(result.head, result.tail, None).failed(quoting=True)
    if looks and ok is not False:
        return reads
    done = tuple(dict.fromkeys(_certain_changes(commands, result, ok is not False)))
    runs = [each for each in commands if each.program != "cd"]
    if runs and all(each.program in _PATCHERS for each in runs):
        if ok is False:
            paths = [change.path for each in runs for change in _changes_of(each, "")]
            return (result.failure(f"apply_patch {', '.join(paths)}", *paths),)
        if done:
            return done
    command = result.command(line_of(plain), ok)
    if ok and any(map(_acts, commands)):
        command = replace(command, does="more")
    elif ok and all(map(_only_changes_files, commands)):
        command = replace(command, does="files")
    return (*done, command)


def line_of(script: str) -> str:
    """The script on one line, heredocs left out, in at most 200 characters."""
    return one_line(_HEREDOC_MARK.sub("<<EOF ...", script), COMMAND_CHARS)


def _by_editor(script: str, result: Result) -> tuple[Effect, ...]:
    """The change by an editor that is called through a shell; what it puts in is no shell.

    The file is the one that the result shows as open.
    """
    call = _EDITOR.match(script)
    path = shown_file(result) if call else ""
    if call and result.not_applied():
        tried = f"{one_line(call[0], LINE_CHARS)} {path}".strip()
        return (result.failure(tried, path or call["lines"] or ""),)
    if not call or not path:
        return ()
    if call["lines"] is None:
        return (FileChange(path, "created"),)
    text = one_line(" / ".join(filter(None, map(str.strip, call["text"].split("\n")))), LINE_CHARS - 30)
    return (FileChange(path, "edited", detail=f'lines {call["lines"]} now "{text}"'),)


def _certain_changes(commands: Sequence[SimpleCommand], result: Result, ok: bool) -> Iterator[FileChange]:
    """The changes that surely took place. A failed script counts up to the command that may have stopped it.

    Programs name themselves when they fail ("rm: cannot remove"). After a program that reports nothing, a
    command joined by && may not have run. Commands after || are left out: nobody knows whether they ran.
    """
    folder, runs = "", True
    for each in commands:
        folder = _folder_after(each, folder)
        runs = each.joined_by != "||" and (runs or each.joined_by in (";", "\n", "&"))
        changes = _changes_of(each, folder) if runs else []
        if runs and not ok:
            blamed = f"{each.program}: "
            runs = blamed not in result.head and blamed not in result.tail
            changes = changes if runs else []
            runs = runs and (bool(changes) or _only_reads(each))
        yield from changes


def _without_heredocs(script: str) -> tuple[str, list[str]]:
    """The script with a mark in place of each heredoc's text, and the texts."""
    script = script.replace("\0", "")
    parts: list[str] = []
    texts: list[str] = []
    place = 0
    while len(texts) < _HEREDOCS and (found := _HEREDOC.search(script, place)):
        begin = script.find("\n", found.end())
        closing = re.compile(rf"\n[ \t]*{re.escape(found[2])}(?=[\n\r)\"']|\Z)")
        end = closing.search(script, begin) if begin >= 0 else None
        if end is None:
            break
        # The rest of the line still belongs to the command.
        parts.append(f"{script[place : found.start()]} \0{len(texts)}\0 {script[found.end() : begin]}")
        texts.append(script[begin + 1 : end.start() + 1])
        place = end.end()
    return "".join([*parts, script[place:]]), texts


def _simple_commands(script: str, texts: Sequence[str], depth: int = 0) -> list[SimpleCommand]:
    """The simple commands of a script without heredocs; `bash -c "..."` is replaced by its commands.

    Only the first 8,000 characters are split. `depth`: the number of scripts around this one.
    """
    found: list[SimpleCommand] = []
    current = SimpleCommand()
    for word, redirect, joint in [*_tokens(script[:_SCRIPT_CHARS]), ("", "", "\n")]:
        if joint:
            if current.words or current.outputs:
                found.append(current)
                current = SimpleCommand(joined_by=joint)
            elif joint not in ("\n", "("):
                current.joined_by = joint
        elif redirect:
            # A file for error messages is a by-product, and a closed stream is not a file.
            if redirect[0] not in "<2" and "&" not in redirect[1:] and word != "/dev/null":
                current.outputs.append((word, ">>" in redirect))
        elif word[:1] == "\0":
            number = word.strip("\0")
            current.text = texts[int(number)] if number.isdigit() and int(number) < len(texts) else ""
        else:
            current.words.append(word)
    return [inner for each in found for inner in _unwrapped(each, texts, depth)]


def _tokens(script: str) -> Iterator[tuple[str, str, str]]:
    """(word, redirect before it, operator): a word joined of its quoted pieces, or an operator."""
    word: str | None = None
    redirect = ""
    for match in _TOKEN.finditer(script.rstrip()):
        kind = match.lastindex or 0
        if word is not None and (kind in (_OPERATOR, _REDIRECT, _COMMENT) or match.start(_BLANK) >= 0):
            yield word, redirect, ""
            word, redirect = None, ""
        if kind == _OPERATOR:
            yield "", "", match[_OPERATOR]
        elif kind == _REDIRECT:
            redirect = match[_REDIRECT] if "&" not in match[_REDIRECT][1:] else ""
        elif kind != _COMMENT:
            piece = match[kind]
            if kind == _DOUBLE and "\\" in piece:
                piece = _ESCAPED.sub(r"\1", piece)
            word = piece if word is None else word + piece
    if word is not None:
        yield word, redirect, ""


def _unwrapped(command: SimpleCommand, texts: Sequence[str], depth: int) -> list[SimpleCommand]:
    """The command without its prefixes: keywords, assignments, `sudo`, `timeout 5`, `bash -c`."""
    words = command.words
    while words and (words[0] in _KEYWORDS or words[0] in _RUNNERS or _ASSIGNED.match(words[0])):
        takes_options, words = words[0] in _RUNNERS, words[1:]
        while takes_options and words and (words[0].startswith("-") or words[0][:1].isdigit()):
            words = words[1 + (words[0] in _RUNNERS_VALUED) :]
    command.words = words
    if command.program in _SHELLS and depth < _DEPTH and len(words) > 2 and words[1].endswith("c"):
        inner, more = _without_heredocs(words[2])
        return _simple_commands(inner, more or texts, depth + 1)
    return [command] if words or command.outputs else []


def _folder_after(command: SimpleCommand, folder: str) -> str:
    """The working folder after a command; only `cd` with a literal path changes it."""
    if command.program == "cd" and len(command.words) == 2 and is_path(command.words[1]):
        return _at(folder, command.words[1])
    return folder


def _at(folder: str, path: str) -> str:
    if not folder or path.startswith(("/", "~")) or folder in (".", "./"):
        return path
    return f"{folder.rstrip('/')}/{path.removeprefix('./')}"


def _only_reads(command: SimpleCommand) -> bool:
    """True for a command that changes nothing."""
    program, words = command.program, command.words
    if any(path != "/dev/null" for path, _ in command.outputs):
        return False
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


def _reads_of(command: SimpleCommand, folder: str) -> Iterator[str]:
    """The files, addresses and searches that a command reads. `folder`: where it runs, "" when unknown."""
    program, words = command.program, command.words[1:]
    if program in ("curl", "wget"):
        yield from (word for word in words if "://" in word)
    if program not in _FINDERS | _SHOWERS:
        return
    # `sed -n 1,5p` and `grep -n word` have no value there; `head -n 5` does.
    plain = [
        word
        for before, word in pairwise(["", *words])
        if not (word.startswith("-") and len(word) > 1)
        and not (before in _VALUED and word.lstrip("+-").isdigit())
    ]
    paths = [_at(folder, word) for word in plain[program in _SCRIPTED | _FINDERS :] if is_path(word)]
    if program in _SHOWERS:
        yield from paths
    elif plain:
        where = f" in {', '.join(paths[:3])}" if paths else ""
        yield one_line(f'"{plain[0]}"{where}', LINE_CHARS)


def _changes_of(command: SimpleCommand, folder: str) -> list[FileChange]:
    """The changes by the command when it succeeds. `folder`: where it runs, "" when unknown."""
    found = _changed(command, folder)
    if "*** Begin Patch" in command.text or command.program in _PATCHERS:
        found += changes_of_patch(command.text or " ".join(command.words[1:]))
    written = f"output of {one_line(' '.join(command.words), 80)}" if command.words else ""
    if command.program in ("echo", "printf"):
        said = " ".join(word for word in command.words[1:] if not word.startswith("-"))
        written = f'"{one_line(said, LINE_CHARS - 20)}"'
    written = counted(command.text) if command.text else written
    # In `[ $x > 3 ]` nothing is written, and a path has a letter.
    for path, more in command.outputs if command.program not in _TESTS else ():
        if is_path(path) and any(map(str.isalpha, path)) and path[-1] != ":":
            state: FileState = "edited" if more else "created"
            found.append(FileChange(_at(folder, path), state, detail=f"added {written}" if more else written))
    return found


def _changed(command: SimpleCommand, folder: str) -> list[FileChange]:
    """The changes by the program, redirections apart."""
    program, words = command.program, command.words[1:]
    plain = [word for word in words if not word.startswith("-") and is_path(word)]
    paths = [_at(folder, word) for word in plain]
    match program:
        case "rm" | "rmdir" | "unlink":
            return [FileChange(path, "deleted") for path in paths if "--cached" not in words]
        case "touch" | "mkdir" | "truncate":
            detail = "folder" if program == "mkdir" else ""
            return [FileChange(path, "created", detail=detail) for path in paths]
        case "tee":
            state: FileState = "edited" if {"-a", "--append"} & set(words) else "created"
            files = (path for path in paths if path != "/dev/null")
            return [
                FileChange(path, state, detail=counted(command.text) if command.text else "")
                for path in files
            ]
        case "chmod" | "chown":
            detail = f"{program} {plain[0]}" if plain else ""
            return [FileChange(path, "edited", detail=detail) for path in paths[1:]]
        case "mv" | "cp" | "ln" | "install" if len(plain) > 1:
            *sources, target = paths
            inside = len(sources) > 1 or target.endswith("/") or plain[-1] in (".", "..")
            pairs = [(s, f"{target.rstrip('/')}/{s.rstrip('/').rpartition('/')[2]}") for s in sources]
            pairs = pairs if inside else [(sources[0], target)]
            if program == "mv":
                return [FileChange(old, "moved", new) for old, new in pairs]
            verb = "link to" if program == "ln" else "copy of"
            return [FileChange(new, "created", detail=f"{verb} {old}") for old, new in pairs]
        case "sed" | "perl" if _in_place(command.words):
            return _substituted(program, words, folder)
        case "git":
            return _gitted(command, folder)
        case "patch":
            return [*changes_of_patch(command.text)]
        case "curl" | "wget" if saved := _saved_as(words):
            detail = one_line(f"from {next((word for word in words if '://' in word), '')}", LINE_CHARS)
            return [FileChange(_at(folder, saved), "created", detail=detail)]
    if not program.startswith(("python", "node", "ruby")):
        return []
    text = command.text or next((v for w, v in pairwise(words) if w in ("-c", "-e")), "")
    written = [*_OPENED.findall(text)]
    named = _PATH_VALUE.findall(text) if ".write_" in text else []
    written += [path for name, path, direct in named if direct or (name and f"{name}.write_" in text)]
    return [FileChange(_at(folder, p), "edited", detail="by a script") for p in written if is_path(p)]


def _substituted(program: str, words: Sequence[str], folder: str) -> list[FileChange]:
    """The files that `sed -i` or `perl -i` edits, and what it does in them: the first word is the script."""
    plain = [(before, word) for before, word in pairwise(["", *words]) if word and word[0] != "-"]
    files = [word for before, word in plain[1:] if before != "-e" and is_path(word)]
    script = plain[0][1] if plain else ""
    found = _SUBSTITUTED.search(script)
    detail = one_line(f'"{found[2]}" -> "{found[3]}"' if found else f"{program} {script}", LINE_CHARS)
    return [FileChange(_at(folder, path), "edited", detail=detail) for path in files]


def _git(words: Sequence[str]) -> tuple[str, list[str]]:
    """The subcommand of git and its words, without the options of git itself."""
    rest = list(words[1:])
    while rest and rest[0].startswith("-"):
        rest = rest[2:] if rest[0] in ("-C", "-c") else rest[1:]
    return (rest[0], rest[1:]) if rest else ("", [])


def _gitted(command: SimpleCommand, folder: str) -> list[FileChange]:
    verb, rest = _git(command.words)
    if verb in ("rm", "mv"):
        return _changed(SimpleCommand([verb, *rest]), folder)
    if verb in ("apply", "am"):
        return [*changes_of_patch(command.text)]
    if _restores(verb, rest) and ("--staged" not in rest or "--worktree" in rest):
        paths = rest[rest.index("--") + 1 :] if "--" in rest else [p for p in rest if not p.startswith("-")]
        detail = "restored by git"
        return [FileChange(_at(folder, path), "edited", detail=detail) for path in paths if is_path(path)]
    return []


def _restores(verb: str, rest: Sequence[str]) -> bool:
    return verb == "restore" or (verb == "checkout" and "--" in rest)


def _only_changes_files(command: SimpleCommand) -> bool:
    """True for a command that only reads, or that changes files and nothing else."""
    is_writer = not command.outputs or command.program in _WRITING
    return _only_reads(command) or (is_writer and bool(_changes_of(command, "")))


def _acts(command: SimpleCommand) -> bool:
    """True for a command that changes more than files: its program and its subcommand are known to."""
    words = command.words
    if _only_reads(command) or {"--dry-run", "--help"} & set(words) or _changed(command, ""):
        return False
    if command.program in ("curl", "wget", "find"):
        return _sends(words) or "-delete" in words
    if command.program.startswith("python"):
        # `python -m pip install`, `python manage.py migrate`.
        words = words[2 if words[1:2] == ["-m"] else 1 :]
    name = words[0].rpartition("/")[2] if words else ""
    verbs = _ACTING.get(name)
    return verbs is not None and (not verbs or not verbs.isdisjoint(words[1:]))


def _in_place(words: Sequence[str]) -> bool:
    short = (word for word in words[1:] if word[:1] == "-" and word[:2] not in ("--", "-I"))
    return any("i" in word for word in short) or any(word.startswith("--in-place") for word in words)


def _sends(words: Sequence[str]) -> bool:
    """True for a request with a body or with a method other than GET and HEAD."""
    methods = [value.upper() for word, value in pairwise(words) if word in ("-X", "--request")]
    body = ("-d", "--data", "-F", "--form", "-T", "--upload", "--post", "--json")
    return any(method not in ("GET", "HEAD") for method in methods) or any(
        word.startswith(body) or word.removeprefix("-X") in ("POST", "PUT", "PATCH", "DELETE")
        for word in words
    )


def _saved_as(words: Sequence[str]) -> str:
    named = (path for word, path in pairwise(words) if word in ("-o", "--output", "-O") and is_path(path))
    return next((path for path in named if not path.startswith(("-", "http", "/dev/"))), "")

"""A shell script as its simple commands: words, outputs and heredocs of each, and what joins them.

A tokenizer of words, quotes, operators and heredocs; it runs nothing and expands nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from palimpsest.core.notes.note import word_set

# Characters of a script that are split; heredocs are removed before and do not count.
_SCRIPT_CHARS = 8_000
# Limits on the heredocs of one script, and on the lines that begin like the end of one.
_HEREDOCS, _CLOSINGS = 50, 200
# Levels of scripts inside scripts (`bash -c "..."`).
_DEPTH = 2
_HEREDOC = re.compile(r"(?<!<)<<-?[ \t]*(['\"]?)([A-Za-z_][\w.-]*)\1")
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
# Programs that run the rest of the line as a command. Not all of their options with values are known.
_RUNNERS = word_set("sudo nohup exec command builtin stdbuf nice env doas xargs")
_SHELLS = word_set("bash sh zsh dash ash /bin/bash /bin/sh /usr/bin/bash /bin/zsh")


@dataclass(slots=True)
class SimpleCommand:
    """One simple command.

    `outputs`: (file, whether it is appended to). `text`: its heredoc. `joined_by`: the operator before it.
    `inputs`: files it reads from.
    """

    words: list[str] = field(default_factory=list)
    outputs: list[tuple[str, bool]] = field(default_factory=list)
    text: str = ""
    joined_by: str = ""
    inputs: list[str] = field(default_factory=list)

    @property
    def program(self) -> str:
        """The program's name without its folder, "" when none is run."""
        return self.words[0].rpartition("/")[2] if self.words else ""


def without_heredocs(script: str) -> tuple[str, list[str]]:
    """The script with a mark in place of each heredoc's text, and the texts."""
    script = script.replace("\0", "")
    if "<<" not in script:
        return script, []
    parts: list[str] = []
    texts: list[str] = []
    place = 0
    while len(texts) < _HEREDOCS and (found := _HEREDOC.search(script, place)):
        begin = script.find("\n", found.end())
        end = _closing(script, begin, found.group(2)) if begin >= 0 else None
        if end is None:
            break
        # The rest of the line still belongs to the command.
        parts.append(f"{script[place : found.start()]} \0{len(texts)}\0 {script[found.end() : begin]}")
        texts.append(script[begin + 1 : end[0]])
        place = end[1]
    parts.append(script[place:])
    return "".join(parts), texts


def _closing(script: str, begin: int, word: str) -> tuple[int, int] | None:
    """Where a heredoc's text ends, and where the script continues; None when it is never closed."""
    for indent in ("\n", "\n\t", "\n  "):
        at = begin - 1
        for _ in range(_CLOSINGS):
            at = script.find(indent + word, at + 1)
            after = at + len(indent) + len(word)
            if at < 0 or script[after : after + 1] in ("", "\n", "\r", ")", '"', "'"):
                break
        if at >= 0:
            return at + 1, after
    return None


def simple_commands(script: str, texts: Sequence[str], depth: int = 0) -> list[SimpleCommand]:
    """The simple commands of a script without heredocs; `bash -c "..."` is replaced by its commands.

    Only the first 8,000 characters are split. `depth`: the number of scripts around this one.
    """
    found: list[SimpleCommand] = []
    current = SimpleCommand()
    for word, redirect, joint in _tokens(script[:_SCRIPT_CHARS]):
        if joint:
            if current.words or current.outputs:
                found.append(current)
                current = SimpleCommand(joined_by=joint)
            elif joint not in ("\n", "("):
                current.joined_by = joint
        elif redirect:
            _redirect(current, word, redirect)
        elif word[:1] == "\0":
            number = word.strip("\0")
            current.text = texts[int(number)] if number.isdigit() and int(number) < len(texts) else ""
        else:
            current.words.append(word)
    if current.words or current.outputs:
        found.append(current)
    return [inner for each in found for inner in _unwrapped(each, texts, depth)]


def _redirect(current: SimpleCommand, word: str, redirect: str) -> None:
    if redirect[0] == "<":
        current.inputs.append(word)
    # A file for error messages is a by-product, and a closed stream is not a file.
    elif redirect[0] != "2" and "&" not in redirect[1:] and word != "/dev/null":
        current.outputs.append((word, ">>" in redirect))


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
    while words:
        first = words[0]
        if first in _KEYWORDS or _ASSIGNED.match(first):
            words = words[1:]
        elif first in _RUNNERS and len(words) > 1:
            words = words[1:]
            while words and words[0].startswith("-"):
                words = words[2:] if words[0] in ("-u", "-n", "-g", "-I", "-P", "-L") else words[1:]
        elif first == "timeout" and len(words) > 2:
            words = words[1:]
            while words and (words[0].startswith("-") or words[0][:1].isdigit()):
                words = words[1:]
        else:
            break
    command.words = list(words)
    if command.program in _SHELLS and depth < _DEPTH and len(words) > 2 and words[1].endswith("c"):
        inner, more = without_heredocs(words[2])
        return simple_commands(inner, more or texts, depth + 1)
    return [command] if words or command.outputs else []

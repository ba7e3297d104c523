"""Facts about the environment, from clients' blocks, from sentences and from the output of shells.

Tables of the spellings in use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from palimpsest.core.notes.sentences import sentences_of
from palimpsest.core.summary.working.state import EnvironmentFact
from palimpsest.core.text.message_text import headline, on_one_line

# Limit on the facts, and characters of a name or a value.
_MOST, _CHARS = 20, 200
# Characters at each end of a long text that are read; preambles state the environment there.
_READ_CHARS = 20_000
_LABELS = (
    "working directory",
    "current working directory",
    "current directory",
    "workspace",
    "workspace path",
    "workspace folder",
    "project root",
    "home directory",
    "is directory a git repo",
    "platform",
    "os version",
    "operating system",
    "shell",
    "default shell",
    "timezone",
    "today's date",
    "current date",
    "git branch",
    "current branch",
    "main branch",
    "python version",
    "node version",
)
_LABELLED = re.compile(
    rf"^[ \t]*(?:[-*][ \t]+)?(?:\*\*)?({'|'.join(map(re.escape, _LABELS))})(?:\*\*)?[ \t]*[:=][ \t]*(\S.*)$",
    re.IGNORECASE | re.MULTILINE,
)
_TAGGED = re.compile(r"<(cwd|shell|current_date|timezone|os|platform)>([^<\n]{1,300})</\1>")
_TAG_NAMES = {
    "cwd": "Working directory",
    "shell": "Shell",
    "current_date": "Current date",
    "timezone": "Timezone",
    "os": "Operating system",
    "platform": "Platform",
}
# Blocks that clients add to user messages.
_BLOCK = re.compile(
    r"<(env|environment_context|environment_details|system-reminder|user_instructions|user_info|INSTRUCTIONS)>"
)
# Languages, platforms, tools and databases that sentences name with a version.
_VERSIONED_TEXT = """
    Python Node.js Node Deno Bun Java Kotlin Scala Golang Ruby PHP Perl TypeScript PostgreSQL Postgres MySQL
    MariaDB SQLite Redis Valkey MongoDB Elasticsearch Kafka RabbitMQ Docker Kubernetes Terraform Django Flask
    FastAPI React Vue Angular Rails Laravel Ubuntu Debian Fedora Alpine Windows macOS CUDA PyTorch npm Gradle
"""
_VERSIONED = {name.lower(): name for name in _VERSIONED_TEXT.split()}
_WITH_VERSION = re.compile(
    rf"(?<![\w./-])({'|'.join(map(re.escape, sorted(_VERSIONED, key=len, reverse=True)))})"
    r"\s+(?:version\s+)?v?(\d+(?:\.\d+){0,3})(?![\w/%])",
    re.IGNORECASE,
)
_RUNS_ON = re.compile(
    r"\b(?:runs?|running|deployed|hosted|are|am|is)\s+(?:on|under)\s+"
    r"(Linux|Windows|macOS|WSL2?|Ubuntu|Debian|Fedora|Alpine|Docker|Kubernetes|AWS|Azure|GCP)\b",
    re.IGNORECASE,
)
_PLACED = re.compile(
    r"\b(?:project|repository|repo|code|workspace|working directory)\s+(?:(?:is|lives|sits)\s+)?"
    r"(?:(?:in|at|under)\s+)?[`\"']?((?:~|\.{1,2})?(?:/[\w.+-]*\w)+)",
    re.IGNORECASE,
)
_BRANCHED = re.compile(
    r"\b(?:on (?:the )?branch|branch (?:is|called|named))\s+[`\"']?([\w./-]*\w)", re.IGNORECASE
)
# A sentence that negates, asks, or tells of the past states no fact.
_DENIED = re.compile(
    r"\b(?:not|never|no longer|isn['’]t|aren['’]t|don['’]t|instead of|used to|if)\b|\?\s*$", re.IGNORECASE
)
_VERSION_OF = re.compile(
    r"\s*([\w.+-]+)\s+(?:--version|-v|-V|version)\s*(?:2>&1)?\s*\Z",
)
_BRANCH = re.compile(r"^On branch (\S+)\s*$", re.MULTILINE)
# Commands that print a fact in their first line, and the fact's name.
_ASKED = (
    (re.compile(r"\s*pwd\s*\Z"), "Working directory"),
    (re.compile(r"\s*uname\b[\s\w-]*\Z"), "Operating system"),
    (re.compile(r"\s*git (?:branch --show-current|rev-parse --abbrev-ref HEAD)\s*\Z"), "Git branch"),
    (re.compile(r"\s*whoami\s*\Z"), "User"),
    (re.compile(r"\s*hostname\s*\Z"), "Host"),
)


def declared_facts(text: str) -> list[EnvironmentFact]:
    """The facts in an instruction or in a client's block, in order."""
    if len(text) > 2 * _READ_CHARS:
        text = f"{text[:_READ_CHARS]}\n{text[-_READ_CHARS:]}"
    labelled = [(m.start(), m[1][:1].upper() + m[1][1:], m[2]) for m in _LABELLED.finditer(text)]
    tagged = [(m.start(), _TAG_NAMES[m.group(1)], m.group(2)) for m in _TAGGED.finditer(text)]
    return [EnvironmentFact(name, value.strip().strip("*")) for _, name, value in sorted(labelled + tagged)]


def stated_facts(text: str) -> list[EnvironmentFact]:
    """The facts in ordinary sentences: versions, platform, folder and branch (D09)."""
    said = [sentence for sentence in sentences_of(text) if not _DENIED.search(sentence)]
    return [fact for sentence in said for fact in _facts_in(sentence)]


def _facts_in(sentence: str) -> Iterator[EnvironmentFact]:
    for name, version in _WITH_VERSION.findall(sentence):
        yield EnvironmentFact(f"{_VERSIONED[name.lower()]} version", version)
    yield from (EnvironmentFact("Platform", platform) for platform in _RUNS_ON.findall(sentence))
    yield from (EnvironmentFact("Working directory", folder) for folder in _PLACED.findall(sentence))
    yield from (EnvironmentFact("Git branch", branch) for branch in _BRANCHED.findall(sentence))


def client_blocks(text: str) -> tuple[str, str]:
    """A user message as (the user's text, the blocks that the client added)."""
    said: list[str] = []
    added: list[str] = []
    unclosed: set[str] = set()
    at = 0
    for match in _BLOCK.finditer(text):
        closing = f"</{match.group(1)}>"
        # An unclosed tag is the user's own text; its end is searched only once.
        if match.start() < at or closing in unclosed:
            continue
        end = text.find(closing, match.end())
        if end < 0:
            unclosed.add(closing)
            continue
        said.append(text[at : match.start()])
        at = end + len(closing)
        added.append(text[match.start() : at])
    said.append(text[at:])
    return "".join(said).strip(), "\n".join(added)


def shell_facts(command: str, output: str) -> list[EnvironmentFact]:
    """The facts in the output of a command that asks for them."""
    first = next((line.strip() for line in output.splitlines() if line.strip()), "")
    if not first:
        return []
    version = _VERSION_OF.match(command)
    if version and any(c.isdigit() for c in first):
        return [EnvironmentFact(f"{version.group(1)} version", first)]
    found = [EnvironmentFact(name, first) for pattern, name in _ASKED if pattern.match(command)]
    branch = _BRANCH.search(output[:_READ_CHARS]) if "git status" in command else None
    return [*found, EnvironmentFact("Git branch", branch.group(1))] if branch else found


def with_facts(
    known: Sequence[EnvironmentFact], facts: Iterable[EnvironmentFact]
) -> tuple[EnvironmentFact, ...]:
    """`known` with `facts` added; a newer value of a name replaces the older one in its place."""
    found = {fact.name.lower(): fact for fact in known}
    for fact in facts:
        name, value = (headline(on_one_line(each), _CHARS) for each in (fact.name, fact.value))
        found[fact.name.lower()] = EnvironmentFact(name, value)
    return tuple(found.values())[-_MOST:]

"""The tables of languages in `cues/`, one file per language, read once.

The head of `cues/en.txt` explains the format.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files

CODES = ("en", "de", "fr", "es", "pt", "it", "nl", "pl", "ru", "ja", "zh", "ko")
# Written without spaces between words.
_UNSPACED = frozenset({"zh", "ja"})
# Endings and particles are joined to words, so that a cue's word may stand inside another one.
_JOINED = frozenset({"zh", "ja", "ko"})
_KEYS = (
    *("script", "words", "common", "leads", "asks", "assent", "filler", "offer", "request"),
    *("months", "weekdays", "is", "be", "intends", "picture"),
)
_ENTRY = re.compile(r"([a-z]+): *(.*)")
_TOKEN = re.compile(r"!?\([^)]*\)|\S+")
_BETWEEN_WORDS = r"[\s\"':]+"
# What "..." in a cue may match: a clause, not a paragraph.
_GAP = r"[^.!?;。！？]{0,60}"
# Greedy up to a space: a literal after it lets the matcher skip everything else.
_SPACED_GAP = _GAP + " "
_NUMBER = r"(?:[$€£¥]|usd|eur)?\s?\d[\d.,]*"
# ' and - stay: "don't" and "off-limits" are words.
_PUNCTUATION = str.maketrans(dict.fromkeys('.,;:!?()[]{}"“”„«»*_`…¿¡<>|/=+~#', " "))
# About how much more frequent a function word is than another word of its length.
_FUNCTION_WORD = 8.0
# Characters that end a clause or surround leads.
_MARKS = ".!?;:,()–—-#>_\n\t \"'。！？，、：；「」（）"
_TYPOGRAPHIC = str.maketrans("’‘＇", "'''")


def plain(text: str) -> str:
    """`text` as cues are matched: lower case, straight apostrophes, no marks of emphasis."""
    text = text.lower()
    if not text.isascii():
        text = text.translate(_TYPOGRAPHIC)
    return text.replace("*", "").replace("`", "")


def words_in(plain_text: str) -> frozenset[str]:
    """The distinct words of a plain text; text without spaces is one word."""
    return frozenset(plain_text.translate(_PUNCTUATION).split())


@dataclass(frozen=True, slots=True)
class Cue:
    """One line of a table; `pattern` is matched against plain text."""

    mark: str
    """"?": it holds in questions too; "-": it takes the sentence out."""
    place: str
    """"^": it opens the sentence; "~": the sentence or a clause; "": it stands anywhere."""
    pattern: str
    triggers: frozenset[str]
    """Every text that the cue matches has one of these words."""
    needs: frozenset[str]
    """Such a text has one of these words too; empty where the cue has no further word."""


class Language:
    """One table. Its patterns are compiled on first use."""

    def __init__(self, code: str, table: str) -> None:
        self.code = code
        self._entries: dict[str, list[str]] = {key: [] for key in _KEYS}
        self._lines: list[str] = []
        for line in table.splitlines():
            self._read(line.strip())
        self.spaced = code not in _UNSPACED
        self.joined = code in _JOINED
        self.cues = tuple(self._cue(line) for line in self._lines)

    def __getitem__(self, key: str) -> list[str]:
        """The comma-separated entries under a key of the table, in order."""
        return self._entries[key]

    @cached_property
    def identifying(self) -> frozenset[str]:
        """All words that identify a text in the language."""
        return frozenset((*self["words"], *self["common"]))

    @cached_property
    def by_trigger(self) -> dict[str, tuple[Cue, ...]]:
        """The cues that may match a text with a word, by that word."""
        found: dict[str, list[Cue]] = {}
        for cue in self.cues:
            for word in cue.triggers if cue.mark != "-" else ():
                found.setdefault(word, []).append(cue)
        return {word: tuple(cues) for word, cues in found.items()}

    @cached_property
    def script(self) -> re.Pattern[str] | None:
        """A character that identifies the language; the first language in `CODES` that matches counts."""
        return re.compile(f"[{''.join(self['script'])}]") if self["script"] else None

    def matches(self, low: str, words: frozenset[str], trigger: str, asks: bool) -> bool:
        """True when a cue of that trigger word matches a plain sentence, at the place it asks for.

        `words` are the sentence's. With `asks` only cues count that also hold in questions.
        """
        for cue in self.by_trigger[trigger]:
            if cue.needs and cue.needs.isdisjoint(words):
                continue
            if (not asks or cue.mark == "?") and self._stands(low, cue):
                return True
        return False

    def is_excluded(self, low: str) -> bool:
        """True when an excluding cue matches a plain sentence, whatever else does."""
        return any(self._stands(low, cue) for cue in self.cues if cue.mark == "-")

    def asks(self, low: str) -> bool:
        """True when a plain sentence opens like a question, with or without a question mark."""
        return self._asking is not None and self._opens_with(low, self._asking)

    @cached_property
    def _asking(self) -> re.Pattern[str] | None:
        return re.compile(self._any(self["asks"])) if self["asks"] else None

    @cached_property
    def _leads(self) -> tuple[str, ...]:
        return tuple(f" {lead}" if self.spaced else lead for lead in self["leads"])

    @cached_property
    def _lead(self) -> re.Pattern[str] | None:
        return re.compile(rf"{self._any(self['leads'])}\W*") if self["leads"] else None

    def _stands(self, low: str, cue: Cue) -> bool:
        pattern = self._compiled(cue.pattern)
        if not cue.place:
            return pattern.search(low) is not None
        if cue.place == "^":
            return self._opens_with(low, pattern)
        return any(self._opens(low[: match.start()]) for match in pattern.finditer(low))

    @lru_cache(maxsize=4096)  # noqa: B019 - languages live as long as the program
    def _compiled(self, pattern: str) -> re.Pattern[str]:
        return re.compile(pattern)

    def _opens_with(self, low: str, pattern: re.Pattern[str]) -> bool:
        return any(pattern.match(low, at) for at in self._openings(low))

    def _opens(self, before: str) -> bool:
        """True when `before` is empty, or ends with a mark or a lead."""
        before = before.rstrip(" \"'")
        return not before or before[-1] in _MARKS or f" {before}".endswith(self._leads)

    @lru_cache(maxsize=8)  # noqa: B019 - languages live as long as the program
    def _openings(self, low: str) -> tuple[int, ...]:
        """Where a sentence opens: at its first word, and after each lead at its beginning."""
        at = len(low) - len(low.lstrip(_MARKS))
        found = [at]
        while self._lead and (match := self._lead.match(low, at)) and match.end() > at:
            found.append(at := match.end())
        return tuple(found)

    def opens(self, key: str) -> re.Pattern[str] | None:
        """Matches a plain text that begins with one of the phrases under a key; None without any."""
        return re.compile(r"\W*" + self._any(self[key])) if self[key] else None

    @cached_property
    def pictures(self) -> re.Pattern[str]:
        """Matches a word for a picture in a plain text."""
        return re.compile(self._any(self["picture"]))

    def _read(self, line: str) -> None:
        if not line or line.startswith("#"):
            return
        entry = _ENTRY.fullmatch(line)
        if entry is None:
            self._lines.append(line)
            return
        if entry[1] not in _KEYS:
            raise ValueError(f"cues/{self.code}.txt: no such key: {entry[1]}")
        self._entries[entry[1]].extend(part.strip() for part in entry[2].split(",") if part.strip())

    def _any(self, phrases: list[str]) -> str:
        joined = "|".join(self._literal(phrase) for phrase in sorted(phrases, key=len, reverse=True))
        if not self.spaced:
            return f"(?:{joined})"
        # No word boundary precedes a currency sign; elsewhere \b is much faster.
        return rf"(?<!\w)(?:{joined})(?!\w)" if "#" in phrases else rf"\b(?:{joined})\b"

    def _literal(self, phrase: str) -> str:
        if not self.spaced:
            return re.escape(phrase.replace(" ", "")).replace(r"\#", _NUMBER)
        return _BETWEEN_WORDS.join(map(_word, phrase.split()))

    def _cue(self, line: str) -> Cue:
        mark = line[0] if line[0] in "?-" else ""
        rest = line[len(mark) :].lstrip()
        place = rest[0] if rest[0] in "^~" else ""
        tokens = _TOKEN.findall(rest[len(place) :])
        if any(token.strip("!()").count("(") or token.count("(") != token.count(")") for token in tokens):
            raise ValueError(f"cues/{self.code}.txt: brackets inside brackets: {line}")
        pattern = ""
        for token in tokens:
            pattern = self._joined(pattern, token)
        rarest = [*self._literals(tokens), frozenset[str](), frozenset[str]()]
        return Cue(mark, place, pattern, rarest[0], frozenset() if self.joined else rarest[1])

    def _joined(self, pattern: str, part: str) -> str:
        between = (_BETWEEN_WORDS if self.spaced else r"\s*") if pattern else ""
        if part == "...":
            return pattern + (_SPACED_GAP if self.spaced else _GAP)
        if pattern.endswith((_GAP, _SPACED_GAP)):
            between = ""
        if part == "$":
            return pattern + r"\W*$"
        if part.startswith("!"):
            refused = "|".join(self._refused(phrase) for phrase in part[2:-1].split("|"))
            return pattern + rf"(?!{between}(?:{refused}))"
        phrases = part[1:-1].split("|") if part[0] == "(" else [part]
        return pattern + between + self._any(phrases)

    def _refused(self, phrase: str) -> str:
        gap = _GAP if phrase.startswith("...") else ""
        words, last, _ = phrase.removeprefix("...").strip().partition(" $")
        return gap + self._any([words]) + (r"\W*$" if last else "")

    def _literals(self, tokens: list[str]) -> list[frozenset[str]]:
        """The alternatives of each token of a cue as words, the least frequent token first."""
        found = []
        for token in tokens:
            if token in ("...", "#", "$") or token.startswith("!"):
                continue
            phrases = token[1:-1].split("|") if token[0] == "(" else [token]
            words = frozenset(self._longest(phrase) for phrase in phrases)
            if not words & {"", "#"}:
                found.append(words)
        common = self["words"]
        return sorted(
            found,
            key=lambda words: sum(
                (_FUNCTION_WORD if word in common else 1.0) / len(word) ** 2 for word in words
            ),
        )

    def _longest(self, phrase: str) -> str:
        parts = phrase.split() if self.spaced else [phrase.replace(" ", "")]
        if self.joined:
            parts = [part.strip("*") for part in parts]
        return max((word for word in parts if "*" not in word), key=len, default="")


def _word(word: str) -> str:
    if word == "#":
        return _NUMBER
    return r"[\w'-]+" if word == "*" else re.escape(word).replace(r"\*", r"[\w'-]*")


def forget_openings() -> None:
    """Clears the cache of where sentences open, which holds texts that were read."""
    Language._openings.cache_clear()


@lru_cache(maxsize=1)
def languages() -> dict[str, Language]:
    """Every language with a table, by its code, English first."""
    folder = files("palimpsest.core.notes").joinpath("cues")
    return {code: Language(code, folder.joinpath(f"{code}.txt").read_text("utf-8")) for code in CODES}


@lru_cache(maxsize=32)
def entries(key: str) -> frozenset[str]:
    """The entries under a key in all tables."""
    return frozenset(entry for language in languages().values() for entry in language[key])


@lru_cache(maxsize=1)
def triggers() -> frozenset[str]:
    """Trigger words of all languages with spaces: a sentence without any of them matches no cue."""
    return frozenset().union(*(each.by_trigger for each in languages().values() if not each.joined))


@lru_cache(maxsize=1)
def _identifying() -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for language in languages().values():
        for word in language.identifying:
            found.setdefault(word, []).append(language.code)
    return {word: tuple(codes) for word, codes in found.items()}


# Share of a text's words that must identify its language; prose has twice as many.
_LEAST_SHARE = 0.15


def languages_of(plain_text: str, words: frozenset[str]) -> tuple[Language, ...]:
    """The language of a text by its script, else by the number of its identifying words.

    Several where they tie (short sentences); none where no table fits.
    """
    every = languages()
    if not plain_text.isascii():
        for language in every.values():
            if language.script and language.script.search(plain_text):
                return (language,)
    identifying = _identifying()
    counts: dict[str, int] = {}
    for word in identifying.keys() & words:
        for code in identifying[word]:
            counts[code] = counts.get(code, 0) + 1
    most = max(counts.values(), default=0)
    if most <= _LEAST_SHARE * len(words):
        return ()
    return tuple(every[code] for code, count in counts.items() if count == most)

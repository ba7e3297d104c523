"""What is known of each language: the tables in `cues/`, one file a language, read once.

The format is explained at the head of `cues/en.txt`. Knows nothing of what the tables are used for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files

CODES = ("en", "de", "fr", "es", "pt", "it", "nl", "pl", "ru", "ja", "zh", "ko")
# Written without spaces between words.
_UNSPACED = frozenset({"zh", "ja"})
# Endings and particles join the words: a cue's word is found anywhere in the text.
_JOINED = frozenset({"zh", "ja", "ko"})
_KEYS = (
    *("script", "words", "common", "leads", "asks", "pin", "assent", "filler", "offer", "request"),
    *("months", "weekdays", "is", "be", "intends", "instead", "picture"),
)
_ENTRY = re.compile(r"([a-z]+): *(.*)")
_TOKEN = re.compile(r"!?\([^)]*\)|\S+")
_BETWEEN_WORDS = r"[\s\"':]+"
# Their words of relation stand behind what they relate to.
_JOINED_BEHIND = frozenset({"ja", "ko"})
# Characters that "..." of a cue may stand for: a clause, not a paragraph.
_GAP = r"[^.!?;。！？]{0,60}"
# Greedy up to a space: a literal behind it lets the matcher skip everything else.
_SPACED_GAP = _GAP + " "
_NUMBER = r"(?:[$€£¥]|usd|eur)?\s?\d[\d.,]*"
# ' and - stay: "don't" and "off-limits" are words.
_PUNCTUATION = str.maketrans(dict.fromkeys('.,;:!?()[]{}"“”„«»*_`…¿¡<>|/=+~#', " "))
# How much more frequent a function word is than another of its length, roughly.
_FUNCTION_WORD = 8.0
# What ends a clause, and what stands around the words that lead in.
_MARKS = ".!?;:,()–—-#>_\n\t \"'。！？，、：；「」（）"
_TYPOGRAPHIC = str.maketrans("’‘＇", "'''")


def plain(text: str) -> str:
    """`text` in lower case with straight apostrophes, without marks of emphasis, as cues are matched."""
    text = text.lower()
    if not text.isascii():
        text = text.translate(_TYPOGRAPHIC)
    return text.replace("*", "").replace("`", "")


def words_in(plain_text: str) -> frozenset[str]:
    """The distinct words of a text that is plain already; text without spaces is one word."""
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
    """Words of which the text has one where the cue matches."""
    needs: frozenset[str]
    """Other words of which it has one then, or nothing."""


class Language:
    """One table. Its patterns are compiled when they are first needed."""

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
    def function_words(self) -> frozenset[str]:
        """Words that betray the language and say little by themselves."""
        return frozenset(self["words"])

    @cached_property
    def betraying(self) -> frozenset[str]:
        """Words by which a text in the language is recognised."""
        return frozenset((*self["words"], *self["common"]))

    @cached_property
    def by_trigger(self) -> dict[str, tuple[Cue, ...]]:
        """The cues that may match where a word stands."""
        found: dict[str, list[Cue]] = {}
        for cue in self.cues:
            for word in cue.triggers if cue.mark != "-" else ():
                found.setdefault(word, []).append(cue)
        return {word: tuple(cues) for word, cues in found.items()}

    @cached_property
    def script(self) -> re.Pattern[str] | None:
        """A character of the script that only this language, or no other before it, has."""
        return re.compile(f"[{''.join(self['script'])}]") if self["script"] else None

    def matches(self, low: str, words: frozenset[str], trigger: str, asks: bool) -> bool:
        """True when a cue of that trigger word stands in a plain sentence, in its place.

        `words` are the sentence's. With `asks` only the cues count that hold in questions too.
        """
        for cue in self.by_trigger[trigger]:
            if cue.needs and cue.needs.isdisjoint(words):
                continue
            if (not asks or cue.mark == "?") and self._stands(low, cue):
                return True
        return False

    def is_excluded(self, low: str) -> bool:
        """True when a plain sentence has what takes it out, whatever else it has."""
        return any(self._stands(low, cue) for cue in self.cues if cue.mark == "-")

    def asks(self, low: str) -> bool:
        """True when a plain sentence opens as questions do, with or without a question mark."""
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
        """True when nothing, a mark or a lead stands right before."""
        before = before.rstrip(" \"'")
        return not before or before[-1] in _MARKS or f" {before}".endswith(self._leads)

    @lru_cache(maxsize=8)  # noqa: B019 - languages live as long as the program
    def _openings(self, low: str) -> tuple[int, ...]:
        """Where a sentence may be said to open: at its first word, and behind each lead before it."""
        at = len(low) - len(low.lstrip(_MARKS))
        found = [at]
        while self._lead and (match := self._lead.match(low, at)) and match.end() > at:
            found.append(at := match.end())
        return tuple(found)

    def opens(self, key: str) -> re.Pattern[str] | None:
        """A plain text that begins with one of the phrases under a key."""
        return re.compile(r"\W*" + self._any(self[key])) if self[key] else None

    @cached_property
    def pictures(self) -> re.Pattern[str]:
        """A word for a picture in a plain text."""
        return re.compile(self._any(self["picture"]))

    @cached_property
    def instead(self) -> re.Pattern[str]:
        """A phrase beside a value that holds no more; the value, as far as it can be one, is its group."""
        phrases, value = self._any(self["instead"]), r"[\"'“«]?([\w./:@-]*\w)"
        if self.code in _JOINED_BEHIND:
            return re.compile(rf"([A-Za-z0-9][A-Za-z0-9./:@_-]*)[^\w\s]?\w?\s*{phrases}")
        return re.compile(rf"{phrases}\s*(?:(?:the|le|la|el|il|den|die|das|der|het|de)\s)?{value}")

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
        # A number may begin with a currency sign, which no word boundary precedes; \b is much faster.
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
        """The words of each token of a cue, one of which must stand there; the least frequent first."""
        found = []
        for token in tokens:
            if token in ("...", "#", "$") or token.startswith("!"):
                continue
            phrases = token[1:-1].split("|") if token[0] == "(" else [token]
            words = frozenset(self._longest(phrase) for phrase in phrases)
            if not words & {"", "#"}:
                found.append(words)
        return sorted(found, key=lambda words: sum(map(self._frequency, words)))

    def _frequency(self, word: str) -> float:
        return (_FUNCTION_WORD if word in self.function_words else 1.0) / len(word) ** 2

    def _longest(self, phrase: str) -> str:
        parts = phrase.split() if self.spaced else [phrase.replace(" ", "")]
        if self.joined:
            parts = [part.strip("*") for part in parts]
        return max((word for word in parts if "*" not in word), key=len, default="")


def _word(word: str) -> str:
    if word == "#":
        return _NUMBER
    return r"[\w'-]+" if word == "*" else re.escape(word).replace(r"\*", r"[\w'-]*")


@lru_cache(maxsize=1)
def languages() -> dict[str, Language]:
    """Every language that has a table, by its code, English first."""
    folder = files("app.core.notes").joinpath("cues")
    return {code: Language(code, folder.joinpath(f"{code}.txt").read_text("utf-8")) for code in CODES}


@lru_cache(maxsize=1)
def triggers() -> frozenset[str]:
    """The words of all tables that divide words by spaces: a sentence without one of them has no cue."""
    return frozenset().union(*(each.by_trigger for each in languages().values() if not each.joined))


@lru_cache(maxsize=1)
def _betraying() -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for language in languages().values():
        for word in language.betraying:
            found.setdefault(word, []).append(language.code)
    return {word: tuple(codes) for word, codes in found.items()}


# Share of a text's words that must betray its language; prose has twice as many.
_LEAST_SHARE = 0.15


def languages_of(plain_text: str, words: frozenset[str]) -> tuple[Language, ...]:
    """The language of a text by its script, else by most of its function words.

    Several where they are even (short sentences); none where no table fits.
    """
    every = languages()
    if not plain_text.isascii():
        for language in every.values():
            if language.script and language.script.search(plain_text):
                return (language,)
    betraying = _betraying()
    counts: dict[str, int] = {}
    for word in betraying.keys() & words:
        for code in betraying[word]:
            counts[code] = counts.get(code, 0) + 1
    most = max(counts.values(), default=0)
    if most <= _LEAST_SHARE * len(words):
        return ()
    return tuple(every[code] for code, count in counts.items() if count == most)

"""How well questions find what was said: evidence found, and characters read for it, with each idea left out.

    python -m benchmarks recall_quality [file.json ...]

The files are chats with questions, as in `benchmarks/recall/`. A question counts as answered at k when one
of the first k hits shows its evidence: the whole message, or eight of its words in a row. "Whole": the same
with nothing but whole messages counted; "without names": the same chats where no message says who speaks.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from palimpsest.core.recall.quotes import Hit, hits_of
from palimpsest.core.recall.rank import APART, FOUND, Weights, ranked
from palimpsest.core.recall.talk import query_of, speakers_in
from palimpsest.core.recall.words import CorpusStatistics, SearchEntry, Words

FOLDER = Path(__file__).parent / "recall"
DEPTHS = (1, 5, 10)
_LABEL = re.compile(r"^(\s*(?:[\[(][^\])\n]{3,60}[\])]\s*)?)([^\W\d_][\w .'’-]{0,30}):\s+")
_WITHOUT: dict[str, Weights] = {
    "all": FOUND,
    "no coverage": replace(FOUND, coverage=0.0),
    "no neighbours in the rank": replace(FOUND, before=0.0, after=0.0, earlier=0.0, further=0.0),
    "nothing more of who goes on": replace(FOUND, earlier=FOUND.further),
    "no questions": replace(FOUND, answer=0.0, asking=0.0),
    "no speakers": replace(FOUND, speaker=0.0),
    "short as good as long": replace(FOUND, brief=0.0),
    "no related words": replace(FOUND, related=0.0),
    "no times, numbers and names": replace(FOUND, specifics=0.0),
    "plain BM25": replace(
        APART, coverage=0.0, related=0.0, asking=0.0, speaker=0.0, specifics=0.0, length=0.75
    ),
}


class Remembered(Words):
    """Words that remember texts as well: the same ones are searched a thousand times."""

    def __init__(self) -> None:
        super().__init__()
        self._texts: dict[str, list[str]] = {}

    def of(self, text: str, beginnings: frozenset[str] | None = None) -> list[str]:
        """All words, whatever they begin with: those that are not looked for count for their number only."""
        del beginnings
        if text not in self._texts:
            self._texts[text] = super().of(text)
        return self._texts[text]


class Chat:
    """One chat as it is searched."""

    def __init__(self, path: Path, *, is_labelled: bool = True) -> None:
        told = json.loads(path.read_text())
        self.name: str = told["id"]
        self.questions: list[dict[str, Any]] = told["qa"]
        self.words = Remembered()
        self.entries = [
            SearchEntry(
                f"dcm_{place:032x}", "message", message["role"], place, float(place), message["content"]
            )
            for place, message in enumerate(told["messages"])
        ]
        if not is_labelled:
            named = frozenset(speakers_in(self.entries).values())
            self.entries = [replace(each, text=_without_label(each.text, named)) for each in self.entries]
        said = [self.words.of(entry.text) for entry in self.entries]
        holding = Counter(word for words in said for word in set(words))
        self.holdings = CorpusStatistics(len(said), sum(map(len, said)) / len(said), holding)
        self.beside = {entry.place: entry for entry in self.entries}

    def hits(self, question: str, weights: Weights) -> list[Hit]:
        """What is found for a question."""
        query = query_of(question, self.words)
        found = ranked(query, self.entries, self.holdings, self.words, weights)
        return hits_of(found, self.beside, query, self.words, limit=max(DEPTHS))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table: a row per ranking."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks recall_quality")
    parser.add_argument("files", nargs="*", type=Path)
    chosen = parser.parse_args(arguments).files or sorted(FOLDER.glob("*.json"))
    chats = [Chat(path) for path in chosen]
    print(f"| ranking | {' | '.join(f'{chat.name} @1 / @5 / @10 (characters)' for chat in chats)} |")
    print("|---" * (len(chats) + 1) + "|")
    for name, weights in _WITHOUT.items():
        print(f"| {name} | {' | '.join(_figures(chat, weights, is_shown) for chat in chats)} |", flush=True)
    print(f"| all, whole | {' | '.join(_figures(chat, FOUND, _is_whole) for chat in chats)} |", flush=True)
    nameless = [Chat(path, is_labelled=False) for path in chosen]
    figures = [_figures(chat, FOUND, is_shown) for chat in nameless]
    print(f"| all, without names | {' | '.join(figures)} |", flush=True)


def _figures(chat: Chat, weights: Weights, is_found: Callable[[str, str], bool]) -> str:
    return cell([answered(chat, q, chat.hits(q["question"], weights), is_found) for q in chat.questions])


@dataclass(frozen=True, slots=True)
class Answered:
    """Whether the evidence is shown at each depth, and the characters of all hits."""

    at: tuple[bool, ...]
    characters: int


def answered(
    chat: Chat, question: dict[str, Any], hits: Sequence[Hit], is_found: Callable[[str, str], bool]
) -> Answered:
    """What the hits for a question show of its evidence."""
    texts = [" ".join(quotes_of(hit)) for hit in hits]
    reads = [" | ".join(map(_norm, texts[:depth])) for depth in DEPTHS]
    evidence = [chat.entries[place].text for place in question["evidence"]]
    return Answered(
        tuple(any(is_found(text, read) for text in evidence) for read in reads), sum(map(len, texts))
    )


def cell(found: Sequence[Answered]) -> str:
    """The shares answered at each depth, and the mean characters."""
    shares = " / ".join(
        f"{sum(at) / len(found):.2f}" for at in zip(*(each.at for each in found), strict=True)
    )
    return f"{shares} ({sum(each.characters for each in found) / len(found):.0f})"


def quotes_of(hit: Hit) -> list[str]:
    """The texts a hit shows, with what an answer says beside them: id, kind, time, roles."""
    beside = [said for quote in (*hit.before, *hit.after) for said in (quote.entry.role, quote.text)]
    entry = hit.quote.entry
    return [entry.id, "message", entry.role, "2026-01-01T00:00:00Z", hit.quote.text, *beside]


def _without_label(text: str, named: frozenset[str]) -> str:
    return _LABEL.sub(lambda found: found[1] if found[2] in named else found[0], text, count=1)


def _norm(text: str) -> str:
    return re.sub(r"[^\w]+", " ", text.lower()).strip()


def _is_whole(evidence: str, read: str) -> bool:
    return _norm(evidence) in read


def is_shown(evidence: str, read: str) -> bool:
    """True when all of the evidence is read, or eight of its words in a row."""
    wanted = _norm(evidence)
    words = wanted.split()
    return _is_whole(evidence, read) or any(
        " ".join(words[place : place + 8]) in read for place in range(len(words) - 7) if len(words) > 8
    )


if __name__ == "__main__":
    main()
